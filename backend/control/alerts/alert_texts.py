"""Messages as texts for people: a title and a few lines, for one finding or as a digest of many. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from backend.control.alerts.notices import Notice, NoticeEvent
from backend.control.alerts.page_links import finding_link, runbook_link
from backend.control.alerts.receiver_queue import Delivery
from backend.control.findings.finding_context import SEVERITIES, count
from backend.runtime.redact import printable

# Findings that a digest names.
NAMED_MAX: Final = 10
# A pager shows 1,024 characters, a chat 4,000: the sentence and the action always fit.
BODY_CHARS_MAX: Final = 3_000
_WORDS: Final = {NoticeEvent.OPENED: "opened", NoticeEvent.CHANGED: "became worse", NoticeEvent.CLOSED: "ended"}


@dataclass(frozen=True, slots=True)
class ClusterName:
    """The cluster that messages are about, and where its dashboard is."""

    cluster_id: str
    name: str
    public_url: str | None = None


@dataclass(frozen=True, slots=True)
class AlertText:
    """A message for people. `worst`: severity of the worst that is open in it; None: it says only what ended."""

    title: str
    body: str
    worst: str | None


def text_of(delivery: Delivery, cluster: ClusterName) -> AlertText:
    """The message of a delivery."""
    if delivery.digest:
        return _digest(delivery.notices, cluster)
    (notice,) = delivery.notices
    ended = notice.event is NoticeEvent.CLOSED
    # One line: a name of a group may have a line end, which would begin another header of an e-mail.
    title = printable(f"[{'ended' if ended else notice.severity}] {cluster.name}: {notice.sentence}")
    lines = [notice.why] if notice.why and not ended else []
    if ended and notice.cause is not None:
        lines.append(f"It is explained by {notice.cause[0]} of {notice.cause[1]}, which is open.")
    elif ended:
        lines.append("It is over.")
    else:
        lines.append(f"Do: {notice.action}")
    link = finding_link(cluster.public_url, cluster.cluster_id, notice.topic, notice.partition)
    lines += [text for text in (link, None if ended else runbook_link(cluster.public_url, notice.slug)) if text]
    return AlertText(title, "\n".join(lines)[:BODY_CHARS_MAX], None if ended else notice.severity)


def digest_counts(notices: Sequence[Notice]) -> list[tuple[NoticeEvent, str, str, int]]:
    """(event, severity, slug, number) of many notices; openings first, the worst first, then the most."""
    counted = Counter((notice.event, notice.severity, notice.slug) for notice in notices)
    events = list(NoticeEvent)
    return sorted(
        ((event, severity, slug, number) for (event, severity, slug), number in counted.items()),
        key=lambda row: (events.index(row[0]), SEVERITIES.index(row[1]), -row[3], row[2]),
    )


def first_of(notices: Sequence[Notice]) -> list[Notice]:
    """The notices that a digest names: what is open before what ended, the worst first."""
    ordered = sorted(
        notices, key=lambda notice: (notice.event is NoticeEvent.CLOSED, SEVERITIES.index(notice.severity))
    )
    return ordered[:NAMED_MAX]


def _digest(notices: Sequence[Notice], cluster: ClusterName) -> AlertText:
    open_now = [notice for notice in notices if notice.event is not NoticeEvent.CLOSED]
    worst = min((notice.severity for notice in open_now), key=SEVERITIES.index, default=None)
    parts = [count(len(open_now), "finding") + " opened"] if open_now else []
    parts += [f"{len(notices) - len(open_now)} ended"] if len(open_now) < len(notices) else []
    lines = [
        f"{number} × {slug} {_WORDS[event]} ({severity})" for event, severity, slug, number in digest_counts(notices)
    ]
    lines.append(f"The first {min(NAMED_MAX, len(notices))}:")
    lines += [f"- {notice.sentence} ({_WORDS[notice.event]})" for notice in first_of(notices)]
    link = finding_link(cluster.public_url, cluster.cluster_id, None, None)
    lines += [link] if link is not None else []
    title = f"[{worst or 'ended'}] {cluster.name}: {', '.join(parts)}"
    return AlertText(title, "\n".join(lines)[:BODY_CHARS_MAX], worst)
