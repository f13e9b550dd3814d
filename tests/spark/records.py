"""Records of `__remote_log_metadata` for tests: captured from a real Kafka, or made here."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from backend.protocol.remote_log.metadata_serde import (
    PartitionDelete,
    PartitionDeleteState,
    RemoteLogMetadata,
    SegmentMetadata,
    SegmentState,
    SegmentUpdate,
    encode,
)
from backend.tiering.ids import TopicIdPartition
from spark.decode import RawRecord, to_batch

FIXTURES = Path(__file__).parents[1] / "fixtures" / "apache-kafka-4.3.1"
CAPTURED = ("metadata-records.jsonl", "metadata-records-dangling.jsonl")


def captured(file: str) -> list[dict[str, Any]]:
    """The lines of a fixture: raw value (hex) and what Kafka decoded it to."""
    return [json.loads(line) for line in (FIXTURES / file).read_text().splitlines()]


def raw(lines: list[dict[str, Any]]) -> list[RawRecord]:
    """Fixture lines as the source sees them, in log order."""
    ordered = sorted(lines, key=lambda line: (line["partition"], line["offset"]))
    return [
        (line["partition"], line["offset"], line["timestamp"], None, bytes.fromhex(line["value"])) for line in ordered
    ]


def final_states(lines: list[dict[str, Any]]) -> dict[str, int]:
    """Segment id → last state, as the fixture lists it; Kafka wrote only legal transitions."""
    states: dict[str, int] = {}
    for line in sorted(lines, key=lambda line: (line["partition"], line["offset"])):
        decoded = line["decoded"]
        if "RemoteLogSegmentState" in decoded:
            states[decoded["RemoteLogSegmentId"]["Id"]] = decoded["RemoteLogSegmentState"]
    return states


def life(
    number: int,
    *,
    partition: int = 0,
    topic: str = "orders",
    until: SegmentState = SegmentState.DELETE_SEGMENT_FINISHED,
) -> Iterator[RemoteLogMetadata]:
    """The events of segment ``number`` (100 offsets, 1,000 bytes) from its start until a state."""
    tip = TopicIdPartition(topic, topic.encode().ljust(16, b"\x01")[:16], partition)
    segment_id = number.to_bytes(16, "big")
    start = 100 * number
    yield SegmentMetadata(
        tip, segment_id, start, start + 99, 1, 5_000, 10_000 + number, ((0, start),), 1_000, None,
        SegmentState.COPY_SEGMENT_STARTED,
    )  # fmt: skip
    for state in list(SegmentState)[1 : until + 1]:
        yield SegmentUpdate(tip, segment_id, 1, 10_000 + number + 1_000 * state, None, state)


def delete_partition(partition: int = 0, topic: str = "orders") -> Iterator[RemoteLogMetadata]:
    """The events that remove a partition's remote data."""
    tip = TopicIdPartition(topic, topic.encode().ljust(16, b"\x01")[:16], partition)
    for state in PartitionDeleteState:
        yield PartitionDelete(tip, 1, 90_000 + state, state)


def log(
    events: Iterator[RemoteLogMetadata] | list[RemoteLogMetadata], partition: int = 0, first: int = 0
) -> list[RawRecord]:
    """Events as records of one metadata partition at successive offsets."""
    return [(partition, first + n, 1_700_000_000_000 + n, None, encode(event)) for n, event in enumerate(events)]


def table(records: Sequence[RawRecord]) -> pa.Table:
    """The records as the sink is given them."""
    return pa.Table.from_batches([to_batch(records)])


def mixed(records: int, *, partitions: int = 5, seed: int = 1) -> list[RawRecord]:
    """About ``records`` records over ``partitions`` metadata partitions: lives of segments interleaved, some
    illegal, some repeated, some not readable. The same arguments give the same records."""
    chance = random.Random(seed)
    result: list[RawRecord] = []
    for partition in range(partitions):
        lives: list[Iterator[RemoteLogMetadata]] = []
        number, offset = 0, 0
        while offset < records // partitions:
            if len(lives) < 10 and (not lives or chance.random() < 0.4):
                number += 1
                until = chance.choice(list(SegmentState))
                lives.append(life(partition * 1_000_000 + number, partition=partition, until=until))
            segment_life = chance.choice(lives)
            event = next(segment_life, None)
            if event is None:
                lives.remove(segment_life)
                continue
            value = encode(event)
            odd = chance.random()
            if odd < 0.02:
                value = value[: chance.randrange(len(value))]
            copies = 2 if 0.02 <= odd < 0.04 else 1
            for _ in range(copies):
                result.append((partition, offset, 1_700_000_000_000 + offset, None, value))
                offset += 1
    return result
