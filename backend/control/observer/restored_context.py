"""Restores the observer's context after a restart from its last rows, so that ages and phases do not start over."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from sqlalchemy import Connection

from backend.control.findings.endangered_partitions import EndangeredPartition, endangered_of_evidence
from backend.control.findings.unclean_elections import ElectionMemory, election_of_evidence
from backend.control.observer.sampling.cluster_facts import LedgerSums, RemoteFacts
from backend.control.observer.sampling_round import ReplicaKey, RoundContext
from backend.store.queries import findings, health
from backend.store.queries import observer as stored
from backend.store.queries import partitions as pages
from backend.store.queries.pipeline import PIPELINE, is_behind
from backend.store.writes.samples import PartitionSample, ReplicaSample
from backend.tiering.follower_phase import FollowerPhase
from backend.tiering.phase_inference import FollowerMemory


def restore_context(connection: Connection, cluster_id: str, stall_ms: int) -> RoundContext:
    """The context of the first round."""
    partitions = [_sample(PartitionSample, row) for row in pages.partitions(connection, cluster_id, tiered_only=False)]
    rows = pages.replicas(connection, cluster_id)
    memories: dict[ReplicaKey, FollowerMemory] = {
        (row.topic, row.partition, row.broker_id): FollowerMemory(
            phase=FollowerPhase(row.phase) if row.phase in set(FollowerPhase) else None,
            since_ms=row.phase_since_ms or row.sampled_ms,
            log_end=row.log_end_offset,
            moved_ms=row.changed_ms,
        )
        for row in rows
        if row.role == "follower"
    }
    return RoundContext(
        memories=memories,
        stall_ms=stall_ms,
        last_partitions={(p.topic, p.partition): p for p in partitions},
        produced_bytes=stored.produced_bytes(connection, cluster_id),
        elections=_elections(connection, cluster_id),
        last_replicas={(r.topic, r.partition, r.broker_id): r for r in (_sample(ReplicaSample, row) for row in rows)},
    )


def merge_contexts(stored: RoundContext, seen: RoundContext) -> RoundContext:
    """Merges the stored context with what this process has seen meanwhile, which is newer."""
    memories = dict(stored.memories)
    for key, memory in seen.memories.items():
        before = memories.get(key)
        # A phase that goes on began when it was first seen.
        memories[key] = (
            memory if before is None or before.phase != memory.phase else replace(memory, since_ms=before.since_ms)
        )
    return replace(
        seen,
        memories=memories,
        last_partitions={**stored.last_partitions, **seen.last_partitions},
        last_replicas={**stored.last_replicas, **seen.last_replicas},
        produced_bytes=stored.produced_bytes + seen.produced_bytes,
        elections=replace(seen.elections, elections={**stored.elections.elections, **seen.elections.elections}),
    )


def restore_endangered(connection: Connection, cluster_id: str) -> list[EndangeredPartition]:
    """The partitions that must not be led by their last leader, as open findings name them."""
    return [
        endangered
        for finding in findings.all_open(connection, cluster_id)
        if finding.slug == "last-leader-behind" and finding.broker_id is not None
        for endangered in endangered_of_evidence(finding.broker_id, finding.evidence or {})
    ]


def _elections(connection: Connection, cluster_id: str) -> ElectionMemory:
    """The unclean elections that open findings are about."""
    elections = {}
    for finding in findings.all_open(connection, cluster_id):
        if finding.slug != "unclean-recovery" or finding.topic is None or finding.partition is None:
            continue
        election = election_of_evidence(finding.topic, finding.partition, finding.evidence or {})
        if election is not None:
            elections[finding.topic, finding.partition] = election
    return ElectionMemory(elections)


def _sample(kind: type[Any], row: Any) -> Any:
    """A stored row as a sample of the time it was taken."""
    values = {field.name: getattr(row, field.name) for field in fields(kind) if field.name != "answered_ms"}
    frozen = {name: _frozen(value) if name != "evidence" else value for name, value in values.items()}
    return kind(**frozen, answered_ms=row.sampled_ms)


def _frozen(value: Any) -> Any:
    return tuple(_frozen(part) for part in value) if isinstance(value, list) else value


def read_ledger(connection: Connection, cluster_id: str, at_ms: int) -> LedgerSums:
    """Sums that the pipeline has stored of the remote tier."""
    work = stored.open_work(connection, cluster_id)
    return LedgerSums(
        partitions={
            (row.topic_id, row.partition): RemoteFacts(
                row.finished_bytes, row.finished_segments, row.highest_copied_offset
            )
            for row in stored.remote_partitions(connection, cluster_id)
        },
        open_copies=work.copies,
        oldest_open_copy_ms=_age(work.oldest_copy_ms, at_ms),
        open_deletes=work.deletes,
        oldest_open_delete_ms=_age(work.oldest_delete_ms, at_ms),
        complete=not is_behind(health.processes(connection, cluster_id, at_ms).get(PIPELINE)),
    )


def _age(began_ms: int | None, at_ms: int) -> int | None:
    return None if began_ms is None else max(0, at_ms - began_ms)
