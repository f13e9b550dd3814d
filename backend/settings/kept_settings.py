"""The file of a data folder in which `ebbline up` keeps where it runs; the next start and commands read it.

`up` writes ``run/settings.toml`` once its settings are checked. Its first lines are what a later `up` goes on with: it
reads them for what neither a flag, nor the environment, nor ``ebbline.toml`` says. The table ``[runs]`` is all that is
in force: commands take it before ``ebbline.toml``, which may have changed since the start. No secret is kept: of a
location with a key in it, ``remote_location_left_out`` has the text that may be shown.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from backend.runtime.private_files import write_private
from backend.runtime.redact import redact_url

FILE: Final = Path("run") / "settings.toml"
HEAD: Final = "# Written by `ebbline up` at each start; docs/settings.md says which setting wins.\n"
RUNS: Final = "runs"
# Settings that a later start goes on with: where it listens, and where the remote tier is.
KEPT: Final = (
    "broker_port",
    "controller_port",
    "metrics_port",
    "api_port",
    "app_port",
    "public_url",
    "remote_location",
)
# Settings that only commands read: `up` has to be given --attach each time.
OF_ATTACHED: Final = ("attach", "client_properties")
# Those whose default is none: where the table `runs` has no such line, `up` runs without one.
OPTIONAL: Final = ("public_url", "remote_location", *OF_ATTACHED)
_LEFT_OUT: Final = "_left_out"


# Without the place of the remote tier a start would look for it in the data folder, and find no record there.
REPLACE: Final = (
    "delete it only together with a start that is given the ports and the remote location of before, or the records in"
    " that store are not found."
)


class KeptSettingsError(Exception):
    """The file cannot be read. Without it the remote tier would be looked for in another place. One sentence."""


@dataclass(frozen=True, slots=True)
class KeptSettings:
    """Content of the file, by name of the setting. The texts of `left_out` are not values: they are to be shown."""

    next_start: Mapping[str, Any] = field(default_factory=dict)
    next_left_out: Mapping[str, str] = field(default_factory=dict)
    # None for a folder that has no such file.
    running: Mapping[str, Any] | None = None
    running_left_out: Mapping[str, str] = field(default_factory=dict)

    def for_commands(self, chosen: Collection[str]) -> dict[str, Any]:
        """Values that a command takes before ``ebbline.toml``; None: `up` runs without one.

        `chosen` names the settings that a flag or a variable says. Client properties hold passwords of the kept
        cluster, and so they are for no other one.
        """
        if self.running is None:
            return {}
        values = {name: None for name in OPTIONAL if name not in self.running_left_out} | dict(self.running)
        if "attach" not in self.running and "attach" not in chosen:
            # ``ebbline.toml`` may name some since the start: without an attached cluster they are refused.
            values["broker_metrics"] = None
        passed_over = {*chosen, "client_properties"} if "attach" in chosen else set(chosen)
        return {name: value for name, value in values.items() if name not in passed_over}

    def moves_remote_tier(self, location: str) -> bool:
        """Whether the last `up` ran with another remote tier than the one at the URL `location`."""
        if self.running is None:
            return False
        shown = self.running_left_out.get("remote_location")
        return location != self.running.get("remote_location") and (shown is None or redact_url(location) != shown)


def values_to_keep(in_force: Mapping[str, object], without: Mapping[str, object]) -> dict[str, str | int]:
    """Lines of the file for the settings in force, but for those that are the same `without` flags and variables.

    Both are values as `Settings` has them once they are checked.

    A value that must not or cannot be kept becomes a line ``<name>_left_out``.
    """
    lines: dict[str, str | int] = {}
    for name in (*KEPT, *OF_ATTACHED):
        value = in_force.get(name)
        if value is None or value == without.get(name):
            continue
        if isinstance(value, int):
            lines[name] = value
            continue
        text = str(value.absolute() if isinstance(value, Path) else value)
        shown = text
        if name == "remote_location" and "://" not in text:
            text = shown = str(Path(text).absolute())
        elif name == "remote_location":
            shown = redact_url(text)
        # Paths may have bytes that are no text.
        shown = shown.encode(errors="replace").decode()
        lines[name if shown == text else f"{name}{_LEFT_OUT}"] = shown
    return lines


def keep(root: Path, in_force: Mapping[str, object], without: Mapping[str, object]) -> None:
    """Writes the file of a data folder, all or nothing, also when the machine stops. Raises OSError."""
    next_start = values_to_keep(in_force, without)
    running = values_to_keep(in_force, {})
    text = "".join((HEAD, *map(_line, next_start.items()), f"\n[{RUNS}]\n", *map(_line, running.items())))
    write_private(root / FILE, text)


def _line(item: tuple[str, str | int]) -> str:
    """A line of TOML. Strings are JSON's, but for DEL, which TOML wants escaped, and for what JSON need not escape."""
    name, value = item
    return f"{name} = {json.dumps(value, ensure_ascii=False)}\n".replace("\x7f", "\\u007f")


def read_kept(root: Path) -> KeptSettings:
    """The settings that the last `up` of a data folder kept; empty for a folder that has no such file.

    Raises KeptSettingsError.
    """
    try:
        with (root / FILE).open("rb") as file:
            content = tomllib.load(file)
    except (FileNotFoundError, NotADirectoryError):
        return KeptSettings()
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise KeptSettingsError(f"{FILE} in the data folder cannot be read: {error}. Correct it; {REPLACE}") from error
    running = content.get(RUNS)
    if running is None or running == {}:
        raise KeptSettingsError(
            f"{FILE} in the data folder has nothing in table [{RUNS}]: it is not whole. Take it from a backup;"
            f" {REPLACE}"
        )
    if not isinstance(running, dict):
        raise KeptSettingsError(f"{FILE} in the data folder has {RUNS}, which is no table. Correct it; {REPLACE}")
    return KeptSettings(_values(content), _left_out(content), _values(running), _left_out(running))


def _values(table: Mapping[str, Any]) -> dict[str, Any]:
    return {name: table[name] for name in (*KEPT, *OF_ATTACHED) if name in table}


def _left_out(table: Mapping[str, Any]) -> dict[str, str]:
    texts = {name: table.get(f"{name}{_LEFT_OUT}") for name in (*KEPT, *OF_ATTACHED)}
    return {name: str(text) for name, text in texts.items() if text is not None}
