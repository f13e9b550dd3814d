"""The metadata that one broker's replicas have carried out, and the settings that are in force by it."""

from __future__ import annotations

from typing import Final

from backend.engine.config import BrokerConfig
from backend.engine.controller.image.metadata_image import EMPTY_IMAGE, MetadataImage

NO_BROKER_EPOCH: Final = -1


class AppliedMetadata:
    """Written by `role_changes` alone (and by the first start, before logs are opened); everybody else reads.

    Not the `MetadataCache`, which has the newest image before the replicas have followed it.
    """

    __slots__ = ("config", "image", "node_id", "static_config")

    def __init__(self, static_config: BrokerConfig) -> None:
        """`static_config`: the settings of the node's file."""
        self.node_id: Final = static_config.id
        self.static_config: Final = static_config
        self.image: MetadataImage = EMPTY_IMAGE
        # The settings in force, dynamic ones included.
        self.config = static_config

    @property
    def broker_epoch(self) -> int:
        """Epoch of this broker's registration, -1 before metadata shows it."""
        broker = self.image.broker(self.node_id)
        return NO_BROKER_EPOCH if broker is None else broker.epoch

    def apply_dynamic_config(self) -> None:
        """The image's settings of the broker come into force."""
        self.config = self.static_config.overlay(self.image.broker_config(self.node_id))
