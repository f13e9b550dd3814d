"""Records with all that can be wrong with lives of segments and with a log, and with what no decoder gives."""

from __future__ import annotations

import random
from typing import Any, Final

import pyarrow as pa

from spark.schemas import KIND_PARTITION_DELETE, KIND_SEGMENT, KIND_UPDATE, RECORD_ARROW, RECORD_COLUMNS

Record = dict[str, Any]
NAMES: Final = {"id-of-orders": "orders", "id-of-logs": "lögs"}
ODD_LIVES: Final = ([0, 0, 1], [0, 1, 1], [1, 0, 1], [1], [2, 3], [0, 2, 3], [0, 3, 1], [3, 2, 1, 0], [0, 1, 2, 3, 3])
CLOCKS: Final = (-(10**12), -1, 0, 1, 2, 1_700_000_000_000, (1 << 43) - 1, 1 << 43, 1 << 62)


def disorderly(chance: random.Random) -> pa.Table:
    """Up to about 60 records of a few partitions (`spark.schemas.RECORD_ARROW`)."""
    lives = [_life(chance, f"segment-{chance.randrange(20)}") for _ in range(chance.randrange(19))]
    lives += [[_partition_delete(chance)] for _ in range(chance.choice((0, 0, 1, 3)))]
    lives += [[_unreadable(chance)] for _ in range(chance.choice((0, 0, 1, 3)))]
    records = _log(chance, lives)
    if chance.random() < 0.1:
        for record in records:  # one topic id has two names
            record["topic"] = record["topic"] and chance.choice(("orders", "renamed"))
    if records and chance.random() < 0.1:
        chance.choice(records)["broker_id"] = None
    records += chance.sample(records, len(records) // 5) if chance.random() < 0.3 else []
    if chance.random() < 0.9:
        records.sort(key=lambda record: (record["metadata_partition"], record["metadata_offset"]))
    return pa.Table.from_pylist(records, schema=RECORD_ARROW)


def _log(chance: random.Random, lives: list[list[Record]]) -> list[Record]:
    """The events of the lives interleaved, each at a place in one of three logs."""
    home = [chance.randrange(3) for _ in lives]
    ends = [0, 10**12, chance.randrange(9)]
    turns = chance.sample([which for which, life in enumerate(lives) for _ in life], sum(map(len, lives)))
    coming = [iter(life) for life in lives]
    records: list[Record] = []
    for which in turns:
        log = home[which] if chance.random() < 0.98 else chance.randrange(3)
        place = {"metadata_partition": log, "metadata_offset": ends[log], "record_timestamp_ms": chance.choice(CLOCKS)}
        records.append(dict.fromkeys(RECORD_COLUMNS) | next(coming[which]) | place)
        ends[log] += chance.choice((1, 1, 1, 5))
    return records


def _about(chance: random.Random) -> Record:
    topic_id = chance.choice(list(NAMES))
    at_ms = chance.choice(CLOCKS) if chance.random() < 0.3 else chance.randrange(10**6)
    return {
        "topic": NAMES[topic_id],
        "topic_id": topic_id,
        "partition": chance.choice((0, 1, 256)),
        "broker_id": chance.randrange(3),
        "event_timestamp_ms": at_ms,
    }


def _life(chance: random.Random, segment_id: str) -> list[Record]:
    states = chance.choice(ODD_LIVES) if chance.random() < 0.3 else list(range(chance.randrange(1, 5)))
    of = {name: value for name, value in _about(chance).items() if name in ("topic", "topic_id", "partition")}
    events: list[Record] = []
    for state in states:
        right = chance.random() < 0.9
        start = (state == 0) == right
        events.append(_about(chance) | of | {"segment_id": segment_id, "state": state, "kind": KIND_UPDATE})
        if start:
            events[-1] |= {"kind": KIND_SEGMENT} | _start(chance)
        events[-1]["custom_metadata"] = chance.choice((None, None, b"", b"\x00custom"))
    return events


def _start(chance: random.Random) -> Record:
    values = {
        "start_offset": chance.choice((0, 100, 1 << 60)),
        "end_offset": chance.choice((0, 199, (1 << 60) + 1)),
        "max_timestamp_ms": chance.choice((-1, 5_000)),
        "segment_size_bytes": chance.choice((0, 1_000, (1 << 31) - 1)),
        "leader_epochs": chance.choice(("[[0, 100]]", "[[0, 100], [3, 150]]")),
        "txn_index_empty": chance.choice((False, True)),
    }
    return {name: None if chance.random() < 0.02 else value for name, value in values.items()}


def _partition_delete(chance: random.Random) -> Record:
    return _about(chance) | {"kind": KIND_PARTITION_DELETE, "state": chance.randrange(3)}


def _unreadable(chance: random.Random) -> Record:
    return {"problem": "malformed", "raw_key": chance.choice((None, b"key")), "raw_value": b"\x00value"}
