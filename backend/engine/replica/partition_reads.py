"""One partition's part of a Fetch, read from its local log.

The result is a value also where no local segment has the offset: that is the ordinary way into the remote tier.
Kafka: `Partition.fetchRecords`, `ReplicaManager.readFromLog`.
"""

from __future__ import annotations

from backend.engine.replica.fetch_data import EpochEnd, FetchData, FetchParams, FetchSpec, Isolation, failed
from backend.engine.replica.partition import NO_EPOCH, Partition
from backend.protocol.errors import ErrorCode, KafkaError


def read(
    partition: Partition, params: FetchParams, spec: FetchSpec, bytes_max: int, *, min_one_message: bool
) -> FetchData:
    """Its error is OFFSET_OUT_OF_RANGE when no local segment has the offset. Raises KafkaError for any other error."""
    partition.check_epoch(spec.current_leader_epoch)
    if params.wants_leader:
        partition.check_leader()
    if params.from_follower and params.replica_id not in partition.followers.states:
        raise _not_a_replica(partition, params.replica_id, spec)
    log = partition.log
    data = FetchData(
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
    )
    end, offset = partition.fetchable_end(params.isolation), spec.fetch_offset
    # Nearly all followers have nearly always this log to its end: there is nothing to look up.
    if params.from_follower and offset == end and spec.last_fetched_epoch in (NO_EPOCH, log.leader_epochs.latest_epoch):
        log.check_online()
        return data
    if spec.last_fetched_epoch != NO_EPOCH:
        diverging = _divergence(partition, spec)
        if isinstance(diverging, ErrorCode):
            return failed(diverging)
        if diverging is not None:
            data.diverging = diverging
            return data
    if offset > log.log_end_offset or offset < log.log_start_offset or offset < log.segments.first_base_offset:
        log.check_online()
        return failed(ErrorCode.OFFSET_OUT_OF_RANGE)
    info = log.reader.read_file_range(offset, bytes_max, up_to_offset=end, min_one_message=min_one_message)
    data.records = info.records
    if params.isolation is Isolation.COMMITTED:
        data.aborted = log.reader.aborted_in(offset, info)
    return data


def from_preferred_replica(partition: Partition, params: FetchParams, spec: FetchSpec) -> FetchData | None:
    """The answer that sends a consumer to another replica (KIP-392), with this one's offsets; None to read here.

    Raises KafkaError for another leader epoch.
    """
    if not partition.is_leader:
        return None
    log = partition.log
    preferred = partition.followers.preferred_read_replica(
        params.client_rack, params.listener_name, spec.fetch_offset, log.log_end_offset
    )
    if preferred is None:
        return None
    partition.check_epoch(spec.current_leader_epoch)
    return FetchData(
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
        preferred_replica=preferred,
    )


def _divergence(partition: Partition, spec: FetchSpec) -> EpochEnd | ErrorCode | None:
    """The point where the fetcher's log left ours, if it did (KIP-595's truncation detection inside Fetch).

    OFFSET_OUT_OF_RANGE where this log knows no end of the epoch, or starts behind the offset.
    """
    log = partition.log
    epoch, end_offset = log.end_offset_for_epoch(spec.last_fetched_epoch)
    if end_offset == -1 or spec.fetch_offset < log.log_start_offset:
        return ErrorCode.OFFSET_OUT_OF_RANGE
    if epoch < spec.last_fetched_epoch or end_offset < spec.fetch_offset:
        return EpochEnd(epoch, end_offset)
    return None


def _not_a_replica(partition: Partition, replica_id: int, spec: FetchSpec) -> KafkaError:
    # With an epoch given the assignment may be newer than what we know, and the follower should try again.
    current = spec.current_leader_epoch == NO_EPOCH
    return KafkaError(
        ErrorCode.NOT_LEADER_OR_FOLLOWER if current else ErrorCode.UNKNOWN_LEADER_EPOCH,
        f"broker {replica_id} is not a replica of {partition} as far as its leader knows",
    )
