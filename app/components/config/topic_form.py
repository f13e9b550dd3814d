"""The form for a topic's tiering settings: which values differ, which Kafka would refuse, as text. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from app.components.config import config_table
from app.components.shared import format as fmt
from backend.store.queries.config import TopicRow

REMOTE: Final = "remote.storage.enable"
COPY_OFF: Final = "remote.log.copy.disable"
DELETE_ON_OFF: Final = "remote.log.delete.on.disable"
RETENTION: Final = ("local.retention.ms", "retention.ms", "local.retention.bytes", "retention.bytes")
TIERING: Final = {"off": "false", "on": "true"}
COPYING: Final = {"on": "false", "paused": "true"}
SETTING_OF: Final = {"Tiering": REMOTE, "Copying": COPY_OFF}
LOWEST: Final = {name: -2 if name.startswith("local.") else -1 for name in RETENTION}
LONG_MAX: Final = 2**63 - 1


def changed(topic: TopicRow, fields: Mapping[str, str]) -> dict[str, str]:
    """The settings that differ from what is in effect. Tiering goes off only with its data (KIP-950)."""
    now = topic.config or {}
    changes = {name: "".join(value.split()) for name, value in fields.items()}
    changes = {name: value for name, value in changes.items() if value != (now.get(name) or _unset(name))}
    if changes.get(REMOTE) == "false":
        changes[DELETE_ON_OFF] = "true"
    return changes


def _unset(name: str) -> str:
    return "" if name in RETENTION else "false"


def problem(topic: TopicRow, settings: Mapping[str, str]) -> str | None:
    """Why there is nothing to plan: no change, no number, or a rule of Kafka's LogConfig; None when there is."""
    if not settings:
        return "Nothing differs from what is in effect."
    for name, value in settings.items():
        if name in RETENTION and not _fits(name, value):
            least = {-2: "-2 (as the total), -1 (no limit) or more", -1: "-1 (no limit) or more"}[LOWEST[name]]
            return f"{name} is a whole number: {least}."
    after = {**(topic.config or {}), **settings}
    trial = replace(topic, tiered=after.get(REMOTE) == "true", config=after)
    refused = [remark.sentence for remark in config_table.remarks(trial) if remark.status == "critical"]
    return f"Kafka would refuse it: {'; '.join(refused)}." if refused else None


def _fits(name: str, value: str) -> bool:
    digits = value.removeprefix("-")
    return digits.isascii() and digits.isdigit() and len(digits) < 20 and LOWEST[name] <= int(value) <= LONG_MAX


def lines(settings: Mapping[str, str]) -> list[str]:
    """``retention.ms = 604800000 (7 d)``, one a setting."""
    return [f"{name} = {value}{_meaning(name, value)}" for name, value in settings.items()]


def _meaning(name: str, value: str) -> str:
    special = {"-1": " (no limit)", "-2": " (as the total)"}
    if name not in RETENTION or value in special:
        return special.get(value, "")
    number = int(value)
    return f" ({fmt.duration(number / 1000) if name.endswith('.ms') else fmt.size(number)})"
