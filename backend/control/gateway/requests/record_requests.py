"""Reads records of a topic as a consumer without a group does (Fetch, KIP-516): for `__ebbline_events`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from backend.control.gateway.connection_pool import Lane
from backend.control.gateway.kafka_client import REQUEST_TIMEOUT_S, Gateway
from backend.protocol import messages as m
from backend.protocol.errors import DecodeError, ErrorCode, error_code, error_for
from backend.protocol.record_batches import record_batch
from backend.protocol.record_batches.record_batch import Record
from backend.tiering.ids import TopicPartition

# An event is about 300 bytes: 1 MB is some 3,000 of them an answer, decoded in a few milliseconds.
FETCH_BYTES_MAX: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class FetchedRecords:
    """Result of one partition: the records from the requested offset, and the offset to go on from."""

    records: tuple[Record, ...]
    next_offset: int
    error: ErrorCode = ErrorCode.NONE
    unreadable: tuple[tuple[int, str], ...] = ()  # first offset of a batch that was passed over, and why


async def fetch_records(
    gateway: Gateway,
    node_id: int,
    topic_id: bytes,
    offsets: Mapping[TopicPartition, int],
    *,
    max_wait_ms: int = 500,
    lane: Lane = Lane.EVENTS,
) -> dict[TopicPartition, FetchedRecords]:
    """Records of partitions of one topic that `node_id` leads, waiting up to `max_wait_ms` for the first.

    Raises GatewayError, KafkaError for a failure of the whole request. Control batches are passed over.
    """
    topic = next(iter(offsets)).topic
    topic_type = m.FetchRequest.Topics
    request = m.FetchRequest(
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=FETCH_BYTES_MAX,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[
            topic_type(
                topic=topic,
                topic_id=topic_id,
                partitions=[
                    topic_type.Partitions(
                        partition=tp.partition,
                        current_leader_epoch=-1,
                        fetch_offset=offset,
                        last_fetched_epoch=-1,
                        log_start_offset=-1,
                        partition_max_bytes=FETCH_BYTES_MAX,
                    )
                    for tp, offset in offsets.items()
                ],
            )
        ],
    )
    response, _ = await gateway.ask_node(
        node_id, request, m.FetchResponse, timeout_s=REQUEST_TIMEOUT_S + max_wait_ms / 1000, at_least=4, lane=lane
    )
    if response.error_code:
        raise error_for(response.error_code)
    result: dict[TopicPartition, FetchedRecords] = {}
    for topic_response in response.responses:
        for p in topic_response.partitions:
            tp = TopicPartition(topic, p.partition_index)
            if tp not in offsets:
                continue
            if p.error_code:
                result[tp] = FetchedRecords((), offsets[tp], error_code(p.error_code))
            else:
                result[tp] = _read(p.records or b"", offsets[tp])
    return result


def _read(data: Any, offset: int) -> FetchedRecords:
    """Whole batches of the answer; the last one may be cut off and comes again with the next fetch. A batch whose
    records are none is passed over; CORRUPT_MESSAGE when not even its end can be found.
    """
    buffer = b"".join(data) if isinstance(data, list) else bytes(data)
    records: list[Record] = []
    unreadable: list[tuple[int, str]] = []
    next_offset = offset
    try:
        for position, header in record_batch.iter_batches(buffer):
            if header.next_offset <= next_offset:
                continue
            next_offset = header.next_offset
            try:
                batch_records = [] if header.is_control else list(record_batch.iter_records(buffer, position))
            except DecodeError as error:
                unreadable.append((header.base_offset, str(error)))
                continue
            records += [record for record in batch_records if record.offset >= offset]
    except DecodeError:
        if next_offset == offset:
            return FetchedRecords((), offset, ErrorCode.CORRUPT_MESSAGE)
    return FetchedRecords(tuple(records), next_offset, unreadable=tuple(unreadable))
