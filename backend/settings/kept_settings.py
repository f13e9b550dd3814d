"""Where one `ebbline up` runs, kept in its data folder: the next start and the commands there need no variables.

`up` writes ``run/settings.toml`` once its settings are checked. A later `up` reads from it what neither a flag, nor the
environment, nor ``ebbline.toml`` says; a command takes it before ``ebbline.toml``, which may have changed since the
start. No secret is kept: a location with a key in it is left out.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from backend.runtime.redact import redact_url

FILE: Final = Path("run") / "settings.toml"
HEAD: Final = "# Written by `ebbline up` at each start; docs/settings.md says which setting wins.\n"
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


class KeptSettingsError(Exception):
    """The file cannot be read. Without it the remote tier would be looked for in another place. One sentence."""


def values_to_keep(in_force: Mapping[str, object], without: Mapping[str, object]) -> dict[str, str | int]:
    """Of the settings in force, those that differ from what a start `without` flags and variables would have."""
    kept: dict[str, str | int] = {}
    for name in (*KEPT, *OF_ATTACHED):
        value = in_force.get(name)
        if value is None or value == without.get(name):
            continue
        if name == "remote_location":
            if redact_url(str(value)) != value:
                continue
            value = value if "://" in str(value) else Path(str(value)).absolute()
        kept[name] = value if isinstance(value, int) else str(value.absolute() if isinstance(value, Path) else value)
    return kept


def keep(root: Path, in_force: Mapping[str, object], defaults: Mapping[str, object]) -> None:
    """Writes the file of a data folder, all or nothing. Raises OSError."""
    try:
        toml = tomllib.loads((root / "ebbline.toml").read_text())
    except FileNotFoundError:
        toml = {}
    values = values_to_keep(in_force, {**defaults, **toml})
    path = root / FILE
    temporary = path.with_suffix(".tmp")
    temporary.write_text("".join((HEAD, *(f"{name} = {json.dumps(value)}\n" for name, value in values.items()))))
    temporary.replace(path)


def read_kept(root: Path) -> dict[str, Any]:
    """The settings that the last `up` of a data folder kept; empty for a folder that has no such file.

    Raises KeptSettingsError.
    """
    try:
        content = tomllib.loads((root / FILE).read_text())
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise KeptSettingsError(
            f"{FILE} in the data folder cannot be read: {error}. Correct it, or delete it and set all again."
        ) from error
    return {name: value for name, value in content.items() if name in KEPT or name in OF_ATTACHED}
