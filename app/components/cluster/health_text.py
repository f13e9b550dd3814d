"""Can this screen be trusted: how old the data is, which of our own processes is silent, since when. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Final

from app.components.shared import format as fmt
from app.state import ClusterView
from backend.store.blind_spots import CHECKED, BlindSpot, blind_spots
from backend.store.blind_spots import stale as blind_spots_stale
from backend.store.ledger_completeness import ledger_ms as ledger_ms_of
from backend.store.queries.health import STALE_AFTER_INTERVALS, ProcessHealth
from backend.store.queries.overview import SEVERITIES, BrokerRow, FindingRow

# A page that is open reads every two seconds; a slow one may take a few.
READ_MS_MAX: Final = 15_000
BROKERS_SILENT: Final = "brokers-silent"
# Blind spots of which the figures are as old as the newest sample.
OLD_FIGURES: Final = ("backend-down", "observer-down", "samples-stale")
BROKER_AWAY: Final = "broker-away"
CLUSTER_AWAY: Final = "cluster-away"


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
    """The offsets on the page are older than three sample intervals and 10 s."""
    return blind_spots_stale(view.ages.offsets_ms, view.cluster.sample_interval_ms)


def ledger_ms(view: ClusterView) -> int:
    """Up to which moment the ledger of remote segments is known: now while the pipeline keeps pace."""
    pipeline = view.processes.get("pipeline")
    if view.away is not None:
        return view.read_ms
    if pipeline is None:
        return view.now_ms
    # It has read nothing since its start, as far as anybody knows.
    return ledger_ms_of(pipeline, view.now_ms, pipeline.started_ms) or pipeline.started_ms


def checked_text(view: ClusterView, partitions: int) -> str:
    """How much was looked through, and how long ago, by the observer: as `ebbline status` says it."""
    observer = view.processes.get("observer")
    checked_ms = None if observer is None else (observer.detail or {}).get(CHECKED)
    if checked_ms is None:
        return "Nothing has been checked yet: the observer has not finished a round."
    age = fmt.duration(max(1, round((view.now_ms - checked_ms) / 1000)))
    return f"Nothing needs attention. Checked {fmt.count(partitions)} partitions, {age} ago."


def write_block(view: ClusterView, may_write: bool, read_only: str) -> str | None:
    """Why nothing can be changed from here now; None when it can."""
    block = lab_block(view, may_write, read_only)
    if block is None and stale(view):
        age_ms = view.ages.offsets_ms
        return "No data yet." if age_ms is None else f"Data is {fmt.duration(age_ms / 1000)} old."
    return block


def lab_block(view: ClusterView, may_write: bool, read_only: str) -> str | None:
    """As :func:`write_block`, but old data stops nobody: what the lab broke may be the cause, and must be healed."""
    if may_write and view.own and not view.allow_changes:
        return "Read-only: start `ebbline up` with --allow-changes to change an attached cluster."
    return note_block(view, may_write, read_only)


def note_block(view: ClusterView, may_write: bool, read_only: str) -> str | None:
    """As :func:`lab_block`, for what changes nothing in the cluster: to mute or take over a finding, maintenance."""
    if not may_write:
        return read_only
    if not view.own:
        return f"Read-only: {view.cluster.name} is not the cluster of this `ebbline up`."
    if view.away is not None:
        return "The database is away: a change could not be recorded."
    if view.write_problem is not None:
        return "The database takes no writes: a change could not be recorded."
    backend = view.processes.get("backend")
    if backend is None or not backend.alive:
        return "The backend is down: nothing can be changed until it runs again."
    return None


def head_pills(
    view: ClusterView, brokers: Sequence[BrokerRow], zone: tzinfo | None, findings: Sequence[FindingRow] = ()
) -> list[HeadPill]:
    """The age of the data, and the brokers with the age of the remote log's metadata.

    `findings`: all that are open; brokers that do not answer are as bad as they say.
    """
    return [_age_pill(view, zone), _broker_pill(view, brokers, zone, findings)]


def paused_pill(view: ClusterView, zone: tzinfo | None) -> HeadPill:
    """Instead of all others while the page stands still: an age that does not grow would mislead."""
    at = fmt.clock(view.now_ms, view.now_ms, zone)
    return HeadPill(f"As of {at}, not live", "warning", "The page stands still until it is resumed")


def _age_pill(view: ClusterView, zone: tzinfo | None) -> HeadPill:
    age_ms = view.ages.offsets_ms
    if age_ms is None:
        return HeadPill("No data yet", "warning", "No offsets have been sampled yet")
    if stale(view):
        since = fmt.clock(view.now_ms - age_ms, view.now_ms, zone)
        return HeadPill(f"Not live since {since}", "critical", "The newest sample is that old")
    return HeadPill(f"Live · {fmt.duration(max(1, round(age_ms / 1000)))} ago", "notice", "Age of the newest sample")


def _broker_pill(
    view: ClusterView, brokers: Sequence[BrokerRow], zone: tzinfo | None, findings: Sequence[FindingRow]
) -> HeadPill:
    if view.away is not None:
        return HeadPill("Database away", "critical", f"Last read {fmt.clock(view.read_ms, view.now_ms, zone)}")
    answering = sum(broker.reachable for broker in brokers)
    brokers_text = f"{'?' if stale(view) else answering}/{len(brokers)} brokers" if brokers else "? brokers"
    if view.write_problem is not None:
        hint = f"Last written {fmt.clock(_written_ms(view), view.now_ms, zone)}"
        return HeadPill("Database takes no writes", "critical", hint)
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
    if answering < len(brokers) and not stale(view):
        status = silence_severity([broker for broker in brokers if not broker.reachable], findings)
    return HeadPill(
        f"{brokers_text} · {behind}", status, "Brokers that answered · how far the remote log's ledger is behind"
    )


def blindness(
    view: ClusterView, brokers: Sequence[BrokerRow], zone: tzinfo | None, findings: Sequence[FindingRow] = ()
) -> list[Blindness]:
    """Parts of Ebbline itself that are down or behind, and brokers that do not answer, the worst first.

    `findings`: all that are open.
    """
    if view.away is not None:
        return [_database_away(view, zone)]
    if view.write_problem is not None:
        return [_without_writes(view, zone)]
    return sorted(
        [*_own_parts(view, zone), *_partial(view, brokers, findings)], key=lambda spot: spot.status != "critical"
    )


def _database_away(view: ClusterView, zone: tzinfo | None) -> Blindness:
    age = fmt.duration(max(1, round((view.now_ms - view.read_ms) / 1000)))
    title, gap_text = _away_since(view, zone)
    return Blindness(
        "database-away",
        "critical",
        title,
        f"{gap_text}What is shown was read {age} ago. Brokers do not need it; this page tries again by itself.",
        view.away or "",
    )


def _without_writes(view: ClusterView, zone: tzinfo | None) -> Blindness:
    """Nobody's sign of life can be seen then: of what runs and of what does not only the backend knows."""
    written_ms = _written_ms(view)
    age = fmt.duration(max(1, round((view.now_ms - written_ms) / 1000)))
    return Blindness(
        "database-away",
        "critical",
        f"The database takes no writes since {fmt.clock(written_ms, view.now_ms, zone)}.",
        f"What is shown is {age} old, and nothing can be changed now. Brokers do not need it, and messages about who is"
        " alive go out; the command ebbline status has the findings.",
        view.write_problem or "",
    )


def _written_ms(view: ClusterView) -> int:
    return max((process.updated_ms for process in view.processes.values()), default=view.now_ms)


def _away_since(view: ClusterView, zone: tzinfo | None) -> tuple[str, str]:
    """Title and first sentence: since when it is away, by the backend, else by the pages that were open."""
    if view.responded_ms is not None:
        if view.responded_ms - (view.away_seen_ms or view.read_ms) > READ_MS_MAX:
            return "The database cannot be read from here.", "It responds to the backend. "
        return f"Database away since {fmt.clock(max(view.responded_ms, view.read_ms), view.now_ms, zone)}.", ""
    read, seen_ms = fmt.clock(view.read_ms, view.now_ms, zone), view.away_seen_ms or view.read_ms
    if seen_ms - view.read_ms <= READ_MS_MAX:
        return f"Database away since {read}.", ""
    gap_text = f"Nobody looked between {read} and {fmt.clock(seen_ms, view.now_ms, zone)}. "
    return "The database cannot be read.", gap_text


def _own_parts(view: ClusterView, zone: tzinfo | None) -> list[Blindness]:
    """The product's own processes, in the words of the page: clock times instead of epoch milliseconds."""
    age_ms = view.ages.offsets_ms
    spots = blind_spots(
        view.processes,
        offsets_age_ms=age_ms,
        interval_ms=view.cluster.sample_interval_ms,
        now_ms=view.now_ms,
    )
    shown = "Nothing has been sampled yet." if age_ms is None else f"Figures are {fmt.duration(age_ms / 1000)} old."
    return [
        Blindness(
            spot.slug,
            spot.severity,
            f"{spot.headline}." if spot.since_ms is None else _since(spot, view, zone),
            f"{spot.text} {shown}" if spot.slug in OLD_FIGURES else spot.text,
            spot.note,
        )
        for spot in spots
    ]


def _since(spot: BlindSpot, view: ClusterView, zone: tzinfo | None) -> str:
    return f"{spot.headline} since {fmt.clock(spot.since_ms or 0, view.now_ms, zone)}."


def _partial(view: ClusterView, brokers: Sequence[BrokerRow], findings: Sequence[FindingRow]) -> list[Blindness]:
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
    return [Blindness(BROKERS_SILENT, silence_severity(silent, findings), title, text, note)]


def silence_severity(silent: Sequence[BrokerRow], findings: Sequence[FindingRow]) -> str:
    """The worst that the findings say of the silence, or of what causes it; a warning while none is open yet.

    Overview shows the findings: one fact has one severity on all pages.
    """
    ids = {broker.broker_id for broker in silent}
    about = [f for f in findings if f.slug == CLUSTER_AWAY or (f.slug == BROKER_AWAY and f.broker_id in ids)]
    causes = {(f.cause_slug, f.cause_object) for f in about}
    severities = {f.severity for f in (*about, *(f for f in findings if (f.slug, f.object) in causes))}
    return next((severity for severity in SEVERITIES if severity in severities), "warning")


def _last_sign(process: ProcessHealth, view: ClusterView, zone: tzinfo | None) -> str:
    return f"Last sign of life {fmt.clock(process.updated_ms, view.now_ms, zone)}"
