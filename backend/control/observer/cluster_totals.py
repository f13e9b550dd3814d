"""The cluster in a dozen sums, for the Overview's figures and charts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from backend.control.observer.sampling.cluster_facts import ClusterFacts, LedgerSums
from backend.control.observer.watches.liveness_watch import Liveness
from backend.store.writes.samples import PartitionSample, ReplicaSample
from backend.tiering.pending import pending_from


def totals(
    facts: ClusterFacts,
    ledger: LedgerSums,
    partitions: Sequence[PartitionSample],
    replicas: Sequence[ReplicaSample],
    produced_bytes: int | None,
    *,
    topics_hidden: bool = False,
) -> dict[str, int | None]:
    """A row of `cluster_sample` without its key. A sum with an unknown part counts the parts that are known.

    `topics_hidden`: our principal may not see all topics, or their settings.
    """
    tiered = [p for p in partitions if p.tiered]
    return {
        "partitions": len(partitions),
        "tiered_partitions": len(tiered),
        "offline_partitions": sum(p.leader < 0 for p in partitions),
        "replicas": len(replicas),
        "replicas_not_in_sync": sum(not r.in_isr for r in replicas),
        "brokers": len(facts.brokers),
        "brokers_reachable": sum(b.reachable for b in facts.brokers.values()),
        "log_end_offset_sum": _sum(p.log_end_offset for p in tiered),
        "tiered_offset_sum": _sum(
            None if p.latest_tiered_offset is None else p.latest_tiered_offset + 1 for p in tiered
        ),
        "produced_bytes": produced_bytes,
        "pending_offsets": _sum(pending_offsets(p) for p in tiered),
        "pending_bytes": _sum(pending_bytes(p) for p in tiered),
        "local_log_bytes": _sum(r.local_log_bytes for r in replicas),
        "remote_log_bytes": None if topics_hidden else _remote_bytes(ledger, partitions),
        "open_copies": ledger.open_copies,
        "oldest_open_copy_ms": ledger.oldest_open_copy_ms,
        "open_deletes": ledger.open_deletes,
        "oldest_open_delete_ms": ledger.oldest_open_delete_ms,
    }


def totals_now(totals: Mapping[str, int | None], liveness: Liveness, *, fresh: bool) -> dict[str, int | None]:
    """The sums of the newest round with what liveness says at this moment. Without a `fresh` round the others are None:
    a number that stands still for an hour would pass for one of now.
    """
    now: dict[str, int | None] = {"brokers": totals["brokers"], "brokers_reachable": totals["brokers_reachable"]}
    if liveness.brokers or liveness.away is not None:
        now["brokers_reachable"] = sum(broker.error is None for broker in liveness.brokers.values())
    if liveness.partitions and liveness.away is None and now["brokers_reachable"]:
        now["offline_partitions"] = sum(p.leader < 0 for p in liveness.partitions)
        now["replicas_not_in_sync"] = sum(len(set(p.replicas) - set(p.isr)) for p in liveness.partitions)
    return (dict(totals) if fresh else dict.fromkeys(totals)) | now


def _remote_bytes(ledger: LedgerSums, partitions: Sequence[PartitionSample]) -> int | None:
    """Only the ledger counts remote bytes: without one a tiered partition's are not known, and so is the sum. Nor is it
    where the ledger counts bytes and no topic is tiered: rights were lost a moment ago, or deletions are not over.
    """
    if not any(p.tiered for p in partitions) and any(sums.finished_bytes for sums in ledger.partitions.values()):
        return None
    if not ledger.partitions and any(p.tiered and p.remote_log_bytes is None for p in partitions):
        return None
    return _sum(p.remote_log_bytes for p in partitions)


def pending_offsets(partition: PartitionSample) -> int | None:
    """Records that are on local disks only; None when the leader does not know."""
    pending, log_end = pending_from(partition).offset, partition.log_end_offset
    return None if pending is None or log_end is None else max(0, log_end - pending)


def pending_bytes(partition: PartitionSample) -> int | None:
    """Their size, taking the leader's local records to be of one size."""
    offsets, local_bytes = pending_offsets(partition), partition.local_log_bytes
    start, end = partition.local_log_start_offset, partition.log_end_offset
    if offsets is None or local_bytes is None or start is None or end is None:
        return None
    return 0 if end <= start else round(local_bytes * min(1.0, offsets / (end - start)))


def produced(partitions: Iterable[PartitionSample], last: Mapping[tuple[str, int], PartitionSample]) -> int | None:
    """Bytes that came to the tiered partitions since they answered last: each one's records times its own bytes per
    record, as its local log shows it. None when that is known of no partition; others are left out.
    """
    return _sum(
        _produced(partition, last.get((partition.topic, partition.partition)))
        for partition in partitions
        if partition.tiered
    )


def _produced(partition: PartitionSample, last: PartitionSample | None) -> int | None:
    if partition.answered_ms is not None or last is None or last.topic_id != partition.topic_id:
        return None
    before, end = last.log_end_offset, partition.log_end_offset
    if before is None or end is None:
        return None
    if end <= before:  # an unclean election may take records back: nothing came
        return 0
    start, local_bytes = partition.local_log_start_offset, partition.local_log_bytes
    if start is None or local_bytes is None or end <= start:
        return None
    return round((end - before) * local_bytes / (end - start))


def _sum(values: Iterable[int | None]) -> int | None:
    numbers = [value for value in values if value is not None]
    return sum(numbers) if numbers else None
