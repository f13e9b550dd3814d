"""The variables that `ebbline up` gives the backend's process, read without pydantic (0.15 s of import).

The supervisor has checked every value (`backend.settings.settings`): here they only get their types again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

_TRUTHS: Final = {"true": True, "false": False}


class ChildSettingsError(Exception):
    """A value that no supervisor tells; one sentence."""


@dataclass(frozen=True, slots=True)
class ChildSettings:
    """The fields of `Settings` that the backend runs by, by the same names."""

    data_dir: Path
    brokers: int
    broker_port: int
    controller_port: int
    metrics_port: int
    voters: int
    bootstrap_servers: str
    api_url: str
    demo: bool
    process_per_broker: bool
    attach: str | None
    remote_location: str | None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self:
        """Raises ChildSettingsError for what is missing or has another type."""
        values = _Variables(environment)
        return cls(
            data_dir=Path(values.text("DATA_DIR")),
            brokers=values.number("BROKERS"),
            broker_port=values.number("BROKER_PORT"),
            controller_port=values.number("CONTROLLER_PORT"),
            metrics_port=values.number("METRICS_PORT"),
            voters=values.number("CONTROLLERS"),
            bootstrap_servers=values.text("BOOTSTRAP_SERVERS"),
            api_url=values.text("API_URL"),
            demo=values.truth("DEMO"),
            process_per_broker=values.truth("PROCESS_PER_BROKER"),
            attach=environment.get("EBBLINE_ATTACH"),
            # An empty one overrules a value of the parent's environment, and means none.
            remote_location=environment.get("EBBLINE_REMOTE_LOCATION") or None,
        )


class _Variables:
    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment

    def text(self, name: str) -> str:
        value = self._environment.get(f"EBBLINE_{name}", "")
        if not value:
            raise ChildSettingsError(f"EBBLINE_{name} is not set: start the backend with `ebbline up`.")
        return value

    def number(self, name: str) -> int:
        text = self.text(name)
        if not text.isascii() or not text.isdigit():
            raise ChildSettingsError(f"EBBLINE_{name} is {text!r}, which is no number: start it with `ebbline up`.")
        return int(text)

    def truth(self, name: str) -> bool:
        text = self._environment.get(f"EBBLINE_{name}", "false")
        if text not in _TRUTHS:
            raise ChildSettingsError(f"EBBLINE_{name} is {text!r}, not true or false: start it with `ebbline up`.")
        return _TRUTHS[text]
