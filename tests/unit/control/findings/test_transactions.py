"""A transaction that stays open holds copying: what is said of it, when, and what it explains."""

from __future__ import annotations

from typing import Any

from backend.control.findings.evaluate import candidates
from backend.control.findings.finding_context import Candidate, FindingKey
from backend.control.findings.still_offsets import PartitionStill, StillOffset
from backend.control.gateway.requests.transaction_requests import CoordinatedTransaction, OpenTransaction
from tests.unit.control.findings.sights import MINUTE_MS, NOW_MS, context, partition, topic

SECOND_MS = 1_000
FORGOTTEN = CoordinatedTransaction(4711, "forgotten", "Ongoing", NOW_MS - 40_000, 600_000)


def still(age_ms: int, *numbers: int, offset: int = 800) -> dict[tuple[str, int], PartitionStill]:
    stable = StillOffset(offset, NOW_MS - age_ms)
    return {("orders", number): PartitionStill("id-orders", stable, stable) for number in numbers or (0,)}


def transaction(number: int = 0, **more: Any) -> OpenTransaction:
    row: dict[str, Any] = {"start_offset": 800, "producer_id": 4711, "producer_epoch": 3, "coordinator_epoch": 0}
    return OpenTransaction(**row | {"topic": "orders", "partition": number, "written_ms": None} | more)


def raised(**more: Any) -> dict[FindingKey, Candidate]:
    """The context's partition has 200 bytes pending and segments of 100."""
    return {key: c for key, c in candidates(context(**more)).items() if key[0] != "metadata-unsafe"}


def held(**more: Any) -> Candidate:
    (candidate,) = (c for c in raised(**more).values() if c.slug == "transaction-open")
    return candidate


def test_it_is_told_with_producer_and_transactional_id_and_the_command_that_ends_it() -> None:
    transactions = {("orders", 0): transaction(coordinated=FORGOTTEN)}
    candidate = held(still=still(20 * SECOND_MS), transactions=transactions)
    assert (candidate.severity, candidate.object, candidate.for_ms) == ("warning", "orders-0", 0)
    assert candidate.sentence == "Copying waits for a transaction: orders-0"
    assert candidate.why == (
        "From offset 800, open for 40 s, producer id 4711 (transactional id forgotten). Nothing from there on is"
        " copied, and readers of committed records stand there. Its coordinator aborts it in 9 m 20 s by itself."
    )
    assert candidate.action == (
        "Restart its producer (its transactional id fences the old one), or wait 9 m 20 s until the coordinator aborts"
        " it. Without the producer, with the tools of Kafka 4.3: kafka-transactions.sh --bootstrap-server"
        " 127.0.0.1:9092 forceTerminateTransaction --transactionalId forgotten (the coordinator then aborts it at"
        " once)."
    )
    assert candidate.facts["transactional_id"] == "forgotten"


def test_a_marker_by_hand_is_advised_only_for_a_transaction_that_no_coordinator_has_open() -> None:
    numbers = range(12)
    rows = {"partitions": [partition(index=n) for n in numbers], "still": still(MINUTE_MS, *numbers)}
    hanging = held(**rows, transactions={("orders", n): transaction(n) for n in numbers})
    assert hanging.action.count(" abort --topic orders --partition ") == 10
    assert "--partition 3 --start-offset 800; kafka-transactions.sh" in hanging.action
    assert hanging.action.endswith("--partition 9 --start-offset 800 (and 2 more partitions).")
    assert "find-hanging --topic orders" in hanging.action
    ended = CoordinatedTransaction(4711, "forgotten", "CompleteAbort", None, None)
    of_ended = held(**rows, transactions={("orders", n): transaction(n, coordinated=ended) for n in numbers})
    assert " abort --topic" in of_ended.action
    assert "its coordinator has it as CompleteAbort" in of_ended.why
    for state in ("Ongoing", "PrepareCommit"):
        named = CoordinatedTransaction(4711, "it's", state, None, None)
        listed = held(still=still(MINUTE_MS), transactions={("orders", 0): transaction(coordinated=named)})
        assert " abort --topic" not in listed.action
        assert """--transactionalId 'it'"'"'s' """ in listed.action
    assert " abort --topic" not in held(still=still(MINUTE_MS)).action


def test_it_is_told_after_20_seconds_where_sealed_data_waits() -> None:
    assert raised(still=still(20 * SECOND_MS - 1)) == {}
    assert set(raised(still=still(20 * SECOND_MS))) == {("transaction-open", "orders-0")}


def test_elsewhere_it_is_a_notice_after_the_longest_time_that_kafka_allows() -> None:
    small = {"topics": {"orders": topic(segment_bytes="1000")}}
    plain = {"partitions": [partition(tiered=False)]}
    paused = {"topics": {"orders": topic(remote_log_copy_disable="true")}}
    for elsewhere in (small, plain, paused):
        assert raised(still=still(15 * MINUTE_MS - 1), **elsewhere) == {}
        candidate = held(still=still(15 * MINUTE_MS), **elsewhere)
        assert (candidate.severity, candidate.sentence) == ("notice", "A transaction stays open: orders-0")
        assert "is copied" not in candidate.why


def test_without_the_right_to_describe_it_the_offset_and_how_to_see_its_producer_are_told() -> None:
    candidate = held(still=still(MINUTE_MS))
    assert candidate.why.startswith("From offset 800, open for 1 m, its producer is not known.")
    assert "describe-producers --topic orders --partition 0" in candidate.action
    hanging = held(still=still(MINUTE_MS), transactions={("orders", 0): transaction()})
    assert "producer id 4711 (no coordinator lists it)" in hanging.why
    # An answer about the transaction before.
    before = held(still=still(MINUTE_MS), transactions={("orders", 0): transaction(start_offset=700)})
    assert before.facts["producer_id"] is None


def test_one_transaction_is_one_finding_however_many_partitions_it_holds() -> None:
    numbers = range(200)
    candidate = held(
        partitions=[partition(index=number) for number in numbers],
        still=still(MINUTE_MS, *numbers),
        transactions={("orders", number): transaction(number) for number in numbers},
    )
    assert candidate.sentence == "Copying waits for a transaction: orders-0 and 199 more partitions"
    assert (candidate.facts["partitions"], len(candidate.facts["first"])) == (200, 10)
    two = raised(
        partitions=[partition(), partition(index=1)],
        still=still(MINUTE_MS, 0, 1),
        transactions={("orders", 0): transaction(), ("orders", 1): transaction(1, producer_id=4712)},
    )
    assert len(two) == 2


def test_copying_that_waits_for_it_is_not_said_to_be_behind() -> None:
    full: dict[str, Any] = {"local_log_bytes": 5_000, "earliest_pending_upload_offset": 500}
    rows = [partition(**full), partition(index=1, **full), partition(index=2, **full)]
    transactions = {("orders", number): transaction(number) for number in (0, 1)}
    result = raised(partitions=rows, still=still(MINUTE_MS, 0, 1), transactions=transactions)
    assert set(result) == {("transaction-open", "orders-0"), ("copy-slow", "orders-2")}
    begun = raised(partitions=rows, still=still(2 * SECOND_MS, 0, 1), transactions=transactions)
    assert set(begun) == {("copy-slow", f"orders-{number}") for number in range(3)}, "as any short transaction"


def test_a_leader_that_is_silent_says_nothing_about_transactions() -> None:
    assert raised(still=still(MINUTE_MS), partitions=[partition(answered_ms=NOW_MS - MINUTE_MS)]) == {}


def test_copying_of_segments_that_roll_by_time_waits_for_a_transaction_as_well() -> None:
    rolls = {"orders": topic(segment_bytes="1073741824", segment_ms="60000")}
    stable = StillOffset(800, NOW_MS - 2 * MINUTE_MS)

    def waits(appended_ms: int) -> dict[str, Any]:
        end = StillOffset(1_000, NOW_MS - appended_ms)
        return {"topics": rolls, "still": {("orders", 0): PartitionStill("id-orders", stable, stable, end, 900)}}

    assert held(**waits(0)).severity == "warning"
    assert raised(**waits(MINUTE_MS)) == {}, "all of it may be the active segment"
