"""Compaction against what Apache Kafka 4.3.1 made of the same log.

`compacted/before` is the folder of a partition before its broker's cleaner was let loose on it, with its active segment
as it stood; `compacted/after` is the same folder after one cleaning and a clean stop. Plain idempotent writes,
transactions that were committed and aborted (zstd), tombstones; 120 bytes of index a segment.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from backend.engine.log.unified_log import UnifiedLog
from tests.unit.engine.log.cleaner.test_log_cleaner import COMPACT, batches, clean, content
from tests.unit.engine.log.logs import FIXTURES, NOW_MS, open_test_log, replicate

# Offsets below were cleaned; Kafka's cleaner-offset-checkpoint said so.
CLEANED_TO = 132
# Later than the records, as the cleaning was.
LATER_MS = NOW_MS + 10 * 365 * 86_400_000

# The settings of the topic.
CONFIG = replace(COMPACT, segment_index_bytes=120)

Row = tuple[object, ...]


def opened(folder: Path, which: str, *, clean_stop: bool) -> UnifiedLog:
    shutil.copytree(FIXTURES / "compacted" / which, folder / "orders-0")
    (folder / "orders-0" / "partition.metadata").unlink()
    log = open_test_log(folder, CONFIG, clean=clean_stop)
    replicate(log)
    return log


def rows(log: UnifiedLog) -> list[Row]:
    """All that two cleanings of one log must agree in: not the time from which tombstones may go."""
    return [
        (
            header.base_offset, header.last_offset, header.leader_epoch, header.attributes, header.max_timestamp,
            header.producer_id, header.producer_epoch, header.base_sequence, tuple(records),
        )
        for header, records in batches(log)
        if header.base_offset < CLEANED_TO
    ]  # fmt: skip


def test_a_log_that_kafka_compacted_opens_reads_and_is_cleaned_on(tmp_path: Path) -> None:
    log = opened(tmp_path, "after", clean_stop=True)
    log.check()
    left = {key: value for _, key, value in content(log)}
    log.cleaning.checkpoint = CLEANED_TO
    log.roll()
    clean(log, LATER_MS)
    # A second cleaning finds the tombstones' time over.
    assert {key: value for _, key, value in content(log)} == {k: v for k, v in left.items() if v is not None}


def test_our_cleaner_leaves_batch_for_batch_what_kafka_s_left(tmp_path: Path) -> None:
    theirs = opened(tmp_path / "theirs", "after", clean_stop=True)
    ours = opened(tmp_path / "ours", "before", clean_stop=False)
    assert len(batches(ours)) > 1.3 * len(batches(theirs))
    clean(ours, LATER_MS)
    assert ours.cleaning.checkpoint == CLEANED_TO
    assert rows(ours) == rows(theirs)
    assert any(row[3] == 0x40 for row in rows(theirs)), "no delete horizon was seen"
    assert ours.reader.aborted_transactions(0, CLEANED_TO) == theirs.reader.aborted_transactions(0, CLEANED_TO)
    assert [s.base_offset for s in ours.segments] == [s.base_offset for s in theirs.segments]
    for mine, kafkas in zip(ours.segments, theirs.segments, strict=True):
        if mine.sealed and kafkas.sealed:
            # Another zstd makes frames of other sizes, so positions differ.
            assert [at for at, _ in mine.offset_index.entries()] == [at for at, _ in kafkas.offset_index.entries()]
            assert mine.max_timestamp_and_offset == kafkas.max_timestamp_and_offset
