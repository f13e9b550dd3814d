"""The rules about reads of the remote tier that do not come: the store refuses them, or is slower than brokers wait."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from backend.control.findings.finding_context import (
    CRITICAL,
    NAMED_MAX,
    REMOTE_STORE,
    WARNING,
    Candidate,
    FindingContext,
    count,
    ids,
)
from backend.control.findings.read_partitions import NOT_TOLD, names, read_partitions
from backend.control.findings.remote_read_growth import ReadGrowth
from backend.control.findings.still_offsets import PartitionKey
from backend.control.formatting import grouped, in_time
from backend.store.queries.findings import FailedRead

# Two readings 15 s apart, and the time of one: a consumer that still fails does so in each.
FAILS_FOR_MS: Final = 35_000
# Some reads fail and others are served: for longer than one reading.
REPEATED_MS: Final = 20_000
# Of the requests of `REPEATED_MS`: the last of them are still waited for.
EXPIRED_SHARE: Final = 0.9
# A consumer whose reads fail tries again within a second: after a pause it is another failure.
PAUSE_MS: Final = 20_000
ERROR_CHARS_MAX: Final = 1_000
WAIT: Final = "remote.fetch.max.wait.ms"
# Kafka's default.
WAIT_MS_DEFAULT: Final = 500
# Below the 30 s of clients' request.timeout.ms.
WAIT_MS_MAX: Final = 20_000


@dataclass(frozen=True, slots=True)
class FailingReads:
    """Reads of a topic that failed on a broker; `topic` None: its metrics tell no topics. `served`: some worked.
    `newest_ms`: when the newest reading with errors began.
    """

    broker_id: int
    topic: str | None
    errors: int
    since_ms: int
    served: bool
    newest_ms: int


def failing_reads(context: FindingContext) -> Iterable[Candidate]:
    """Reads of the remote tier fail: of a topic, for every consumer or for some."""
    by_broker: dict[int, list[FailingReads]] = defaultdict(list)
    for reads in _failing(context):
        by_broker[reads.broker_id].append(reads)
    refused = [broker_id for broker_id, rows in by_broker.items() if not any(row.served for row in rows)]
    if len(refused) >= 2:
        yield _failing_candidate(context, [row for broker_id in refused for row in by_broker[broker_id]], REMOTE_STORE)
    for broker_id, rows in sorted(by_broker.items()):
        if len(refused) < 2 or broker_id not in refused:
            yield _failing_candidate(context, rows, f"broker {broker_id}")


def _failing(context: FindingContext) -> list[FailingReads]:
    """Topics whose newest reads failed; a broker as a whole where it tells no topics."""
    rows: dict[tuple[int, str | None], list[ReadGrowth]] = defaultdict(list)
    for growth in context.read_growth:
        rows[growth.broker_id, growth.topic].append(growth)
    with_topics = {broker_id for broker_id, topic in rows if topic is not None}
    result = []
    for (broker_id, topic), readings in sorted(rows.items(), key=lambda item: (item[0][0], item[0][1] or "")):
        failed = _failing_now(readings)
        if (topic is None and broker_id in with_topics) or not failed:
            continue
        if context.at_ms - failed[-1].at_ms > FAILS_FOR_MS:
            continue  # nobody reads any more, or it works
        served = any(reading.fetched_bytes for reading in failed)
        errors = round(sum(reading.errors for reading in failed))
        if failed[-1].at_ms - failed[0].since_ms >= REPEATED_MS or (
            errors >= context.thresholds.read_errors and not served
        ):
            result.append(FailingReads(broker_id, topic, errors, failed[0].since_ms, served, failed[-1].since_ms))
    return result


def _failing_now(readings: Sequence[ReadGrowth]) -> list[ReadGrowth]:
    """Readings with errors since reads last worked, and since a pause in which nobody tried; oldest first."""
    failed: list[ReadGrowth] = []
    for reading in readings:
        if reading.errors:
            if failed and reading.since_ms - failed[-1].at_ms > PAUSE_MS:
                failed = []
            failed.append(reading)
        elif reading.fetched_bytes:
            failed = []
    return failed


def _failing_candidate(context: FindingContext, failing: Sequence[FailingReads], object_: str) -> Candidate:
    brokers = sorted({reads.broker_id for reads in failing})
    topics = sorted({reads.topic for reads in failing if reads.topic is not None})
    served = any(reads.served for reads in failing)
    reports = [read for read in context.failed_reads if read.broker_id in brokers and _is_of(read, topics)]
    partitions = read_partitions(context, brokers, topics, reports)
    single = partitions[0] if len(partitions) == 1 and len(topics) <= 1 and object_ != REMOTE_STORE else None
    errors, since_ms = sum(reads.errors for reads in failing), min(reads.since_ms for reads in failing)
    where = f"broker {ids(brokers)}"
    of = f" of {topics[0]}" if len(topics) == 1 else f" of {count(len(topics), 'topic')}" if topics else ""
    why = f"{count(errors, 'read')}{of} failed on {where} in the last {in_time(context.at_ms - since_ms)}"
    why += "; others of the same topics work." if served else ", and none was answered with records."
    sentence = f"Reads from the remote tier fail on {where}"
    if object_ == REMOTE_STORE:
        sentence = "Reads from the remote storage fail"
    elif single is not None:
        sentence = f"Reads of {names([single])} from the remote tier fail on {where}"
    return Candidate(
        slug="remote-read-failing",
        object=object_ if single is None else names([single]),
        severity=WARNING if served else CRITICAL,
        sentence=sentence,
        why=why + _reason(reports, partitions),
        action=_remedy(where, single),
        facts={
            "errors": errors,
            "since_ms": since_ms,
            "brokers": brokers,
            "topics": topics[:NAMED_MAX],
            "read": [f"{topic}-{number}" for topic, number in partitions[:NAMED_MAX]],
            "partitions": [
                {"partition": f"{read.topic}-{read.partition}", "offset": read.offset, "error": read.error}
                for read in reports[:NAMED_MAX]
            ],
            "error": reports[0].error if reports else None,
        },
        topic=topics[0] if len(topics) == 1 else None if single is None else single[0],
        partition=None if single is None else single[1],
        broker_id=None if object_ == REMOTE_STORE else brokers[0],
        evidence_ms=max(reads.newest_ms for reads in failing),
    )


def _remedy(where: str, single: PartitionKey | None) -> str:
    """Reads of one partition that fail are an object's as a rule, those of all the store's."""
    back = "put them back from the store's versions or a backup"
    if single is not None:
        return (
            f"See which objects are missing (ebbline remote verify) and {back}; if none is, look whether the store"
            f" answers {where}. Consumers go on by themselves once reads work; lower no retention meanwhile."
        )
    return (
        f"Check the object store's credentials and its reach from {where}; see which objects are missing (ebbline"
        f" remote verify) and {back}. Consumers go on by themselves once reads work; lower no retention meanwhile."
    )


def _is_of(read: FailedRead, topics: Sequence[str]) -> bool:
    return not topics or read.topic in topics


def _reason(reports: Sequence[FailedRead], partitions: Sequence[PartitionKey]) -> str:
    if not reports:
        places = f"Read there: {names(partitions)}." if partitions else NOT_TOLD
        return (
            f" {places} Whether an object of a segment is missing or the store refuses stands in the broker's log only."
        )
    read = reports[0]
    error = read.error or "not given"
    shortened = error if len(error) <= ERROR_CHARS_MAX else f"{error[:ERROR_CHARS_MAX]}…"
    return f" Segment of {read.topic}-{read.partition} at offset {grouped(read.offset)}: {shortened}"


def slow_reads(context: FindingContext) -> Iterable[Candidate]:
    """Fetches expire before the store has answered: no consumer gets a record, or an error."""
    by_broker: dict[int, list[ReadGrowth]] = defaultdict(list)
    for growth in context.read_growth:
        if growth.topic is None:
            by_broker[growth.broker_id].append(growth)
    expired_min = context.thresholds.reads_expired
    newest = {broker_id: _newest(readings) for broker_id, readings in by_broker.items()}
    slow = {id_: readings for id_, readings in newest.items() if _is_slow(readings, expired_min=expired_min)}
    if len(slow) >= 2:
        yield _slow_candidate(context, slow, REMOTE_STORE)
        return
    for broker_id, readings in slow.items():
        yield _slow_candidate(context, {broker_id: readings}, f"broker {broker_id}")


def _newest(readings: Sequence[ReadGrowth]) -> list[ReadGrowth]:
    """The newest readings that cover `REPEATED_MS`, at least two; oldest first. Empty: so long nobody has looked."""
    for first in range(len(readings) - 2, -1, -1):
        if readings[-1].at_ms - readings[first].since_ms >= REPEATED_MS:
            return list(readings[first:])
    return []


def _is_slow(readings: Sequence[ReadGrowth], *, expired_min: float) -> bool:
    """Whether all that was asked for expired, in the older half of the readings and in the newer one.

    A read that ends after its fetch expired counts its bytes all the same. Requests of one reading may expire in the
    next: of 5 s of one consumer that is one in ten, so the readings are judged together.
    """
    half = len(readings) // 2
    expired = [sum(reading.expired for reading in readings[:half]), sum(reading.expired for reading in readings[half:])]
    if not all(expired) or sum(expired) < expired_min or any(reading.errors for reading in readings):
        return False
    requests = sum(reading.requests for reading in readings)
    served_bytes = sum(reading.fetched_bytes for reading in readings)
    return not served_bytes or sum(expired) >= EXPIRED_SHARE * requests > 0


def _slow_candidate(context: FindingContext, slow: dict[int, list[ReadGrowth]], object_: str) -> Candidate:
    brokers = sorted(slow)
    waits_ms = sorted({context.remote_wait_ms.get(broker_id, WAIT_MS_DEFAULT) for broker_id in brokers})
    expired = round(sum(reading.expired for readings in slow.values() for reading in readings))
    since_ms = min(readings[0].since_ms for readings in slow.values())
    where = f"broker {ids(brokers)}"
    wait = ", ".join(f"{wait_ms} ms" for wait_ms in waits_ms)
    since = in_time(context.at_ms - since_ms)
    topics = {row.topic for row in context.read_growth if row.broker_id in slow and row.topic and row.requests}
    partitions = read_partitions(context, brokers, topics)
    single = partitions[0] if len(partitions) == 1 and object_ != REMOTE_STORE else None
    sentence = f"Remote reads on {where} take longer than {WAIT}"
    if object_ == REMOTE_STORE:
        sentence = f"Reads from the remote storage take longer than {WAIT}"
    elif single is not None:
        sentence = f"Remote reads of {names([single])} on {where} take longer than {WAIT}"
    places = f"Read there: {names(partitions)}." if partitions else NOT_TOLD
    return Candidate(
        slug="remote-read-slow",
        object=object_ if single is None else names([single]),
        severity=CRITICAL,  # nobody gets a record
        sentence=sentence,
        why=f"{count(expired, 'fetch', 'fetches')} expired on {where} in the last {since} and no record was read: the"
        f" store needs more than {wait} ({WAIT}). Consumers stand still without an error. {places}",
        action=_patience(waits_ms[-1]),
        facts={
            "expired": expired,
            "brokers": brokers,
            "since_ms": since_ms,
            "setting": WAIT,
            "wait_ms": waits_ms[0] if len(waits_ms) == 1 else waits_ms,
            "read": [f"{topic}-{number}" for topic, number in partitions[:NAMED_MAX]],
        },
        topic=None if single is None else single[0],
        partition=None if single is None else single[1],
        broker_id=None if object_ == REMOTE_STORE else brokers[0],
        evidence_ms=max(readings[-1].since_ms for readings in slow.values()),
    )


def _patience(wait_ms: int) -> str:
    if wait_ms >= WAIT_MS_MAX:
        return f"Look why the store is slow; {WAIT} is as long as clients wait for an answer already."
    more_ms = min(WAIT_MS_MAX, 10 * wait_ms)
    return (
        f"Raise {WAIT} above the time of a read (ebbline plan brokers {WAIT}={more_ms}), or look why the store is slow."
    )
