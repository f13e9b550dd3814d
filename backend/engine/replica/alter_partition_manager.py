"""ISR changes of all led partitions on their way to the controller: one AlterPartition in flight, the rest in the next.

Kafka: `AlterPartitionManager` (KIP-497).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from backend.engine.common.controller_channel import ControllerChannel
from backend.engine.ports import tasks
from backend.engine.replica.applied_metadata import AppliedMetadata
from backend.engine.replica.hosted_partitions import HostedPartitions
from backend.engine.replica.partition_state import IsrChange, IsrProposal
from backend.protocol import messages as m
from backend.protocol.errors import NONE, ErrorCode, KafkaError, error_code
from backend.tiering.ids import TopicIdPartition

VERSION: Final = 3
TIMEOUT_MS: Final = 30_000.0
# Pause after an answer that says to try again, and after each further failure in a row up to the second value.
RETRY_PAUSE_MS: Final = 50.0
RETRY_PAUSE_MS_MAX: Final = 1000.0

_log = logging.getLogger(__name__)


class AlterPartitionManager:
    """Proposals of one broker; at most one per partition waits, because a partition has one change in flight."""

    def __init__(self, metadata: AppliedMetadata, hosted: HostedPartitions, channel: ControllerChannel) -> None:
        self._node_id = metadata.node_id
        self._metadata = metadata
        self._hosted = hosted
        self._channel = channel
        self.expands = 0
        self.shrinks = 0
        self._unsent: dict[TopicIdPartition, IsrProposal] = {}
        self._wake = tasks.Event()
        self._task: tasks.Task[None] | None = None

    def start(self) -> None:
        """Begins to send."""
        self._task = tasks.spawn(self._run(), name=f"AlterPartition of broker {self._node_id}")

    async def stop(self) -> None:
        """Sends nothing more."""
        await tasks.cancel(self._task)

    def submit(self, proposal: IsrProposal) -> None:
        """Takes a proposal; a newer one of the same partition replaces it while it has not been sent."""
        if proposal.change is IsrChange.EXPAND:
            self.expands += 1
        else:
            self.shrinks += 1
        self._unsent[proposal.topic_id_partition] = proposal
        self._wake.set()

    async def _run(self) -> None:
        pause_ms = 0.0
        while True:
            await self._wake.wait()
            self._wake.clear()
            batch = list(self._unsent.values())
            self._unsent.clear()
            retry = await self._exchange(batch)
            for proposal in retry:
                # A proposal that was submitted meanwhile is newer.
                self._unsent.setdefault(proposal.topic_id_partition, proposal)
            if retry:
                self._wake.set()
                pause_ms = min(max(RETRY_PAUSE_MS, pause_ms * 2), RETRY_PAUSE_MS_MAX)
                await tasks.sleep_ms(pause_ms)
            else:
                pause_ms = 0.0

    async def _exchange(self, batch: list[IsrProposal]) -> list[IsrProposal]:
        """Sends the proposals and gives their partitions the outcome; returns those to send again."""
        try:
            response = await self._channel.send(self._request(batch), VERSION, timeout_ms=TIMEOUT_MS)
        except KafkaError as error:
            _log.info("Broker %d could not ask the controller for %d ISR changes: %s", self._node_id, len(batch), error)
            return batch
        assert isinstance(response, m.AlterPartitionResponse)
        if response.error_code != NONE:
            _log.info(
                "The controller refused %d ISR changes of broker %d: %s",
                len(batch), self._node_id, error_code(response.error_code).name,
            )  # fmt: skip
            return batch
        return self._apply(batch, response)

    def _request(self, batch: Iterable[IsrProposal]) -> m.AlterPartitionRequest:
        request = m.AlterPartitionRequest
        topics: dict[bytes, m.AlterPartitionRequest.Topics] = {}
        for proposal in batch:
            tip = proposal.topic_id_partition
            topic = topics.setdefault(tip.topic_id, request.Topics(topic_id=tip.topic_id))
            topic.partitions.append(
                request.Topics.Partitions(
                    partition_index=tip.partition,
                    leader_epoch=proposal.leader_epoch,
                    new_isr_with_epochs=[
                        request.Topics.Partitions.NewIsrWithEpochs(broker_id=broker, broker_epoch=epoch)
                        for broker, epoch in proposal.brokers
                    ],
                    partition_epoch=proposal.partition_epoch,
                )
            )
        return request(broker_id=self._node_id, broker_epoch=self._metadata.broker_epoch, topics=list(topics.values()))

    def _apply(self, batch: list[IsrProposal], response: m.AlterPartitionResponse) -> list[IsrProposal]:
        rows = {(topic.topic_id, row.partition_index): row for topic in response.topics for row in topic.partitions}
        retry = []
        for proposal in batch:
            tip = proposal.topic_id_partition
            partition = self._hosted.of_tip(tip)
            if partition is None:
                continue
            row = rows.get((tip.topic_id, tip.partition))
            if row is not None and row.error_code == NONE:
                partition.isr_decided(
                    leader_epoch=row.leader_epoch, partition_epoch=row.partition_epoch, isr=frozenset(row.isr)
                )
                continue
            error = ErrorCode.UNKNOWN_SERVER_ERROR if row is None else error_code(row.error_code)
            if partition.isr_refused(proposal, error):
                retry.append(proposal)
        return retry
