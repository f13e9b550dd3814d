"""A session of Apache Kafka's verifiable clients, transactions, reassignments, elections and log directories."""

from __future__ import annotations

import json
import re
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, Final

from tests.interop.java_tools import JavaTools, libraries, spoken
from tests.interop.sessions.transcript import Transcript
from tests.waiting import wait_until

TOPIC: Final = "jr-a"
ID: Final = "jr-tx"
GROUP: Final = "jr-group"
RECORDS: Final = 40
# Of both partitions, once one of them has moved to two brokers.
REPLICAS: Final = 5
_NUMBER: Final = re.compile(r"\d[\d.,]*")
_FOLDERS: Final = re.compile(r',"log_dirs":\[[^]]*\]')


def run(bootstrap: str) -> Transcript:
    """The whole session."""
    session = Session(bootstrap)
    with tempfile.TemporaryDirectory() as folder:
        session.verifiable()
        session.transactions()
        session.replicas(Path(folder))
    return session.transcript


class Session:
    """Topics and groups begin with `jr-`."""

    def __init__(self, bootstrap: str) -> None:
        self.tools = JavaTools(libraries(), bootstrap)
        self.transcript = Transcript("java replicas", bootstrap)
        self.record = self.transcript.record
        self.tools.run("kafka-topics", "--create", "--topic", TOPIC, "--replica-assignment", "1:2:3,2:3:1")

    def verifiable(self) -> None:
        words = ["--topic", TOPIC, "--max-messages", str(RECORDS), "--repeating-keys", "5", "--acks", "-1"]
        sent = self._events("kafka-verifiable-producer", *words)
        self.record("verifiable producer", dict(Counter(event["name"] for event in sent)))
        acknowledged = [event for event in sent if event["name"] == "producer_send_success"]
        self.record(
            "acknowledged", sorted((event["partition"], event["offset"], event["key"]) for event in acknowledged)
        )
        words = ["--topic", TOPIC, "--group-id", GROUP, "--max-messages", str(RECORDS), "--reset-policy", "earliest"]
        for protocol in ("classic", "consumer"):
            seen = self._events("kafka-verifiable-consumer", *words, "--group-protocol", protocol)
            self.record(f"verifiable consumer {protocol}", sorted({event["name"] for event in seen}))
            self.record(
                f"read {protocol}", sum(event["count"] for event in seen if event["name"] == "records_consumed")
            )
            self.record(f"assigned {protocol}", [sorted(part["partition"] for part in event["partitions"])
                      for event in seen if event["name"] == "partitions_assigned"])  # fmt: skip
            commits = [event for event in seen if event["name"] == "offsets_committed" and event["offsets"]]
            self.record(f"committed {protocol}", all(event["success"] for event in commits))
            group = ["--group", GROUP]
            rows = [line.split()[:6] for line in self._lines("kafka-consumer-groups", "--describe", *group)]
            self.record(f"group {protocol}", sorted(rows[1:]))
            self._record_output("kafka-consumer-groups", "--delete", *group)

    def _events(self, tool: str, *words: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.tools.run(tool, *words).splitlines()]

    def _lines(self, tool: str, *words: str, fails: bool = False) -> list[str]:
        return [" ".join(line.split()) for line in spoken(self.tools.run(tool, *words, fails=fails))]

    def _record_output(
        self, tool: str, *words: str, fails: bool = False, measured: bool = False, shown: str = ""
    ) -> None:
        lines = self._lines(tool, *words, fails=fails)
        if measured:
            lines = [_NUMBER.sub("N", line) for line in lines]
        lines = [_FOLDERS.sub("", line) for line in lines]
        self.record(shown or " ".join([tool, *words]), "\n".join(lines))

    def transactions(self) -> None:
        size = ["--num-records", "2000", "--record-size", "100", "--throughput", "-1"]
        transactional = ["--transactional-id", ID, "--transaction-duration-ms", "100"]
        self.tools.run("kafka-topics", "--create", "--topic", "jr-tx", "--replica-assignment", "1:2:3")
        self.tools.run("kafka-producer-perf-test", "--topic", "jr-tx", *size, *transactional)
        described = "kafka-transactions", "describe", "--transactional-id", ID
        wait_until("the transaction has ended", lambda: "CompleteCommit" in "".join(self._lines(*described)))
        listed = [line.split() for line in self._lines("kafka-transactions", "list")]
        self.record("transactions", [listed[0], *sorted([row[0], row[3]] for row in listed[1:] if row[0] == ID)])
        self._record_output(*described, measured=True)
        self._record_output("kafka-transactions", "describe", "--transactional-id", "jr-no", fails=True)
        self._record_output(
            "kafka-transactions", "describe-producers", "--topic", "jr-tx", "--partition", "0", measured=True
        )
        self._record_output("kafka-transactions", "find-hanging", "--topic", "jr-tx")
        self._record_output("kafka-get-offsets", "--topic", "jr-tx", "--time", "max-timestamp", measured=True)
        read = ["--topic", "jr-tx", "--from-beginning", "--max-messages", "2000", "--isolation-level", "read_committed"]
        self.record("read_committed", len(self._lines("kafka-console-consumer", *read, "--timeout-ms", "30000")))

    def replicas(self, folder: Path) -> None:
        file = folder / "move.json"
        plan = ["--reassignment-json-file", str(file)]
        moves = [
            {"topic": TOPIC, "partition": 0, "replicas": [3, 1]},
            {"topic": TOPIC, "partition": 1, "replicas": [3, 2, 1]},
        ]
        file.write_text(json.dumps({"version": 1, "partitions": moves}))
        tool = "kafka-reassign-partitions"
        self._record_output(tool, *plan, "--execute", "--throttle", "10000000", shown="execute")
        moved = tool, *plan, "--verify", "--preserve-throttles"
        wait_until("the replicas have moved", lambda: "still in progress" not in "".join(self._lines(*moved)))
        self._record_output(tool, *plan, "--verify", shown="verify")
        self._record_output(tool, *plan, "--cancel", shown="cancel")
        self._record_output(tool, "--list")
        for kind in ("preferred", "preferred", "unclean"):
            election = ["--election-type", kind, "--topic", TOPIC, "--partition", "1"]
            self._record_output("kafka-leader-election", *election)
        rows = [re.sub(r"Isr: (\S+)", _sorted, line) for line in
                self._lines("kafka-topics", "--describe", "--topic", TOPIC)[1:]]  # fmt: skip
        self.record("described", "\n".join(rows))
        # A broker that has lost a replica removes it a moment later.
        wait_until("the old replica is gone", lambda: len(self._log_dirs()) == REPLICAS)
        self.record("log dirs", self._log_dirs())

    def _log_dirs(self) -> list[tuple[Any, ...]]:
        said = json.loads(self._lines("kafka-log-dirs", "--describe", "--topic-list", TOPIC)[-1])
        return sorted(
            (
                broker["broker"],
                log_dir["error"],
                partition["partition"],
                partition["size"] > 0,
                partition["offsetLag"],
                partition["isFuture"],
            )
            for broker in said["brokers"]
            for log_dir in broker["logDirs"]
            for partition in log_dir["partitions"]
        )


def _sorted(match: re.Match[str]) -> str:
    return "Isr: " + ",".join(sorted(match[1].split(",")))
