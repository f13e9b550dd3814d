"""First records of a transaction between their confirmation and their append (KIP-890)."""

from __future__ import annotations

from typing import Final

import pytest

from backend.engine.log.producers.transaction_verification import PendingVerifications, VerificationStateEntry
from backend.protocol.errors import ErrorCode, KafkaError
from backend.protocol.record_batches.record_batch import BatchHeader, build_batch, parse_header
from backend.protocol.record_batches.record_codec import RecordData

NOW: Final = 1_000


def batch(sequence: int, epoch: int = 0) -> BatchHeader:
    return parse_header(
        build_batch(
            [RecordData(0, None, b"v")], producer_id=7, producer_epoch=epoch, base_sequence=sequence, transactional=True
        )
    )


def refused(
    pending: PendingVerifications, header: BatchHeader, verification: VerificationStateEntry, *, knows_producer: bool
) -> ErrorCode:
    with pytest.raises(KafkaError) as error:
        pending.check(header, verification, knows_producer=knows_producer)
    return error.value.code


def test_what_was_confirmed_before_a_marker_is_not_appended_after_it() -> None:
    pending_verifications = PendingVerifications()
    first = pending_verifications.begin(batch(0), bumps_epoch=True, now_ms=NOW)
    pending_verifications.check(batch(0), first, knows_producer=False)
    pending_verifications.ended(7, marker_epoch=1)
    assert refused(pending_verifications, batch(0), first, knows_producer=False) is ErrorCode.INVALID_TXN_STATE
    second = pending_verifications.begin(batch(0), bumps_epoch=True, now_ms=NOW)
    assert second is not first
    assert refused(pending_verifications, batch(0), first, knows_producer=False) is ErrorCode.INVALID_TXN_STATE


def test_the_next_transaction_may_wait_before_the_marker_of_the_last_one_is_written() -> None:
    pending_verifications = PendingVerifications()
    # The marker of a producer that bumps its epoch has the epoch of what comes after it.
    after = pending_verifications.begin(batch(0, epoch=1), bumps_epoch=True, now_ms=NOW)
    pending_verifications.ended(7, marker_epoch=1)
    pending_verifications.check(batch(0, epoch=1), after, knows_producer=False)
    pending_verifications.ended(7, marker_epoch=2)
    assert refused(pending_verifications, batch(0, epoch=1), after, knows_producer=False) is ErrorCode.INVALID_TXN_STATE
    # One that keeps its epoch may have been ended itself.
    pending_verifications = PendingVerifications()
    same = pending_verifications.begin(batch(0), bumps_epoch=False, now_ms=NOW)
    pending_verifications.ended(7, marker_epoch=0)
    assert refused(pending_verifications, batch(0), same, knows_producer=False) is ErrorCode.INVALID_TXN_STATE


def test_a_later_batch_does_not_overtake_one_that_still_waits() -> None:
    pending_verifications = PendingVerifications()
    first = pending_verifications.begin(batch(0), bumps_epoch=False, now_ms=NOW)
    assert pending_verifications.begin(batch(3), bumps_epoch=False, now_ms=NOW) is first
    assert (
        refused(pending_verifications, batch(3), first, knows_producer=True) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    )
    pending_verifications.check(batch(0), first, knows_producer=True)


def test_a_new_epoch_expects_its_own_first_sequence() -> None:
    pending_verifications = PendingVerifications()
    first = pending_verifications.begin(batch(0), bumps_epoch=False, now_ms=NOW)
    assert pending_verifications.begin(batch(4, epoch=1), bumps_epoch=False, now_ms=NOW) is first
    pending_verifications.check(batch(4, epoch=1), first, knows_producer=True)
    assert pending_verifications.begin(batch(0, epoch=0), bumps_epoch=False, now_ms=NOW).lowest_sequence == 4


def test_a_producer_that_bumps_its_epoch_begins_with_sequence_0_where_it_is_unknown() -> None:
    pending_verifications = PendingVerifications()
    first = pending_verifications.begin(batch(5), bumps_epoch=True, now_ms=NOW)
    assert (
        refused(pending_verifications, batch(5), first, knows_producer=False) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    )
    pending_verifications.check(batch(5), first, knows_producer=True)


def test_what_is_never_followed_by_records_is_forgotten() -> None:
    pending_verifications = PendingVerifications()
    pending_verifications.begin(batch(0), bumps_epoch=True, now_ms=NOW)
    pending_verifications.remove_expired(NOW + 99, 100)
    assert len(pending_verifications) == 1
    pending_verifications.remove_expired(NOW + 100, 100)
    assert len(pending_verifications) == 0
