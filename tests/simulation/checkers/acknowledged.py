"""Acknowledged records survive: a record acknowledged to a producer with acks=all is there until it may be deleted.

Every consumer's answer is compared, and at the end every partition is read from its log start to its end. Log start
itself may only have moved as far as somebody asked for, or where retention has a limit.
"""

from __future__ import annotations

from tests.simulation.checkers.checker import Checker
from tests.simulation.client import Read
from tests.simulation.history import PartitionHistory, TopicHistory


class AcknowledgedSurvive(Checker):
    def read(self, topic: TopicHistory, index: int, node: int, offset: int, answer: Read) -> None:
        history = topic.partitions[index]
        self._check_log_start(topic, index, history, answer.log_start, node)
        if not topic.keeps_records or not answer.records:
            return
        read = {record[0]: record[2] for record in answer.records}
        last = max(read)
        for at in range(offset, last + 1):
            expected = history.acknowledged.get(at)
            if expected is not None and read.get(at) != expected:
                raise self.violated(
                    f"offset {at} of {topic.name}-{index} was acknowledged with {expected!r}; broker {node} has "
                    f"{read.get(at)!r} (asked for {offset}: {answer})"
                )

    def _check_log_start(
        self, topic: TopicHistory, index: int, history: PartitionHistory, log_start: int, node: int
    ) -> None:
        if not topic.limited and log_start > history.deleted_to:
            raise self.violated(
                f"log start of {topic.name}-{index} is {log_start} on broker {node}, but nobody had more than "
                f"{history.deleted_to} deleted"
            )

    async def finish(self) -> None:
        for topic in self.world.history.living:
            for index, history in () if topic.compacted else topic.partitions.items():
                await self._read_all(topic, index, history)

    async def _read_all(self, topic: TopicHistory, index: int, history: PartitionHistory) -> None:
        values: dict[int, bytes] = {}
        start, end = await self.world.workload.read_all(topic, index, values)
        if not topic.keeps_records:
            return
        for offset, value in history.acknowledged.items():
            if offset < start:
                continue
            if values.get(offset) != value:
                raise self.violated(
                    f"offset {offset} of {topic.name}-{index} was acknowledged with {value!r}; in the end it is "
                    f"{values.get(offset)!r} (log start {start}, high watermark {end})"
                )
