"""One suite for both metadata topics: lists in memory, and the Kafka protocol to a cluster of three brokers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from backend.engine.controller.registration.producer_id_manager import ProducerIdManager
from backend.engine.net.cluster_client import ClusterClient
from backend.engine.net.metadata_topic_client import MetadataTopicClient
from backend.engine.net.peer_controller_channel import PeerControllerChannel
from backend.engine.remote.metadata.metadata_topic import MetadataTopic, MetadataTopicSettings
from backend.protocol.errors import ErrorCode
from backend.tiering.ids import OffsetRange
from tests.conformance.memory_topic import MemoryMetadataTopic, MemoryTopicLog
from tests.engine_cluster import EngineCluster

SETTINGS: Final = MetadataTopicSettings(partitions=4, replication_factor=3, min_insync_replicas=2)
WAIT_MS: Final = 300

Play = Callable[[MetadataTopic, MetadataTopic], Coroutine[Any, Any, None]]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineCluster]:
    # The broker's tiering is off: the topic belongs to the test.
    with EngineCluster(tmp_path_factory.mktemp("metadata-topic"), brokers=3) as running:
        yield running


@asynccontextmanager
async def client_of(cluster: EngineCluster, node: int) -> AsyncIterator[MetadataTopicClient]:
    """Made as a broker makes it; runs on the cluster's loop."""
    services = cluster.broker(node).services
    ports, address = services.ports, ("127.0.0.1", cluster.layout.controller_port)
    channel = PeerControllerChannel(ports, (address,), client_id="test")
    ids = ProducerIdManager(
        channel, node_id=node, broker_epoch=lambda: cluster.broker(node).server.lifecycle.broker_epoch
    )
    clients = [ClusterClient(ports, services.metadata, "PLAINTEXT", client_id=f"test-{n}") for n in range(2)]
    topic = MetadataTopicClient(ports, services.metadata, channel, clients[0], clients[1], ids.next_id)
    try:
        yield topic
    finally:
        await topic.close()
        channel.close()


@pytest.fixture(params=["memory", "cluster"])
def run(request: pytest.FixtureRequest) -> Callable[[Play], None]:
    """Runs a play with two clients of one topic."""
    if request.param == "memory":

        def in_memory(play: Play) -> None:
            async def bounded() -> None:
                log = MemoryTopicLog()
                await play(MemoryMetadataTopic(log), MemoryMetadataTopic(log))

            asyncio.run(bounded())

        return in_memory
    cluster: EngineCluster = request.getfixturevalue("cluster")

    def on_cluster(play: Play) -> None:
        async def bounded() -> None:
            async with client_of(cluster, 1) as client, client_of(cluster, 2) as two:
                await play(client, two)

        cluster.call(bounded())

    return on_cluster


async def read(
    topic: MetadataTopic, positions: dict[int, int], count: int
) -> dict[int, list[tuple[int, bytes | None]]]:
    """(offset, value) by partition once `count` records have come, moving the positions on."""
    by_partition: dict[int, list[tuple[int, bytes | None]]] = {}
    async with asyncio.timeout(30):
        while sum(map(len, by_partition.values())) < count:
            for fetched in await topic.fetch(positions, max_wait_ms=WAIT_MS):
                assert fetched.error is ErrorCode.NONE
                positions[fetched.partition] = fetched.next_offset
                by_partition.setdefault(fetched.partition, []).extend(
                    (record.offset, record.value) for record in fetched.records
                )
    return by_partition


def test_the_topic_is_created_once_whoever_asks(run: Callable[[Play], None]) -> None:
    async def play(client: MetadataTopic, other: MetadataTopic) -> None:
        counts = await asyncio.gather(client.ensure_created(SETTINGS), other.ensure_created(SETTINGS))
        assert list(counts) == [4, 4]

    run(play)


def test_what_one_client_appends_the_other_reads_in_order(run: Callable[[Play], None]) -> None:
    async def play(writer: MetadataTopic, reader: MetadataTopic) -> None:
        await writer.ensure_created(SETTINGS)
        await reader.ensure_created(SETTINGS)
        before = await reader.offsets(range(4))
        positions = {partition: before[partition].end for partition in range(4)}
        values = [f"{number}".encode() for number in range(40)]
        offsets = [await writer.produce(number % 4, value) for number, value in enumerate(values)]
        result = await read(reader, positions, len(values))
        for partition in range(4):
            expected = [(offsets[n], values[n]) for n in range(partition, len(values), 4)]
            assert result[partition] == expected
        after = await reader.offsets(range(4))
        assert after == {p: OffsetRange(before[p].start, before[p].end + 10) for p in range(4)}

    run(play)


def test_concurrent_appends_to_one_partition_are_all_there_once(run: Callable[[Play], None]) -> None:
    async def play(first: MetadataTopic, second: MetadataTopic) -> None:
        await first.ensure_created(SETTINGS)
        await second.ensure_created(SETTINGS)
        start = (await second.offsets([1]))[1].end
        values = [f"same-{number}".encode() for number in range(30)]
        offsets = await asyncio.gather(
            *(client.produce(1, value) for client, value in zip([first, second] * 15, values, strict=True))
        )
        assert sorted(offsets) == list(range(start, start + 30))
        result = await read(second, {1: start}, 30)
        assert dict(result[1]) == dict(zip(offsets, values, strict=True))

    run(play)


def test_a_fetch_with_nothing_to_read_ends_empty(run: Callable[[Play], None]) -> None:
    async def play(client: MetadataTopic, other: MetadataTopic) -> None:
        await client.ensure_created(SETTINGS)
        await other.ensure_created(SETTINGS)
        ends = {partition: held.end for partition, held in (await client.offsets(range(4))).items()}
        assert list(await client.fetch(ends, max_wait_ms=50)) == []

    run(play)


def test_an_answer_for_an_old_position_is_not_used(run: Callable[[Play], None]) -> None:
    async def play(writer: MetadataTopic, reader: MetadataTopic) -> None:
        await writer.ensure_created(SETTINGS)
        await reader.ensure_created(SETTINGS)
        for number in range(5):
            await writer.produce(2, f"again-{number}".encode())
        held = (await reader.offsets([2]))[2]
        waiting = asyncio.ensure_future(reader.fetch({2: held.end}, max_wait_ms=WAIT_MS))
        await asyncio.sleep(0.01)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await writer.produce(2, b"again-5")
        result = await read(reader, {2: held.end - 5}, 6)
        assert [value for _, value in result[2]] == [f"again-{number}".encode() for number in range(6)]

    run(play)


def test_a_position_outside_the_log_is_told(run: Callable[[Play], None]) -> None:
    async def play(client: MetadataTopic, other: MetadataTopic) -> None:
        await client.ensure_created(SETTINGS)
        await other.ensure_created(SETTINGS)
        end = (await other.offsets([3]))[3].end
        fetched = await other.fetch({3: end + 100}, max_wait_ms=WAIT_MS)
        assert [(row.partition, row.error, row.next_offset) for row in fetched] == [
            (3, ErrorCode.OFFSET_OUT_OF_RANGE, end + 100)
        ]

    run(play)


def test_appending_goes_on_while_brokers_stop_and_start(cluster: EngineCluster) -> None:
    async def play() -> None:
        async with client_of(cluster, 1) as client, client_of(cluster, 2) as two:
            await client.ensure_created(SETTINGS)
            start = {p: held.end for p, held in (await two.offsets(range(4))).items()}
            sent: dict[int, list[bytes]] = {p: [] for p in range(4)}

            async def append(numbers: range) -> None:
                for number in numbers:
                    value = f"ha-{number}".encode()
                    await client.produce(number % 4, value)
                    sent[number % 4].append(value)

            writing = asyncio.ensure_future(append(range(200)))
            await cluster.cluster.stop_broker(3)
            await cluster.cluster.start_broker(3)
            await writing
            result = await read(two, dict(start), 200)
            assert {p: [value for _, value in rows] for p, rows in result.items()} == sent

    cluster.call(play())
