"""The rule about copies that fail by brokers' meters, where the ledger is not read: no partition is known then."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from backend.control.findings.copy_failures import failing_brokers
from backend.control.findings.finding_context import (
    CRITICAL,
    REMOTE_STORE,
    WARNING,
    Candidate,
    FindingContext,
    count,
    ids,
)
from backend.control.findings.remote_read_growth import ReadGrowth
from backend.control.formatting import in_time

# A pipeline that was started again reads its events within seconds.
LEDGER_AGE_MS_MAX: Final = 30_000
# A copy that failed once is tried again: meters are read every 15 s.
READINGS_MIN: Final = 2


@dataclass(frozen=True, slots=True)
class _MeteredFailures:
    broker_id: int
    errors: int
    since_ms: int
    others_finish: bool


def metered_failures(context: FindingContext) -> Iterable[Candidate]:
    """Copies of a broker, or of all, fail in one reading of the meters after the other."""
    if context.ledger_ms is not None and context.at_ms - context.ledger_ms <= LEDGER_AGE_MS_MAX:
        return
    by_events = {broker.broker_id for broker in failing_brokers(context)}
    failing = [failures for failures in _metered(context) if failures.broker_id not in by_events]
    stopped = [failures for failures in failing if not failures.others_finish]
    if len(stopped) >= 2:
        yield _candidate(context, stopped, REMOTE_STORE)
    for failures in failing:
        if failures.others_finish or len(stopped) < 2:
            yield _candidate(context, [failures], f"broker {failures.broker_id}")


def _metered(context: FindingContext) -> list[_MeteredFailures]:
    readings: dict[int, list[ReadGrowth]] = defaultdict(list)
    for growth in context.read_growth:
        if growth.topic is None:
            readings[growth.broker_id].append(growth)
    result = []
    for broker_id, of_broker in sorted(readings.items()):
        failed = [reading for reading in of_broker if reading.copy_errors]
        if len(failed) < READINGS_MIN or any(r.copied_bytes and r.at_ms > failed[-1].at_ms for r in of_broker):
            continue
        others = any(reading.copied_bytes and reading.at_ms > failed[0].at_ms for reading in of_broker)
        errors = round(sum(reading.copy_errors for reading in failed))
        result.append(_MeteredFailures(broker_id, errors, failed[0].since_ms, others))
    return result


def _candidate(context: FindingContext, failing: Sequence[_MeteredFailures], object_: str) -> Candidate:
    where = f"broker {ids(failures.broker_id for failures in failing)}"
    others = failing[0].others_finish
    errors, since_ms = sum(failures.errors for failures in failing), min(failures.since_ms for failures in failing)
    return Candidate(
        slug="copy-failing",
        object=object_,
        severity=WARNING if others else CRITICAL,
        sentence="Copies to the remote storage fail" if object_ == REMOTE_STORE else f"Copies fail on {where}",
        why=f"{count(errors, 'copy', 'copies')} failed on {where} in the last {in_time(context.at_ms - since_ms)} by"
        f" its meters{'; others finish' if others else ', and none has finished since'}. The pipeline does not run, so"
        " partitions are not known. The reason stands in the broker's log only.",
        action=f"Check the object store's credentials, room and reach from {where}. Local data grows until copies work"
        " again; nothing is lost while the local disks last.",
        facts={"failures": errors, "brokers": [failures.broker_id for failures in failing], "source": "meters"},
        broker_id=None if object_ == REMOTE_STORE else failing[0].broker_id,
    )
