"""A session of Apache Kafka's command-line tools; figures that are measurements are left out."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from typing import Final

from tests.interop.java_tools import JavaTools, libraries, spoken
from tests.interop.sessions.transcript import Transcript

LINES: Final = "".join(f"k{number % 5}:line {number}\n" for number in range(30))
TOPIC: Final = "java-a"
_MEASURED: Final = re.compile(r"\d[\d.,:]*")


def run(bootstrap: str) -> Transcript:
    """The whole session."""
    session = Session(bootstrap)
    with tempfile.TemporaryDirectory() as folder:
        session.topics()
        session.records()
        session.groups()
        session.replicas(Path(folder))
        session.administration()
    return session.transcript


class Session:
    """Topics and groups begin with `java-`."""

    def __init__(self, bootstrap: str) -> None:
        self.tools = JavaTools(libraries(), bootstrap)
        self.transcript = Transcript("java", bootstrap)

    def run(
        self, tool: str, *words: str, given: str = "", fails: bool = False, measured: bool = False, ordered: bool = True
    ) -> list[str]:
        """Writes the tool's lines down: sorted unless they come in order, without figures when those are measured."""
        lines = spoken(self.tools.run(tool, *words, given=given, fails=fails))
        shown = [re.sub(r"TopicId: \S+", "TopicId", line) for line in lines]
        if measured:
            shown = [_MEASURED.sub("N", line) for line in shown]
        if not ordered:
            shown.sort()
        self.transcript.record(" ".join([tool, *words]), "\n".join(shown))
        return lines

    def topics(self) -> None:
        made = ["--topic", TOPIC, "--replica-assignment", "1:2:3,2:3:1,3:1:2"]
        self.run("kafka-topics", "--create", *made, "--config", "retention.ms=1000000")
        self.run("kafka-topics", "--create", *made, fails=True)
        self.run("kafka-topics", "--create", "--topic", "java bad", fails=True)
        self.run("kafka-topics", "--describe", "--topic", TOPIC)
        self.run("kafka-topics", "--alter", "--topic", TOPIC, "--partitions", "2", fails=True)
        self.run("kafka-topics", "--describe", "--topic", "java-no", fails=True)
        entity = ["--entity-type", "topics", "--entity-name", TOPIC]
        self.run("kafka-configs", *entity, "--alter", "--add-config", "segment.bytes=1048576,retention.ms=2000000")
        self.run("kafka-configs", *entity, "--alter", "--add-config", "segment.bytes=some", fails=True)
        self.run("kafka-configs", *entity, "--describe", ordered=False)

    def records(self) -> None:
        keyed = ["--reader-property", "parse.key=true", "--reader-property", "key.separator=:"]
        self.run("kafka-console-producer", "--topic", TOPIC, *keyed, given=LINES)
        self.run("kafka-console-consumer", "--topic", TOPIC, "--group", "java-readers", "--from-beginning",
                 "--max-messages", "30", "--formatter-property", "print.key=true", "--formatter-property",
                 "print.partition=true", "--formatter-property", "print.offset=true", ordered=False)  # fmt: skip
        self.run("kafka-get-offsets", "--topic", TOPIC)
        self.run("kafka-get-offsets", "--topic", TOPIC, "--time", "earliest")
        self.run("kafka-producer-perf-test", "--topic", TOPIC, "--num-records", "1000", "--record-size", "100",
                 "--throughput", "-1", measured=True)  # fmt: skip
        self.run("kafka-consumer-perf-test", "--topic", TOPIC, "--num-records", "1000", measured=True)

    def groups(self) -> None:
        group = ["--group", "java-readers"]
        self.run("kafka-consumer-groups", "--list", ordered=False)
        self.run("kafka-consumer-groups", "--describe", *group, "--state")
        self.run(
            "kafka-consumer-groups", *group, "--reset-offsets", "--to-offset", "2", "--topic", f"{TOPIC}:0", "--execute"
        )
        self.run("kafka-consumer-groups", "--delete-offsets", *group, "--topic", f"{TOPIC}:1")
        self.run("kafka-consumer-groups", "--delete", *group)
        self.run("kafka-consumer-groups", "--describe", *group)

    def replicas(self, folder: Path) -> None:
        def given(name: str, content: object) -> str:
            (folder / name).write_text(json.dumps(content))
            return str(folder / name)

        records = given("delete.json", {"partitions": [{"topic": TOPIC, "partition": 0, "offset": 1}], "version": 1})
        # The file has another name each time.
        self.tell_without(folder, "kafka-delete-records", "--offset-json-file", records)
        self.run("kafka-get-offsets", "--topic", TOPIC, "--time", "earliest")
        election = ["--election-type", "preferred", "--topic", TOPIC, "--partition", "0"]
        self.run("kafka-leader-election", *election)
        moved = given(
            "move.json", {"version": 1, "partitions": [{"topic": TOPIC, "partition": 0, "replicas": [3, 2, 9]}]}
        )
        self.tell_without(
            folder, "kafka-reassign-partitions", "--reassignment-json-file", moved, "--execute", fails=True
        )

    def tell_without(self, folder: Path, tool: str, *words: str, fails: bool = False) -> None:
        lines = self.tools.run(tool, *words, fails=fails).replace(str(folder), "FOLDER").splitlines()
        label = " ".join([tool, *words]).replace(str(folder), "FOLDER")
        self.transcript.record(label, "\n".join(line for line in lines if line and not line.startswith("\tat ")))

    def administration(self) -> None:
        self.run("kafka-features", "describe", ordered=False)
        self.run("kafka-configs", "--entity-type", "users", "--entity-name", "java-user", "--alter", "--add-config",
                 "producer_byte_rate=1024")  # fmt: skip
        self.run("kafka-configs", "--entity-type", "users", "--entity-name", "java-user", "--describe")
        self.run("kafka-topics", "--delete", "--topic", TOPIC)
        self.run("kafka-topics", "--delete", "--topic", "java-no", fails=True)
