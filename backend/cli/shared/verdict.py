"""Whether something needs attention, for the last line and the exit code of `ebbline status` and `ebbline findings`."""

from __future__ import annotations

from collections.abc import Collection

from rich.text import Text

from backend.cli.shared import value_text
from backend.cli.shared.api_session import Json


def needs_attention(cluster: Json, findings: list[Json]) -> bool:
    """Whether a command ends with 1: something critical stands for itself, or something is not seen.

    `findings`: all that are open and not muted.
    """
    return is_blind(cluster) or any(is_urgent(finding) for finding in findings)


def is_urgent(finding: Json) -> bool:
    """An open critical finding that nothing explains and no maintenance window covers."""
    stands_alone = finding["cause_slug"] is None and finding["closed_ms"] is None
    return stands_alone and finding["severity"] == "critical" and finding["maintenance_until_ms"] is None


def is_blind(cluster: Json) -> bool:
    """The cluster, or something else that pages and commands rest on, is not seen now."""
    return not cluster["answers"] or any(spot["severity"] != "notice" for spot in cluster["blind_spots"])


def blind_lines(cluster: Json, *, without: Collection[str] = ()) -> list[Text]:
    """A line for each blind spot, dim for a notice, but for those `without`, which something else has said."""
    lines = []
    for spot in cluster["blind_spots"]:
        if spot["slug"] in without:
            continue
        style = "dim" if spot["severity"] == "notice" else "bold red"
        since = "" if spot["since_ms"] is None else f" for {value_text.age(spot['since_ms'], cluster['now_ms'])}"
        text = f"{spot['headline']}{since}. {spot['text']} {spot['note']}".strip()
        lines.append(Text(value_text.printable_text(text), style))
    return lines


def conclusion(cluster: Json, findings: list[Json]) -> str:
    """The last line: how much was looked through, and how long ago."""
    totals, checked_ms = cluster["totals"], cluster["checked_ms"]
    if totals is None or checked_ms is None:
        return "Nothing has been checked yet: the observer has not finished a round."
    age = value_text.age(checked_ms, cluster["now_ms"])
    checked = f"Checked {value_text.plural(totals['partitions'], 'partition')}, {age} ago."
    if findings:
        return checked
    return (
        f"Nothing else is known to need attention. {checked}"
        if is_blind(cluster)
        else f"Nothing needs attention. {checked}"
    )
