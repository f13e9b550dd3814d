"""All kinds of change, by name. A new kind is a module and a line here."""

from __future__ import annotations

from typing import Final

from backend.control.operations.config.config_change import BrokerConfigKind, TopicConfigKind
from backend.control.operations.config.toggle_bootstrap import ToggleBootstrap
from backend.control.operations.operation_kind import AnyKind
from backend.control.operations.reassign.clear_throttle import ClearThrottle
from backend.control.operations.reassign.preferred_election import Elect
from backend.control.operations.reassign.reassignment import Reassign
from backend.control.operations.record_deletion import DeleteRecords

_ALL: Final[tuple[AnyKind, ...]] = (
    ToggleBootstrap(),
    Reassign(),
    Elect(),
    DeleteRecords(),
    TopicConfigKind(),
    BrokerConfigKind(),
    ClearThrottle(),
)
KINDS: Final[dict[str, AnyKind]] = {kind.name: kind for kind in _ALL}
