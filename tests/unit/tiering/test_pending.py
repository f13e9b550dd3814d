"""The three meanings of -1 from ListOffsets -6, against what a real Kafka answered in 22 states."""

from __future__ import annotations

from typing import Any

import pytest

from backend.store.writes.samples import PartitionSample
from backend.tiering.pending import Pending, PendingFrom, PendingReason, earliest_pending, pending_from
from tests.unit.control.kafka_answers import fixture, leader_offsets

NOT_TIERED = {"plain"}
SWITCHED_OFF = "remote storage switched off with remote.log.delete.on.disable=true"
ALL_COPIED = {
    "tiered topic, empty",
    "everything tiered (local.retention.ms=1): LEO 14",
    "right after moving leadership",
}


def read(answers: dict[int, int], *, tiered: bool = True, highest_copied: int | None = None) -> Pending:
    return earliest_pending(
        tiered=tiered,
        offset=answers[-6],
        log_start=answers[-2],
        local_start=answers[-4],
        latest_tiered=answers[-5],
        log_end=answers[-1],
        highest_copied=highest_copied,
    )


@pytest.mark.parametrize(("state", "topic", "answers"), list(leader_offsets()), ids=lambda v: str(v)[:40])
def test_every_state_that_kafka_was_seen_in_is_explained(state: str, topic: str, answers: dict[int, int]) -> None:
    tiered = topic not in NOT_TIERED and state != SWITCHED_OFF
    pending = read(answers, tiered=tiered)
    if not tiered:
        assert pending == Pending(None, PendingReason.NOT_TIERED)
    elif answers[-6] >= 0:
        assert pending == Pending(answers[-6], None)
    else:
        assert pending == Pending(answers[-1], PendingReason.ALL_COPIED)


def test_the_states_in_which_kafka_answers_minus_one_are_those_we_think() -> None:
    silent = {state for state, topic, answers in leader_offsets() if topic not in NOT_TIERED and answers[-6] == -1}
    assert silent >= ALL_COPIED


@pytest.mark.parametrize("topic", ["solo-a", "solo-b"])
def test_a_restarted_leader_does_not_know_although_the_ledger_does(topic: str) -> None:
    first, later = (
        {int(k): o for k, _, o, _ in answers} for _, answers in fixture()["after_restart"]["sequence"][topic]
    )
    assert read(first, highest_copied=5) == Pending(None, PendingReason.LEADER_DOES_NOT_KNOW)
    assert read(later, highest_copied=5) == Pending(6, None)


def test_without_a_ledger_a_restarted_leader_with_all_data_local_is_believed() -> None:
    first = {int(k): o for k, _, o, _ in fixture()["after_restart"]["sequence"]["solo-a"][0][1]}
    assert read(first) == Pending(0, None)


def test_a_copy_below_the_log_start_is_no_reason_to_doubt_the_leader() -> None:
    answers = {-1: 20, -2: 10, -4: 10, -5: -1, -6: 10}
    assert read(answers, highest_copied=9) == Pending(10, None)


def test_answers_that_contradict_each_other_are_called_changing() -> None:
    assert read({-1: 20, -2: 0, -4: 0, -5: 5, -6: -1}).reason is PendingReason.CHANGING


def test_everything_deleted_leaves_nothing_to_copy() -> None:
    assert read({-1: 7, -2: 7, -4: 7, -5: -1, -6: -1}) == Pending(7, PendingReason.ALL_COPIED)


def test_an_answer_that_did_not_come_is_not_known() -> None:
    pending = earliest_pending(tiered=True, offset=None, log_start=0, local_start=0, latest_tiered=-1, log_end=5)
    assert pending == Pending(None, None)


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ({"earliest_pending_upload_offset": 800}, PendingFrom(800)),
        # A broker before KIP-1023 does not know -6.
        ({}, PendingFrom(800, inferred=True)),
        ({"latest_tiered_offset": -1, "remote_log_bytes": 0}, PendingFrom(5, inferred=True)),
        # Just restarted, it would say so although something is there.
        ({"latest_tiered_offset": -1, "remote_log_bytes": 7}, PendingFrom(None)),
        ({"latest_tiered_offset": -1}, PendingFrom(None)),
        ({"latest_tiered_offset": 3}, PendingFrom(5, inferred=True)),
        ({"latest_tiered_offset": None}, PendingFrom(None)),
        ({"earliest_pending_upload_offset": -1, "pending_reason": "all_copied"}, PendingFrom(1000)),
        ({"earliest_pending_upload_offset": -1, "pending_reason": "changing"}, PendingFrom(None)),
        ({"earliest_pending_upload_offset": -1}, PendingFrom(None)),
    ],
)
def test_the_first_pending_offset_is_the_leaders_word_or_inferred_and_marked(
    answers: dict[str, Any], expected: PendingFrom
) -> None:
    row: dict[str, Any] = {
        "topic": "orders",
        "partition": 0,
        "topic_id": "t",
        "leader": 1,
        "leader_epoch": 0,
        "replicas": (1,),
        "isr": (1,),
        "tiered": True,
        "log_start_offset": 5,
        "latest_tiered_offset": 799,
        "log_end_offset": 1000,
    }
    assert pending_from(PartitionSample(**row | answers)) == expected
