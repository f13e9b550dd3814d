"""Any one disk may be lost between two runs of a cluster, however the run before it ended, and nothing acknowledged is.

Each round: load with acks=all; an orderly stop, or kill -9 of one, two or all; one broker's disk lost; all are started
in random order. Then every acknowledged record is read.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from tests.cluster.acknowledged_load import COMPACTED, PLAIN, TIERED, TRANSACTIONAL, Acknowledged, Load, create_topics
from tests.cluster.broker_process import BrokerProcesses
from tests.cluster.disks import Disks, Loss
from tests.effort import effort
from tests.waiting import wait_until

NODES: Final = (1, 2, 3)
WAIT_S: Final = 120.0
ROUNDS: Final = effort(2, 50)
# (voters, whether the tier is on)
CLUSTERS: Final = effort(((3, True),), ((1, False), (1, True), (3, False), (3, True)))
LOAD_RECORDS: Final = 300
# A copy of the disks is some rounds old when it is put back.
COPY_EACH_ROUNDS: Final = 4
SETTINGS: Final = {
    "broker.heartbeat.interval.ms": "300",
    "broker.session.timeout.ms": "3000",
    "replica.lag.time.max.ms": "4000",
    "min.insync.replicas": "2",
    "transaction.state.log.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "log.cleaner.backoff.ms": "500",
}


class Ending(Enum):
    """How a run of the cluster ends."""

    ORDERLY = "all are stopped in order"
    ONE_KILLED = "one is killed, the others are stopped"
    TWO_KILLED = "two are killed, the third is stopped"
    ALL_KILLED = "all are killed"


@dataclass(frozen=True)
class Round:
    """The events of one round."""

    ending: Ending
    order: tuple[int, ...]
    """In which nodes end."""
    loss: Loss
    node: int
    """Whose disk is lost."""
    start: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.ending.value} {self.order}; {self.loss.value}, of broker {self.node}; start {self.start}"


# Cases that have lost records before come first: these are the rounds of a short run.
FIRST: Final = (
    Round(Ending.ALL_KILLED, (1, 2, 3), Loss.FOLDER_REMOVED, 2, (2, 1, 3)),
    Round(Ending.ORDERLY, (3, 2, 1), Loss.LOG_DIR_REMOVED, 1, (1, 2, 3)),
    Round(Ending.ORDERLY, (3, 1, 2), Loss.FOLDER_REMOVED, 2, (2, 3, 1)),
)


def rounds(voters: int, *, tiering: bool) -> list[Round]:
    """The same for the same cluster, in every run."""
    chance = random.Random(f"{voters} {tiering}")
    others = [
        Round(
            chance.choice(list(Ending)),
            tuple(chance.sample(NODES, 3)),
            chance.choice(list(Loss)),
            chance.choice(NODES),
            tuple(chance.sample(NODES, 3)),
        )
        for _ in range(ROUNDS - len(FIRST))
    ]
    return [*FIRST, *others][:ROUNDS]


def end(nodes: BrokerProcesses, round_: Round) -> None:
    killed = {Ending.ORDERLY: 0, Ending.ONE_KILLED: 1, Ending.TWO_KILLED: 2, Ending.ALL_KILLED: 3}[round_.ending]
    for at, node in enumerate(round_.order):
        if at < killed:
            nodes.kill(node)
        else:
            nodes.stop(node)


def loses_the_only_metadata(round_: Round, voters: int) -> bool:
    """One voter that loses its metadata loses the cluster's."""
    whole = {Loss.FOLDER_REMOVED, Loss.FOLDER_EMPTIED, Loss.METADATA_REMOVED, Loss.RESTORED}
    return voters == 1 and round_.node == 1 and round_.loss in whole


def all_in_sync(nodes: BrokerProcesses, topics: Sequence[str]) -> bool:
    for topic in topics:
        for view in nodes.views(topic):
            if not view or any(partition.isr != set(NODES) or partition.leader < 0 for partition in view):
                return False
    return True


def assert_refused(nodes: BrokerProcesses, disks: Disks, node: int) -> None:
    """Both brokers of a swap name the other whose folder they were given, and end."""
    for refused in (node, disks.other(node)):
        nodes.spawn(refused)
        assert nodes.ended(refused) != 0
        owner = disks.other(node) if refused == node else node
        assert f"belongs to node {owner}, not {refused}" in nodes.log(refused).splitlines()[-1]


def start(nodes: BrokerProcesses, order: Sequence[int], chance: random.Random) -> None:
    for node in order:
        nodes.spawn(node)
        time.sleep(chance.random())


@pytest.mark.timeout(effort(400, 6_000))
@pytest.mark.parametrize(("voters", "tiering"), CLUSTERS)
def test_one_lost_disk_loses_no_acknowledged_record(
    voters: int, tiering: bool, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    disks = Disks(tmp_path / "brokers", tmp_path / "copies", NODES)
    nodes = BrokerProcesses(tmp_path, tiering=tiering, settings=SETTINGS, voters=voters)
    nodes.use(
        replace(
            nodes.layout,
            log_dirs={node: disks.log_dirs(node) for node in NODES},
            node_settings={node: {"metadata.log.dir": disks.metadata_dir(node)} for node in NODES},
        )
    )
    topics = (PLAIN, COMPACTED, TRANSACTIONAL, *([TIERED] if tiering else []))
    acknowledged = Acknowledged(topics)
    chance = random.Random(20_261)
    with nodes:
        create_topics(nodes.admin, topics)
        for number, round_ in enumerate(rounds(voters, tiering=tiering)):
            if loses_the_only_metadata(round_, voters) or (round_.loss is Loss.RESTORED and not disks.are_copied):
                round_ = replace(round_, loss=Loss.LOG_DIR_REMOVED)
            wait_until(f"round {number}: all are in sync", lambda: all_in_sync(nodes, topics), WAIT_S)
            load = Load(nodes.bootstrap, acknowledged)
            requested = len(acknowledged) + LOAD_RECORDS
            wait_until("records are acknowledged", partial(acknowledged.reached, requested), WAIT_S)
            end(nodes, round_)
            load.end()
            if number % COPY_EACH_ROUNDS == 0 and round_.loss is not Loss.RESTORED:
                disks.copy()
            disks.lose(round_.node, round_.loss, chance)
            if round_.loss is Loss.SWAPPED:
                assert_refused(nodes, disks, round_.node)
                disks.lose(round_.node, Loss.SWAPPED, chance)
            print(f"round {number}: {round_}", flush=True)
            start(nodes, round_.start, chance)
            wait_until(f"round {number} ({round_}): all are in sync", lambda: all_in_sync(nodes, topics), WAIT_S)
            assert acknowledged.missing(nodes.bootstrap) == [], f"round {number}: {round_}"
    record_property("rounds", ROUNDS)
    record_property("acknowledged", len(acknowledged))


def test_a_disk_that_is_removed_under_a_running_broker_loses_nothing(tmp_path: Path) -> None:
    disks = Disks(tmp_path / "brokers", tmp_path / "copies", NODES)
    nodes = BrokerProcesses(tmp_path, settings=SETTINGS, voters=3)
    nodes.use(replace(nodes.layout, log_dirs={node: disks.log_dirs(node) for node in NODES}))
    topics = (PLAIN, COMPACTED, TRANSACTIONAL)
    acknowledged = Acknowledged(topics)
    with nodes:
        create_topics(nodes.admin, topics)
        wait_until("all are in sync", lambda: all_in_sync(nodes, topics), WAIT_S)
        load = Load(nodes.bootstrap, acknowledged)
        wait_until("records are acknowledged", partial(acknowledged.reached, LOAD_RECORDS), WAIT_S)
        disks.lose(2, Loss.FOLDER_REMOVED, random.Random())
        assert nodes.ended(2) != 0
        requested = len(acknowledged) + LOAD_RECORDS
        wait_until("the others go on", partial(acknowledged.reached, requested), WAIT_S)
        nodes.spawn(2)
        wait_until("all are in sync again", lambda: all_in_sync(nodes, topics), WAIT_S)
        load.end()
        assert acknowledged.missing(nodes.bootstrap) == []
    assert "Traceback" not in nodes.log(2)
