"""Rules about all that is seen: the cluster as a whole, and the pipeline that reads the remote log's metadata."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from backend.control.findings.finding_context import CRITICAL, NOT_ALLOWED, WARNING, Candidate, FindingContext
from backend.control.findings.holds import default_for_ms
from backend.control.findings.rules.metadata_rules import METADATA_TOPIC
from backend.control.formatting import in_time
from backend.control.gateway.requests.rights_requests import MissingRight
from backend.store.blind_spots import PIPELINE_DOWN, PIPELINE_WAITING, pipeline_spot, stale
from backend.store.queries.health import ProcessHealth

# As the gateway's error begins, too.
NO_ANSWER: Final = "No broker answers"
READ_METADATA: Final = MissingRight("Read", f"Topic {METADATA_TOPIC}")
CLUSTER_AWAY_FOR_MS: Final = default_for_ms("cluster-away")
NO_ROUND_FOR_MS: Final = default_for_ms("observer-down")
WAITING_FOR_MS: Final = default_for_ms("pipeline-down", "waits")
# The controller makes another broker the leader after 9 s, a read that waits ends after 10 s, and records that came
# meanwhile are read in as many.
READ_HELD_MS: Final = 60_000
DOWN_FOR_MS: Final = default_for_ms("pipeline-down")
NOT_RUNNING: Final = (
    "`ebbline up` starts one that has ended again; one that hangs or was stopped is killed (run/pipeline.pid has its"
    " process id). Its log (logs/pipeline.log) says why."
)
BEHIND_AFTER_START_MS: Final = default_for_ms("pipeline-behind", "in the minute after a start")
BEHIND_FOR_MS: Final = default_for_ms("pipeline-behind")


def cluster_away(context: FindingContext) -> Iterable[Candidate]:
    """No broker answers."""
    if context.away is None:
        return
    yield Candidate(
        slug="cluster-away",
        object="cluster",
        severity=CRITICAL,
        sentence="The cluster does not answer",
        why=f"{NO_ANSWER} for {in_time(context.at_ms - context.away.since_ms)}."
        f" {context.away.reason.removeprefix(f'{NO_ANSWER}.').strip()}".rstrip(),
        action="Start the brokers that do not run, and see whether this machine reaches their listeners; all other"
        " facts are of before.",
        facts={"since_ms": context.away.since_ms, "reason": context.away.reason},
        for_ms=0 if context.at_ms - context.away.since_ms >= CLUSTER_AWAY_FOR_MS else CLUSTER_AWAY_FOR_MS,
    )


def silent_observer(context: FindingContext) -> Iterable[Candidate]:
    """Brokers answer, and no round of samples ends."""
    age = context.round_age
    if age is None or context.away is not None or not stale(age.age_ms, age.interval_ms):
        return
    yield Candidate(
        slug="observer-down",
        object="observer",
        severity=CRITICAL,
        sentence="The observer ends no round of samples",
        why=f"For {in_time(age.age_ms)}, though brokers answer. {age.reason or 'The newest round still waits.'}"
        " Offsets, sizes and all findings that rest on them are of before.",
        action="See what the backend's log says. If brokers of another cluster answer, mend the bootstrap servers; if a"
        " broker hangs, restart that one; if it is a fault of this program, restart the backend (`ebbline up`).",
        facts={"age_ms": age.age_ms, "interval_ms": age.interval_ms, "reason": age.reason},
        for_ms=NO_ROUND_FOR_MS,
        # A round asks every broker.
        depends_on=frozenset(broker.broker_id for broker in context.brokers if not broker.reachable),
    )


def pipelines(context: FindingContext) -> Iterable[Candidate]:
    """The pipeline is dead, silent, waits for something, or cannot keep pace: the ledger of segments is of before."""
    pipeline, spot = context.processes.get("pipeline"), pipeline_spot(context.processes, context.at_ms)
    slug = None if spot is None else spot.slug
    if pipeline is None:
        if spot is not None and slug == PIPELINE_DOWN:
            why = f"It has not reported once in {in_time(context.at_ms - (spot.since_ms or 0))}: the ledger is empty."
            yield _pipeline("pipeline-down", CRITICAL, "The pipeline does not start", why, NOT_RUNNING)
        return
    if slug == PIPELINE_DOWN:
        yield _down(pipeline)
        return
    if slug == PIPELINE_WAITING and context.away is None:
        since_ms = (pipeline.detail or {}).get("waiting_since_ms") or pipeline.updated_ms
        yield replace(
            _pipeline(
                "pipeline-down",
                WARNING,
                "The pipeline waits",
                f"For {in_time(max(0, context.at_ms - int(since_ms)))}. {pipeline.message or ''}".strip(),
                "See what it waits for; the ledger of remote segments does not grow until then.",
                for_ms=WAITING_FOR_MS,
                topic=METADATA_TOPIC if context.topics and METADATA_TOPIC not in context.topics else None,
            ),
            depends_on=_holding_brokers(context),
            facts=_facts(context),
        )
    yield from _behind(context, pipeline)


def _behind(context: FindingContext, pipeline: ProcessHealth) -> Iterable[Candidate]:
    """Also while it waits: a read that stalls ends its stream, and the next one goes on."""
    lag_ms = (pipeline.detail or {}).get("lag_ms")
    if lag_ms is None or lag_ms <= 1000 * context.thresholds.pipeline_lag_s:
        return
    lag_records = (pipeline.detail or {}).get("lag_records")
    catches_up = context.just_back or context.at_ms - pipeline.started_ms <= BEHIND_AFTER_START_MS
    yield replace(
        _pipeline(
            "pipeline-behind",
            WARNING,
            "The pipeline is behind",
            f"{lag_records} records of the remote log's metadata wait, the oldest for up to {in_time(lag_ms)}.",
            "See in its log what slows it down: the database, or the processor that it shares; nothing is lost.",
            for_ms=BEHIND_AFTER_START_MS if catches_up else BEHIND_FOR_MS,
        ),
        depends_on=_holding_brokers(context),
        facts=_facts(context),
    )


def _facts(context: FindingContext) -> dict[str, str]:
    """The rule of a pipeline that lives and may not read, by which `rights-missing` explains it."""
    return {"rule": NOT_ALLOWED} if READ_METADATA in context.missing_rights else {}


def _holding_brokers(context: FindingContext) -> frozenset[int]:
    """Brokers with the metadata topic that went away a short while ago: a read waits for one until another leads."""
    replicas = {broker for row in context.partitions if row.topic == METADATA_TOPIC for broker in row.replicas}
    return frozenset(
        broker.broker_id
        for broker in context.brokers
        if not broker.reachable and broker.broker_id in replicas and context.at_ms - broker.seen_ms <= READ_HELD_MS
    )


def _down(pipeline: ProcessHealth) -> Candidate:
    state = f"It is {pipeline.state}" if pipeline.state in ("stopped", "failed") else "It gives no sign of life"
    why = f"{state} for {in_time(pipeline.age_ms)}. {pipeline.message or ''}".strip()
    return _pipeline(
        "pipeline-down",
        CRITICAL,
        "The pipeline does not work",
        f"{why} Segments that were copied or deleted since are not in the ledger: copies that fail are not seen.",
        NOT_RUNNING,
        for_ms=DOWN_FOR_MS,
    )


def _pipeline(
    slug: str, severity: str, headline: str, why: str, action: str, *, for_ms: int = 0, topic: str | None = None
) -> Candidate:
    return Candidate(
        slug=slug,
        object="pipeline",
        severity=severity,
        sentence=headline,
        why=why,
        action=action,
        for_ms=for_ms,
        topic=topic,
    )
