"""Followers as a table, and why one of them is where it is: rule, evidence, attempts. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pandas as pd
import streamlit as st

from app.components.follower.replica_phases import STATUS, describe_phase, known_from
from app.components.follower.stuck_follower import attempts, is_ordinary_retry, why_stuck
from app.components.partition.replica_ranges import PHASE_LABELS
from app.components.shared import format as fmt
from app.components.shared import markup
from app.components.shared.table_style import SAME_UUID, name_width, number_format, whole
from backend.store.queries.followers import Follower, FollowerPhaseEvent
from backend.tiering.follower_phase import FollowerPhase

NOT_KNOWN: Final = "not known"
# The value of the link's parameter → the phase that it selects.
PHASES: Final[Mapping[str, str | None]] = {
    **{PHASE_LABELS[phase.value].capitalize(): phase.value for phase in FollowerPhase if phase.name != "DELAYED"},
    "Delayed": FollowerPhase.DELAYED.value,
    NOT_KNOWN.capitalize(): None,
}
ALL: Final = "All"
ATTEMPTS_SHOWN: Final = 4


def name_of(follower: Follower) -> str:
    """``orders-7 on 5``: what the link and the selection hold."""
    replica = follower.replica
    return f"{replica.topic}-{replica.partition} on {replica.broker_id}"


def frame(followers: Sequence[Follower], clock: Callable[[int | None], str], now_ms: int) -> pd.DataFrame:
    """One row a follower, in the order given."""
    replicas = [follower.replica for follower in followers]
    return pd.DataFrame(
        {
            "partition": [f"{r.topic}-{r.partition}" for r in replicas],
            "broker": [r.broker_id for r in replicas],
            "phase": [_phase_text(follower, now_ms) for follower in followers],
            "for": [_lasting(follower, now_ms) for follower in followers],
            "target": pd.array([_target(follower) for follower in followers], dtype="Int64"),
            "behind": pd.array([follower.behind for follower in followers], dtype="Int64"),
            "known": [known_from(r, _evidence(follower)) for r, follower in zip(replicas, followers, strict=True)],
            "evidence": [
                describe_phase(r, _evidence(follower)) for r, follower in zip(replicas, followers, strict=True)
            ],
            "since": [clock(r.phase_since_ms) for r in replicas],
            "log end": pd.array([r.log_end_offset for r in replicas], dtype="Int64"),
            "leader": [follower.leader for follower in followers],
            "failed attempts": pd.array([attempts(r) for r in replicas], dtype="Int64"),
        }
    )


def shown(followers: Sequence[Follower], clock: Callable[[int | None], str], now_ms: int) -> Any:
    """:func:`frame` with numbers written as on the rest of the page; an offset that does not apply is empty."""
    writers: dict[Any, Any] = {
        "behind": lambda value: fmt.UNKNOWN if pd.isna(value) else whole(value),
        "log end": lambda value: fmt.UNKNOWN if pd.isna(value) else whole(value),
        "target": lambda value: "" if pd.isna(value) else whole(value),
        "failed attempts": lambda value: "" if pd.isna(value) else whole(value),
    }
    # At most FOLLOWERS_MAX rows, so the cost of styling does not matter.
    return frame(followers, clock, now_ms).style.set_uuid(SAME_UUID).format(writers)


def columns(followers: Sequence[Follower]) -> dict[str, Any]:
    """The column configuration for the table of :func:`shown`, for these rows."""
    count = len(followers)
    names = [f"{follower.replica.topic}-{follower.replica.partition}" for follower in followers]
    offset = number_format(count, "localized")
    return {
        "partition": st.column_config.TextColumn("partition", width=name_width(names, 116)),
        "broker": st.column_config.NumberColumn("broker", width=58, help="The follower's broker"),
        "phase": st.column_config.TextColumn("phase", width=140),
        "for": st.column_config.TextColumn("for", width=76),
        "target": st.column_config.NumberColumn(
            "target", format=offset, width=92, help="Where it starts after the remote tier; empty: not sent there"
        ),
        "behind": st.column_config.NumberColumn("behind", format=offset, width=84, help="Records behind its leader"),
        "known": st.column_config.TextColumn("known", width=72, help="Told by its broker, or inferred from samples"),
        "evidence": st.column_config.TextColumn("evidence", width=260),
        "log end": st.column_config.NumberColumn("log end", format=offset),
    }


def counts_text(counts: Mapping[str | None, int], stuck: int) -> str:
    """``2 replicas not in sync · 1 stuck``."""
    total = sum(counts.values())
    out = total - counts.get(FollowerPhase.IN_SYNC.value, 0)
    if not total:
        return "no follower is known"
    if not out:
        return f"all {fmt.count(total)} in sync"
    text = f"{fmt.count(out)} of {fmt.count(total)} not in sync"
    return text + (f" · {fmt.count(stuck)} stuck" if stuck else "")


def pills_html(counts: Mapping[str | None, int]) -> str:
    """The count of followers in each phase; phases without a follower are left out."""
    merged: Counter[str | None] = Counter(dict(counts))
    pills = [
        markup.pill(f"{fmt.count(merged[phase.value])} {_phase_name(phase.value)}", STATUS.get(phase.value))
        for phase in FollowerPhase
        if merged[phase.value]
    ]
    if merged[None]:
        pills.append(markup.pill(f"? {fmt.count(merged[None])} not known", "warning"))
    return f'<span class="eb-pills">{"".join(pills)}</span>'


def why_html(
    follower: Follower, events: Sequence[FollowerPhaseEvent], clock: Callable[[int | None], str], now_ms: int
) -> str:
    """The rule, what it was concluded from, the newest failed attempts."""
    replica, evidence = follower.replica, _evidence(follower)
    stuck = why_stuck(replica, now_ms)
    steps = [step for step in (stuck, describe_phase(replica, evidence), _position(follower), replica.error) if step]
    listed = "".join(f"<li>{markup.text(step)}</li>" for step in dict.fromkeys(steps))
    rule = str(evidence.get("rule") or "")
    pairs: list[tuple[str, str | markup.Cell]] = [
        ("Phase", markup.Cell(html=markup.pill(_phase_text(follower, now_ms), _status(follower, now_ms)))),
        ("Since", f"{clock(replica.phase_since_ms)} · {_lasting(follower, now_ms)}"),
        ("Known", known_from(replica, evidence) or fmt.UNKNOWN),
    ]
    if rule:
        pairs.append(("Rule", rule))
    if _target(follower) is not None:
        pairs.append(("Target offset", fmt.count(_target(follower))))
    pairs.append(("Log end · behind", f"{fmt.count(replica.log_end_offset)} · {fmt.count(follower.behind)}"))
    return markup.pairs(pairs) + f'<ol class="eb-why">{listed}</ol>' + _attempts_html(events, clock)


def _attempts_html(events: Sequence[FollowerPhaseEvent], clock: Callable[[int | None], str]) -> str:
    failures = [failure for failure in events if failure.body.get("phase") in ("DELAYED", "FAILED")]
    failed = [failure for failure in failures if not is_ordinary_retry(failure.body)][-ATTEMPTS_SHOWN:]
    asked_again = len(failures) - sum(not is_ordinary_retry(failure.body) for failure in failures)
    note = ""
    if asked_again:
        text = f"Asked again {asked_again} times" if asked_again > 1 else "Asked again once"
        note = f'<div class="eb-note">{text} while a topic\'s creation or a leader change spread: usual in Kafka.</div>'
    if not failed:
        return note
    body = []
    for event in failed:
        evidence = event.body.get("evidence")
        reason = str((evidence if isinstance(evidence, dict) else {}).get("reason") or "no reason told")
        target = event.body.get("target_offset")
        number = event.body.get("attempts") or 1
        body.append(
            (
                markup.Cell(f"{clock(event.at_ms)} · {number}", css="eb-nowrap"),
                "" if not isinstance(target, int) else fmt.count(target),
                reason[:240],
            )
        )
    names = [("Attempt", "left"), ("Target", "right"), ("Result", "left")]
    return markup.table(names, body, caption="Failed attempts, the newest last") + note


def _evidence(follower: Follower) -> dict[str, Any]:
    evidence = follower.replica.evidence
    return evidence if isinstance(evidence, dict) else {}


def _target(follower: Follower) -> int | None:
    target = _evidence(follower).get("target_offset")
    return target if isinstance(target, int) and not isinstance(target, bool) and target >= 0 else None


def _phase_name(phase: str) -> str:
    return "delayed" if phase == FollowerPhase.DELAYED.value else PHASE_LABELS[phase]


def _phase_text(follower: Follower, now_ms: int) -> str:
    phase = follower.replica.phase
    if phase is None:
        return "? not known"
    text = PHASE_LABELS.get(phase, phase) if phase != FollowerPhase.DELAYED.value else "delayed"
    return f"{text}, stuck" if why_stuck(follower.replica, now_ms) else text


def _status(follower: Follower, now_ms: int) -> str:
    if why_stuck(follower.replica, now_ms):
        return "critical"
    return "warning" if follower.replica.phase == "DELAYED" else STATUS.get(follower.replica.phase or "", "warning")


def _lasting(follower: Follower, now_ms: int) -> str:
    since_ms = follower.replica.phase_since_ms
    return fmt.UNKNOWN if since_ms is None else fmt.duration(max(0, now_ms - since_ms) / 1000)


def _position(follower: Follower) -> str:
    replica, behind = follower.replica, follower.behind
    if behind is None:
        return ""
    if behind == 0:
        return "Its log end is the leader's."
    start = replica.local_log_start_offset
    held = "" if start is None else f", local from {fmt.count(start)}"
    return f"It is {fmt.count(behind)} records behind broker {follower.leader}{held}."
