"""Asks brokers for the log ends of partitions without a leader: ListOffsets as a debug reader."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from backend.engine.controller.commands.partition.elections import LocatedPartition
from backend.engine.controller.commands.partition.recovery_verdict import LogEndsByPartition, LogsToRead
from backend.engine.controller.image.metadata_image import MetadataImage
from backend.engine.net.cluster_client import ClusterClient
from backend.engine.ports import tasks
from backend.engine.replica.fetch_data import DEBUG
from backend.protocol import messages as m
from backend.protocol.errors import NONE, DecodeError, KafkaError
from backend.protocol.offset_timestamps import LATEST

VERSION: Final = 10
TIMEOUT_MS: Final = 2000
# Of one request: with names of 249 characters in front of single partitions it stays below 1 MiB.
PARTITIONS_PER_REQUEST: Final = 2000

# (epoch of the last record, log end offset) by topic id and partition.
_LogEnds = dict[tuple[bytes, int], tuple[int, int]]

_log = logging.getLogger(__name__)


class LogEndClient:
    """`client` is used for nothing else, so that no answer waits behind another."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client

    async def ask(self, image: MetadataImage, by_broker: LogsToRead) -> LogEndsByPartition:
        """The log ends that the brokers answer, each in its own time; one that does not answer is left out."""
        requests = [tasks.spawn(self._ask_broker(broker, partitions), name=f"log ends of broker {broker}")
                   for broker, partitions in by_broker.items() if image.is_active(broker)]  # fmt: skip
        ends: dict[tuple[bytes, int], dict[int, tuple[int, int]]] = {}
        for task in requests:
            broker, answered = await task
            for key, end in answered.items():
                ends.setdefault(key, {})[broker] = end
        return ends

    async def _ask_broker(self, broker: int, partitions: Sequence[LocatedPartition]) -> tuple[int, _LogEnds]:
        ends: _LogEnds = {}
        for start in range(0, len(partitions), PARTITIONS_PER_REQUEST):
            some = partitions[start : start + PARTITIONS_PER_REQUEST]
            try:
                response = await self._client.send_to_broker(broker, _request(some), VERSION, timeout_ms=TIMEOUT_MS)
            except (KafkaError, DecodeError, OSError) as error:
                _log.debug("Broker %d has not said how far its logs reach: %s", broker, error)
                break
            if isinstance(response, m.ListOffsetsResponse):
                ends.update(_log_ends(some, response))
        return broker, ends


def _request(partitions: Sequence[LocatedPartition]) -> m.ListOffsetsRequest:
    """With the leader epoch in which there is no leader: a broker that still leads an earlier one does not answer."""
    request = m.ListOffsetsRequest.Topics
    topics: dict[str, m.ListOffsetsRequest.Topics] = {}
    for topic, index, partition in partitions:
        row = request.Partitions(partition_index=index, current_leader_epoch=partition.leader_epoch, timestamp=LATEST)
        topics.setdefault(topic.name, request(name=topic.name)).partitions.append(row)
    return m.ListOffsetsRequest(replica_id=DEBUG, topics=list(topics.values()))


def _log_ends(
    partitions: Sequence[LocatedPartition], response: m.ListOffsetsResponse
) -> Iterator[tuple[tuple[bytes, int], tuple[int, int]]]:
    rows: Mapping[tuple[str, int], m.ListOffsetsResponse.Topics.Partitions] = {
        (topic.name, row.partition_index): row for topic in response.topics for row in topic.partitions
    }
    for topic, index, _ in partitions:
        row = rows.get((topic.name, index))
        if row is not None and row.error_code == NONE and row.offset >= 0:
            yield (topic.id, index), (row.leader_epoch, row.offset)
