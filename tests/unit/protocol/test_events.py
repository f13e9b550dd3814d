"""Values of `__ebbline_events`."""

import json
from typing import Any

import pytest

from backend.protocol import events
from backend.protocol.errors import DecodeError, EncodeError

WHERE: dict[str, Any] = {"broker": 2, "at_ms": 1_700_000_000_000, "topic": "ünï", "topic_id": bytes(16), "partition": 3}
ALL: list[events.EbblineEvent] = [
    events.PhaseEvent(**WHERE, phase="FETCHING", since_ms=5),
    events.PhaseEvent(**WHERE, phase="BUILDING", since_ms=5, target_offset=9, evidence={"start": 3}, attempts=2),
    events.AuxStateEvent(**WHERE, step="epochs", outcome="failed", offset=7, error="gone"),
    events.RlmmReadyEvent(**WHERE, metadata_partition=13, ready=False, next_offset=44),
    events.CopyEvent(**WHERE, segment_id=bytes(range(16)), start=0, end=9, bytes=100, outcome="finished"),
    events.DeleteEvent(**WHERE, segment_id=bytes(range(16)), outcome="started"),
    events.RemoteReadEvent(**WHERE, offset=7, failures=30, error="HTTP error: 403 Forbidden"),
    events.LeaderEvent(**WHERE, leader=-1, leader_epoch=4),
]


@pytest.mark.parametrize("event", ALL)
def test_an_event_comes_back_as_it_was_sent(event: events.EbblineEvent) -> None:
    value = events.encode(event)
    assert events.decode(value) == event
    assert events.decode(memoryview(value)) == event
    row = json.loads(value)
    assert row["v"] == 1
    assert row["type"] == event.type
    assert row["topic_id"] == "A" * 22
    assert events.key(event) == "ünï-3".encode()


def test_an_event_is_made_by_the_name_of_its_type() -> None:
    assert events.make("leader", **WHERE, leader=-1, leader_epoch=4) == ALL[-1]
    with pytest.raises(EncodeError, match="unknown"):
        events.make("nonsense", **WHERE)
    with pytest.raises(EncodeError, match="leader"):
        events.make("leader", **WHERE, leader=1, epoch=4)


def test_members_of_a_later_format_are_ignored_and_missing_ones_have_defaults() -> None:
    row = json.loads(events.encode(ALL[0]))
    del row["attempts"]
    assert events.decode(json.dumps({**row, "colour": "red"}).encode()) == ALL[0]


def _changed(**members: Any) -> bytes:
    return json.dumps({**json.loads(events.encode(ALL[-1])), **members}).encode()


def _phase(**members: Any) -> bytes:
    return json.dumps({**json.loads(events.encode(ALL[1])), **members}).encode()


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"{",
        b"\xff",
        b"[]",
        b"[" * 60_000,
        b"{}",
        bytes(events.VALUE_BYTES_MAX + 1),
        _changed(v=2),
        _changed(type="nonsense"),
        _changed(type=["leader"]),
        _changed(broker="2"),
        _changed(at_ms=None),
        _changed(partition=True),
        _changed(topic=5),
        _changed(topic_id="short"),
        _changed(topic_id=5),
        _changed(leader_epoch=1.5),
        _changed(leader_epoch=10**30),
        _changed(leader_epoch=1 << 31),
        _changed(broker=10**30),
        _changed(broker=-(1 << 31) - 1),
        _changed(at_ms=1 << 63),
        _changed(topic="a\0b"),
        _changed(topic="\ud800"),
        _phase(evidence={"bytes": 10**30}),
        _phase(evidence={"a": [{"b": "\0"}]}),
        _phase(evidence={"\udfff": 1}),
        _phase(evidence={"a": float("inf")}),
        _phase(evidence={"a": json.loads("[" * 20 + "]" * 20)}),
        _phase(since_ms=1 << 63),
        b'{"v":1,"type":"leader"}',
    ],
)
def test_anything_else_is_refused(value: bytes | None) -> None:
    with pytest.raises(DecodeError):
        events.decode(value)


def test_a_long_error_is_shortened_and_evidence_must_be_json_of_bounded_size() -> None:
    long = events.AuxStateEvent(**WHERE, step="s", outcome="failed", error="e" * 10_000)
    result = events.decode(events.encode(long))
    assert isinstance(result, events.AuxStateEvent)
    assert result.error == "e" * events.ERROR_CHARS_MAX
    for evidence in ({"x": b"bytes"}, {"x": float("nan")}, {"x": "y" * events.VALUE_BYTES_MAX}):
        with pytest.raises(EncodeError):
            events.encode(events.PhaseEvent(**WHERE, phase="p", since_ms=0, evidence=evidence))


def test_the_largest_integers_are_events_and_an_error_of_any_bytes_can_be_told() -> None:
    event = events.decode(_changed(at_ms=(1 << 63) - 1, leader=(1 << 31) - 1))
    assert (event.at_ms, getattr(event, "leader", None)) == ((1 << 63) - 1, (1 << 31) - 1)
    failed = events.AuxStateEvent(**WHERE, step="epochs", outcome="failed", error="no file \udcff\0")
    assert getattr(events.decode(events.encode(failed)), "error", None) == "no file ??"
