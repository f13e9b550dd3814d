"""The client of `__remote_log_metadata` of a broker, for KIP-405's topic-based RLMM: it produces, lists offsets and
keeps one long poll for each leader.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from backend.engine.common.controller_channel import ControllerChannel
from backend.engine.common.unreadable_records import UnreadableRecords
from backend.engine.net.cluster_client import ClusterClient
from backend.engine.net.internal_topic import ensure_topic
from backend.engine.net.topic_producer import ProducerIds, TopicProducer
from backend.engine.ports import Ports, tasks
from backend.engine.remote.metadata.metadata_record import MetadataRecord
from backend.engine.remote.metadata.metadata_topic import (
    METADATA_TOPIC,
    FetchedPartition,
    MetadataClientSettings,
    MetadataTopicSettings,
    UnreadableBatch,
)
from backend.protocol import messages as m
from backend.protocol.errors import DecodeError, ErrorCode, KafkaError, error_code
from backend.protocol.offset_timestamps import EARLIEST, LATEST
from backend.protocol.record_batches.record_batch import RecordData, iter_batches, iter_records
from backend.tiering.ids import OffsetRange

if TYPE_CHECKING:
    from backend.engine.controller.metadata.metadata_cache import MetadataCache

FETCH_VERSION: Final = 12  # the newest that names topics instead of giving their ids
LIST_OFFSETS_VERSION: Final = 11
CONSUMER: Final = -1
DEFAULTS: Final = MetadataClientSettings()
# Fetches of fewer bytes are read record by record. Most bring one or two records of some 200 bytes, which costs less
# than setting up columns.
COLUMNS_BYTES_MIN: Final = 512

_log = logging.getLogger(__name__)


class MetadataTopicClient:
    """Implements `MetadataTopic`. ``fetch_client`` has separate connections, since a long poll holds one; where nothing
    is fetched, both clients may be the same.
    """

    def __init__(
        self,
        ports: Ports,
        metadata: MetadataCache,
        channel: ControllerChannel,
        produce_client: ClusterClient,
        fetch_client: ClusterClient,
        new_producer_id: ProducerIds,
        settings: MetadataClientSettings = DEFAULTS,
        unreadable_records: UnreadableRecords | None = None,
    ) -> None:
        self._ports = ports
        self._unreadable = unreadable_records or UnreadableRecords()
        self._settings = settings
        self._metadata = metadata
        self._channel = channel
        self._produce_client = produce_client
        self._fetch_client = fetch_client
        self._producer = TopicProducer(
            ports, produce_client, METADATA_TOPIC, new_producer_id, request_timeout_ms=settings.produce_timeout_ms
        )
        # Long polls by broker, with the positions they ask for; a call may leave them running for the next one.
        self._polls: dict[int, tuple[Mapping[int, int], tasks.Task[list[FetchedPartition]]]] = {}

    async def ensure_created(self, settings: MetadataTopicSettings) -> int:
        return await ensure_topic(
            self._channel,
            self._metadata,
            METADATA_TOPIC,
            partitions=settings.partitions,
            replication_factor=settings.replication_factor,
            configs=settings.topic_configs(),
            timeout_ms=self._settings.admin_timeout_ms,
        )

    async def produce(self, partition: int, value: bytes) -> int:
        record = RecordData(timestamp_ms=self._ports.clock.time_ms(), key=None, value=value)
        return await self._producer.append(partition, [record], timeout_ms=self._settings.delivery_timeout_ms)

    async def offsets(self, partitions: Iterable[int]) -> dict[int, OffsetRange]:
        by_leader: dict[int, list[int]] = {}
        for partition in partitions:
            try:
                by_leader.setdefault(self._produce_client.leader(METADATA_TOPIC, partition), []).append(partition)
            except KafkaError as error:
                _log.debug("Offsets of %s-%d are not known: %s", METADATA_TOPIC, partition, error)
        # The high watermark is asked for after the log start, so that a range is never empty by mistake.
        starts = await self._list_offsets(by_leader, EARLIEST)
        ends = await self._list_offsets(by_leader, LATEST)
        return {
            partition: OffsetRange(starts[partition], max(starts[partition], ends[partition]))
            for partition in starts.keys() & ends.keys()
        }

    async def _list_offsets(self, by_leader: Mapping[int, Sequence[int]], timestamp: int) -> dict[int, int]:
        topics = m.ListOffsetsRequest.Topics
        requests = [
            self._produce_client.send_to_broker(
                leader,
                m.ListOffsetsRequest(
                    replica_id=CONSUMER,
                    topics=[
                        topics(
                            name=METADATA_TOPIC,
                            partitions=[
                                topics.Partitions(partition_index=index, current_leader_epoch=-1, timestamp=timestamp)
                                for index in partitions
                            ],
                        )
                    ],
                    timeout_ms=self._settings.fetch_timeout_ms,
                ),
                LIST_OFFSETS_VERSION,
                timeout_ms=self._settings.fetch_timeout_ms,
            )
            for leader, partitions in by_leader.items()
        ]
        offsets: dict[int, int] = {}
        for response in await tasks.gather_settled(requests):
            if isinstance(response, (KafkaError, DecodeError)):
                _log.info("A broker did not tell offsets of %s: %s", METADATA_TOPIC, response)
            elif isinstance(response, BaseException):
                raise response
            else:
                for topic in cast(m.ListOffsetsResponse, response).topics:
                    offsets.update((row.partition_index, row.offset) for row in topic.partitions if not row.error_code)
        return offsets

    async def fetch(self, positions: Mapping[int, int], *, max_wait_ms: int) -> Sequence[FetchedPartition]:
        max_wait_ms = min(max_wait_ms, self._settings.fetch_max_wait_ms)
        by_leader: dict[int, dict[int, int]] = {}
        for partition, position in positions.items():
            try:
                by_leader.setdefault(self._fetch_client.leader(METADATA_TOPIC, partition), {})[partition] = position
            except KafkaError as error:
                _log.debug("%s-%d is not read for now: %s", METADATA_TOPIC, partition, error)
        for leader, leader_positions in by_leader.items():
            if leader not in self._polls:
                poll = tasks.start(
                    self._poll(leader, leader_positions, max_wait_ms), name=f"{METADATA_TOPIC} from {leader}"
                )
                self._polls[leader] = (leader_positions, poll)
        if not self._polls:
            await tasks.sleep_ms(max_wait_ms)
            return []
        await tasks.first(poll for _, poll in self._polls.values())
        fetched: list[FetchedPartition] = []
        for leader in [leader for leader, (_, poll) in self._polls.items() if poll.done()]:
            poll_positions, poll = self._polls.pop(leader)
            fetched.extend(
                partition
                for partition in poll.result()
                if positions.get(partition.partition) == poll_positions[partition.partition]
            )
        return fetched

    async def _poll(self, leader: int, positions: Mapping[int, int], max_wait_ms: int) -> list[FetchedPartition]:
        """The records of one broker. A request that fails and a partition whose leader has moved give none, after a
        pause: the next call asks again.
        """
        try:
            response = await self._fetch_client.send_to_broker(
                leader,
                fetch_request(positions, max_wait_ms, self._settings),
                FETCH_VERSION,
                timeout_ms=self._settings.fetch_timeout_ms + max_wait_ms,
            )
        except (KafkaError, DecodeError) as error:
            _log.info("Broker %d did not answer a fetch of %s: %s", leader, METADATA_TOPIC, error)
            await tasks.sleep_ms(max_wait_ms)
            return []
        work = partial(fetched_partitions, cast(m.FetchResponse, response), dict(positions))
        fetched = await self._ports.workers.run(work)
        for partition in fetched:
            for batch in partition.unreadable:
                self._unreadable.note(
                    METADATA_TOPIC, partition.partition, batch.first_offset, batch.reason, last_offset=batch.last_offset
                )
        if any(partition.error.retriable for partition in fetched):
            # Leadership moved and the metadata does not show it yet.
            await tasks.sleep_ms(min(max_wait_ms, 100))
        return [partition for partition in fetched if not partition.error.retriable]

    async def close(self) -> None:
        for _, poll in self._polls.values():
            await tasks.cancel(poll)
        self._polls.clear()
        self._produce_client.close()
        self._fetch_client.close()


def fetch_request(
    positions: Mapping[int, int], max_wait_ms: int, settings: MetadataClientSettings = DEFAULTS
) -> m.FetchRequest:
    """A consumer's fetch without a session."""
    topics = m.FetchRequest.Topics
    return m.FetchRequest(
        replica_id=CONSUMER,
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=settings.fetch_max_bytes,
        session_id=0,
        session_epoch=-1,
        topics=[
            topics(
                topic=METADATA_TOPIC,
                partitions=[
                    topics.Partitions(
                        partition=index,
                        current_leader_epoch=-1,
                        fetch_offset=position,
                        last_fetched_epoch=-1,
                        log_start_offset=-1,
                        partition_max_bytes=settings.partition_fetch_bytes,
                    )
                    for index, position in positions.items()
                ],
            )
        ],
    )


def fetched_partitions(response: m.FetchResponse, positions: Mapping[int, int]) -> list[FetchedPartition]:
    """Partitions of an answer that hold something new: records, or an error. Runs on a worker thread."""
    from backend.engine.remote.metadata.record_runs import (
        read_canonical,  # with numpy: only once there is something to read
    )

    partitions = []
    for topic in response.responses:
        for row in topic.partitions:
            position = positions.get(row.partition_index)
            if position is None:
                continue
            if row.error_code:
                partitions.append(FetchedPartition(row.partition_index, position, error=error_code(row.error_code)))
                continue
            if not row.records:
                continue
            buffer = cast(memoryview, row.records)
            canonical = read_canonical(bytes(buffer), position) if len(buffer) >= COLUMNS_BYTES_MIN else None
            if canonical is None:
                partition = records_of(row.partition_index, buffer, position)
            else:
                next_offset, records, apply_plan = canonical
                partition = FetchedPartition(row.partition_index, next_offset, records, plan=apply_plan)
            if partition.next_offset > position or partition.error is not ErrorCode.NONE:
                partitions.append(partition)
    return partitions


def records_of(partition: int, buffer: memoryview, position: int) -> FetchedPartition:
    """The records of all batches but control batches from `position` on, one by one. A batch with unreadable records is
    skipped.

    A batch whose end is unknown, with nothing before it, is an error (CORRUPT_MESSAGE).
    """
    records: list[MetadataRecord] = []
    unreadable: list[UnreadableBatch] = []
    next_offset = position
    try:
        for start, header in iter_batches(buffer):
            if header.next_offset <= next_offset:
                continue
            next_offset = header.next_offset
            if header.is_control:
                continue
            try:
                batch_records = list(iter_records(buffer, start))
            except DecodeError as error:
                unreadable.append(UnreadableBatch(header.base_offset, header.last_offset, str(error)))
                continue
            records += [
                MetadataRecord(record.offset, record.timestamp, record.value)
                for record in batch_records
                if record.offset >= position
            ]
    except DecodeError:
        if next_offset == position:
            return FetchedPartition(partition, position, error=ErrorCode.CORRUPT_MESSAGE)
    return FetchedPartition(partition, next_offset, records, unreadable=tuple(unreadable))
