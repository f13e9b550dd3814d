"""The form for the brokers' copy limits and pools: which values differ, which Kafka would refuse, as text. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from app.components.shared import format as fmt
from backend.store.queries.config import ConfigRow

LONG_MAX: Final = 2**63 - 1
INT_MAX: Final = 2**31 - 1
LIMITS: Final = {
    "remote.log.manager.copy.max.bytes.per.second": "Copy limit, bytes/s",
    "remote.log.manager.fetch.max.bytes.per.second": "Remote fetch limit, bytes/s",
}
POOLS: Final = {
    "remote.log.manager.copier.thread.pool.size": "Copy threads",
    "remote.log.manager.expiration.thread.pool.size": "Expiration threads",
    "remote.log.reader.threads": "Remote reader threads",
}
FIELDS: Final = {**LIMITS, **POOLS}
WAIT_MS: Final = "remote.fetch.max.wait.ms"
ALL: Final = {**FIELDS, WAIT_MS: "Remote fetch wait, ms"}


@dataclass(frozen=True, slots=True)
class BrokerScope:
    """All brokers, or one of them."""

    broker_id: int | None = None

    @property
    def inputs(self) -> dict[str, object]:
        if self.broker_id is None:
            return {"scope": "cluster"}
        return {"scope": "broker", "broker_id": self.broker_id}


def in_effect(rows: Iterable[ConfigRow], scope: BrokerScope) -> dict[str, str]:
    """The values of now of that broker; of all brokers the smallest one, which decides what may be asked for.

    A setting that the brokers do not list, or that needs a restart, is missing.
    """
    values: dict[str, list[int]] = {}
    for row in rows:
        in_scope = row.resource and (scope.broker_id is None or row.resource == str(scope.broker_id))
        if in_scope and row.name in ALL and not row.is_read_only and _number(row.value) is not None:
            values.setdefault(row.name, []).append(int(row.value or 0))
    return {name: str(min(values[name])) for name in ALL if name in values}


def changed(now: Mapping[str, str], fields: Mapping[str, str]) -> dict[str, str]:
    """The fields that differ from the values in effect, written as Kafka reads them."""
    typed = {name: "".join(value.split()) for name, value in fields.items()}
    return {name: value for name, value in typed.items() if value != now.get(name)}


def problem(now: Mapping[str, str], settings: Mapping[str, str]) -> str | None:
    """Why there is nothing to plan. Kafka refuses pools below half or above double of now (DynamicThreadPool)."""
    if not settings:
        return "Nothing differs from what is in effect."
    for name, value in settings.items():
        number, label = _number(value), ALL[name]
        most = INT_MAX if name in POOLS or name == WAIT_MS else LONG_MAX
        if number is None or not 1 <= number <= most:
            return f"{label} is a whole number from 1 on."
        before = _number(now.get(name))
        if name in POOLS and before is not None and not before // 2 <= number <= before * 2:
            return f"{label}: Kafka takes half to double of {before} at once, {max(1, before // 2)} to {2 * before}."
    return None


def lines(settings: Mapping[str, str]) -> list[str]:
    """``remote.log.manager.copy.max.bytes.per.second = 90000000 (90.0 MB/s)``, one a setting."""
    return [f"{name} = {value}{_meaning(name, int(value))}" for name, value in settings.items()]


def _meaning(name: str, value: int) -> str:
    if name not in LIMITS:
        return ""
    return " (no limit)" if value == LONG_MAX else f" ({fmt.size(value)}/s)"


def _number(value: str | None) -> int | None:
    return int(value) if value and value.isascii() and value.isdigit() and len(value) < 20 else None
