"""Invariants during a run and at its end: one module per property, each with a planted bug that it catches.

`step` is called at every moment at which something may have changed, so it must be cheap; `look` several times a
virtual second; `finish` once, after the faults have stopped and the cluster had time to recover.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.checkers.acknowledged import AcknowledgedSurvive
from tests.simulation.checkers.agreement import ReplicasAgree
from tests.simulation.checkers.checker import Checker, Violation
from tests.simulation.checkers.deleted import DeletedTopicsLeaveNothing
from tests.simulation.checkers.gap import NoGap
from tests.simulation.checkers.lineage import ReadsFollowLineage
from tests.simulation.checkers.monotonic import NeverBack
from tests.simulation.checkers.objects import ObjectsAndMetadata
from tests.simulation.checkers.order import OffsetsInOrder
from tests.simulation.checkers.progress import EverythingRecovers

if TYPE_CHECKING:
    from tests.simulation.world import World

__all__ = ["Checker", "EverythingRecovers", "ReadsFollowLineage", "Violation", "all_checkers"]


def all_checkers(world: World) -> list[Checker]:
    """One of each, for one run."""
    return [
        NeverBack(world),
        OffsetsInOrder(world),
        ReplicasAgree(world),
        NoGap(world),
        ObjectsAndMetadata(world),
        AcknowledgedSurvive(world),
        ReadsFollowLineage(world),
        DeletedTopicsLeaveNothing(world),
        EverythingRecovers(world),
    ]
