"""Getting past a batch of the source topic whose records are none.

librdkafka gives nothing from such a batch on, and mostly no error to its caller: its log alone says that an answer
came which it could not take apart. That is the evidence here, seen twice. Silence is none: a broker that is busy, whose
disk hangs, or that holds its reader to a quota is as silent. Brokers refuse such batches; logs of earlier versions may
hold one, and a disk may damage one. A batch of control records (transactions) that is none is not seen here: the
library says nothing of it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

# So long without a record, from a broker that says that there are more: the place is looked at.
STUCK_S: Final = 5.0
# A record, or the library's second complaint, comes with the second answer of the broker; a busy one gets this time.
PROBE_S: Final = 4.0
POLL_S: Final = 0.02
# At some 50 ms for each offset, with its connection, these are four hundred. A longer batch is passed over in parts:
# the next search goes on behind the last offset that is certain.
SEARCH_S: Final = 20.0
# A message with such an error holds no records either: a checksum that is wrong, a compression that cannot be undone.
NOT_READABLE: Final = frozenset({KafkaError._BAD_MSG, KafkaError._BAD_COMPRESSION, KafkaError._NOT_IMPLEMENTED})
# The library backs off with these errors after an answer that it could not take apart: `BACKOFF … t [0]: Fetch backoff
# for 100ms: Local: Read underflow`.
_BACKS_OFF: Final = "Fetch backoff for"
_NO_RECORDS: Final = tuple(str(KafkaError(code).str()) for code in (KafkaError._UNDERFLOW, KafkaError._BAD_MSG))
_LOOKS: Final[Mapping[str, Any]] = {
    # One batch is enough, and whatever more came would count against the reader's quota: brokers give a whole batch,
    # however large it is (KIP-74).
    "message.max.bytes": 1_000,
    "fetch.max.bytes": 1_000,
    # The library takes an answer that it cannot take apart for one that was cut off, and asks for twice as much, until
    # this cannot grow: it complains from the second answer on.
    "fetch.message.max.bytes": 1_000_000_000,
    "fetch.error.backoff.ms": 100,
    "debug": "fetch",
    "log_level": 7,
}


class Held(StrEnum):
    """Evidence about an offset: the broker gave a record or the end from there, bytes that are none, or nothing."""

    RECORD = "record"
    NO_RECORD = "no record"
    UNKNOWN = "unknown"


def readable_from(config: Mapping[str, Any], topic: str, partition: int, start: int, end: int) -> int | None:
    """The first offset behind `start`, `end` at most, below which no record is, as is certain. None when that is not
    even certain of `start`. `config`: of the consumer that gets nothing. Takes `SEARCH_S` and one probe at most.
    """
    place = TopicPartition(topic, partition, start)
    until_s = time.monotonic() + SEARCH_S
    try:
        # Twice: a checksum may be wrong on the way.
        if any(_held_at(config, place) is not Held.NO_RECORD for _ in range(2)):
            return None
        while place.offset + 1 < end and time.monotonic() < until_s:
            place.offset += 1
            if _held_at(config, place) is not Held.NO_RECORD:
                return place.offset
    except KafkaException:
        # The offsets before this one were certain.
        return place.offset if place.offset > start else None
    return place.offset + 1


def _held_at(config: Mapping[str, Any], place: TopicPartition) -> Held:
    """Reads one offset with a consumer that logs. Raises KafkaException for an error of the broker or the library."""
    complaints = _Complaints(place)
    # A logger that no other part of the process can get: nothing of this is for the log.
    logger = logging.Logger("readable_from")
    logger.addHandler(complaints)
    # The complaint names no offset, so each one gets a consumer.
    consumer = Consumer({**config, **_LOOKS}, logger=logger)
    try:
        consumer.assign([place])
        until_s = time.monotonic() + PROBE_S
        while time.monotonic() < until_s:
            message = consumer.poll(POLL_S)
            if message is not None:
                error = message.error()
                if error is None or error.code() == KafkaError._PARTITION_EOF:
                    return Held.RECORD
                if error.code() in NOT_READABLE:
                    return Held.NO_RECORD
                raise KafkaException(error)
            if complaints.came:
                return Held.NO_RECORD
        return Held.UNKNOWN
    finally:
        consumer.close()


class _Complaints(logging.Handler):
    """Whether the library has said that an answer for this place holds no records."""

    def __init__(self, place: TopicPartition) -> None:
        super().__init__(logging.DEBUG)
        self._place = f"{place.topic} [{place.partition}]: {_BACKS_OFF}"
        self.came = False

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        self.came = self.came or (self._place in text and text.endswith(_NO_RECORDS))
