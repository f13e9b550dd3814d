"""The rule about deletions from the remote tier that were begun and do not end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from backend.control.findings.finding_context import (
    NAMED_MAX,
    REMOTE_STORE,
    WARNING,
    Candidate,
    FindingContext,
    count,
    first_names,
    ids,
    name_of,
)
from backend.control.findings.holds import default_for_ms
from backend.control.formatting import in_bytes, in_time
from backend.store.queries.partitions import SegmentRow
from backend.tiering.segment_state import DELETE_OVERDUE_MS, SegmentState

# A deletion takes seconds: others that are this old when one is overdue are refused with it.
LATE_MS: Final = 20_000
FEW_FOR_MS: Final = default_for_ms("delete-lag", "of one broker or partition")
ACTION: Final = "Check that the brokers may delete in the object store, and whether it keeps versions."


def late_deletes(context: FindingContext) -> Iterable[Candidate]:
    """One finding for the store where deletions of several brokers do not end, or for a broker with several partitions.

    Leftovers of a failed copy are none of them: they go when retention passes them.
    """
    if context.ledger_ms is None:
        return
    late = [s for s in context.open_segments if _age_ms(context, s) > min(LATE_MS, _overdue_for_ms(context, s))]
    if not any(_age_ms(context, segment) > _overdue_for_ms(context, segment) for segment in late):
        return
    brokers = {segment.broker_id for segment in late}
    if len(brokers) >= 2:
        yield _overdue(context, late, {"object": REMOTE_STORE}, f"Deletions from the {REMOTE_STORE} do not end")
        return
    names = {name_of(segment) for segment in late}
    about: dict[str, Any] = {"broker_id": late[0].broker_id}
    if len(names) >= 2:
        about["object"] = f"broker {late[0].broker_id}"
        about["for_ms"] = _for_ms(context, None)
        yield _overdue(context, late, about, f"Deletions of broker {late[0].broker_id} do not end")
        return
    about |= {"object": name_of(late[0]), "topic": late[0].topic, "partition": late[0].partition}
    about["for_ms"] = _for_ms(context, late[0].topic)
    yield _overdue(context, late, about, f"Deletion overdue: {name_of(late[0])}")


def _for_ms(context: FindingContext, topic: str | None) -> int:
    return FEW_FOR_MS if context.set_for_ms("delete-lag", topic) is None else 0


def _overdue_for_ms(context: FindingContext, segment: SegmentRow) -> int:
    return context.for_ms("delete-lag", DELETE_OVERDUE_MS, segment.topic)


def _age_ms(context: FindingContext, segment: SegmentRow) -> int:
    """Time since the deletion began; -1 where none is under way."""
    begun = segment.state is SegmentState.DELETE_SEGMENT_STARTED and not segment.copy_failed
    if not begun or segment.delete_started_ms is None or context.ledger_ms is None:
        return -1
    return context.ledger_ms - segment.delete_started_ms


def _overdue(context: FindingContext, late: Sequence[SegmentRow], about: dict[str, Any], sentence: str) -> Candidate:
    names, brokers = sorted({name_of(segment) for segment in late}), sorted({segment.broker_id for segment in late})
    age_ms = max(_age_ms(context, segment) for segment in late)
    removed = in_bytes(sum(segment.segment_size_bytes for segment in late))
    of = "" if len(names) == 1 else f" of {count(len(names), 'partition')} of broker {ids(brokers)}"
    which = "" if len(names) == 1 else f": {first_names(names)}"
    return Candidate(
        slug="delete-lag",
        severity=WARNING,
        sentence=sentence,
        why=f"The removal of {removed}{of} began {in_time(age_ms)} ago and has not ended{which}.",
        action=ACTION,
        facts={
            "segments": [segment.segment_id for segment in late[:NAMED_MAX]],
            "age_ms": age_ms,
            "count": len(names),
            "first": names[:NAMED_MAX],
            "brokers": brokers,
        },
        **about,
    )
