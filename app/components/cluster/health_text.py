"""Can this screen be trusted: how old the data is, which of our own processes is silent, since when. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Final

from app.components.shared import format as fmt
from app.state import ClusterView
from backend.store.queries.health import STALE_AFTER_INTERVALS, ProcessHealth
from backend.store.queries.overview import BrokerRow

# A page that is open reads every two seconds; a slow one may take a few.
READ_MS_MAX: Final = 15_000
BROKERS_SILENT: Final = "brokers-silent"


@dataclass(frozen=True, slots=True)
class HeadPill:
    label: str
    status: str | None
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Blindness:
    """Something that keeps this page from showing the present."""

    slug: str
    status: str
    title: str
    sentence: str
    note: str = ""


def stale(view: ClusterView) -> bool:
    """The offsets on the page are older than three sample intervals."""
    age_ms = view.ages.offsets_ms
    return age_ms is None or age_ms > STALE_AFTER_INTERVALS * view.cluster.sample_interval_ms


def ledger_ms(view: ClusterView) -> int:
    """Up to which moment the ledger of remote segments is known: now while the pipeline runs."""
    pipeline = view.processes.get("pipeline")
    if view.away is not None:
        return view.read_ms
    return view.now_ms if pipeline is None or pipeline.alive else pipeline.updated_ms


def write_block(view: ClusterView, may_write: bool, read_only: str) -> str | None:
    """Why nothing can be changed from here now; None when it can."""
    block = lab_block(view, may_write, read_only)
    if block is None and stale(view):
        age_ms = view.ages.offsets_ms
        return "No data yet." if age_ms is None else f"Data is {fmt.duration(age_ms / 1000)} old."
    return block


def lab_block(view: ClusterView, may_write: bool, read_only: str) -> str | None:
    """As :func:`write_block`, but old data stops nobody: what the lab broke may be the cause, and must be healed."""
    if not may_write:
        return read_only
    if not view.own:
        return f"Read-only: {view.cluster.name} is not the cluster of this `ebbline up`."
    if not view.allow_changes:
        return "Read-only: start `ebbline up` with --allow-changes to change an attached cluster."
    if view.away is not None:
        return "The database is away: a change could not be recorded."
    backend = view.processes.get("backend")
    if backend is None or not backend.alive:
        return "The backend is down: nothing can be changed until it runs again."
    return None


def head_pills(view: ClusterView, brokers: Sequence[BrokerRow], zone: tzinfo | None) -> list[HeadPill]:
    """The age of the data, and the brokers with the age of the remote log's metadata."""
    return [_age_pill(view, zone), _broker_pill(view, brokers, zone)]


def _age_pill(view: ClusterView, zone: tzinfo | None) -> HeadPill:
    age_ms = view.ages.offsets_ms
    if age_ms is None:
        return HeadPill("No data yet", "warning", "No offsets have been sampled yet")
    if stale(view):
        since = fmt.clock(view.now_ms - age_ms, view.now_ms, zone)
        return HeadPill(f"Not live since {since}", "critical", "The newest sample is that old")
    return HeadPill(f"Live · {fmt.duration(max(1, round(age_ms / 1000)))} ago", "notice", "Age of the newest sample")


def _broker_pill(view: ClusterView, brokers: Sequence[BrokerRow], zone: tzinfo | None) -> HeadPill:
    if view.away is not None:
        return HeadPill("Database away", "critical", f"Last read {fmt.clock(view.read_ms, view.now_ms, zone)}")
    answering = sum(broker.reachable for broker in brokers)
    brokers_text = f"{'?' if stale(view) else answering}/{len(brokers)} brokers" if brokers else "? brokers"
    pipeline = view.processes.get("pipeline")
    if pipeline is None:
        return HeadPill(f"{brokers_text} · metadata ?", "warning", "The pipeline has never reported")
    if not pipeline.alive:
        return HeadPill(f"{brokers_text} · pipeline down", "critical", _last_sign(pipeline, view, zone))
    lag = (pipeline.detail or {}).get("lag_records")
    behind = f"metadata +{fmt.duration(max(1, round(pipeline.age_ms / 1000)))}"
    if isinstance(lag, int) and lag > 0:
        behind = f"metadata {fmt.count(lag)} behind"
    if pipeline.state in ("starting", "waiting"):
        behind = f"pipeline {pipeline.state}"
    status = "ok" if brokers and answering == len(brokers) and pipeline.state == "running" else "warning"
    return HeadPill(
        f"{brokers_text} · {behind}", status, "Brokers that answered · how far the remote log's ledger is behind"
    )


def blindness(view: ClusterView, brokers: Sequence[BrokerRow], zone: tzinfo | None) -> list[Blindness]:
    """Parts of Ebbline itself that are down or behind, the worst first."""
    if view.away is not None:
        return [_database_away(view, zone)]
    blind_spots = [*_backend_down(view, zone), *_pipeline_down(view, zone), *_partial(view, brokers)]
    return sorted(blind_spots, key=lambda blind_spot: blind_spot.status != "critical")


def _database_away(view: ClusterView, zone: tzinfo | None) -> Blindness:
    age = fmt.duration(max(1, round((view.now_ms - view.read_ms) / 1000)))
    read, seen_ms = fmt.clock(view.read_ms, view.now_ms, zone), view.away_seen_ms or view.read_ms
    read_before = seen_ms - view.read_ms <= READ_MS_MAX
    title = f"Database away since {read}." if read_before else "The database cannot be read."
    gap_text = "" if read_before else f"Nobody looked between {read} and {fmt.clock(seen_ms, view.now_ms, zone)}. "
    return Blindness(
        "database-away",
        "critical",
        title,
        f"{gap_text}What is shown was read {age} ago. Brokers do not need it; this page tries again by itself.",
        view.away or "",
    )


def _backend_down(view: ClusterView, zone: tzinfo | None) -> list[Blindness]:
    backend, observer = view.processes.get("backend"), view.processes.get("observer")
    age_ms = view.ages.offsets_ms
    shown = "Nothing has been sampled yet." if age_ms is None else f"Figures are {fmt.duration(age_ms / 1000)} old."
    if backend is not None and not backend.alive:
        since = fmt.clock(backend.updated_ms, view.now_ms, zone)
        return [
            Blindness(
                "backend-down",
                "critical",
                f"Backend down since {since}.",
                f"Brokers, observer and control API are in it. {shown} Nothing can be changed now.",
                _message(backend),
            )
        ]
    if observer is not None and not observer.alive:
        since = fmt.clock(observer.updated_ms, view.now_ms, zone)
        text = f"Offsets are not sampled. {shown}"
        return [Blindness("observer-down", "critical", f"Observer down since {since}.", text, _message(observer))]
    if age_ms is not None and stale(view):
        since = fmt.clock(view.now_ms - age_ms, view.now_ms, zone)
        text = f"The observer runs, but no broker told it offsets. {shown}"
        note = _message(observer or backend)
        return [Blindness("samples-stale", "critical", f"Not live since {since}.", text, note)]
    return []


def _pipeline_down(view: ClusterView, zone: tzinfo | None) -> list[Blindness]:
    pipeline = view.processes.get("pipeline")
    if pipeline is None:
        text = "The ledger of remote segments is empty until it starts. Offsets and replicas are shown."
        return [Blindness("pipeline-never", "notice", "The pipeline has not reported yet.", text)]
    if pipeline.alive:
        if pipeline.state == "waiting":
            text = "The ledger of remote segments does not grow until then."
            return [Blindness("pipeline-waiting", "warning", "The pipeline waits.", text, _message(pipeline))]
        return []
    since = fmt.clock(pipeline.updated_ms, view.now_ms, zone)
    age = fmt.duration(pipeline.age_ms / 1000)
    text = f"The ledger of remote segments is {age} old; offsets, replicas and settings are not affected."
    return [Blindness("pipeline-down", "critical", f"Pipeline down since {since}.", text, _message(pipeline))]


def _partial(view: ClusterView, brokers: Sequence[BrokerRow]) -> list[Blindness]:
    silent = [broker for broker in brokers if not broker.reachable]
    if not silent or stale(view):
        return []
    oldest_ms = view.ages.oldest_offsets_ms
    limit_ms = STALE_AFTER_INTERVALS * view.cluster.sample_interval_ms
    old = ""
    if oldest_ms is not None and oldest_ms > limit_ms:
        old = f" The oldest ranges are {fmt.duration(oldest_ms / 1000)} old."
    names = ", ".join(str(broker.broker_id) for broker in silent[:9])
    text = f"Broker{'' if len(silent) == 1 else 's'} {names} did not answer.{old}"
    note = silent[0].error or ""
    verb = "is" if len(silent) == 1 else "are"
    title = f"{len(silent)} of {len(brokers)} brokers {verb} silent."
    return [Blindness(BROKERS_SILENT, "warning", title, text, note)]


def _last_sign(process: ProcessHealth, view: ClusterView, zone: tzinfo | None) -> str:
    return f"Last sign of life {fmt.clock(process.updated_ms, view.now_ms, zone)}"


def _message(process: ProcessHealth | None) -> str:
    return "" if process is None or not process.message else process.message
