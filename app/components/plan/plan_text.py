"""A plan as people read it: what changes, what was checked, what it means, the same by hand. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from app.components.config.config_matrix import executed_by
from app.components.shared import markup
from app.control.api_client import DryRun
from backend.store.queries.audit import OperationRow

# Plans that asked something of the cluster; the rest was looked at and left.
DONE_STATES: Final = ("requested", "accepted", "running", "paused", "verified", "stopped", "failed", "reverted")
OPEN_STATES: Final = ("requested", "accepted", "running", "paused")
REVERTIBLE: Final = ("verified", "stopped", "failed")
# The kinds of plans that can be reverted; the effects of the others cannot.
REVERTIBLE_KINDS: Final = ("toggle_bootstrap", "reassign", "topic_config", "broker_config")
OUTCOME_STATUS: Final = {"ok": "ok", "warning": "warning", "refused": "critical"}
OUTCOME_LABELS: Final = {"ok": "passed", "warning": "warning", "refused": "refused"}
SCOPES: Final = {"brokers (cluster default)": "cluster default"}
STATE_STATUS: Final = {"verified": "ok", "failed": "critical", "stopped": "warning"}


@dataclass(frozen=True, slots=True)
class PlanView:
    """The content of the dialog. ``plan_id`` None: a dry run, nothing was stored."""

    plan_id: int | None
    title: str
    intro: str
    effect: str
    risk: str
    does_not_change: str
    keep: str
    act: str
    lines: tuple[str, ...]
    checks: tuple[tuple[str, str], ...]  # outcome, sentence
    cli: tuple[str, ...]
    blocked: tuple[tuple[str, str], ...]  # partition, reason
    refused: bool


def of_plan(row: OperationRow) -> PlanView:
    """The view of a stored plan; a revert is named as such."""
    view = _view(row.id, row.diff or {}, row.checks or [], row.cli or [], row.estimate, row.state == "refused")
    if row.reverts_id is None:
        return view
    back = "; ".join(_put_back(change) for change in (row.diff or {}).get("changes", []))
    intro = f"Puts back {back}. {view.intro}"
    return _changed(view, title=f"Revert plan #{row.reverts_id}", intro=intro, keep="Keep", act="Revert")


def of_dry_run(dry_run: DryRun) -> PlanView:
    """The view of a plan that was only tried."""
    view = _view(None, dry_run.diff, dry_run.checks, dry_run.cli, dry_run.estimate, dry_run.refused)
    intro = f"This was a dry run of “{view.title}”. {view.intro}"
    return _changed(view, title="Nothing has been changed", intro=intro, keep="Close")


def _view(
    plan_id: int | None, diff: Any, checks: Sequence[Any], cli: Sequence[str], estimate: Any, refused: bool
) -> PlanView:
    dialog_texts = diff.get("words", {})
    blocked = (estimate or {}).get("blocked_partitions", [])
    return PlanView(
        plan_id=plan_id,
        title=str(dialog_texts.get("title", "Change")),
        intro=str(dialog_texts.get("intro", "")),
        effect=str(dialog_texts.get("effect", "")),
        risk=str(dialog_texts.get("risk", "")),
        does_not_change=str(dialog_texts.get("does_not_change", "")),
        keep=str(dialog_texts.get("keep", "Keep")),
        act=str(dialog_texts.get("act", "Change")),
        lines=tuple(str(line) for line in diff.get("lines", [])),
        checks=tuple((str(check["outcome"]), str(check["sentence"])) for check in checks),
        cli=tuple(cli),
        blocked=tuple((f"{row['topic']}-{row['partition']}", str(row["reason"])) for row in blocked),
        refused=refused,
    )


def _changed(view: PlanView, **values: str) -> PlanView:
    return PlanView(**{name: values.get(name, getattr(view, name)) for name in PlanView.__slots__})


def _put_back(change: Any) -> str:
    return f"{change['after'] or 'not set'} for {change['object']}"


def intro_html(view: PlanView, cluster_name: str) -> str:
    """The first sentence, the cluster's name in bold."""
    name = markup.text(cluster_name)
    return f'<div class="eb-prose">{markup.text(view.intro).replace(name, f"<strong>{name}</strong>", 1)}</div>'


def diff_html(view: PlanView) -> str:
    """The values before and after the change."""
    signs = {"−": "eb-minus", "+": "eb-plus"}
    inner = "".join(f'<div class="{signs.get(line[:1], "eb-both")}">{markup.text(line)}</div>' for line in view.lines)
    return f'<div class="eb-diff" role="group" aria-label="What changes">{inner}</div>'


def facts_html(view: PlanView) -> str:
    """Effect, risk, what stays as it is, and what was checked."""
    facts = [("Effect now", view.effect), ("Risk", view.risk), ("Does not change", view.does_not_change)]
    inner = "".join(f"<dt>{name}</dt><dd>{markup.text(text)}</dd>" for name, text in facts if text)
    if view.checks:
        inner += f"<dt>Checks</dt><dd>{checks_html(view)}</dd>"
    return f'<dl class="eb-facts">{inner}</dl>'


def checks_html(view: PlanView) -> str:
    """One line a check, the worst first, as the control plane sorted them."""
    return checks_list_html(view.checks)


def checks_list_html(checks: Sequence[tuple[str, str]]) -> str:
    """(outcome, sentence) of each, one a line."""
    lines = "".join(f"<li>{_check_html(outcome)}<span>{markup.text(text)}</span></li>" for outcome, text in checks)
    return f'<ul class="eb-checks">{lines}</ul>'


def _check_html(outcome: str) -> str:
    word = OUTCOME_LABELS.get(outcome, outcome)
    return f'{markup.mark(OUTCOME_STATUS.get(outcome, "notice"))}<span class="eb-hidden">{word}: </span>'


@dataclass(frozen=True, slots=True)
class ChangeLine:
    """One executed plan in the list of changes."""

    plan_id: int
    at_ms: int
    who: str
    scope: str
    change: str
    state: str
    reason: str
    revertible: bool


def change_line(row: OperationRow) -> ChangeLine:
    diff = row.diff or {}
    change: Any = next(iter(diff.get("changes", [])), {})
    before, after = change.get("before") or "not set", change.get("after") or "not set"
    more = len(diff.get("changes", [])) - 1
    return ChangeLine(
        plan_id=row.id,
        at_ms=row.requested_ms or row.created_ms,
        who=executed_by(row),
        scope=SCOPES.get(str(diff.get("object")), str(diff.get("object", row.kind))),
        change=f"{before} → {after}" + (f" and {more} more" if more > 0 else ""),
        state=row.state,
        reason=(f"Reverts #{row.reverts_id}. " if row.reverts_id else "") + (row.reason or ""),
        revertible=row.state in REVERTIBLE and row.kind in REVERTIBLE_KINDS,
    )


def state_html(state: str) -> str:
    """``✓ verified``: a healthy one has no colour, a failed one has its own."""
    status = STATE_STATUS.get(state)
    if status is None:
        return f'<span class="eb-quiet">{markup.text(state)}</span>'
    css = "eb-quiet" if status == "ok" else f"eb-{status}"
    return f'<span class="{css} eb-nowrap">{markup.mark(status)} {markup.text(state)}</span>'


def outcome_html(row: OperationRow) -> str:
    """The outcome of an execution, or that it still runs, as a box."""
    text = str((row.result or {}).get("sentence") or (row.result or {}).get("refused") or "")
    line = change_line(row)
    what = f"Plan #{row.id}, {line.scope}: {line.change}."
    if row.state in ("verified", "reverted"):
        return markup.alert("ok", what, text)
    if row.state in OPEN_STATES and row.progress is not None:
        return markup.alert("notice", what, text)
    if row.state in OPEN_STATES:
        return markup.alert("notice", what, f"Plan {row.state}; waiting until every broker shows it.")
    return markup.alert("critical", what, f"{row.state.capitalize()}. {text}")
