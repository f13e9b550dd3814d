"""The works that are measured. Each work takes a peer and gives one figure with its unit."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.benchmarks.bootstrap import bootstrap_copied_mb, bootstrap_seconds
from tests.benchmarks.peers import Peer, files
from tests.benchmarks.verdicts import NO_TARGET, Target

TIERING_TIMEOUT_S = 300.0
TIERED = {"remote.storage.enable": "true", "segment.bytes": str(16 << 20)}


# (system, a topic's name for it alone, whether to be quick) → the figure
Measure = Callable[[Peer, str, bool], float]


@dataclass(frozen=True, slots=True)
class Work:
    """A named measurement and what is wanted of it; one that does not repeat is measured in the first round only."""

    group: str
    name: str
    unit: str
    measure: Measure
    target: Target = NO_TARGET
    repeat: bool = True


def _records(quick: bool, full: int) -> str:
    return str(full // 10 if quick else full)


def produce_burst(peer: Peer, topic: str, quick: bool) -> float:
    peer.create_topic(topic, partitions=1, replicas=1)
    return peer.client("produce", topic, _records(quick, 600_000), "1024", "1")["mb_per_s"]


def produce_sustained(peer: Peer, topic: str, quick: bool) -> float:
    peer.create_topic(topic, partitions=1, replicas=1)
    return peer.client("produce", topic, _records(quick, 2_000_000), "1024", "1")["mb_per_s"]


def produce_acks_all(peer: Peer, topic: str, quick: bool) -> float:
    peer.create_topic(topic, partitions=1, replicas=3, config={"min.insync.replicas": "2"})
    return peer.client("produce", topic, _records(quick, 200_000), "1024", "all")["mb_per_s"]


def produce_single(connections: int) -> Measure:
    """Records of 100 bytes without batching."""

    def measure(peer: Peer, topic: str, quick: bool) -> float:
        peer.create_topic(topic, partitions=1, replicas=1)
        return peer.client("single", topic, _records(quick, 100_000), str(connections))["records_per_s"]

    return measure


def latency(acks: str, replicas: int, figure: str) -> Measure:
    """From the producer's call to the consumer's hands."""

    def measure(peer: Peer, topic: str, quick: bool) -> float:
        key = f"latency {acks} {replicas}"
        # One run gives all its figures: each is taken out of it once.
        if figure not in peer.figures_by_key.get(key, {}):
            config = {"min.insync.replicas": "2"} if replicas > 1 else {}
            peer.create_topic(topic, partitions=1, replicas=replicas, config=config)
            peer.figures_by_key[key] = peer.client("latency", topic, _records(quick, 5_000), acks)
        return peer.figures_by_key[key].pop(figure)

    return measure


def consume_hot(partitions: int) -> Measure:
    """Everything from the beginning while it is in the page cache, the median of three reads of less than a second."""

    def measure(peer: Peer, topic: str, quick: bool) -> float:
        peer.create_topic(topic, partitions=partitions, replicas=1)
        records = _records(quick, 600_000)
        peer.client("produce", topic, records, "1024", "1")
        return peer.client("consume", topic, records, "3")["mb_per_s"]

    return measure


def tier_copy(segment_mib: int, records: int) -> Measure:
    """Time from enabling copies until every closed segment lies in the remote tier."""

    def measure(peer: Peer, topic: str, quick: bool) -> float:
        config = TIERED | {"segment.bytes": str(segment_mib << 20), "remote.log.copy.disable": "true"}
        peer.create_topic(topic, partitions=1, replicas=1, config=config)
        size = peer.client("produce", topic, _records(quick, records), "1024", "1")["bytes"]
        _alter(peer, topic, "remote.log.copy.disable", "false")
        started_s = time.perf_counter()
        # All but the active segment.
        copied = _wait_for_remote(peer, topic, int(size) - (segment_mib << 20))
        return copied / (time.perf_counter() - started_s) / 1e6

    return measure


def consume_cold(peer: Peer, topic: str, quick: bool) -> float:
    """Consume from offset 0 when all but the active segment is only in the remote tier."""
    peer.create_topic(topic, partitions=1, replicas=1, config=TIERED | {"local.retention.bytes": "1"})
    records = _records(quick, 250_000)
    size = peer.client("produce", topic, records, "1024", "1")["bytes"]
    _wait_for_remote(peer, topic, int(size) - (16 << 20))
    _wait_for_local_start(peer, topic)
    return peer.client("consume", topic, records)["mb_per_s"]


def first_byte(peer: Peer, topic: str, quick: bool) -> float:
    """Fetches all over what is only remote, one after the other: median until the answer begins."""
    peer.create_topic(topic, partitions=1, replicas=1, config=TIERED | {"local.retention.bytes": "1"})
    size = peer.client("produce", topic, _records(quick, 250_000), "1024", "1")["bytes"]
    _wait_for_remote(peer, topic, int(size) - (16 << 20))
    _wait_for_local_start(peer, topic)
    return peer.client("first-byte", topic, _records(quick, 1_000), module="tier_client")["p50_ms"]


def times(figure: str) -> Measure:
    """ListOffsets by time on 10,000 remote segments of one record in 10 partitions, one request after the other."""

    def measure(peer: Peer, topic: str, quick: bool) -> float:
        if "times" not in peer.figures_by_key:
            peer.figures_by_key["times"] = _measure_times(peer, topic, 1_000 if quick else 10_000)
        return peer.figures_by_key["times"][figure]

    return measure


def _measure_times(peer: Peer, topic: str, segments: int) -> dict[str, float]:
    config = {
        "remote.storage.enable": "true", "local.retention.bytes": "1", "retention.ms": "-1",
        "index.interval.bytes": "1", "segment.index.bytes": "12", "message.timestamp.after.max.ms": str(2**62),
    }  # fmt: skip
    peer.create_topic(topic, partitions=10, replicas=1, config=config)
    # The last record of a partition stays in its active segment.
    peer.client("write-times", topic, str(segments + 10), module="tier_client")
    _wait_for_segments(peer, topic, segments)
    return peer.client("times", topic, str(segments // 5), module="tier_client")


def start_time(peer: Peer, topic: str, quick: bool) -> float:
    return peer.start_s


def idle_memory(peer: Peer, topic: str, quick: bool) -> float:
    return peer.resident_mb()


def idle_cpu(peer: Peer, topic: str, quick: bool) -> float:
    """Percent of a core."""
    seconds = 3.0 if quick else 10.0
    before, before_s = peer.cpu_s(), time.monotonic()
    time.sleep(seconds)
    return 100 * (peer.cpu_s() - before) / (time.monotonic() - before_s)


NEW_REPLICA = "new replica in sync, 731 MB local, 85 % tiered"
AT_LEAST_AS_MUCH, AT_MOST_AS_MUCH = Target(1.0), Target(1.0, higher_is_better=False)
LESS = Target(higher_is_better=False)
WORKS = (
    Work("start", "start of 3 brokers to first acknowledged record", "s", start_time, Target(0.15, None, False)),
    Work("idle", "resident memory of 3 idle brokers", "MB", idle_memory, Target(0.15, None, False), repeat=False),
    Work("idle", "CPU of 3 idle brokers", "% of a core", idle_cpu, LESS, repeat=False),
    Work("produce", "produce 1 KB, 1 partition, acks=1, 600 MB", "MB/s", produce_burst, Target(1.2)),
    Work("produce", "produce 1 KB, 1 partition, acks=1, 2 GB", "MB/s", produce_sustained, AT_LEAST_AS_MUCH),
    Work("produce", "produce 1 KB, 1 partition, RF 3, acks=all", "MB/s", produce_acks_all, AT_LEAST_AS_MUCH),
    Work(
        "single", "100 B without batching, 8 pipelined connections", "records/s", produce_single(8), Target(0.7, 15_000)
    ),
    Work(
        "single", "100 B without batching, 1 pipelined connection", "records/s", produce_single(1), Target(1.0, 10_000)
    ),
    Work("latency", "end to end at 1,000/s, acks=1, p50", "ms", latency("1", 1, "p50_ms"), AT_MOST_AS_MUCH),
    Work("latency", "end to end at 1,000/s, acks=1, p99", "ms", latency("1", 1, "p99_ms"), AT_MOST_AS_MUCH),
    Work("latency", "end to end at 1,000/s, RF 3, acks=all, p50", "ms", latency("all", 3, "p50_ms"), AT_MOST_AS_MUCH),
    Work("latency", "end to end at 1,000/s, RF 3, acks=all, p99", "ms", latency("all", 3, "p99_ms"), AT_MOST_AS_MUCH),
    Work("consume", "consume hot, 1 partition", "MB/s", consume_hot(1), AT_LEAST_AS_MUCH),
    Work("consume", "consume hot, 6 partitions", "MB/s", consume_hot(6), AT_LEAST_AS_MUCH),
    Work("tiering", "tier copy, 16 MiB segments", "MB/s", tier_copy(16, 250_000), Target(1.5)),
    Work("tiering", "tier copy, 1 MiB segments", "MB/s", tier_copy(1, 60_000), Target(1.5)),
    Work("tiering", "consume cold from the remote tier", "MB/s", consume_cold, AT_LEAST_AS_MUCH),
    Work("tiering", "first byte of a cold fetch, p50", "ms", first_byte, Target(0.5, higher_is_better=False)),
    *(
        Work(
            "times",
            f"ListOffsets by time, 10,000 remote segments, {look}, {share}",
            "ms",
            times(f"{key}_{share}_ms"),
            AT_MOST_AS_MUCH,
            repeat=False,
        )
        for look, key in (("first look", "first"), ("again", "again"))
        for share in ("p50", "p99")
    ),
    Work("bootstrap", f"{NEW_REPLICA}, flag off", "s", bootstrap_seconds(False), LESS, repeat=False),
    Work("bootstrap", f"{NEW_REPLICA}, flag on", "s", bootstrap_seconds(True), LESS, repeat=False),
    Work("bootstrap", "the same, flag off: copied", "MB", bootstrap_copied_mb(False), LESS, repeat=False),
    Work("bootstrap", "the same, flag on: copied", "MB", bootstrap_copied_mb(True), LESS, repeat=False),
)


def _alter(peer: Peer, topic: str, name: str, value: str) -> None:
    admin = AdminClient({"bootstrap.servers": peer.bootstrap, "log_level": 0})
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(timeout=30.0)


def _wait_for_remote(peer: Peer, topic: str, bytes_min: int) -> int:
    deadline_s = time.monotonic() + TIERING_TIMEOUT_S
    while time.monotonic() < deadline_s:
        if (copied := peer.remote_log_bytes(topic)) >= bytes_min:
            return copied
        time.sleep(0.02)
    raise RuntimeError(f"{peer.name}: {topic} had only {peer.remote_log_bytes(topic)} of {bytes_min} bytes in remote")


def _wait_for_local_start(peer: Peer, topic: str) -> None:
    """Until the leader's local log begins in its last 16 MiB: fewer than two `.log` files on disk."""
    data_dirs = [peer.remote.parent / "brokers", *peer.remote.parent.glob("broker-*")]
    deadline_s = time.monotonic() + TIERING_TIMEOUT_S
    while time.monotonic() < deadline_s:
        logs = [log for folder in data_dirs for log in files(folder, f"{topic}-0/*.log")]
        if len(logs) == 1:
            return
        time.sleep(0.2)
    raise RuntimeError(f"{peer.name}: the local log of {topic} still has {len(logs)} segments")


def _wait_for_segments(peer: Peer, topic: str, count: int) -> None:
    """Until so many segments are remote and gone from the local logs."""
    data_dirs = [peer.remote.parent / "brokers", *peer.remote.parent.glob("broker-*")]
    # 20 a second is a slow copier's pace for segments of one record.
    deadline_s = time.monotonic() + max(TIERING_TIMEOUT_S, count / 20)
    copied = local = 0
    while time.monotonic() < deadline_s:
        copied = len(files(peer.remote, f"{topic}-*/*.log"))
        local = sum(len(files(folder, f"{topic}-*/*.log")) for folder in data_dirs)
        if copied >= count and local <= 10:
            return
        time.sleep(1.0)
    raise RuntimeError(f"{peer.name}: {topic} had {copied} of {count} segments in remote and {local} local ones")
