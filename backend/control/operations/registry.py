"""All kinds of change, by name. A new kind is a module and a line here."""

from __future__ import annotations

from typing import Any, Final

from backend.control.operations.kinds import Kind
from backend.control.operations.toggle_bootstrap import ToggleBootstrap

KINDS: Final[dict[str, Kind[Any]]] = {kind.name: kind for kind in (ToggleBootstrap(),)}
