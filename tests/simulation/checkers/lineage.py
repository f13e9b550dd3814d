"""No read outside the lineage: what a consumer gets at an offset has the leader epoch that the answering leader's own
chain of epochs has there.
"""

from __future__ import annotations

from backend.tiering.ids import TopicPartition
from tests.simulation.checkers.checker import Checker
from tests.simulation.client import Read
from tests.simulation.history import TopicHistory


class ReadsFollowLineage(Checker):
    def read(self, topic: TopicHistory, index: int, node: int, offset: int, answer: Read) -> None:
        replica = self.world.replica(node, TopicPartition(topic.name, index))
        if replica is None or replica.topic_id_partition.topic_id != topic.topic_id:
            return
        # The answer travelled: a chain that was cut meanwhile proves nothing.
        if replica.leader_epoch != answer.leader_epoch_before or not replica.is_leader:
            return
        epochs = replica.log.leader_epochs
        for at, epoch, value in answer.records:
            expected = epochs.epoch_for_offset(at)
            if expected is not None and expected != epoch:
                raise self.violated(
                    f"broker {node} answered offset {at} of {topic.name}-{index} with {value!r} of leader epoch "
                    f"{epoch}; its own chain {epochs.entries} has {expected} there"
                )
