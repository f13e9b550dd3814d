"""The rule about transactions that stay open: copying waits for them, and so do readers of committed records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from shlex import quote
from typing import Final

from backend.control.findings.finding_context import NOTICE, WARNING, Candidate, FindingContext, count
from backend.control.findings.kafka_commands import bootstrap_server
from backend.control.findings.sealed_data import is_paused, sealed_data
from backend.control.findings.still_offsets import PartitionKey, StillOffset
from backend.control.formatting import grouped, in_time
from backend.control.gateway.requests.transaction_requests import OpenTransaction
from backend.store.writes.samples import PartitionSample

NAMED_MAX: Final = 10
TOOL: Final = "kafka-transactions.sh"
# States of a coordinator (TransactionState) in which nothing of a transaction is left to be done.
ENDED_STATES: Final = frozenset({"Empty", "CompleteCommit", "CompleteAbort", "Dead"})


def held_copies(context: FindingContext) -> Iterable[Candidate]:
    """Transactions that stay open: copying waits for them, and readers of committed records. One for each producer."""
    rows = {(row.topic, row.partition): row for row in context.partitions}
    sealed = sealed_data(context)
    by_producer: dict[object, list[tuple[PartitionKey, StillOffset, bool]]] = defaultdict(list)
    for key, still in sorted(context.still.items()):
        row = rows.get(key)
        if row is None or still.stable is None or row.answered_ms is not None:
            continue
        open_ms = context.listed_ms(*key) - still.stable.since_ms
        holds = key in sealed and not is_paused(context.topic(row.topic))
        limits = context.thresholds_of(row.topic)
        least_ms = round(1000 * (limits.transaction_held_s if holds else limits.transaction_open_s))
        if open_ms >= context.for_ms("transaction-open", least_ms, row.topic):
            transaction = _transaction(context, key, still.stable)
            producer = row.topic if transaction is None else (transaction.producer_id, transaction.producer_epoch)
            by_producer[producer].append((key, still.stable, holds))
    for held in by_producer.values():
        yield _holding(context, held, rows)


def _transaction(context: FindingContext, key: PartitionKey, stable: StillOffset) -> OpenTransaction | None:
    transaction = context.transactions.get(key)
    return transaction if transaction is not None and transaction.start_offset == stable.offset else None


def _holding(
    context: FindingContext,
    held: Sequence[tuple[PartitionKey, StillOffset, bool]],
    rows: Mapping[PartitionKey, PartitionSample],
) -> Candidate:
    # Partitions that copying waits for come first, of these the one that waits longest.
    ordered = sorted(held, key=lambda part: (not part[2], part[1].since_ms, part[0]))
    key, stable, holds = ordered[0]
    row, transaction = rows[key], _transaction(context, key, stable)
    name, more = f"{key[0]}-{key[1]}", len(held) - 1
    others = f" and {count(more, 'more partition')}" if more else ""
    coordinated = None if transaction is None else transaction.coordinated
    started_ms = stable.since_ms if coordinated is None or coordinated.started_ms is None else coordinated.started_ms
    open_ms = context.at_ms - min(started_ms, stable.since_ms)
    ends_ms = None
    if coordinated is not None and coordinated.started_ms is not None and coordinated.timeout_ms is not None:
        ends_ms = coordinated.started_ms + coordinated.timeout_ms
    return Candidate(
        slug="transaction-open",
        object=name,
        severity=WARNING if holds else NOTICE,
        sentence=f"Copying waits for a transaction: {name}{others}"
        if holds
        else f"A transaction stays open: {name}{others}",
        why=f"From offset {grouped(stable.offset)}, open for {in_time(open_ms)}{_whose(transaction)}."
        f" {'Nothing from there on is copied, and readers' if holds else 'Readers'} of committed records stand there."
        + _end(context, ends_ms),
        action=_remedy(context, transaction, ends_ms, [(part, offset.offset) for part, offset, _ in ordered]),
        facts={
            "start_offset": stable.offset,
            "high_watermark": row.high_watermark,
            "open_ms": open_ms,
            "producer_id": None if transaction is None else transaction.producer_id,
            "producer_epoch": None if transaction is None else transaction.producer_epoch,
            "transactional_id": None if coordinated is None else coordinated.transactional_id,
            "state": None if coordinated is None else coordinated.state,
            "times_out_ms": ends_ms,
            "partitions": len(held),
            "first": [f"{topic}-{number}" for (topic, number), _, _ in ordered[:NAMED_MAX]],
        },
        topic=key[0],
        partition=key[1],
        broker_id=row.leader,
        also_about=tuple(other for other, _, _ in ordered[1:]),
    )


def _is_open(transaction: OpenTransaction | None) -> bool:
    """Whether its coordinator has it as open. One that it has ended or does not list hangs in partitions (KIP-890)."""
    coordinated = None if transaction is None else transaction.coordinated
    return coordinated is not None and coordinated.state not in ENDED_STATES


def _whose(transaction: OpenTransaction | None) -> str:
    if transaction is None:
        return ", its producer is not known"
    producer = f", producer id {transaction.producer_id}"
    if transaction.coordinated is None:
        return f"{producer} (no coordinator lists it)"
    ended = "" if _is_open(transaction) else f", its coordinator has it as {transaction.coordinated.state}"
    return f"{producer} (transactional id {transaction.coordinated.transactional_id}{ended})"


def _remedy(
    context: FindingContext,
    transaction: OpenTransaction | None,
    ends_ms: int | None,
    held: Sequence[tuple[PartitionKey, int]],
) -> str:
    """A marker by hand is for transactions that hang: of any other its coordinator would know nothing of it."""
    (topic, number), tool = held[0][0], f"{TOOL} --bootstrap-server {bootstrap_server(context)}"
    if transaction is None:
        return (
            f"See who holds it ({tool} describe-producers --topic {topic} --partition {number}); let that producer"
            " commit or abort, or restart it. The runbook says what to do when it is lost."
        )
    if transaction.coordinated is not None and _is_open(transaction):
        waits = "" if ends_ms is None or ends_ms <= context.at_ms else f" {in_time(ends_ms - context.at_ms)}"
        named = quote(transaction.coordinated.transactional_id)
        return (
            f"Restart its producer (its transactional id fences the old one), or wait{waits} until the coordinator"
            f" aborts it. Without the producer, with the tools of Kafka 4.3: {tool} forceTerminateTransaction"
            f" --transactionalId {named} (the coordinator then aborts it at once)."
        )
    commands = [f"{tool} abort --topic {of} --partition {n} --start-offset {offset}" for (of, n), offset in held]
    more = f" (and {count(len(held) - NAMED_MAX, 'more partition')})" if len(held) > NAMED_MAX else ""
    return (
        f"It hangs: no restart ends it. When {tool} find-hanging --topic {topic} lists it as well, abort it in each"
        f" partition: {'; '.join(commands[:NAMED_MAX])}{more}."
    )


def _end(context: FindingContext, ends_ms: int | None) -> str:
    if ends_ms is None or ends_ms <= context.at_ms:
        return ""
    return f" Its coordinator aborts it in {in_time(ends_ms - context.at_ms)} by itself."
