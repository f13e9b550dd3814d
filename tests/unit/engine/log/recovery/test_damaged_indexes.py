"""Damaged index files of sealed segments: what needs them fails for a moment, everything else goes on, and they are
made again from the records.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from backend.engine.log.log_errors import DamagedIndex
from backend.engine.log.manager.housekeeping import Housekeeping
from backend.engine.log.unified_log import UnifiedLog
from backend.engine.ports import system_ports
from backend.protocol.errors import ErrorCode, KafkaError
from tests.unit.engine.log.logs import NOW_MS, append, batch, files, open_test_log, replicate, values

JUNK = bytes(range(250, 256)) * 6


def sealed(folder: Path) -> UnifiedLog:
    """Offsets 0-4 and 5-9 sealed, 10 active, nothing in memory; an aborted transaction ends at 9."""
    log = open_test_log(folder)
    append(log, 0, 1, 2, 3, 4)
    log.roll()
    append(log, 5, 6, 7)
    log.append_as_leader(memoryview(batch(8, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)), 0,
                         now_ms=NOW_MS)  # fmt: skip
    append(log, 9)
    log.roll()
    append(log, 10)
    replicate(log)
    for segment in log.segments[:-1]:
        segment.release()
        segment.forget_damage()
    return log


def path(folder: Path, suffix: str, base: int = 5) -> Path:
    return folder / "orders-0" / f"{base:020d}{suffix}"


def enqueue(log: UnifiedLog) -> None:
    async def work() -> None:
        housekeeping = Housekeeping(system_ports(), lambda: [log])
        housekeeping.enqueue(log)
        await housekeeping.work()

    asyncio.run(work())


def spoil(file: Path) -> None:
    file.write_bytes(JUNK)


@pytest.mark.parametrize("damage", [spoil, Path.unlink, lambda file: file.write_bytes(file.read_bytes()[:-3])])
def test_an_offset_index_is_made_again_and_the_log_stays_in_use(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    log = sealed(tmp_path)
    whole = files(tmp_path)
    damage(path(tmp_path, ".index"))
    with pytest.raises(DamagedIndex) as caught:
        log.reader.read(7, 100, up_to_offset=11, min_one_message=True)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    # Reads that do not need it are served: another segment, the active one, the end of the log.
    assert log.offline_reason is None
    assert log.reader.read(2, 100, up_to_offset=11, min_one_message=True).records
    assert log.reader.read(10, 100, up_to_offset=11, min_one_message=True).records
    append(log, 11)
    enqueue(log)
    assert values(log, 5)[:3] == [(5, b"v5"), (6, b"v6"), (7, b"v7")]
    assert {name: data for name, data in files(tmp_path).items() if data != whole.get(name)}.keys() <= {
        "00000000000000000010.log"
    }


def test_an_index_that_leads_past_its_offset_hides_no_record(tmp_path: Path) -> None:
    log = sealed(tmp_path)
    segment = log.segments[1]
    entries = segment.offset_index.entries()
    segment.release()
    # The first entry leads where the third one does, the others further on: it ascends, and it is wrong.
    moved = [entries[0][0], entries[2][1]]
    data = (moved[0] - 5).to_bytes(4, "big") + moved[1].to_bytes(4, "big")
    path(tmp_path, ".index").write_bytes(data)
    with pytest.raises(DamagedIndex):
        log.reader.read(entries[0][0] + 1, 100, up_to_offset=11, min_one_message=True)
    enqueue(log)
    assert values(log, 5)[:3] == [(5, b"v5"), (6, b"v6"), (7, b"v7")]


@pytest.mark.parametrize("suffix", [".timeindex", ".txnindex"])
def test_time_and_transaction_indexes_are_made_again(tmp_path: Path, suffix: str) -> None:
    log = sealed(tmp_path)
    spoil(path(tmp_path, suffix))
    look_up = partial(log.reader.offset_by_timestamp, NOW_MS + 7)
    with pytest.raises(DamagedIndex):
        (look_up if suffix == ".timeindex" else partial(log.reader.aborted_transactions, 5, 10))()
    assert log.offline_reason is None
    enqueue(log)
    offset = log.reader.offset_by_timestamp(NOW_MS + 7)
    assert offset is not None
    assert offset.offset == 7
    assert log.reader.aborted_transactions(5, 10) == []


def test_retention_does_not_believe_a_damaged_time_index(tmp_path: Path) -> None:
    log = sealed(tmp_path)
    # A time long ago, with an offset that no record of the segment has.
    path(tmp_path, ".timeindex", 0).write_bytes((1).to_bytes(8, "big") + (77).to_bytes(4, "big"))
    with pytest.raises(DamagedIndex):
        log.delete_old_segments(NOW_MS + 100)
    enqueue(log)
    assert log.delete_old_segments(NOW_MS + 100) == 0
    assert len(log.segments) == 3


def test_damaged_records_are_found_when_their_index_is_made_again(tmp_path: Path) -> None:
    log = sealed(tmp_path)
    spoil(path(tmp_path, ".index"))
    data = bytearray(path(tmp_path, ".log").read_bytes())
    data[100] ^= 1
    path(tmp_path, ".log").write_bytes(data)
    with pytest.raises(DamagedIndex):
        log.reader.read(7, 100, up_to_offset=11, min_one_message=True)
    enqueue(log)
    assert "does not match its bytes" in str(log.offline_reason)
    with pytest.raises(KafkaError):
        append(log, 11)
