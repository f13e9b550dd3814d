"""Clusters for tests of commands: an image, and a play that replays what each command gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from backend.engine.apis.api_versions import SUPPORTED_FEATURES
from backend.engine.config import BrokerConfig
from backend.engine.controller.commands.brokers import ShutdownProgress, broker_heartbeat, register_broker
from backend.engine.controller.commands.cluster_bootstrap import ELIGIBLE_LEADER_REPLICAS, bootstrap
from backend.engine.controller.commands.cluster_start import ClusterStart
from backend.engine.controller.commands.command import ControllerResult
from backend.engine.controller.commands.topic_commands import create_topics
from backend.engine.controller.image.metadata_image import EMPTY_IMAGE, MetadataImage, PartitionRegistration
from backend.engine.controller.image.replay import apply_records
from backend.protocol import messages as m
from backend.protocol.messages import Message

R = TypeVar("R")
CLUSTER_ID = "MjfEd67JQ2WgSDvMRIzbJw"


def broker_config(**properties: str) -> BrokerConfig:
    """A controller's settings; names with `_` for `.`."""
    given = {name.replace("_", "."): value for name, value in properties.items()}
    return BrokerConfig.parse({"node.id": "1", "process.roles": "broker,controller", **given})


def uuid_of(number: int) -> bytes:
    """A fixed id that is not reserved."""
    return (1000 + number).to_bytes(16, "big")


def _without_elr(image: MetadataImage) -> ControllerResult[None]:
    return ControllerResult((m.FeatureLevelRecord(name=ELIGIBLE_LEADER_REPLICAS, feature_level=0),), None)


class Play:
    """A cluster that changes only through commands; every record goes through replay, as in the real thing."""

    def __init__(self, config: BrokerConfig | None = None, *, elr_level: int = 1) -> None:
        """`elr_level` 0: a cluster as earlier versions made them, without eligible leader replicas."""
        self.config = config or broker_config()
        self.image: MetadataImage = replace(EMPTY_IMAGE, cluster_id=CLUSTER_ID)
        self.records: list[Message] = []
        self.last: Sequence[Message] = ()
        self._topics = 0
        self.do(partial(bootstrap, config=self.config))
        if elr_level == 0:
            self.do(_without_elr)

    def do(self, command: Callable[[MetadataImage], ControllerResult[R]]) -> R:
        """Carries a command out and gives its response; its records stay in `last`."""
        outcome = command(self.image)
        self.last = outcome.records
        self.records += outcome.records
        if outcome.records:
            offset = self.image.offset + len(outcome.records)
            self.image = apply_records(self.image, outcome.records, offset, 1)
        return outcome.response

    def register(
        self,
        broker: int,
        *,
        incarnation: int = 1,
        alive: bool = False,
        rack: str | None = None,
        clean: bool = False,
        directories: Sequence[bytes] | None = None,
        start: ClusterStart | None = None,
    ) -> int:
        """The broker's new epoch. `clean`: its former life ended in an orderly way."""
        former = self.image.brokers.get(broker)
        request = m.BrokerRegistrationRequest
        response = self.do(
            partial(
                register_broker,
                request=request(
                    broker_id=broker,
                    cluster_id=CLUSTER_ID,
                    incarnation_id=uuid_of(broker * 100 + incarnation),
                    listeners=[request.Listeners(name="PLAINTEXT", host="127.0.0.1", port=19091 + broker)],
                    features=[
                        request.Features(name=name, min_supported_version=low, max_supported_version=high)
                        for name, (low, high) in SUPPORTED_FEATURES.items()
                    ],
                    rack=rack,
                    log_dirs=list(directories or [uuid_of(5000 + broker)]),
                    previous_broker_epoch=former.epoch if clean and former else -1,
                ),
                config=self.config,
                next_offset=self.image.offset + 1,
                session_alive=alive,
                start=start,
            )
        )
        return response.broker_epoch

    def heartbeat(
        self,
        broker: int,
        *,
        progress: ShutdownProgress | None = None,
        start: ClusterStart | None = None,
        **fields: Any,
    ) -> m.BrokerHeartbeatResponse:
        """A heartbeat of the broker's present life, caught up unless said otherwise."""
        fields = {
            "broker_id": broker,
            "broker_epoch": self.image.brokers[broker].epoch,
            "current_metadata_offset": self.image.offset,
            **fields,
        }
        return self.do(
            partial(
                broker_heartbeat,
                request=m.BrokerHeartbeatRequest(**fields),
                config=self.config,
                progress=progress or ShutdownProgress(),
                start=start,
            )
        )

    def start_brokers(self, *brokers: int) -> Play:
        """Registers and unfences."""
        for broker in brokers:
            self.register(broker)
            self.heartbeat(broker)
        return self

    def create(
        self, name: str, assignments: Sequence[Sequence[int]] = (), **settings: str
    ) -> m.CreateTopicsResponse.Topics:
        """A topic with replicas given by hand; with none: one partition on one broker, placed."""
        topic = m.CreateTopicsRequest.Topics
        return self.create_topic(
            topic(
                name=name,
                num_partitions=-1,
                replication_factor=-1,
                assignments=[
                    topic.Assignments(partition_index=index, broker_ids=list(replicas))
                    for index, replicas in enumerate(assignments)
                ],
                configs=[topic.Configs(name=key.replace("_", "."), value=value) for key, value in settings.items()],
            )
        )

    def create_topic(
        self, topic: m.CreateTopicsRequest.Topics, *, validate_only: bool = False
    ) -> m.CreateTopicsResponse.Topics:
        response = self.create_topics(topic, validate_only=validate_only)
        return response.topics[0]

    def create_topics(
        self, *topics: m.CreateTopicsRequest.Topics, validate_only: bool = False
    ) -> m.CreateTopicsResponse:
        return self.do(
            partial(
                create_topics,
                request=m.CreateTopicsRequest(topics=list(topics), validate_only=validate_only),
                config=self.config,
                new_topic_id=self._new_topic_id,
                choose=lambda stop: 0,
            )
        )

    def _new_topic_id(self) -> bytes:
        self._topics += 1
        return uuid_of(self._topics)

    def partition(self, topic: str, index: int = 0) -> PartitionRegistration:
        registration = self.image.partition(topic, index)
        assert registration is not None, (topic, index)
        return registration
