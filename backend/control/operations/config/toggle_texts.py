"""The words of the toggle's dialog, filled in."""

from __future__ import annotations

from collections.abc import Sequence

from backend.control.formatting import grouped, in_bytes
from backend.control.operations.lifecycle.plan_draft import DialogTexts, JsonObject


def dialog_texts(
    cluster_name: str, enable: bool | None, broker_id: int | None, matrix: Sequence[JsonObject], estimate: JsonObject
) -> DialogTexts:
    """Title, effect, risk and buttons for turning the flag on or off, or removing its value at one level."""
    on = any(row["after"] == "true" for row in matrix) if enable is None else enable
    where = f"Cluster {cluster_name}." if broker_id is None else f"Cluster {cluster_name}, broker {broker_id}."
    off_bytes, on_bytes = in_bytes(estimate["off_bytes"]), in_bytes(estimate["on_bytes"])
    kept = [row["broker_id"] for row in matrix if row["after_source"] == "DYNAMIC_BROKER_CONFIG"]
    own = ", ".join(str(b) for b in kept if broker_id is None)
    unchanged = "Existing replicas, data already stored, non-tiered topics."
    if own:
        unchanged += f" Broker {own} keeps its own value."
    if on:
        qualify = f"{grouped(estimate['qualifies'])} of {grouped(estimate['tiered_partitions'])}"
        return DialogTexts(
            title="Turn on bootstrap from the tiered offset",
            intro=f"{where} A new, empty follower will start at the first offset not yet uploaded instead of the "
            "leader's local start.",
            effect=f"{qualify} tiered partitions qualify. Adding one replica to each would copy {on_bytes} instead of "
            f"{off_bytes}.",
            risk="These replicas keep little local data. If one becomes leader, consumers behind it read from remote "
            "storage until it refills (about local retention).",
            does_not_change=unchanged,
            keep="Keep off",
            act="Turn on",
        )
    return DialogTexts(
        title="Turn off bootstrap from the tiered offset",
        intro=f"{where} New, empty followers will copy the leader's whole local log.",
        effect=f"{off_bytes} instead of {on_bytes} for one replica of each tiered partition.",
        does_not_change=unchanged,
        keep="Keep on",
        act="Turn off",
    )
