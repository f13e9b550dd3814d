"""Values of `__ebbline_events`: state changes that a broker's parts report, for the control plane's observer.

A value is one JSON object in UTF-8. All have `v` (format, 1), `type`, `broker`, `at_ms`, `topic`, `topic_id` (Kafka's
text of the uuid) and `partition`; each type adds the fields of its class below under their own names. The record's key
is `<topic>-<partition>`, so that a partition's events stay in order.

Any client may write into the topic: what :func:`decode` gives fits the columns of a database.
"""

import builtins
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import isfinite
from typing import Any, ClassVar, Final, get_args

from backend.protocol.errors import DecodeError, EncodeError
from backend.protocol.ids import uuid_bytes, uuid_text

VERSION: Final = 1
# Far below the 1 MiB a record may have: an event is a few hundred bytes, and an error text may add this much.
ERROR_CHARS_MAX: Final = 2048
VALUE_BYTES_MAX: Final = 64 << 10
# Of evidence: an object of values and lists of them; what is deeper is no evidence of ours.
EVIDENCE_DEPTH_MAX: Final = 8
_INT64: Final = range(-(1 << 63), 1 << 63)
_INT32: Final = range(-(1 << 31), 1 << 31)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Event:
    """The fields of every event: broker, time and partition."""

    type: ClassVar[str]
    broker: int
    at_ms: int
    topic: str
    topic_id: bytes
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseEvent(_Event):
    """A replica entered another phase of following its leader (KIP-405, KIP-1023)."""

    type = "phase"
    phase: str
    since_ms: int
    target_offset: int | None = None
    evidence: Mapping[str, Any] | None = None  # what the decision rested on, JSON values
    attempts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AuxStateEvent(_Event):
    """A step of building a follower's auxiliary state from the remote tier."""

    type = "aux_state"
    step: str
    outcome: str
    offset: int | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RlmmReadyEvent(_Event):
    """The broker has read all metadata of the partition (or is reading it again)."""

    type = "rlmm_ready"
    metadata_partition: int
    ready: bool = True
    next_offset: int | None = None  # of the metadata partition


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyEvent(_Event):
    """A copy of a segment started, finished or failed. `start` and `end` are Kafka's inclusive offsets."""

    type = "copy"
    segment_id: builtins.bytes
    start: int
    end: int
    bytes: int
    outcome: str
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteEvent(_Event):
    """A deletion of a remote segment started, finished or failed."""

    type = "delete"
    # `bytes` is a field here, and since Python 3.14 an annotation is evaluated when the class is complete.
    segment_id: builtins.bytes
    outcome: str
    start: int | None = None
    end: int | None = None
    bytes: int | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteReadEvent(_Event):
    """A consumer's read of the remote tier failed; `failures` counts those since the last event, this one included."""

    type = "remote_read"
    offset: int
    failures: int = 1
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderEvent(_Event):
    """The broker learned of a leader; -1 is none."""

    type = "leader"
    leader: int
    leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UncleanRecoveryEvent(_Event):
    """The controller elected the best log after every replica in sync had stopped uncleanly (KIP-966).

    `complete`: at least `min.insync.replicas` of them were compared, so nothing acknowledged is missing.
    """

    type = "unclean_recovery"
    leader: int
    complete: bool


EbblineEvent = (
    PhaseEvent
    | AuxStateEvent
    | RlmmReadyEvent
    | CopyEvent
    | DeleteEvent
    | RemoteReadEvent
    | LeaderEvent
    | UncleanRecoveryEvent
)

_EVIDENCE: Final = Mapping[str, Any] | None
_CLASSES: Final[Mapping[str, Any]] = {cls.type: cls for cls in get_args(EbblineEvent)}
_UUIDS: Final = frozenset({"topic_id", "segment_id"})
_INT32_FIELDS: Final = frozenset(
    {"broker", "partition", "metadata_partition", "leader", "leader_epoch", "attempts", "failures"}
)


def make(
    type: str, *, broker: int, at_ms: int, topic: str, topic_id: bytes, partition: int, **detail: Any
) -> EbblineEvent:
    """An event of a type by name; raises EncodeError for an unknown type or details that the type does not have."""
    cls = _CLASSES.get(type)
    if cls is None:
        raise EncodeError(f"event type {type!r} is unknown; use one of {', '.join(_CLASSES)}")
    try:
        made: EbblineEvent = cls(
            broker=broker, at_ms=at_ms, topic=topic, topic_id=topic_id, partition=partition, **detail
        )
    except TypeError as error:
        raise EncodeError(f"event type {type!r} does not fit: {error}") from error
    return made


def key(event: EbblineEvent) -> bytes:
    """The key of the event's record."""
    return f"{event.topic}-{event.partition}".encode()


def encode(event: EbblineEvent) -> bytes:
    """The value of the event's record; raises EncodeError for evidence that is not JSON or too long."""
    row: dict[str, Any] = {"v": VERSION, "type": event.type}
    for field in fields(event):
        value = getattr(event, field.name)
        if field.name in _UUIDS:
            value = uuid_text(value)
        elif field.name == "error" and value is not None:
            value = _storable(value[:ERROR_CHARS_MAX])
        row[field.name] = value
    try:
        data = json.dumps(row, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise EncodeError(f"{event.type} event of {event.topic}-{event.partition} is not JSON: {error}") from error
    if len(data) > VALUE_BYTES_MAX:
        where = f"{event.type} event of {event.topic}-{event.partition}"
        raise EncodeError(f"{where} has {len(data)} bytes, {VALUE_BYTES_MAX} are allowed")
    return data


def _storable(text: str) -> str:
    """The text without what no database takes: half a surrogate pair, a zero character."""
    return text.encode(errors="replace").decode().replace("\0", "?")


def _fits(name: str, value: Any, annotation: Any) -> bool:
    """Whether a value has the type and the size of its field; JSON's true and false are no numbers."""
    if annotation == _EVIDENCE:
        return value is None or (isinstance(value, dict) and _is_plain(value, EVIDENCE_DEPTH_MAX))
    if not isinstance(value, annotation) or (isinstance(value, bool) and annotation is not bool):
        return False
    return isinstance(value, bytes) or (_is_plain(value, 1) and (name not in _INT32_FIELDS or value in _INT32))


def _is_plain(value: Any, depth: int) -> bool:
    """Whether a database can hold a value of JSON: integers of 64 bits, text that is Unicode, few levels."""
    match value:
        case dict():
            parts = [*value.keys(), *value.values()]
            return depth > 0 and all(_is_plain(part, depth - 1) for part in parts)
        case list():
            return depth > 0 and all(_is_plain(part, depth - 1) for part in value)
        case str():
            return value == _storable(value)
        case float():
            return isfinite(value)
        case int():
            return value in _INT64
        case _:
            return True


def decode(value: bytes | bytearray | memoryview | None) -> EbblineEvent:
    """The event in a record's value; raises DecodeError for anything else, also for a newer format or type.

    Members that this format does not have are ignored. Integers have 64 bits, or 32 where Kafka's have; text is Unicode
    without a zero character.
    """
    if not value or len(value) > VALUE_BYTES_MAX:
        raise DecodeError(f"an event has 1 to {VALUE_BYTES_MAX} bytes, not {len(value or b'')}")
    try:
        row = json.loads(bytes(value))
    except (ValueError, RecursionError) as error:
        raise DecodeError(f"an event is not JSON: {error}") from error
    if not isinstance(row, dict) or row.get("v") != VERSION:
        raise DecodeError(f"an event is no object of format {VERSION}")
    cls = _CLASSES.get(str(row.get("type")))
    if cls is None:
        raise DecodeError(f"event type {row.get('type')!r} is unknown")
    arguments = {field.name: row[field.name] for field in fields(cls) if field.name in row}
    try:
        for name in _UUIDS & arguments.keys():
            arguments[name] = uuid_bytes(arguments[name])
        made: EbblineEvent = cls(**arguments)
    except (TypeError, ValueError) as error:
        raise DecodeError(f"{row['type']} event does not fit: {error}") from error
    for field in fields(made):
        if not _fits(field.name, getattr(made, field.name), field.type):
            raise DecodeError(f"{row['type']} event has {field.name} {getattr(made, field.name)!r:.80}")
    return made
