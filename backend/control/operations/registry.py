"""All kinds of change, by name. A new kind is a module and a line here."""

from __future__ import annotations

from typing import Final

from backend.control.operations.clear_throttle import ClearThrottle
from backend.control.operations.config_change import BrokerConfig, TopicConfig
from backend.control.operations.delete_records import DeleteRecords
from backend.control.operations.elect import Elect
from backend.control.operations.kinds import Kind
from backend.control.operations.reassign import Reassign
from backend.control.operations.toggle_bootstrap import ToggleBootstrap

_ALL: Final[tuple[Kind, ...]] = (
    ToggleBootstrap(),
    Reassign(),
    Elect(),
    DeleteRecords(),
    TopicConfig(),
    BrokerConfig(),
    ClearThrottle(),
)
KINDS: Final[dict[str, Kind]] = {kind.name: kind for kind in _ALL}
