"""All kinds of change, by name. A new kind is a module and a line here."""

from __future__ import annotations

from typing import Final

from backend.control.operations.kinds import Kind
from backend.control.operations.reassign import Reassign
from backend.control.operations.toggle_bootstrap import ToggleBootstrap

KINDS: Final[dict[str, Kind]] = {kind.name: kind for kind in (ToggleBootstrap(), Reassign())}
