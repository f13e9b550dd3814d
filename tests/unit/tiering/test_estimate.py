"""The bytes that a new replica would copy, off and on; the layouts are those measured on a real Kafka."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backend.tiering.estimate import (
    EstimateVerdict,
    PartitionState,
    RemoteSegment,
    estimate_partition,
    summarize,
)

# 52,000 records, 53.9 MB, 0-48,424 tiered; the leader holds [24,210, 52,000) locally.
DRIFT = PartitionState("drift", 0, False, 0, 24_210, 52_000, 48_425, None, 28_820_186)
SEGMENT = RemoteSegment(24_210, 48_425, 25_112_632)


def test_with_the_ledger_the_bytes_are_those_that_kafka_copied() -> None:
    partition = estimate_partition(DRIFT, [SEGMENT], kafka_rules=True)
    assert (partition.verdict, partition.off_start, partition.on_start) == (EstimateVerdict.QUALIFIES, 24_210, 48_425)
    assert (partition.off_bytes, partition.on_bytes) == (28_820_186, 3_707_554)
    assert partition.method == "ledger"


def test_without_the_ledger_records_are_taken_to_be_of_one_size() -> None:
    partition = estimate_partition(DRIFT, [], kafka_rules=True)
    assert partition.method == "proportional"
    assert partition.on_bytes == pytest.approx(3_707_554, rel=0.01)


def test_a_hole_in_the_ledger_is_not_counted_as_nothing() -> None:
    partition = estimate_partition(DRIFT, [RemoteSegment(30_000, 48_425, 1)], kafka_rules=True)
    assert partition.method == "proportional"


def test_a_segment_that_ends_beyond_the_pending_offset_moves_the_start() -> None:
    partition = estimate_partition(replace(DRIFT, pending=40_000), [SEGMENT], kafka_rules=True)
    assert partition.on_start == 48_425


def test_a_leader_that_still_holds_offset_0_makes_the_flag_useless() -> None:
    partition = estimate_partition(replace(DRIFT, local_start=0, local_bytes=53_927_584), [SEGMENT], kafka_rules=True)
    assert (partition.verdict, partition.on_bytes) == (EstimateVerdict.NO_EFFECT, 53_927_584)


@pytest.mark.parametrize(
    ("changes", "kafka", "ours"),
    [
        ({"pending": -1, "pending_reason": "all_copied"}, EstimateVerdict.BLOCKED, EstimateVerdict.QUALIFIES),
        ({"pending": -1, "pending_reason": "leader_does_not_know"}, EstimateVerdict.BLOCKED, EstimateVerdict.BLOCKED),
        ({"log_start": 24_210, "pending": 24_210}, EstimateVerdict.BLOCKED, EstimateVerdict.NO_EFFECT),
        ({"compacted": True}, EstimateVerdict.NO_EFFECT, EstimateVerdict.NO_EFFECT),
        ({"log_end": None}, EstimateVerdict.UNKNOWN, EstimateVerdict.UNKNOWN),
        ({"local_bytes": None}, EstimateVerdict.UNKNOWN, EstimateVerdict.UNKNOWN),
    ],
)
def test_kafka_blocks_where_the_embedded_engine_does_not(
    changes: dict[str, object], kafka: EstimateVerdict, ours: EstimateVerdict
) -> None:
    state = replace(DRIFT, **changes)  # type: ignore[arg-type]  # names of fields
    assert estimate_partition(state, [], kafka_rules=True).verdict is kafka
    assert estimate_partition(state, [], kafka_rules=False).verdict is ours


def test_with_everything_copied_our_engine_copies_nothing() -> None:
    state = replace(DRIFT, pending=-1, pending_reason="all_copied")
    partition = estimate_partition(state, [RemoteSegment(24_210, 52_000, 28_820_186)], kafka_rules=False)
    assert (partition.on_start, partition.on_bytes) == (52_000, 0)


def test_the_sum_leaves_out_what_could_not_start_and_says_how_many() -> None:
    rows = [
        estimate_partition(DRIFT, [SEGMENT], kafka_rules=True),
        estimate_partition(replace(DRIFT, partition=1, local_start=0), [], kafka_rules=True),
        estimate_partition(replace(DRIFT, partition=2, pending=None), [], kafka_rules=True),
    ]
    result = summarize(rows)
    assert (result["tiered_partitions"], result["qualifies"], result["no_effect"], result["blocked"]) == (3, 1, 1, 1)
    assert result["off_bytes"] == 2 * 28_820_186
    assert result["on_bytes"] == 28_820_186 + 3_707_554
    assert [row["partition"] for row in result["partitions"]] == [0, 1]
    assert [row["partition"] for row in result["blocked_partitions"]] == [2]
