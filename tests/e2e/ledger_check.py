"""The segment ledger in the database against the objects of the remote folder."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy

from backend.store import tables
from backend.store.connection.database import create_engine, reading
from backend.tiering.segment_state import SegmentState

FILES = (".log", ".index", ".timeindex", ".leader_epoch_checkpoint", ".snapshot")


def ledger(database_url: str, topic: str) -> dict[str, tuple[int, int, int, SegmentState]]:
    """(partition, start offset, bytes, state) of every segment that may have objects, by segment id."""
    engine = create_engine(database_url)
    segment = tables.segment
    query = sqlalchemy.select(
        segment.c.segment_id,
        segment.c.partition,
        segment.c.start_offset,
        segment.c.segment_size_bytes,
        segment.c.state,
    ).where(segment.c.topic == topic, segment.c.state != int(SegmentState.DELETE_SEGMENT_FINISHED))
    try:
        with reading(engine) as connection:
            return {row[0]: (row[1], row[2], row[3], SegmentState(row[4])) for row in connection.execute(query)}
    finally:
        engine.dispose()


def objects(remote: Path, topic: str) -> dict[str, tuple[int, int, int, frozenset[str]]]:
    """(partition, start offset, `.log` bytes, file endings) of every segment in the folder, by segment id."""
    segments: dict[str, tuple[int, int, int, set[str]]] = {}
    for folder in remote.rglob(f"{topic}-*"):
        if not folder.is_dir():
            continue
        partition = int(folder.name.removeprefix(f"{topic}-").split("-", 1)[0])
        for path in folder.iterdir():
            start, rest = path.name.split("-", 1)
            segment_id, ending = rest[:22], rest[22:]
            entry = segments.setdefault(segment_id, (partition, int(start), 0, set()))
            entry[3].add(ending)
            if ending == ".log":
                segments[segment_id] = (partition, int(start), path.stat().st_size, entry[3])
    return {segment_id: (p, s, size, frozenset(files)) for segment_id, (p, s, size, files) in segments.items()}


def differences(database_url: str, remote: Path, topic: str) -> list[str]:
    """One sentence per segment on which ledger and folder disagree.

    A copy or deletion that the ledger shows as begun and not ended may have all, some or no
    objects: it is running, or its broker was killed and retention will take it.
    """
    rows, files = ledger(database_url, topic), objects(remote, topic)
    sentences: list[str] = []
    for segment_id in rows.keys() | files.keys():
        row, stored = rows.get(segment_id), files.get(segment_id)
        if row is None:
            sentences.append(f"segment {segment_id} has objects but no row")
        elif row[3] is not SegmentState.COPY_SEGMENT_FINISHED:
            continue
        elif stored is None:
            sentences.append(f"segment {segment_id} has a finished row but no objects")
        elif row[:3] != stored[:3]:
            sentences.append(f"segment {segment_id}: the ledger says {row[:3]}, the objects say {stored[:3]}")
        elif missing := [ending for ending in FILES if ending not in stored[3]]:
            sentences.append(f"segment {segment_id} lacks {', '.join(missing)}")
    return sentences


def finished_segments(database_url: str, topic: str) -> int:
    """Segments whose copy is finished."""
    return sum(row[3] is SegmentState.COPY_SEGMENT_FINISHED for row in ledger(database_url, topic).values())
