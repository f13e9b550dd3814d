"""The metadata quorum: leader, epoch, lag of voters and observers, snapshot. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pandas as pd

from app.components.shared import format as fmt
from app.components.shared import markup

Json = Mapping[str, Any]
# Nodes fetch every half second; a voter gives its leader up after 2 s (controller.quorum.fetch.timeout.ms).
SILENT_MS: Final = 10_000
ROWS_MAX: Final = 9
NOT_READ: Final = "The backend has not looked at the quorum yet, or does not run."


def status(replica: Json, quorum: Json) -> str | None:
    """None: fine. A silent voter is critical with the majority that it is missing from: as `voter-away` says."""
    if not _is_lacking(replica, quorum):
        return None
    return (
        "critical" if replica["role"] == "voter" and _lacking_voters(quorum) * 2 >= len(_voters(quorum)) else "warning"
    )


def _is_lacking(replica: Json, quorum: Json) -> bool:
    """Whether it is silent, or no part of a majority until it has caught up with what its disk has lost."""
    if replica["node_id"] == quorum["leader_id"]:
        return False
    fetched_ms = replica["last_fetch_ms"]
    return not replica.get("counted", True) or fetched_ms is None or quorum["seen_ms"] - fetched_ms > SILENT_MS


def _voters(quorum: Json) -> list[Json]:
    return [replica for replica in quorum["replicas"] if replica["role"] == "voter"]


def _lacking_voters(quorum: Json) -> int:
    return sum(_is_lacking(replica, quorum) for replica in _voters(quorum))


def pills_html(quorum: Json, now_ms: int) -> str:
    """Leader, epoch, what is committed, the snapshot; what is not known with its cause."""
    voters, silent = _voters(quorum), _lacking_voters(quorum)
    in_touch = f"{len(voters) - silent} of {len(voters)} voters in touch"
    lost = silent * 2 >= len(voters)
    pills = [
        markup.pill(f"leader {quorum['leader_id']}"),
        markup.pill(f"epoch {fmt.count(quorum['leader_epoch'])}"),
        markup.pill(in_touch, "critical" if lost else "warning" if silent else "ok"),
        markup.pill(f"committed to {fmt.count(quorum['high_watermark'])}"),
    ]
    pills += [_level_pill(name, feature) for name, feature in sorted((quorum.get("features") or {}).items())]
    snapshot = quorum.get("snapshot") or {}
    if snapshot.get("generated_ms") is None:
        pills.append(markup.pill("snapshot ?", title=str(snapshot.get("cause") or "Not looked at yet.")))
    else:
        age = fmt.duration(max(0, now_ms - snapshot["generated_ms"]) / 1000)
        pills.append(markup.pill(f"snapshot {fmt.size(snapshot['bytes'])}, {age} old"))
    return f'<div class="eb-pills">{"".join(pills)}</div>'


def _level_pill(name: str, feature: Json) -> str:
    """A feature that could be at a higher level stands out."""
    level, most = feature["level"], feature["max_level"]
    if level >= most:
        return markup.pill(f"{name} {level}")
    return markup.pill(f"{name} {level} of {most}", "warning", title="Raise it with ebbline quorum upgrade.")


def note(quorum: Json) -> str:
    """Names the facts that are not known, with the cause; empty when all are known."""
    snapshot = quorum.get("snapshot") or {}
    causes = [quorum.get("cause"), snapshot.get("cause") and f"Snapshot: {snapshot['cause']}"]
    return " ".join(str(cause) for cause in causes if cause)


def _worst_first(quorum: Json) -> list[Json]:
    order = {"critical": 0, "warning": 1, None: 2}
    replicas: Sequence[Json] = quorum["replicas"]

    def rank(replica: Json) -> tuple[int, bool, bool, int]:
        severity = order[status(replica, quorum)]
        return severity, replica["node_id"] != quorum["leader_id"], replica["role"] != "voter", replica["node_id"]

    return sorted(replicas, key=rank)


def _ago(at_ms: int | None, seen_ms: int) -> str:
    return "never" if at_ms is None else f"{fmt.duration(max(0, seen_ms - at_ms) / 1000)} ago"


def table_html(quorum: Json) -> str:
    """A line for each node: those with a problem first, then the leader, voters, observers."""
    leader_id, seen_ms = quorum["leader_id"], quorum["seen_ms"]
    body = []
    for replica in _worst_first(quorum)[:ROWS_MAX]:
        leads = replica["node_id"] == leader_id
        severity = status(replica, quorum)
        fetched = markup.text(_ago(replica["last_fetch_ms"], seen_ms))
        if severity:
            fetched = f"{markup.mark(severity)} {fetched}"
        lag = "?" if replica["lag_records"] is None else fmt.count(replica["lag_records"])
        body.append(
            (
                f"{replica['node_id']}",
                "leader" if leads else f"{replica['role']}{'' if replica.get('counted', True) else ', catching up'}",
                markup.Cell("" if leads else lag),
                markup.Cell(html="" if leads else fetched, css=f"eb-{severity}" if severity else ""),
                markup.Cell("" if leads else _ago(replica["last_caught_up_ms"], seen_ms)),
            )
        )
    columns = [("Node", "right"), ("Role", "left"), ("Records behind", "right"), ("Fetched", "right")]
    columns.append(("Caught up", "right"))
    return markup.table(columns, body, caption="Nodes of the metadata quorum")


def rows(quorum: Json) -> pd.DataFrame:
    """All nodes, as a table."""
    leader_id, seen_ms = quorum["leader_id"], quorum["seen_ms"]
    return pd.DataFrame(
        [
            {
                "node": replica["node_id"],
                "role": "leader" if replica["node_id"] == leader_id else replica["role"],
                "log end": replica["log_end_offset"],
                "records behind": replica["lag_records"],
                "fetched": _ago(replica["last_fetch_ms"], seen_ms),
                "caught up": _ago(replica["last_caught_up_ms"], seen_ms),
                "status": status(replica, quorum) or "ok",
            }
            for replica in _worst_first(quorum)
        ]
    )
