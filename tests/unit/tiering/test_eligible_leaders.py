"""The replicas that may lead a partition after a loss: its ELR and last known ELR, and the sentence."""

from __future__ import annotations

from typing import Any

import pytest

from backend.tiering.eligible_leaders import (
    LEFT_OUT,
    NOT_ASKED,
    OFF,
    EligibleLeaders,
    below_min_isr,
    eligible_leaders,
    next_leader,
)
from backend.tiering.ids import TopicPartition

PARTITION = TopicPartition("orders", 7)


def stored_sample(*rows: list[Any], **more: Any) -> dict[str, Any]:
    return {"seen_ms": 5, "cause": None, "complete": True, "rows": list(rows), **more}


@pytest.mark.parametrize(
    ("report", "kept", "level", "elr", "last_known", "cause"),
    [
        (None, True, 1, None, None, NOT_ASKED),
        (stored_sample(["orders", 7, [3], [2]]), True, 1, (3,), (2,), None),
        # Another partition's row is not this one's; with all requested, absent fields are empty.
        (stored_sample(["orders", 6, [3], []]), True, 1, (), (), None),
        (stored_sample(), False, 1, (), (), None),
        (stored_sample(), True, 0, (), (), OFF),
        (stored_sample(complete=False), True, 1, None, None, LEFT_OUT),
        # Above min.insync.replicas the cluster keeps none: nothing was to be asked.
        (stored_sample(complete=False, cause="Broker 1 is away."), False, 1, (), (), None),
        (stored_sample(complete=False, cause="Broker 1 is away."), True, None, None, None, "Broker 1 is away."),
        (stored_sample(["orders", 7, [], [1, 2]]), True, None, (), (1, 2), None),
    ],
)
def test_what_is_known_of_one_partition(
    report: dict[str, Any] | None, kept: bool, level: int | None, elr: Any, last_known: Any, cause: str | None
) -> None:
    leaders = eligible_leaders(report, PARTITION, kept=kept, elr_level=level)
    assert (leaders.eligible_leader_replicas, leaders.last_known_elr, leaders.cause) == (elr, last_known, cause)
    assert leaders.seen_ms == (None if report is None else 5)


@pytest.mark.parametrize(
    ("config", "isr", "expected"),
    [
        ({"min.insync.replicas": "2"}, [1], True),
        ({"min.insync.replicas": "2"}, [1, 2], False),
        ({"min.insync.replicas": "5"}, [1, 2, 3], False),
        ({"min.insync.replicas": "5"}, [1, 2], True),
        ({"min.insync.replicas": "1"}, [], True),
        (None, [1, 2], True),
        (None, [1, 2, 3], False),
    ],
)
def test_the_lists_are_kept_below_min_insync_replicas_alone(config: Any, isr: list[int], expected: bool) -> None:
    assert below_min_isr(config, [1, 2, 3], isr) is expected


@pytest.mark.parametrize(
    ("isr", "leader", "elr", "last_known", "sentence"),
    [
        ([1, 2, 3], 2, (), (), "If broker 2 is lost, broker 1 or 3 leads: it is in the ISR."),
        (
            [2],
            2,
            (3, 1),
            (),
            "If broker 2 is lost, broker 1 or 3 leads once it is up: it is eligible, with every acknowledged record.",
        ),
        (
            [2],
            2,
            (),
            (),
            "If broker 2 is lost, nobody leads until it is back: it alone is known to have every acknowledged record.",
        ),
        ([2], 2, None, None, "If broker 2 is lost, who else may lead is not known."),
        ([2], -1, (), (), "Broker 2 leads once it is back with its log: it is in the ISR."),
        (
            [],
            -1,
            (3,),
            (),
            "Broker 3 leads once it is back with its log: it is eligible, with every acknowledged record.",
        ),
        (
            [],
            -1,
            (),
            (3, 1),
            "The logs of broker 1, 3 are compared, and the best of them leads: all stopped uncleanly.",
        ),
        ([], -1, (), (3,), "Broker 3 was in sync last: nobody leads before it is back."),
        ([], -1, (), (), "No replica is known to have every acknowledged record."),
        ([], -1, None, None, "Who else may lead is not known."),
    ],
)
def test_who_leads_next(isr: list[int], leader: int, elr: Any, last_known: Any, sentence: str) -> None:
    assert next_leader(isr, leader, EligibleLeaders(elr, last_known, None, 5)) == sentence
