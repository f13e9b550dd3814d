"""Idempotent and transactional producers on one partition."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.engine.log.log_appender import AppendInfo
from backend.engine.log.log_config import INT32_MAX
from backend.engine.log.producers.producer_entry import first_sequence_of, last_sequence_of
from backend.engine.log.producers.producer_snapshot import (
    CorruptSnapshot,
    decode_snapshot,
    encode_snapshot,
    java_map_order,
)
from backend.engine.log.unified_log import UnifiedLog
from backend.protocol.errors import ErrorCode, KafkaError
from backend.protocol.record_batches.control_records import end_txn_marker
from tests.unit.engine.log.logs import NOW_MS, append, batch, open_test_log, replicate


def produce(
    log: UnifiedLog, sequence: int, count: int = 1, *, producer: int = 7, epoch: int = 0, transactional: bool = False
) -> AppendInfo:
    data = batch(
        0, count, producer_id=producer, producer_epoch=epoch, base_sequence=sequence, transactional=transactional
    )
    return log.append_as_leader(memoryview(data), 0, now_ms=NOW_MS)


def refused(log: UnifiedLog, sequence: int, **fields: int) -> ErrorCode:
    end = log.log_end_offset
    with pytest.raises(KafkaError) as caught:
        produce(log, sequence, **fields)  # type: ignore[arg-type]  # ints of produce's own names
    assert log.log_end_offset == end
    return caught.value.code


def end_txn(log: UnifiedLog, *, commit: bool, producer: int = 7, epoch: int = 0, coordinator_epoch: int = 0) -> None:
    marker = end_txn_marker(
        commit=commit,
        producer_id=producer,
        producer_epoch=epoch,
        coordinator_epoch=coordinator_epoch,
        timestamp_ms=NOW_MS,
    )
    log.append_as_leader(memoryview(marker), 0, now_ms=NOW_MS, origin="coordinator")


def test_a_repeated_batch_is_answered_with_its_first_offsets(tmp_path: Path) -> None:
    log = open_test_log(tmp_path)
    first = produce(log, 0, 3)
    produce(log, 3, 2)
    again = produce(log, 0, 3)
    assert again.duplicate
    assert (again.first_offset, again.last_offset) == (first.first_offset, first.last_offset) == (0, 2)
    assert log.log_end_offset == 5


def test_the_last_five_batches_are_recognised_and_no_more(tmp_path: Path) -> None:
    log = open_test_log(tmp_path)
    for sequence in range(6):
        produce(log, sequence)
    for sequence in range(1, 6):
        assert produce(log, sequence).duplicate
    assert refused(log, 0) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_gap_in_the_sequence_is_refused_except_for_an_unknown_producer(tmp_path: Path) -> None:
    log = open_test_log(tmp_path)
    produce(log, 5)
    assert refused(log, 7) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    produce(log, 6)


def test_part_of_an_earlier_batch_is_no_duplicate(tmp_path: Path) -> None:
    log = open_test_log(tmp_path)
    produce(log, 0, 3)
    assert refused(log, 0, count=2) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_new_epoch_starts_at_sequence_0_and_fences_the_old(tmp_path: Path) -> None:
    log = open_test_log(tmp_path)
    produce(log, 0)
    assert refused(log, 1, epoch=1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    produce(log, 0, epoch=1)
    assert refused(log, 1, epoch=0) == ErrorCode.INVALID_PRODUCER_EPOCH
    produce(log, 1, epoch=1)


def test_sequences_wrap_to_0(tmp_path: Path) -> None:
    assert last_sequence_of(INT32_MAX, 1) == 0
    assert first_sequence_of(0, 1) == INT32_MAX
    assert first_sequence_of(last_sequence_of(INT32_MAX - 3, 9), 9) == INT32_MAX - 3
    log = open_test_log(tmp_path)
    produce(log, INT32_MAX - 1, 4)
    assert produce(log, INT32_MAX - 1, 4).duplicate
    produce(log, 2)


def test_the_state_survives_a_clean_stop_and_a_kill(tmp_path: Path) -> None:
    for clean in (True, False):
        log = open_test_log(tmp_path / str(clean))
        produce(log, 0)
        log.roll()
        produce(log, 1)
        if clean:
            log.close()
        else:
            log.close_files()
        again = open_test_log(tmp_path / str(clean), clean=clean)
        # A snapshot holds a producer's last batch only, as in Kafka.
        assert produce(again, 1).duplicate
        assert refused(again, 3) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        produce(again, 2)


def test_truncation_takes_producers_back(tmp_path: Path) -> None:
    log = open_test_log(tmp_path)
    produce(log, 0)
    log.roll()
    produce(log, 1)
    produce(log, 2)
    log.truncate_to(2)
    produce(log, 2)
    assert [offset for offset in log.producer_state.snapshots if offset > 2] == []


def test_silent_producers_are_forgotten_but_not_in_a_transaction(tmp_path: Path) -> None:
    log = open_test_log(tmp_path)
    produce(log, 0)
    produce(log, 0, producer=8, transactional=True)
    later_ms = NOW_MS + log.producer_state.expiration_ms
    assert log.producer_state.remove_expired(later_ms - 1) == 0
    assert log.producer_state.remove_expired(later_ms) == 1
    assert [entry.producer_id for entry in log.producer_state.producers] == [8]
    produce(log, 50)


def test_an_open_transaction_holds_the_last_stable_offset(tmp_path: Path) -> None:
    log = open_test_log(tmp_path)
    append(log, 0)
    produce(log, 0, transactional=True)
    append(log, 1)
    produce(log, 0, producer=8, transactional=True)
    replicate(log)
    assert (log.last_stable_offset, log.high_watermark) == (1, 4)
    end_txn(log, commit=True)
    replicate(log)
    assert log.last_stable_offset == 3
    end_txn(log, commit=True, producer=8)
    assert log.last_stable_offset == 3
    replicate(log)
    assert log.last_stable_offset == log.high_watermark == 6
    assert log.reader.aborted_transactions(0, 6) == []


def test_a_transaction_that_is_stable_stays_so_when_records_behind_it_are_cut_off(tmp_path: Path) -> None:
    log = open_test_log(tmp_path)
    produce(log, 0, transactional=True)
    log.roll()
    end_txn(log, commit=True)
    replicate(log)
    append(log, 0)
    log.truncate_to(2)
    assert log.last_stable_offset == log.high_watermark == log.log_end_offset == 2
    produce(log, 1, transactional=True)
    end_txn(log, commit=True)
    append(log, 1)
    log.truncate_to(4)
    assert (log.last_stable_offset, log.high_watermark) == (2, 2), "the marker at 3 is not replicated yet"


def test_aborted_transactions_are_listed_with_the_stable_offset_of_their_time(tmp_path: Path) -> None:
    log = open_test_log(tmp_path)
    produce(log, 0, transactional=True)
    produce(log, 0, producer=8, transactional=True)
    end_txn(log, commit=False, producer=8)
    end_txn(log, commit=False)
    replicate(log)
    aborted = [
        (t.producer_id, t.first_offset, t.last_offset, t.last_stable_offset)
        for t in log.reader.aborted_transactions(0, 4)
    ]
    assert aborted == [(8, 1, 2, 0), (7, 0, 3, 4)]
    assert [t.producer_id for t in log.reader.aborted_transactions(3, 4)] == [7]


@pytest.mark.parametrize("rolled", [False, True])
def test_a_read_tells_of_the_aborted_transactions_among_its_records(tmp_path: Path, rolled: bool) -> None:
    log = open_test_log(tmp_path)
    append(log, 0)
    known_empty = log.reader.read(0, 1000, up_to_offset=1, min_one_message=True)
    assert list(log.reader.aborted_in(0, known_empty)) == []
    produce(log, 0, transactional=True)
    end_txn(log, commit=False)
    if rolled:
        log.roll()
        append(log, 1)
    replicate(log)
    for start in (0, 1):
        info = log.reader.read(start, 1000, up_to_offset=log.log_end_offset, min_one_message=True)
        assert [t.first_offset for t in log.reader.aborted_in(start, info)] == [1]
    nothing = log.reader.read(log.log_end_offset, 1000, up_to_offset=log.log_end_offset, min_one_message=True)
    assert list(log.reader.aborted_in(log.log_end_offset, nothing)) == []
    if rolled:
        later = log.reader.read(3, 1000, up_to_offset=4, min_one_message=True)
        assert list(log.reader.aborted_in(3, later)) == []


def test_an_aborted_transaction_is_in_the_index_after_recovery_and_gone_after_truncation(tmp_path: Path) -> None:
    log = open_test_log(tmp_path)
    produce(log, 0, transactional=True)
    end_txn(log, commit=False)
    expected = log.reader.aborted_transactions(0, 2)
    log.close_files()
    again = open_test_log(tmp_path)
    assert again.reader.aborted_transactions(0, 2) == expected != []
    again.truncate_to(1)
    assert again.reader.aborted_transactions(0, 2) == []
    assert not Path(again.active_segment.files.txn_index_path).exists()
    replicate(again)
    assert again.last_stable_offset == 0


def test_a_marker_of_an_epoch_that_no_producer_has_is_refused(tmp_path: Path) -> None:
    log = open_test_log(tmp_path)
    with pytest.raises(KafkaError) as caught:
        end_txn(log, commit=False, producer=8, epoch=-5)
    assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert log.log_end_offset == 0


def test_ordinary_batches_are_refused_in_a_transaction_and_old_markers_always(tmp_path: Path) -> None:
    log = open_test_log(tmp_path)
    produce(log, 0, epoch=2, transactional=True)
    assert refused(log, 1, epoch=2) == ErrorCode.INVALID_TXN_STATE
    with pytest.raises(KafkaError) as caught:
        end_txn(log, commit=True, epoch=1)
    assert caught.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
    end_txn(log, commit=True, epoch=2, coordinator_epoch=4)
    with pytest.raises(KafkaError) as caught:
        end_txn(log, commit=True, epoch=2, coordinator_epoch=3)
    assert caught.value.code == ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_a_snapshot_from_the_remote_tier_replaces_the_state(tmp_path: Path) -> None:
    leader = open_test_log(tmp_path / "leader")
    produce(leader, 0)
    leader.roll()
    data = leader.producer_state.snapshot_bytes(1)
    assert data is not None
    follower = open_test_log(tmp_path / "follower")
    append(follower, 0)
    follower.truncate_fully_and_start_at(1, 0)
    follower.producer_state.load_snapshot(1, data)
    assert follower.producer_state.snapshots == (1,)
    assert follower.producer_state.snapshot_bytes(1) == data
    assert produce(follower, 0).duplicate
    produce(follower, 1)
    with pytest.raises(CorruptSnapshot):
        follower.producer_state.load_snapshot(1, data[:-1])


def test_a_damaged_snapshot_file_is_replaced_by_reading_more_of_the_log(tmp_path: Path) -> None:
    log = open_test_log(tmp_path)
    produce(log, 0)
    log.roll()
    produce(log, 1)
    log.close()
    newest = Path(log.producer_state.path(2))
    newest.write_bytes(newest.read_bytes()[:-1] + b"?")
    again = open_test_log(tmp_path, clean=True)
    assert produce(again, 1).duplicate


@pytest.mark.parametrize("position", range(10))
def test_a_snapshot_with_any_byte_changed_is_refused(position: int) -> None:
    data = bytearray(encode_snapshot([]))
    data[position] ^= 1
    with pytest.raises(CorruptSnapshot):
        decode_snapshot(bytes(data))


def test_snapshot_order_is_that_of_a_java_hash_map() -> None:
    assert java_map_order([2000, 1000, 3, 17, 1]) == [2000, 17, 1, 3, 1000]
