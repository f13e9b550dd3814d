"""The losses that a partition survives: each row of the table, and the effect of the current ISR."""

from __future__ import annotations

from typing import Any

import pytest

from backend.tiering.durability import Copies, copies_of, durability

KEPT = "Survives the loss of any one disk: 3 replicas, min.insync.replicas 2."
KEPT_WHILE_RUNNING = (
    "Survives the loss of any one disk while the other replicas run: 3 replicas, min.insync.replicas 2."
)
ALONE = (
    "One lost disk may lose acknowledged records: min.insync.replicas is 1, so the last replica in sync acknowledges by"
    " itself."
)
UNCLEAN = (
    "While all replicas in sync are down another may lead, without some of their records:"
    " unclean.leader.election.enable is true."
)


def _copies(**changed: Any) -> Copies:
    """Three replicas of which two are asked for, in a cluster of this program with the feature."""
    return Copies(**({"replicas": 3, "min_isr": 2, "elr_level": 1} | changed))


@pytest.mark.parametrize(
    ("changed", "disks", "sentences"),
    [
        ({}, 1, [KEPT]),
        ({"min_isr": 3}, 2, ["Survives the loss of any 2 disks: 3 replicas, min.insync.replicas 3."]),
        # More than there are replicas asks for all of them.
        (
            {"replicas": 2, "min_isr": 3},
            1,
            ["Survives the loss of any one disk: 2 replicas, min.insync.replicas 3."],
        ),
        ({"min_isr": 1}, 0, [ALONE]),
        ({"min_isr": 1, "elr_level": None}, 0, [ALONE]),
        ({"min_isr": 1, "unclean_election": True}, 0, [ALONE, UNCLEAN]),
        ({"unclean_election": True}, 0, [KEPT_WHILE_RUNNING, UNCLEAN]),
        ({"replicas": 1}, 0, ["A lost disk loses every record: there is 1 replica."]),
        (
            {"replicas": 1, "tiered": True, "min_isr": None},
            0,
            [
                "A lost disk loses every record: there is 1 replica.",
                "What the remote tier has of it then stays there, and cannot be read from the topic.",
            ],
        ),
        (
            {"elr_level": 0},
            0,
            [
                KEPT_WHILE_RUNNING,
                "If the disk of the last broker in sync is lost while the others are down, nobody leads until an"
                " operator decides: eligible.leader.replicas.version is 0.",
            ],
        ),
        (
            {"elr_level": 0, "compares_logs": False},
            0,
            [
                KEPT_WHILE_RUNNING,
                "If the disk of the last broker in sync is lost while the others are down, acknowledged records may be"
                " lost: eligible.leader.replicas.version is 0.",
            ],
        ),
        (
            {"compares_logs": False},
            0,
            [
                KEPT_WHILE_RUNNING,
                "A disk that is lost after a kill of all replicas may lose acknowledged records: Apache Kafka elects"
                " the last leader without a look at its log.",
            ],
        ),
        (
            {"elr_level": None},
            None,
            [
                KEPT_WHILE_RUNNING,
                "Whether also while others are down is not known: the cluster has not told"
                " eligible.leader.replicas.version.",
            ],
        ),
        (
            {"min_isr": None},
            None,
            ["Which losses it survives is not known: min.insync.replicas has not been read yet."],
        ),
    ],
)
def test_what_is_survived_follows_from_settings_and_level(
    changed: dict[str, Any], disks: int | None, sentences: list[str]
) -> None:
    result = durability(_copies(**changed))
    assert (result.disks, list(result.sentences)) == (disks, sentences)


@pytest.mark.parametrize(
    ("changed", "now"),
    [
        ({"isr": [1, 2, 3]}, None),
        ({"isr": [3, 1]}, "Now only brokers 1 and 3 are in sync: when one of them goes away, acks=all is refused."),
        (
            {"isr": [2]},
            "Now only broker 2 is in sync: acks=all is refused until another is, and its disk may hold the only whole"
            " copy.",
        ),
        (
            {"isr": [2], "min_isr": 3},
            "Now only broker 2 is in sync: acks=all is refused until 2 more are, and its disk may hold the only whole"
            " copy.",
        ),
        (
            {"isr": [1, 2, 4], "replicas": 5, "min_isr": 4},
            "Now only brokers 1, 2 and 4 are in sync: acks=all is refused until another is.",
        ),
        (
            {"isr": [1, 2, 3], "min_isr": 3},
            "Now all replicas are in sync: when one of them goes away, acks=all is refused.",
        ),
        ({"isr": [1, 2], "min_isr": 1}, None),
        ({"isr": [2], "min_isr": 1}, "Now only broker 2 is in sync: what it acknowledges is on its disk alone."),
        (
            {"isr": [2], "leader": -1},
            "Now nobody leads it, so it can be neither written nor read; broker 2 was the last in sync.",
        ),
        (
            {"isr": [1, 2], "leader": -1},
            "Now nobody leads it, so it can be neither written nor read; brokers 1 and 2 were the last in sync.",
        ),
        (
            {"isr": [], "leader": -1},
            "Now nobody leads it, so it can be neither written nor read; no replica is in sync.",
        ),
        ({"isr": [2], "replicas": 1}, None),
        ({"isr": [2], "min_isr": None}, None),
    ],
)
def test_the_isr_of_now_adds_a_sentence(changed: dict[str, Any], now: str | None) -> None:
    in_general = durability(_copies(**{**changed, "isr": None, "leader": None})).sentences
    sentences = durability(_copies(**({"leader": 1} | changed))).sentences
    assert sentences == (in_general if now is None else (*in_general, now))


@pytest.mark.parametrize(
    ("config", "levels", "expected"),
    [
        (None, None, (None, None, False)),
        ({"min.insync.replicas": "2"}, {"metadata.version": 29}, (2, 0, False)),
        (
            {"min.insync.replicas": "2", "unclean.leader.election.enable": "true"},
            {"eligible.leader.replicas.version": 1},
            (2, 1, True),
        ),
        ({"min.insync.replicas": "many"}, None, (None, None, False)),
        ({"min.insync.replicas": None}, None, (None, None, False)),
    ],
)
def test_copies_are_read_from_settings_and_levels(
    config: dict[str, str | None] | None, levels: dict[str, int] | None, expected: tuple[int | None, int | None, bool]
) -> None:
    copies = copies_of(config, levels, replicas=3, embedded=False, tiered=True, isr=(1,), leader=1)
    assert (copies.min_isr, copies.elr_level, copies.unclean_election) == expected
    assert (copies.replicas, copies.compares_logs, copies.tiered, copies.isr, copies.leader) == (
        3,
        False,
        True,
        (1,),
        1,
    )
