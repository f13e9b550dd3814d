"""Fetch of `__cluster_metadata` as its leader answers it (KIP-595; KafkaRaftClient.handleFetchRequest).

The decision is a function of the request and the log's offsets; `apis.fetch.metadata_log_fetch` waits for more records.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from backend.engine.common.topic_names import CLUSTER_METADATA_TOPIC, CLUSTER_METADATA_TOPIC_ID
from backend.engine.raft.snapshot_files import SnapshotId
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode

_PartitionRequest = m.FetchRequest.Topics.Partitions
_PartitionResult = m.FetchResponse.Responses.Partitions


@dataclass(frozen=True, slots=True)
class LogView:
    """The part of the leader's state that the response depends on."""

    leader_id: int
    epoch: int
    start_offset: int
    end_offset: int
    high_watermark: int
    is_leader: bool = True
    earliest_snapshot: SnapshotId | None = None
    latest_snapshot: SnapshotId | None = None


EndOffsetForEpoch = Callable[[int], tuple[int, int]]


def requested_partition(request: m.FetchRequest, version: int, cluster_id: str) -> _PartitionRequest | ErrorCode:
    """The one partition of the one topic that this listener serves, or why the whole request is refused."""
    if request.cluster_id is not None and request.cluster_id != cluster_id:
        return ErrorCode.INCONSISTENT_CLUSTER_ID
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return ErrorCode.INVALID_REQUEST
    topic = request.topics[0]
    is_metadata = (
        bytes(topic.topic_id) == CLUSTER_METADATA_TOPIC_ID if version >= 13 else topic.topic == CLUSTER_METADATA_TOPIC
    )
    partition = topic.partitions[0]
    if not is_metadata or partition.partition != 0:
        return ErrorCode.INVALID_REQUEST
    if (
        min(partition.fetch_offset, partition.last_fetched_epoch, partition.current_leader_epoch, request.max_wait_ms)
        < 0
    ):
        return ErrorCode.INVALID_REQUEST
    return partition


def decide(request: _PartitionRequest, view: LogView, end_offset_for_epoch: EndOffsetForEpoch) -> _PartitionResult:
    """The partition's answer without records: an error, a snapshot to fetch, a diverging epoch, or room for records.

    The order of the cases is Kafka's (`KafkaRaftClient.tryCompleteFetchRequest` and `validateOffsetAndEpoch`).
    """
    result = _PartitionResult(
        partition_index=0,
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=view.start_offset,
        aborted_transactions=[],
        records=b"",
        current_leader=_PartitionResult.CurrentLeader(leader_id=view.leader_id, leader_epoch=view.epoch),
    )
    if request.current_leader_epoch != view.epoch:
        older = request.current_leader_epoch < view.epoch
        result.error_code = ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH
        return result
    if not view.is_leader:
        result.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return result
    result.high_watermark = view.high_watermark
    if _needs_snapshot(request, view):
        assert view.latest_snapshot is not None
        result.snapshot_id = _PartitionResult.SnapshotId(
            end_offset=view.latest_snapshot.end_offset, epoch=view.latest_snapshot.epoch
        )
        return result
    if request.fetch_offset == view.start_offset == 0:
        return result
    epoch, end = end_offset_for_epoch(request.last_fetched_epoch)
    if epoch < 0:
        # An epoch older or newer than all: nothing of that log is ours.
        epoch, end = (
            (view.epoch, view.end_offset) if request.last_fetched_epoch > view.epoch else (0, view.start_offset)
        )
    if epoch != request.last_fetched_epoch or request.fetch_offset > end:
        result.diverging_epoch = _PartitionResult.DivergingEpoch(epoch=epoch, end_offset=end)
    return result


def _needs_snapshot(request: _PartitionRequest, view: LogView) -> bool:
    earliest, offset, epoch = view.earliest_snapshot, request.fetch_offset, request.last_fetched_epoch
    if earliest is None:
        return False
    if offset == 0:
        # An empty replica catches up sooner by a snapshot, even while the log still begins at 0.
        return True
    at_start = offset == view.start_offset and epoch != earliest.epoch
    return offset < view.start_offset or at_start or epoch < earliest.epoch


def has_records(result: _PartitionResult) -> bool:
    """Whether there is room for records: neither an error nor anything else to do first."""
    return not result.error_code and not is_diverging(result) and result.snapshot_id.end_offset < 0


def is_diverging(result: _PartitionResult) -> bool:
    """Whether the response makes the follower truncate."""
    return result.diverging_epoch.end_offset >= 0


def as_buffer(records: object) -> bytes | bytearray | memoryview:
    """The bytes of a decoded records field; empty for null."""
    return records if isinstance(records, (bytes, bytearray, memoryview)) else b""


def response_of(result: _PartitionResult, version: int, endpoint: m.FetchResponse.NodeEndpoints) -> m.FetchResponse:
    """The whole response; the leader's address goes along with every answer (version 16 and later)."""
    response = m.FetchResponse
    topic = response.Responses(partitions=[result])
    if version >= 13:
        topic.topic_id = CLUSTER_METADATA_TOPIC_ID
    else:
        topic.topic = CLUSTER_METADATA_TOPIC
    return response(responses=[topic], node_endpoints=[endpoint])
