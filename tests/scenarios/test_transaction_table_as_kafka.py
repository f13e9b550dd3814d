"""Every cell of the table of transactions is what Apache Kafka 4.3.1 gave, or a difference that is meant."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from backend.engine.controller.commands.cluster_bootstrap import TRANSACTION_VERSION
from tests.cluster.broker_process import BrokerProcesses
from tests.effort import SOAK
from tests.interop.java_tools import libraries
from tests.oracle import apache_kafka
from tests.ports import free_ports
from tests.scenarios.transaction_cluster import SETTINGS, STOPPED
from tests.scenarios.transaction_table import play, play_without_version

FOLDER: Final = Path(__file__).parent / "golden"
GOLDEN: Final = FOLDER / "transaction-table.kafka.txt"
# Of brokers whose storage was formatted with transaction.version 0.
GOLDEN_VERSION_0: Final = FOLDER / "transaction-table-version-0.kafka.txt"
VERSION_0: Final = ("--feature", f"{TRANSACTION_VERSION}=0")


class Cell(NamedTuple):
    """A question: in which state, which request, as whom."""

    state: str
    request: str
    producer: str


def cells(lines: Sequence[str]) -> dict[Cell, str]:
    """Answers with what they changed."""
    by_cell: dict[Cell, str] = {}
    state = ""
    for line in lines:
        if line.startswith("## "):
            state = line[3:]
            continue
        request, *answers = line.split(" | ")
        for answer in answers:
            producers, separator, code = answer.rpartition(": ")
            for producer in producers.split(", ") if separator else [""]:
                by_cell[Cell(state, request, producer)] = code
        if not answers:
            by_cell[Cell(state, "state", "")] = request
    return by_cell


def meant(cell: Cell, kafkas: str) -> str:
    """The right response: nearly always that of Apache Kafka 4.3.1. `cell` is one of `EXPECTED` or `OF_VERSION_0`."""
    if cell.request == "EndTxn v5 commit" and ": CompleteAbort" in cell.state and kafkas == "INVALID_TXN_STATE":
        # A commit with the epoch before the current one has met the coordinator's abort. 4.3.1's answer ends a client
        # for good, later versions of Kafka give this one (KAFKA-20785).
        return kafkas if is_current(cell) else "PRODUCER_FENCED"
    if cell.request == "InitProducerId v5, claimed" and kafkas == "UNKNOWN_SERVER_ERROR":
        # Apache Kafka fails with an exception where it would tell a producer with other epochs left that it is fenced.
        return "PRODUCER_FENCED"
    return kafkas


def is_current(cell: Cell) -> bool:
    """Asked with the epoch that the coordinator has: the state's line names it."""
    return EXPECTED[Cell(cell.state, "state", "")] == f"in CompleteAbort of {cell.producer}"


EXPECTED: Final = cells(GOLDEN.read_text().splitlines())
OF_VERSION_0: Final = cells(GOLDEN_VERSION_0.read_text().splitlines())


def different(actual: Mapping[Cell, str], expected: Mapping[Cell, str]) -> dict[Cell, tuple[str, str]]:
    """The response and the right one, where they differ."""
    assert actual.keys() == expected.keys()
    return {
        cell: (answer, expected_answer)
        for cell, answer in actual.items()
        if answer != (expected_answer := meant(cell, expected[cell]))
    }


def test_every_cell_is_answered_as_kafka_answers_it(tmp_path: Path) -> None:
    with BrokerProcesses(tmp_path, settings=SETTINGS) as nodes:
        lines = play(nodes.layout.ports[1], nodes.pid(STOPPED), at_once=4)
    result = cells(lines)
    assert len(result) > 8_000
    assert not different(result, EXPECTED)


def test_every_cell_is_answered_as_kafka_answers_it_at_transaction_version_0(tmp_path: Path) -> None:
    with BrokerProcesses(tmp_path, settings=SETTINGS) as nodes:
        lines = play_without_version(nodes.layout.ports[1], nodes.pid(STOPPED), at_once=4)
    result = cells(lines)
    assert len(result) > 2_000
    assert not different(result, OF_VERSION_0)


@pytest.mark.parametrize(
    ("expected", "requests", "count"),
    [
        (EXPECTED, {"EndTxn v5 commit", "InitProducerId v5, claimed"}, 45),
        (OF_VERSION_0, {"InitProducerId v5, claimed"}, 19),
    ],
)
def test_the_differences_that_are_meant_are_few(expected: Mapping[Cell, str], requests: set[str], count: int) -> None:
    differing = {cell for cell, answer in expected.items() if meant(cell, answer) != answer}
    assert {cell.request for cell in differing} == requests
    assert len(differing) == count


if SOAK:

    @pytest.mark.parametrize(
        ("options", "ask", "expected"), [((), play, EXPECTED), (VERSION_0, play_without_version, OF_VERSION_0)]
    )
    def test_apache_kafka_still_answers_so(
        tmp_path: Path,
        options: Sequence[str],
        ask: Callable[[int, int], list[str]],
        expected: Mapping[Cell, str],
    ) -> None:
        libraries()
        folder, port = tmp_path / "kafka", free_ports(60)[0]
        words = [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")]
        command = ["up", "--dir", str(folder), "--brokers", "3", "--port-base", str(port), *words, *options]
        assert apache_kafka.main(command) == 0
        try:
            brokers = json.loads((folder / "cluster.json").read_text())["brokers"]
            [pid] = [broker["pid"] for broker in brokers if broker["id"] == STOPPED]
            lines = ask(port, pid)
        finally:
            assert apache_kafka.main(["down", "--dir", str(folder)]) == 0
        assert cells(lines) == expected
