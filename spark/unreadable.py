"""Getting past a batch of the source topic whose records are none.

librdkafka gives nothing from such a batch on, and no error to whoever reads: its log alone says that bytes came which
are no records. That is the evidence here. Silence is none: a broker that is busy, whose disk hangs, or that holds its
reader to a quota is as silent. Brokers refuse such batches; logs of earlier versions may hold one.
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
# A record or the library's complaint comes with the first answer of the broker; a busy one gets this time.
PROBE_S: Final = 4.0
ASK_S: Final = 5.0
POLL_S: Final = 0.1
# Offsets that are tried one after the other, so that no good record is passed over; then in steps that double.
SINGLY: Final = 64
# The library backs off with these errors after an answer that it could not take apart: `BACKOFF … t [0]: Fetch backoff
# for 500ms: Local: Read underflow`.
_BACKS_OFF: Final = "Fetch backoff for"
_NO_RECORDS: Final = tuple(str(KafkaError(code).str()) for code in (KafkaError._UNDERFLOW, KafkaError._BAD_MSG))

# One batch is enough; whatever more came would count against the reader's quota.
_LOOKS: Final = {"fetch.message.max.bytes": 1, "queued.min.messages": 1}


class Held(StrEnum):
    """Evidence about an offset: the broker gave a record or the end from there, bytes that are none, or nothing."""

    RECORD = "record"
    NO_RECORD = "no record"
    UNKNOWN = "unknown"


def readable_from(config: Mapping[str, Any], topic: str, partition: int, start: int, end: int) -> int | None:
    """The first offset behind `start` that gives a record, `end` when none below it does. None when it is not certain
    that there is no record at `start`. `config`: of the consumer that gets none.
    """
    place = TopicPartition(topic, partition, start)
    try:
        if _held_at(config, place) is not Held.NO_RECORD:
            return None
        return _search(config, place, end)
    except KafkaException:
        return None


def _search(config: Mapping[str, Any], place: TopicPartition, end: int) -> int | None:
    start = place.offset
    silent, step = start, 1
    while silent + step < end:
        place.offset = silent + step
        held = _held_at(config, place)
        if held is Held.UNKNOWN:
            return None
        if held is Held.RECORD:
            return _first(config, place, silent, silent + step)
        silent = place.offset
        step = 1 if silent - start < SINGLY else step * 2
    return end


def _first(config: Mapping[str, Any], place: TopicPartition, silent: int, gives: int) -> int | None:
    while gives - silent > 1:
        place.offset = (silent + gives) // 2
        held = _held_at(config, place)
        if held is Held.UNKNOWN:
            return None
        if held is Held.RECORD:
            gives = place.offset
        else:
            silent = place.offset
    return gives


def _held_at(config: Mapping[str, Any], place: TopicPartition) -> Held:
    """Reads one offset with a consumer that logs. Raises KafkaException for an error of the broker or the library."""
    complaints = _Complaints(place)
    # A logger that no other part of the process can get: nothing of this is for the log.
    logger = logging.Logger("readable_from")
    logger.addHandler(complaints)
    # The complaint names no offset, so each one gets a consumer.
    consumer = Consumer({**config, **_LOOKS, "debug": "fetch", "log_level": 7}, logger=logger)
    try:
        consumer.assign([place])
        until_s = time.monotonic() + PROBE_S
        while time.monotonic() < until_s:
            message = consumer.poll(POLL_S)
            if message is not None:
                error = message.error()
                if error is None or error.code() == KafkaError._PARTITION_EOF:
                    return Held.RECORD
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
