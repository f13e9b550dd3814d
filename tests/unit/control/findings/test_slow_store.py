"""A store that takes writes slowly: told by copies that are open for long on several brokers."""

from __future__ import annotations

from typing import Any

from backend.control.findings.evaluate import candidates
from tests.unit.control.findings.sights import NOW_MS, context, partition, segment

STORE = ("copy-slow", "remote storage")
LED: dict[str, Any] = {
    "partitions": [partition(index=index, leader=index + 1) for index in range(3)],
    "p99_ms": {("orders", index): 300 for index in range(3)},
}


def copies(age_ms: int, *, brokers: int = 3, size_bytes: int = 1_000_000) -> list[Any]:
    return [
        segment(
            age_ms=age_ms,
            partition=index,
            segment_id=f"s{index}",
            copy_broker_id=index + 1,
            segment_size_bytes=size_bytes,
        )
        for index in range(brokers)
    ]


def raised(**more: Any) -> set[tuple[str, str]]:
    return {key for key in candidates(context(ledger_ms=NOW_MS, **LED | more)) if key[0].startswith("copy-")}


def test_copies_of_several_brokers_that_take_long_are_one_finding_about_the_store() -> None:
    assert raised(open_segments=copies(19_999)) == set()
    assert raised(open_segments=copies(20_000)) == {STORE}
    # None of them hangs by itself, however long it takes.
    assert raised(open_segments=copies(90_000)) == {STORE}
    (slow,) = (c for c in candidates(context(ledger_ms=NOW_MS, open_segments=copies(25_000), **LED)).values()
                if c.key == STORE)  # fmt: skip
    assert "3 partitions of broker 1, 2, 3 are open for up to 25 s" in slow.why
    assert slow.severity == "warning"


def test_few_copies_or_large_ones_or_usual_ones_prove_nothing_of_the_store() -> None:
    assert raised(open_segments=copies(59_000, brokers=2)) == set()
    assert raised(open_segments=copies(90_000, brokers=2)) == {("copy-hung", "orders-0"), ("copy-hung", "orders-1")}
    assert raised(open_segments=copies(25_000, size_bytes=1 << 30)) == set()
    slow_always = {("orders", index): 9_000 for index in range(3)}
    assert raised(open_segments=copies(25_000), p99_ms=slow_always) == set()


def test_between_two_slow_copies_the_store_is_no_faster() -> None:
    before = copies(25_000)
    assert raised(open_segments=copies(1_000), slow_copies=before) == {STORE}
    assert raised(open_segments=[], slow_copies=[]) == set()
