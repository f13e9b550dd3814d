"""Blind spots: what the product does not see now, since when. Pure.

One list for page, API, commands and exit codes; findings, heartbeat and the alerts about the product itself take their
conditions from here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backend.store.queries.health import STALE_AFTER_INTERVALS, ProcessHealth

# After each move of a leader the pipeline waits for a moment, and finds the new one by itself.
WAITING_MS = 30_000
# A round waits 3.5 s for a broker that hangs, twice where it must look for another controller: no reason to say that
# nothing is live.
SAMPLES_STALE_MS_MIN = 10_000
# Spark takes 10 s to start, and 30 s on a busy machine with two cores.
PIPELINE_STARTS_MS = 60_000
PIPELINE_EXPECTED = "pipeline_expected"
"""In the detail of the backend's heartbeat: whether `ebbline up` runs a pipeline beside it."""
CHECKED = "checked_ms"
"""In the detail of the observer's heartbeat: when the offsets were listed of the partition listed longest ago."""
CRITICAL, WARNING, NOTICE = "critical", "warning", "notice"
ROUNDS_UNJUDGED = "rounds-unjudged"
OF_A_SILENT_CLUSTER = frozenset({"samples-stale", "pipeline-waiting"})
"""Blind spots that are so while no broker answers: one cause is one line."""
PIPELINE_DOWN, PIPELINE_WAITING = "pipeline-down", "pipeline-waiting"
# A round that meets a broker that hangs takes 60 s (`cluster_observer.ROUND_TIMEOUT_S`); two of them are allowed.
UNWATCHED_MS_MIN = 120_000


@dataclass(frozen=True, slots=True)
class BlindSpot:
    """Something of the product that is dead, silent or behind. `headline` reads on with "since 12:00"; `since_ms` None:
    not known; `note`: the process's own words."""

    slug: str
    severity: str
    headline: str
    since_ms: int | None
    text: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class DatabaseSilence:
    """The database has taken no write since then, and why."""

    since_ms: int
    reason: str


def blind_spots(
    processes: Mapping[str, ProcessHealth],
    *,
    offsets_age_ms: int | None,
    interval_ms: int,
    now_ms: int,
    database: DatabaseSilence | None = None,
) -> list[BlindSpot]:
    """The blind spots, the worst first. `offsets_age_ms`: of the newest sample, None: there is none yet."""
    pipeline = pipeline_spot(processes, now_ms)
    spots = [
        *_backend(processes, offsets_age_ms, interval_ms, now_ms),
        *_database(database),
        *([] if pipeline is None else [pipeline]),
        *_observed(processes.get("observer"), interval_ms, now_ms, explained=database is not None),
        *_meters(processes.get("backend")),
    ]
    return sorted(spots, key=lambda spot: (CRITICAL, WARNING, NOTICE).index(spot.severity))


def stale(offsets_age_ms: int | None, interval_ms: int) -> bool:
    """The newest sample is older than three intervals and 10 s, or there is none."""
    limit_ms = max(SAMPLES_STALE_MS_MIN, STALE_AFTER_INTERVALS * interval_ms)
    return offsets_age_ms is None or offsets_age_ms > limit_ms


def unwatched(age_ms: float | None, interval_ms: float) -> bool:
    """The last end of a round, write or judgement is so long ago that nobody watches; None: there was none."""
    return age_ms is None or age_ms > max(UNWATCHED_MS_MIN, STALE_AFTER_INTERVALS * interval_ms)


def _backend(
    processes: Mapping[str, ProcessHealth], offsets_age_ms: int | None, interval_ms: int, now_ms: int
) -> list[BlindSpot]:
    backend, observer = processes.get("backend"), processes.get("observer")
    if backend is not None and not backend.alive:
        text = "Brokers, observer and control API are in it. Nothing can be changed now."
        return [BlindSpot("backend-down", CRITICAL, "Backend down", backend.updated_ms, text, backend.message or "")]
    if observer is not None and not observer.alive:
        text = "Offsets are not sampled."
        return [
            BlindSpot("observer-down", CRITICAL, "Observer down", observer.updated_ms, text, observer.message or "")
        ]
    if offsets_age_ms is not None and stale(offsets_age_ms, interval_ms):
        text = "The observer runs, and has no newer offsets."
        source = observer or backend
        note = "" if source is None else source.message or ""
        return [BlindSpot("samples-stale", CRITICAL, "Not live", now_ms - offsets_age_ms, text, note)]
    return []


def pipeline_missing_since_ms(processes: Mapping[str, ProcessHealth], now_ms: int) -> int | None:
    """Since when a pipeline should have reported that never did; None: it did, or nobody runs one."""
    backend = processes.get("backend")
    if "pipeline" in processes or backend is None or not (backend.detail or {}).get(PIPELINE_EXPECTED):
        return None
    return backend.started_ms if now_ms - backend.started_ms >= PIPELINE_STARTS_MS else None


def pipeline_spot(processes: Mapping[str, ProcessHealth], now_ms: int) -> BlindSpot | None:
    """The pipeline is dead, silent, not there or waits; None: it works."""
    pipeline, missing_since_ms = processes.get("pipeline"), pipeline_missing_since_ms(processes, now_ms)
    if missing_since_ms is not None:
        text = "The ledger of remote segments is empty. Its log (logs/pipeline.log) says why it does not start."
        return BlindSpot(PIPELINE_DOWN, CRITICAL, "Pipeline down", missing_since_ms, text)
    if pipeline is None:
        text = "The ledger of remote segments is empty until it starts. Offsets and replicas are shown."
        return BlindSpot("pipeline-never", NOTICE, "The pipeline has not reported yet", None, text)
    if not pipeline.alive:
        text = "The ledger of remote segments is of then; offsets, replicas and settings are not affected."
        note = pipeline.message or ""
        return BlindSpot(PIPELINE_DOWN, CRITICAL, "Pipeline down", pipeline.updated_ms, text, note)
    if pipeline.state == "waiting":
        since_ms = (pipeline.detail or {}).get("waiting_since_ms")
        text = "The ledger of remote segments does not grow until then."
        note = pipeline.message or ""
        waited_ms = 0 if since_ms is None else now_ms - int(since_ms)
        severity = WARNING if waited_ms >= WAITING_MS else NOTICE
        return BlindSpot(PIPELINE_WAITING, severity, "The pipeline waits", since_ms, text, note)
    return None


def _database(database: DatabaseSilence | None) -> list[BlindSpot]:
    if database is None:
        return []
    text = "Pages and commands show what was so then; only who is alive is judged on."
    headline = "The database takes no writes"
    return [BlindSpot("database-away", CRITICAL, headline, database.since_ms, text, database.reason)]


def observer_sight(
    missing_rights: Sequence[str], *, tiers_hidden: bool, unjudged_since_ms: int | None
) -> dict[str, Any]:
    """The observer's part of what is not seen, for the detail of its heartbeat. `tiers_hidden`: a right is missing that
    is not for groups only; `unjudged_since_ms`: of the oldest round that waits for the rules.
    """
    return {
        "missing_rights": list(missing_rights),
        "tiers_hidden": tiers_hidden,
        "unjudged_since_ms": unjudged_since_ms,
    }


def _observed(observer: ProcessHealth | None, interval_ms: int, now_ms: int, *, explained: bool) -> list[BlindSpot]:
    """Of a living observer, by its heartbeat. `explained`: why rounds are not judged is said already."""
    if observer is None or not observer.alive:
        return []
    detail, spots = observer.detail or {}, []
    if missing := detail.get("missing_rights"):
        severity = CRITICAL if detail.get("tiers_hidden") else NOTICE
        headline = f"Rights are missing: {', '.join(missing)}"
        text = "What they are for is not seen, and findings about it stay as they were."
        note = "docs/attach.md has the commands that grant them."
        spots.append(BlindSpot("rights-missing", severity, headline, None, text, note))
    since_ms = detail.get("unjudged_since_ms")
    if since_ms is not None and not explained and unwatched(now_ms - since_ms, interval_ms):
        text = "Findings of offsets, sizes and the ledger are of then; the backend's log says why."
        spots.append(BlindSpot(ROUNDS_UNJUDGED, CRITICAL, "Samples are not judged by the rules", since_ms, text))
    return spots


def _meters(backend: ProcessHealth | None) -> list[BlindSpot]:
    """Brokers whose own metrics are not read, by the backend's heartbeat."""
    meters = ((backend.detail or {}).get("readers") or {}).get("meters") if backend and backend.alive else None
    if not meters:
        return []
    text = "Reads of the remote tier that fail or are slow are seen there only."
    spots = []
    if meters["stopped"]:
        headline = f"Metrics of broker {', '.join(map(str, meters['stopped']))} are not read"
        spots.append(BlindSpot("meters-stopped", WARNING, headline, meters["since_ms"], text))
    if meters["never"]:
        headline = f"Metrics of broker {', '.join(map(str, meters['never']))} were never read"
        note = "Give --broker-metrics with the address of the brokers' exporters."
        spots.append(BlindSpot("meters-never", NOTICE, headline, None, text, note))
    return spots
