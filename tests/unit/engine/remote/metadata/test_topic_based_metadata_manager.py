"""The topic-based metadata manager: creation, readiness, publish-then-wait, and what it survives."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import pytest

from backend.engine.ports import Ports, tasks
from backend.engine.remote.metadata import topic_based_metadata_manager
from backend.engine.remote.metadata.metadata_topic import FetchedPartition, MetadataTopicSettings
from backend.engine.remote.metadata.topic_based_metadata_manager import RlmmSettings, TopicBasedRemoteLogMetadataManager
from backend.engine.remote.storage.remote_storage_manager import (
    RemoteResourceNotFound,
    RemoteStorageError,
    RetriableRemoteStorageError,
)
from backend.protocol.errors import ErrorCode, KafkaError
from backend.protocol.remote_log.metadata_serde import (
    PartitionDelete,
    PartitionDeleteState,
    SegmentMetadata,
    SegmentSnapshot,
    SegmentUpdate,
    decode,
    encode,
    metadata_partition,
)
from backend.tiering.ids import OffsetRange, TopicIdPartition, uuid_text
from backend.tiering.segment_state import SegmentState
from tests.conformance.memory_topic import MemoryMetadataTopic, MemoryTopicLog, unavailable
from tests.unit.engine.log.logs import FIXTURES
from tests.unit.engine.remote.tiers import RecordingSink
from tests.unit.engine.virtual_time import ports_here, run_virtual

A, B, C = (TopicIdPartition("orders", bytes(range(1, 17)), partition) for partition in range(3))
STARTED, FINISHED, DELETE_STARTED, DELETE_FINISHED = SegmentState
SETTINGS = RlmmSettings(
    topic=MetadataTopicSettings(partitions=2), consume_wait_ms=3000, initialization_retry_interval_ms=1
)


def started(number: int, partition: TopicIdPartition = A, start: int = 0) -> SegmentMetadata:
    return SegmentMetadata(partition, bytes([number]) * 16, start, start + 9, 1, 0, 0, ((0, start),), 1, None, STARTED)


def update(number: int, state: SegmentState = FINISHED, partition: TopicIdPartition = A) -> SegmentUpdate:
    return SegmentUpdate(partition, bytes([number]) * 16, 1, 1, None, state)


class Managers:
    """Metadata managers of several brokers over one topic."""

    def __init__(self, ports: Ports) -> None:
        self.ports = ports
        self.log = MemoryTopicLog()
        self.fatal: list[str] = []
        self.sink = RecordingSink()
        self._open: list[TopicBasedRemoteLogMetadataManager] = []

    def open(
        self, *hosted: TopicIdPartition, settings: RlmmSettings = SETTINGS, topic: MemoryMetadataTopic | None = None
    ) -> TopicBasedRemoteLogMetadataManager:
        client = topic or MemoryMetadataTopic(self.log)
        manager = TopicBasedRemoteLogMetadataManager(
            client, settings, self.ports, self.sink, on_fatal=self.fatal.append
        )
        manager.on_partition_leadership_changes(hosted, ())
        manager.start()
        self._open.append(manager)
        return manager

    async def ready(self, *hosted: TopicIdPartition) -> TopicBasedRemoteLogMetadataManager:
        manager = self.open(*hosted)
        for partition in hosted:
            assert await manager.wait_ready(partition, 3000)
        return manager

    def append(self, partition: TopicIdPartition, *values: bytes | None) -> None:
        for value in values:
            self.log.append(
                metadata_partition(partition.topic_id, partition.partition, len(self.log.partitions)), value
            )

    async def close(self) -> None:
        for manager in self._open:
            await manager.close()
        self.ports.workers.close()


def play(scene: Callable[[Managers], Awaitable[None]]) -> None:
    async def run() -> None:
        managers = Managers(ports_here())
        try:
            await tasks.wait_for(scene(managers), 20_000)
        finally:
            await managers.close()

    run_virtual(run())


def test_who_publishes_sees_its_own_writes_and_others_see_them_too() -> None:
    async def scene(managers: Managers) -> None:
        leader, follower = await managers.ready(A), await managers.ready(A)
        await leader.add_segment(started(1))
        assert leader.lookup(A, 0, 5) is None
        assert [segment.state for segment in leader.segments(A)] == [STARTED]
        await leader.update_segment(update(1))
        assert leader.lookup(A, 0, 5) == started(1).updated(update(1))
        assert leader.highest_offset(A, 0) == 9
        while follower.lookup(A, 0, 5) is None:
            await tasks.sleep_ms(1)

    play(scene)


@pytest.mark.parametrize("why", ["a tiered partition", "its time"])
def test_the_topic_of_a_new_cluster_waits_for_the_first_tiered_partition_or_its_time(why: str) -> None:
    async def scene(managers: Managers) -> None:
        event = tasks.Event()

        class Watched(MemoryMetadataTopic):
            async def ensure_created(self, settings: MetadataTopicSettings) -> int:
                event.set()
                return await super().ensure_created(settings)

        delay_ms = 10 if why == "its time" else 3_600_000
        settings = replace(SETTINGS, creation_delay_ms=delay_ms)
        manager = managers.open(settings=settings, topic=Watched(managers.log))
        if why == "a tiered partition":
            # Every task has had its turn.
            await tasks.sleep_ms(0)
            await tasks.sleep_ms(0)
            assert not event.is_set()
            manager.on_partition_leadership_changes([A], ())
            assert await manager.wait_ready(A, 20_000)
        await event.wait()

    play(scene)


def test_a_restart_reads_everything_again_and_says_when_it_is_ready() -> None:
    async def scene(managers: Managers) -> None:
        first = await managers.ready(A, B)
        for number in range(1, 9):
            await first.add_segment(started(number, A if number % 2 else B, 10 * number))
            await first.update_segment(update(number, FINISHED, A if number % 2 else B))
        slow = MemoryMetadataTopic(managers.log)
        slow.records_max = 1
        second = managers.open(A, topic=slow)
        assert not second.is_ready(A)
        with pytest.raises(KafkaError) as caught:
            second.lookup(A, 0, 15)
        assert caught.value.code is ErrorCode.REPLICA_NOT_AVAILABLE
        assert await second.wait_ready(A, 3000)
        assert sorted(second.segments(A)) == sorted(first.segments(A))
        kinds = [detail for kind, detail in managers.sink.events if kind == "rlmm_ready"]
        assert len(kinds) == 3

    play(scene)


def test_an_empty_metadata_partition_is_ready_at_once_and_an_unknown_one_never() -> None:
    async def scene(managers: Managers) -> None:
        manager = await managers.ready(A)
        assert not await manager.wait_ready(B, 10)
        with pytest.raises(RemoteResourceNotFound):
            manager.lookup(B, 0, 0)

    play(scene)


def test_a_partition_that_comes_later_gets_what_was_read_before_it_came() -> None:
    async def scene(managers: Managers) -> None:
        one_partition = replace(SETTINGS, topic=MetadataTopicSettings(partitions=1))
        leader = managers.open(A, B, settings=one_partition)
        await leader.add_segment(started(1, A))
        await leader.add_segment(started(2, B))
        other = managers.open(A, settings=one_partition)
        assert await other.wait_ready(A, 3000)
        other.on_partition_leadership_changes((), [B])
        assert await other.wait_ready(B, 3000)
        assert [list(other.segments(partition)) for partition in (A, B)] == [[started(1, A)], [started(2, B)]]
        assert other.records_skipped == 0

    play(scene)


def test_stopping_a_partition_forgets_it_and_hosting_it_again_reads_it_again() -> None:
    async def scene(managers: Managers) -> None:
        manager = await managers.ready(A)
        await manager.add_segment(started(1))
        manager.on_stop_partitions([A])
        with pytest.raises(RemoteResourceNotFound):
            manager.segments(A)
        with pytest.raises(RemoteStorageError, match="not hosted"):
            await manager.update_segment(update(1))
        manager.on_partition_leadership_changes([A], ())
        assert await manager.wait_ready(A, 3000)
        assert list(manager.segments(A)) == [started(1)]

    play(scene)


def test_records_that_cannot_be_read_are_skipped_and_counted() -> None:
    async def scene(managers: Managers) -> None:
        manager = await managers.ready(A)
        snapshot = SegmentSnapshot(bytes(16), 0, 9, 1, 0, 0, ((0, 0),), 1, None, FINISHED)
        bad: list[bytes | None] = [None, b"", b"\x01\x09\x00", b"\x02", encode(started(3))[:-3], encode(snapshot)]
        managers.append(A, *bad)
        managers.append(A, encode(PartitionDelete(A, 1, 0, PartitionDeleteState.DELETE_PARTITION_MARKED)))
        await manager.add_segment(started(1))
        assert [segment.segment_id for segment in manager.segments(A)] == [bytes([1]) * 16]
        assert manager.records_skipped == len(bad)
        managers.append(A, encode(PartitionDelete(A, 1, 0, PartitionDeleteState.DELETE_PARTITION_FINISHED)))
        await manager.add_segment(started(2))
        assert [segment.segment_id for segment in manager.segments(A)] == [bytes([2]) * 16]

    play(scene)


def test_a_metadata_partition_that_cannot_be_read_holds_up_no_other() -> None:
    async def scene(managers: Managers) -> None:
        count = SETTINGS.topic.partitions
        ids = (bytes([number]) * 16 for number in range(1, 99))
        bad = metadata_partition(B.topic_id, B.partition, count)
        other = next(
            TopicIdPartition("clicks", topic_id, 0) for topic_id in ids if metadata_partition(topic_id, 0, count) != bad
        )
        await managers.ready(other, B)
        managers.append(other, encode(started(1, other)))
        managers.append(B, encode(started(2, B)))

        class Damaged(MemoryMetadataTopic):
            async def fetch(self, positions: Mapping[int, int], *, max_wait_ms: int) -> Sequence[FetchedPartition]:
                fetched = await super().fetch(positions, max_wait_ms=max_wait_ms)
                broken = FetchedPartition(bad, 0, error=ErrorCode.CORRUPT_MESSAGE)
                return [broken] * (bad in positions) + [
                    fetched_partition for fetched_partition in fetched if fetched_partition.partition != bad
                ]

        manager = managers.open(other, B, topic=Damaged(managers.log))
        assert await manager.wait_ready(other, 3000)
        assert list(manager.segments(other)) == [started(1, other)]
        assert not manager.is_ready(B)

    play(scene)


def test_publishing_tries_again_what_may_succeed_and_gives_up_on_the_rest() -> None:
    async def scene(managers: Managers) -> None:
        topic = MemoryMetadataTopic(managers.log)
        manager = managers.open(A, topic=topic)
        assert await manager.wait_ready(A, 3000)
        topic.failures = [unavailable(), OSError("reset")]
        await manager.add_segment(started(1))
        topic.failures = [KafkaError(ErrorCode.INVALID_CONFIG, "no")]
        with pytest.raises(RemoteStorageError) as caught:
            await manager.update_segment(update(1))
        assert not isinstance(caught.value, RetriableRemoteStorageError)

    play(scene)


def test_reading_goes_on_after_failures_and_after_retention_took_its_place() -> None:
    async def scene(managers: Managers) -> None:
        topic = MemoryMetadataTopic(managers.log)
        manager = managers.open(A, topic=topic)
        await manager.add_segment(started(1))
        topic.failures = [unavailable(), unavailable()]
        await tasks.sleep_ms(5)
        target = metadata_partition(A.topic_id, A.partition, 2)
        end = managers.log.range(target).end
        managers.log.partitions[target].clear()
        managers.log.starts[target] = end + 5
        managers.append(A, encode(update(1)))
        while manager.lookup(A, 0, 5) is None:
            await tasks.sleep_ms(1)

    play(scene)


def test_a_partition_that_leaves_while_the_topic_is_asked_leaves_the_reader_alive() -> None:
    async def scene(managers: Managers) -> None:
        requested, go_on = tasks.Event(), tasks.Event()

        class Slow(MemoryMetadataTopic):
            async def offsets(self, partitions: Iterable[int]) -> dict[int, OffsetRange]:
                requested.set()
                await go_on.wait()
                return await super().offsets(partitions)

        manager = managers.open(A, topic=Slow(managers.log))
        await requested.wait()
        manager.on_stop_partitions([A])
        go_on.set()
        await tasks.sleep_ms(0)
        manager.on_partition_leadership_changes([A], ())
        assert await manager.wait_ready(A, 3000)

    play(scene)


def test_reading_goes_on_after_an_error_that_nobody_foresaw() -> None:
    async def scene(managers: Managers) -> None:
        topic = MemoryMetadataTopic(managers.log)
        manager = managers.open(A, topic=topic)
        assert await manager.wait_ready(A, 3000)
        topic.failures = [ZeroDivisionError("of a client")]
        managers.append(A, encode(started(1)))
        while not list(manager.segments(A)):
            await tasks.sleep_ms(1)

    play(scene)


def test_what_is_published_and_not_seen_in_time_is_a_failure_that_can_be_retried() -> None:
    async def scene(managers: Managers) -> None:
        class Deaf(MemoryMetadataTopic):
            async def produce(self, partition: int, value: bytes) -> int:
                return 1000

        manager = managers.open(A, topic=Deaf(managers.log), settings=replace(SETTINGS, consume_wait_ms=200))
        assert await manager.wait_ready(A, 3000)
        with pytest.raises(RetriableRemoteStorageError, match="was not seen"):
            await manager.add_segment(started(1))

    play(scene)


def test_states_that_a_call_cannot_publish_are_mistakes_of_the_caller() -> None:
    async def scene(managers: Managers) -> None:
        manager = await managers.ready(A)
        with pytest.raises(ValueError):
            await manager.add_segment(started(1)._replace(state=FINISHED))
        with pytest.raises(ValueError):
            await manager.update_segment(update(1, STARTED))

    play(scene)


def test_a_topic_with_another_number_of_partitions_is_refused() -> None:
    async def scene(managers: Managers) -> None:
        await managers.ready(A)
        managers.open(A, settings=replace(SETTINGS, topic=MetadataTopicSettings(partitions=50)))
        while not managers.fatal:
            await tasks.sleep_ms(1)
        assert managers.fatal == [
            "Topic __remote_log_metadata has 2 partitions, but remote.log.metadata.topic.num.partitions is 50; "
            "metadata would be looked for in the wrong place. Set it to 2"
        ]

    play(scene)


def test_creation_is_retried_and_given_up_after_its_time() -> None:
    async def scene(managers: Managers) -> None:
        topic = MemoryMetadataTopic(managers.log)
        topic.failures = [unavailable()] * 3
        manager = managers.open(A, topic=topic)
        assert await manager.wait_ready(A, 3000)
        never = MemoryMetadataTopic(managers.log)
        never.failures = [unavailable()] * 1000
        managers.open(A, topic=never, settings=replace(SETTINGS, initialization_retry_max_timeout_ms=20))
        while not managers.fatal:
            await tasks.sleep_ms(1)
        assert "could not be created within 20 ms" in managers.fatal[0]

    play(scene)


def test_a_topic_that_wants_more_brokers_than_there_are_waits_for_them_and_ends_nobody(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(topic_based_metadata_manager, "FEW_BROKERS_PAUSE_MS", 1)
    said = "rlmm.config.remote.log.metadata.topic.replication.factor is 3, and fewer brokers are registered"

    async def scene(managers: Managers) -> None:
        topic = MemoryMetadataTopic(managers.log)
        topic.failures = [KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "refused")] * 100
        settings = replace(SETTINGS, initialization_retry_max_timeout_ms=5)
        manager = managers.open(A, topic=topic, settings=settings)
        # The other brokers have come.
        assert await manager.wait_ready(A, 5000)
        assert managers.fatal == []
        assert [said in record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [True]

    play(scene)


def test_settings_have_kafkas_names_defaults_and_limits() -> None:
    assert RlmmSettings.parse({}) == RlmmSettings()
    assert RlmmSettings().topic == MetadataTopicSettings(50, 3, 2, -1)
    parsed = RlmmSettings.parse(
        {"remote.log.metadata.topic.num.partitions": "5", "remote.log.metadata.topic.min.isr": "1"}, "kafka"
    )
    assert (parsed.topic.partitions, parsed.topic.min_insync_replicas, parsed.overlap.value) == (5, 1, "kafka")
    assert parsed.topic.topic_configs() == {
        "cleanup.policy": "delete",
        "min.insync.replicas": "1",
        "remote.storage.enable": "false",
        "retention.ms": "-1",
    }
    for wrong in ("0", "-2", "many"):
        with pytest.raises(ValueError, match=r"rlmm\.config\.remote\.log\.metadata\.topic\.retention\.ms"):
            RlmmSettings.parse({"remote.log.metadata.topic.retention.ms": wrong})


def test_records_of_a_real_kafka_give_its_final_states() -> None:
    rows = [json.loads(line) for line in (FIXTURES / "metadata-records.jsonl").read_text().splitlines()]

    async def scene(managers: Managers) -> None:
        managers.log.partitions = [[] for _ in range(5)]
        managers.log.starts = [0] * 5
        for row in sorted(rows, key=lambda row: row["offset"]):
            managers.log.append(row["partition"], bytes.fromhex(row["value"]))
        expected: dict[str, str] = {}
        hosted: dict[str, TopicIdPartition] = {}
        for row in rows:
            ids = row["decoded"]["RemoteLogSegmentId"]
            expected[ids["Id"]] = row["decoded"]["stateName"]
            event = partition_of(row["value"])
            hosted[str(event)] = event
        five = replace(SETTINGS, topic=MetadataTopicSettings(partitions=5))
        manager = managers.open(*hosted.values(), settings=five)
        states: dict[str, str] = {}
        for partition in hosted.values():
            assert await manager.wait_ready(partition, 3000)
            states |= {uuid_text(segment.segment_id): segment.state.name for segment in manager.segments(partition)}
        assert states == {key: state for key, state in expected.items() if state != "DELETE_SEGMENT_FINISHED"}
        assert manager.records_skipped == 0

    play(scene)


def partition_of(value: str) -> TopicIdPartition:
    event = decode(bytes.fromhex(value))
    assert isinstance(event, SegmentMetadata | SegmentUpdate)
    return event.topic_id_partition
