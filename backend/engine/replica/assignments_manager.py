"""Reports to the controller which replicas of this broker have an unusable log, and which a usable one again (KIP-858).

One request in flight; a failed one is sent again. Kafka: `AssignmentsManager`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from backend.engine.common.controller_channel import ControllerChannel
from backend.engine.ports import tasks
from backend.engine.replica.applied_metadata import AppliedMetadata
from backend.protocol import messages as m
from backend.protocol.errors import NONE, ErrorCode, KafkaError, error_code
from backend.tiering.ids import TopicIdPartition

VERSION: Final = 0
TIMEOUT_MS: Final = 30_000.0
RETRY_PAUSE_MS: Final = 500.0
RETRY_PAUSE_MS_MAX: Final = 10_000.0
# The replica is not ours any longer: there is nothing to report.
_OVER: Final = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER}
)

_log = logging.getLogger(__name__)


class AssignmentsManager:
    """Replicas and their directories on the way to the controller; of one replica only the newest."""

    def __init__(self, metadata: AppliedMetadata, channel: ControllerChannel) -> None:
        self._node_id = metadata.node_id
        self._metadata = metadata
        self._channel = channel
        self._unsent: dict[TopicIdPartition, bytes] = {}
        self._wake = tasks.Event()
        self._logged_reason = ""
        self._task: tasks.Task[None] | None = None

    def start(self) -> None:
        """Begins to send."""
        self._task = tasks.spawn(self._run(), name=f"AssignReplicasToDirs of broker {self._node_id}")

    async def stop(self) -> None:
        """Sends nothing more."""
        await tasks.cancel(self._task)

    def submit(self, tip: TopicIdPartition, directory: bytes) -> None:
        """The replica lies in the directory from now on."""
        self._unsent[tip] = directory
        self._wake.set()

    async def _run(self) -> None:
        pause_ms = RETRY_PAUSE_MS
        while True:
            await self._wake.wait()
            self._wake.clear()
            batch, self._unsent = self._unsent, {}
            retry = await self._exchange(batch)
            if retry:
                # An assignment that was submitted meanwhile is newer.
                self._unsent = retry | self._unsent
                await tasks.sleep_ms(pause_ms)
                pause_ms = min(2 * pause_ms, RETRY_PAUSE_MS_MAX)
                self._wake.set()
            else:
                pause_ms, self._logged_reason = RETRY_PAUSE_MS, ""

    async def _exchange(self, batch: dict[TopicIdPartition, bytes]) -> dict[TopicIdPartition, bytes]:
        """Sends the batch and returns what has to be sent again."""
        try:
            response = await self._channel.send(self._request(batch), VERSION, timeout_ms=TIMEOUT_MS)
        except KafkaError as error:
            return self._put_off(batch, str(error))
        assert isinstance(response, m.AssignReplicasToDirsResponse)
        if response.error_code != NONE:
            return self._put_off(batch, error_code(response.error_code).name)
        errors = {
            (bytes(topic.topic_id), row.partition_index): error_code(row.error_code)
            for directory in response.directories
            for topic in directory.topics
            for row in topic.partitions
        }
        over = _OVER | {ErrorCode.NONE}
        return {
            tip: directory
            for tip, directory in batch.items()
            if errors.get((tip.topic_id, tip.partition), ErrorCode.UNKNOWN_SERVER_ERROR) not in over
        }

    def _put_off(self, batch: dict[TopicIdPartition, bytes], reason: str) -> dict[TopicIdPartition, bytes]:
        """A controller that is away for long fills no log."""
        if reason != self._logged_reason:
            self._logged_reason = reason
            _log.info("Broker %d could not tell the controller of the directories of %d replicas, trying on: %s",
                      self._node_id, len(batch), reason)  # fmt: skip
        return batch

    def _request(self, batch: Mapping[TopicIdPartition, bytes]) -> m.AssignReplicasToDirsRequest:
        request = m.AssignReplicasToDirsRequest
        by_directory: dict[bytes, dict[bytes, list[int]]] = {}
        for tip, directory in batch.items():
            by_directory.setdefault(directory, {}).setdefault(tip.topic_id, []).append(tip.partition)
        topic = request.Directories.Topics
        return request(
            broker_id=self._node_id,
            broker_epoch=self._metadata.broker_epoch,
            directories=[
                request.Directories(
                    id=directory,
                    topics=[
                        topic(
                            topic_id=topic_id,
                            partitions=[topic.Partitions(partition_index=index) for index in sorted(indexes)],
                        )
                        for topic_id, indexes in topics.items()
                    ],
                )
                for directory, topics in by_directory.items()
            ],
        )
