"""Remote log metadata at size: 2.6 million segments of 1,000 partitions, from a broker's `__remote_log_metadata`.

Three figures have targets: replay of the 5.2 million events (25 s), memory of a segment (100 bytes), a look-up (3 us).
A fourth is the same restart from the local files. The reader runs in this process, the broker in another: on two cores
both have one.
"""

from __future__ import annotations

import asyncio
import gc
import random
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from backend.engine.net.metadata_topic_client import FETCH_VERSION, fetch_request, fetched_partitions
from backend.engine.net.peer_client import PeerClient
from backend.engine.ports import Ports, system_ports
from backend.engine.remote.metadata.metadata_topic import METADATA_TOPIC, FetchedPartition, MetadataTopicSettings
from backend.engine.remote.metadata.topic_based_metadata_manager import RlmmSettings, TopicBasedRemoteLogMetadataManager
from backend.protocol import messages as m
from backend.protocol.remote_log.metadata_serde import SegmentMetadata, SegmentUpdate, encode, metadata_partition
from backend.tiering.ids import OffsetRange, TopicIdPartition
from backend.tiering.segment_state import SegmentState
from tests.benchmarks.peers import EBBLINE_PORT_BASE, up, wait_until_ready

PARTITIONS: Final = 1_000
SEGMENTS, SEGMENTS_QUICK = 2_600, 130  # of each partition
RECORDS_PER_SEGMENT: Final = 1_000
LOOKUPS: Final = 300_000
TIMEOUT_MS: Final = 600_000.0
Figures = dict[str, float]


def hosted() -> list[TopicIdPartition]:
    """1,000 partitions of 20 topics."""
    chance = random.Random(405)
    ids = [chance.randbytes(16) for _ in range(20)]
    return [TopicIdPartition(f"bench-{n % 20}", ids[n % 20], n // 20) for n in range(PARTITIONS)]


def fill(bootstrap: str, segments: int) -> dict[int, int]:
    """Publishes STARTED and FINISHED of every segment as brokers would, one record each; records by partition."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    count = len(admin.list_topics(METADATA_TOPIC, timeout=30).topics[METADATA_TOPIC].partitions)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "linger.ms": 50,
            "queue.buffering.max.messages": 500_000,
            "log_level": 0,
        }
    )
    chance, partitions, sent = random.Random(1), hosted(), dict.fromkeys(range(count), 0)
    targets = [
        metadata_partition(topic_id_partition.topic_id, topic_id_partition.partition, count)
        for topic_id_partition in partitions
    ]
    for number in range(segments):
        start = number * RECORDS_PER_SEGMENT
        for partition, target in zip(partitions, targets, strict=True):
            key, end = chance.randbytes(16), start + RECORDS_PER_SEGMENT - 1
            started = SegmentMetadata(
                partition, key, start, end, 1, start, start, ((0, start),), 1 << 30, None,
                SegmentState.COPY_SEGMENT_STARTED, True,
            )  # fmt: skip
            finished = SegmentUpdate(partition, key, 1, start, None, SegmentState.COPY_SEGMENT_FINISHED)
            for value in (encode(started), encode(finished)):
                _produce(producer, value, target)
                sent[target] += 1
    if producer.flush(600):
        raise RuntimeError("the broker did not take all records")
    return sent


def _produce(producer: Any, value: bytes, partition: int) -> None:
    while True:
        try:
            producer.produce(METADATA_TOPIC, value, partition=partition)
            break
        except BufferError:
            producer.poll(0.1)
    producer.poll(0)


class OneBrokerTopic:
    """The metadata topic of a cluster of one broker: the engine's own requests and decoding, one fetch at a time."""

    def __init__(self, ports: Ports, port: int, held: Mapping[int, int]) -> None:
        self._ports = ports
        self._peer = PeerClient(ports, "127.0.0.1", port, client_id="bench")
        self._held = held

    async def ensure_created(self, settings: MetadataTopicSettings) -> int:
        return len(self._held)

    async def produce(self, partition: int, value: bytes) -> int:
        raise NotImplementedError("nothing is published here")

    async def offsets(self, partitions: Iterable[int]) -> dict[int, OffsetRange]:
        return {partition: OffsetRange(0, self._held[partition]) for partition in partitions}

    async def fetch(self, positions: Mapping[int, int], *, max_wait_ms: int) -> Sequence[FetchedPartition]:
        waiting = {partition: position for partition, position in positions.items() if position < self._held[partition]}
        if not waiting:
            await asyncio.sleep(max_wait_ms / 1000)
            return []
        request = fetch_request(waiting, max_wait_ms)
        answer = cast(m.FetchResponse, await self._peer.send(request, FETCH_VERSION, timeout_ms=30_000))
        return await self._ports.workers.run(lambda: fetched_partitions(answer, waiting))

    async def close(self) -> None:
        self._peer.close()


class Silent:
    """Nobody looks at events here."""

    def emit(self, type: str, *, topic: str, topic_id: bytes, partition: int, **detail: Any) -> None: ...


def resident_bytes() -> int:
    """Resident memory of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("the system does not tell the process's memory")


async def restart(port: int, held: Mapping[int, int], folder: str) -> tuple[float, float, float, tuple[float, float]]:
    """Seconds until every partition is ready, those of them on a processor, bytes of memory it took, and microseconds
    of a look-up, of them on a processor.
    """
    gc.collect()
    before, started_s, started_cpu_s = resident_bytes(), time.monotonic(), time.process_time()
    ports = system_ports()
    settings = RlmmSettings(MetadataTopicSettings(partitions=len(held)), log_dir=folder)
    manager = TopicBasedRemoteLogMetadataManager(
        OneBrokerTopic(ports, port, held), settings, ports, Silent(), on_fatal=print
    )
    partitions = hosted()
    manager.on_partition_leadership_changes(partitions, ())
    manager.start()
    for partition in partitions:
        if not await manager.wait_ready(partition, TIMEOUT_MS):
            raise RuntimeError(f"metadata of {partition} was not ready within {TIMEOUT_MS / 1000:.0f} s")
    ready_s, ready_cpu_s = time.monotonic() - started_s, time.process_time() - started_cpu_s
    gc.collect()
    taken = float(resident_bytes() - before)
    highest = manager.highest_offset(partitions[0], 0) or 0
    lookup_us = measure_lookup(manager, partitions, highest)
    await manager.close()
    ports.workers.close()
    return ready_s, ready_cpu_s, taken, lookup_us


def measure_lookup(
    manager: TopicBasedRemoteLogMetadataManager, partitions: Sequence[TopicIdPartition], highest: int
) -> tuple[float, float]:
    """Microseconds to find the segment of a random offset of a random partition, and of them on a processor."""
    chance = random.Random(2)
    requested = [(partitions[chance.randrange(PARTITIONS)], chance.randint(0, highest)) for _ in range(LOOKUPS)]
    lookup, started_s, started_cpu_s = manager.lookup, time.perf_counter(), time.process_time()
    for partition, offset in requested:
        lookup(partition, 0, offset)
    taken_s, taken_cpu_s = time.perf_counter() - started_s, time.process_time() - started_cpu_s
    for partition, offset in requested[:100]:
        metadata = lookup(partition, 0, offset)
        if metadata is None or not metadata.start_offset <= offset <= metadata.end_offset:
            raise RuntimeError(f"offset {offset} of {partition} was not found")
    return taken_s / LOOKUPS * 1e6, taken_cpu_s / LOOKUPS * 1e6


def measure_remote_metadata(*, quick: bool) -> Figures:
    """Figures by name."""
    segments = SEGMENTS_QUICK if quick else SEGMENTS
    total = segments * PARTITIONS
    with tempfile.TemporaryDirectory(prefix="ebbline-bench-") as folder, up(Path(folder) / "data", "--brokers", "1"):
        wait_until_ready()
        bootstrap = f"127.0.0.1:{EBBLINE_PORT_BASE}"
        held = fill(bootstrap, segments)
        print(
            f"  {sum(held.values())} events in {len(held)} partitions of {METADATA_TOPIC}", file=sys.stderr, flush=True
        )
        (Path(folder) / "files").mkdir()
        replay_s, replay_cpu_s, taken, lookup_us = asyncio.run(restart(EBBLINE_PORT_BASE, held, f"{folder}/files"))
        files_s, files_cpu_s, _, _ = asyncio.run(restart(EBBLINE_PORT_BASE, held, f"{folder}/files"))
    return {
        f"replay of {2 * total} events, s ({'target at 5.2 million: 25' if quick else 'target: 25'})": replay_s,
        f"replay of {2 * total} events, CPU s": replay_cpu_s,
        f"memory of one of {total} segments, bytes (target: 100)": taken / total,
        "look-up of an offset, us (target: 3)": lookup_us[0],
        "look-up of an offset, CPU us": lookup_us[1],
        f"restart with local files of {total} segments, s": files_s,
        f"restart with local files of {total} segments, CPU s": files_cpu_s,
    }
