"""Bugs that lose committed records once a disk is lost, each planted into the engine for one run.

Each comes with followers that cut what was acknowledged, as Kafka's do: those of the engine stop instead, so that the
records are kept and the partition never recovers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pytest

from backend.engine.broker import unclean_recovery
from backend.engine.config import BrokerConfig
from backend.engine.controller.commands import brokers
from backend.engine.controller.commands.cluster_start import ClusterStart
from backend.engine.controller.commands.partition import (
    isr_change,
    partition_change,
    recovery_verdict,
    registered_directories,
)
from backend.engine.controller.commands.partition.elections import in_isr, leader_and_isr_changes
from backend.engine.controller.commands.partition.partition_change import LogEnds
from backend.engine.controller.commands.partition.recovery_verdict import RecoveryVerdict
from backend.engine.controller.image.metadata_image import (
    NO_LEADER,
    BrokerRegistration,
    MetadataImage,
    PartitionRegistration,
)
from backend.engine.replica.fetchers import fetch_state
from backend.engine.replica.partition import Partition
from backend.protocol import messages as m
from tests.simulation.planted import Plant


def followers_cut_what_was_acknowledged(patch: pytest.MonkeyPatch) -> None:
    """Records that the leader lacks are truncated, also below a follower's own high watermark."""
    patch.setattr(fetch_state, "must_keep", lambda **offsets: False)


def any_directory_has_the_log(patch: pytest.MonkeyPatch) -> None:
    """A replica may lead and join the ISR whatever directories its broker has registered."""
    for module in (registered_directories, partition_change, isr_change, recovery_verdict):
        patch.setattr(module, "has_log", lambda image, partition, replica: True)


def an_unclean_shutdown_changes_nothing(patch: pytest.MonkeyPatch) -> None:
    """A returning broker is treated as its old self, and stays eligible to lead."""

    def careless(
        image: MetadataImage,
        config: BrokerConfig,
        ended: BrokerRegistration,
        request: m.BrokerRegistrationRequest,
        start: ClusterStart | None,
    ) -> list[m.PartitionChangeRecord]:
        return leader_and_isr_changes(image, config, in_isr(image, ended.id), remove=ended.id)

    patch.setattr(brokers, "_end_of_life", careless)


def a_new_disk_counts_as_the_old_one(patch: pytest.MonkeyPatch) -> None:
    """Both at once: what the one lets through the other stops."""
    any_directory_has_the_log(patch)
    an_unclean_shutdown_changes_nothing(patch)


def the_high_watermark_moves_below_min_isr(patch: pytest.MonkeyPatch) -> None:
    """A leader alone counts as committed what only it has."""

    def careless(self: Partition) -> bool:
        return self.log.maybe_increment_high_watermark(self.followers.high_watermark_candidate(self.log.log_end_offset))

    patch.setattr(Partition, "_increment_high_watermark", careless)


def the_first_answer_leads(patch: pytest.MonkeyPatch) -> None:
    """After an unclean end of all nobody compares logs."""

    def careless(
        image: MetadataImage, partition: PartitionRegistration, ends: LogEnds, min_isr: int, *, expired: bool
    ) -> RecoveryVerdict:
        return RecoveryVerdict(next(iter(ends), NO_LEADER), True, ())

    patch.setattr(unclean_recovery, "judge", careless)


@dataclass(frozen=True, slots=True)
class LostDisksPlanted:
    """A bug, the first seed to try, and the only kinds of fault."""

    plant: Plant
    seed: int
    faults: tuple[str, ...] = ("crash", "hole", "disk lost", "disk lost, all down")


PLANTED: Final = (
    LostDisksPlanted(a_new_disk_counts_as_the_old_one, 2),
    LostDisksPlanted(the_high_watermark_moves_below_min_isr, 34),
    LostDisksPlanted(the_first_answer_leads, 2),
)
