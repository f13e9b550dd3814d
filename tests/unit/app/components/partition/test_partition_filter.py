"""The partitions that a list shows, and their order."""

from __future__ import annotations

import pytest

from app.components.partition.partition_filter import (
    COPY_OPEN,
    GAP_OR_OUTSIDE,
    NOT_IN_SYNC,
    NOT_KNOWN,
    OVER_1_GB,
    Filter,
    gap,
    near_topics,
    parse_name,
    select,
)
from tests.unit.app.partition_rows import partition_row


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("orders-7", ("orders", 7)),
        ("orders-eu-12", ("orders-eu", 12)),
        (" a-0 ", ("a", 0)),
        ("orders", None),
        ("-7", None),
        ("orders-", None),
        ("orders-x", None),
        ("orders-٣", None),
        ("orders-1234567890", None),
        ("", None),
    ],
)
def test_name_of_a_partition_is_read(name: str, key: tuple[str, int] | None) -> None:
    assert parse_name(name) == key


def test_every_typed_word_must_be_in_the_name() -> None:
    rows = [partition_row(topic=topic, partition=number) for topic in ("orders-eu", "audit") for number in (1, 12)]

    def selected(text: str) -> list[str]:
        return [f"{row.topic}-{row.partition}" for row in select(rows, Filter(text, rank="name"))]

    assert selected("ORDERS") == ["orders-eu-1", "orders-eu-12"]
    assert selected("eu 12") == ["orders-eu-12"]
    assert selected("audit-1") == ["audit-1", "audit-12"]
    assert selected("nothing") == []


def test_largest_pending_comes_first_and_unknown_last() -> None:
    small = partition_row(partition=0, earliest_pending_upload_offset=900)
    large = partition_row(partition=1, earliest_pending_upload_offset=600)
    unknown = partition_row(partition=2, earliest_pending_upload_offset=None, latest_tiered_offset=None)
    none = partition_row(partition=3, earliest_pending_upload_offset=-1, pending_reason="all_copied")
    ranked = select([none, unknown, small, large], Filter())
    assert [row.partition for row in ranked] == [1, 0, 3, 2]


@pytest.mark.parametrize(
    ("rank", "order"),
    [("remote size", [2, 1, 0]), ("local size", [1, 0, 2]), ("not in sync", [0, 1, 2]), ("name", [0, 1, 2])],
)
def test_rank_decides_the_order(rank: str, order: list[int]) -> None:
    rows = [
        partition_row(partition=0, ledger_bytes=1, local_log_bytes=50, isr=[1]),
        partition_row(partition=1, ledger_bytes=2, local_log_bytes=90, isr=[1, 2]),
        partition_row(partition=2, ledger_bytes=None, remote_log_bytes=3, local_log_bytes=None),
    ]
    assert [row.partition for row in select(rows, Filter(rank=rank))] == order


def test_a_state_keeps_only_its_partitions() -> None:
    rows = {
        "fine": partition_row(topic="fine"),
        "large": partition_row(topic="large", local_log_bytes=10_000_000_000),
        "out": partition_row(topic="out", isr=[1, 2]),
        "gap": partition_row(topic="gap", latest_tiered_offset=399),
        "copying": partition_row(topic="copying", ledger_open_copies=1),
        "silent": partition_row(topic="silent", log_end_offset=None, error="Broker 1 does not answer."),
    }

    def selected(state: str) -> list[str]:
        return sorted(row.topic for row in select(rows.values(), Filter(state=state), {("fine", 7)}))

    assert selected(OVER_1_GB) == ["large"]
    assert selected(NOT_IN_SYNC) == ["out"]
    assert selected(GAP_OR_OUTSIDE) == ["fine", "gap"]
    assert selected(COPY_OPEN) == ["copying"]
    assert selected(NOT_KNOWN) == ["silent"]


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, None),
        ({"latest_tiered_offset": 499}, None),
        ({"latest_tiered_offset": 399}, (400, 500)),
        ({"latest_tiered_offset": 99, "log_start_offset": 300}, (300, 500)),
        ({"latest_tiered_offset": -1}, None),
        ({"latest_tiered_offset": None}, None),
        ({"local_log_start_offset": None}, None),
    ],
)
def test_a_gap_is_told_only_when_it_is_known(changed: dict[str, int | None], expected: tuple[int, int] | None) -> None:
    assert gap(partition_row(**changed)) == expected


def test_a_filter_is_active_when_it_hides_something() -> None:
    assert not Filter("  ", rank="name").active
    assert Filter("x").active
    assert Filter(state=COPY_OPEN).active


def test_topics_of_a_like_name_are_offered() -> None:
    assert near_topics("order", ["orders", "audit", "orders-eu"]) == ["orders", "orders-eu"]
    assert near_topics("orders-old", ["orders", "audit"]) == ["orders"]
    assert near_topics("zzz", ["orders"]) == []
