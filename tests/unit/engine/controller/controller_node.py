"""A controller on a real metadata log, and broker halves (loader, lifecycle) that reach it through its API handlers.

The channel carries encoded requests to the handlers of the controller's listener and encoded answers back, as the
network would, but in the same task, so that tests decide what happens when.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp
from types import GeneratorType
from typing import Any, Final, cast

from backend.engine.apis.api_declaration import RequestContext
from backend.engine.apis.api_versions import SUPPORTED_FEATURES
from backend.engine.apis.services import Services
from backend.engine.apis.table import api_table
from backend.engine.common.event_sink import NullEventSink
from backend.engine.config import BrokerConfig
from backend.engine.controller.image.metadata_image import ControllerRegistration, Endpoint, SupportedFeature
from backend.engine.controller.metadata.metadata_cache import MetadataCache
from backend.engine.controller.metadata.metadata_loader import MetadataLoader, MetadataPublisher
from backend.engine.controller.metadata.node_metadata import NodeMetadata
from backend.engine.controller.quorum_controller import Controller
from backend.engine.controller.registration.broker_lifecycle import BrokerLifecycle
from backend.engine.metrics import BrokerMetrics
from backend.engine.net.client_request import error_response
from backend.engine.ports import Clock, Ports
from backend.engine.raft.metadata_log_opening import open_metadata_log
from backend.engine.raft.raft_node import RaftNode
from backend.protocol import codec
from backend.protocol.errors import ErrorCode, KafkaError
from backend.protocol.frames import RequestHeader, request_class, response_class
from backend.protocol.messages import Message
from tests.unit.engine.controller.clusters import CLUSTER_ID, uuid_of
from tests.unit.engine.virtual_time import ports_here, run_virtual

FEATURES: Final = tuple(SupportedFeature(name, low, high) for name, (low, high) in SUPPORTED_FEATURES.items())
CONTROLLER_ID: Final = 9
FAST: Final = {"broker.heartbeat.interval.ms": "50", "broker.session.timeout.ms": "400"}


def config_of(folder: Path, node_id: int, **properties: str) -> BrokerConfig:
    given = {name.replace("_", "."): value for name, value in properties.items()}
    return BrokerConfig.parse({**FAST, "node.id": str(node_id), "log.dirs": str(folder), **given})


class ControllerNode:
    """The controller role of a node without brokers."""

    def __init__(self, ports: Ports, folder: Path, **properties: str) -> None:
        self.ports = ports
        self.config = config_of(folder, CONTROLLER_ID, **properties)
        absent: Any = None
        self.services = Services(
            node_id=CONTROLLER_ID,
            cluster_id=CLUSTER_ID,
            config=self.config,
            ports=ports,
            metadata=MetadataCache(),
            log_manager=absent,
            controller_channel=absent,
            events=NullEventSink(),
            metrics=BrokerMetrics(CONTROLLER_ID),
            remote_log_manager=None,
            controller=None,
            apis=api_table(),
        )

    @property
    def controller(self) -> Controller:
        assert self.services.controller is not None
        return self.services.controller

    async def start(self) -> None:
        log = await open_metadata_log(self.ports, self.config)
        endpoints = (Endpoint("CONTROLLER", "127.0.0.1", 19192),)
        registration = ControllerRegistration(CONTROLLER_ID, self.ports.random.uuid(), endpoints, FEATURES)
        self.raft = RaftNode(self.ports, self.config, log, cluster_id=CLUSTER_ID)
        self.metadata = NodeMetadata(self.ports, self.config, self.raft, cluster_id=CLUSTER_ID)
        try:
            await self.metadata.start()
            controller = Controller(self.ports, self.config, self.metadata, registration=registration)
            self.services.controller = controller
            await controller.start()
        except BaseException:
            if self.services.controller is not None:
                await self.services.controller.stop()
            await self.metadata.stop()
            await self.raft.kill()
            raise

    async def stop(self) -> None:
        controller = self.controller
        self.services.controller = None
        await controller.stop()
        await self.metadata.stop()
        await self.raft.stop()
        controller.log.close()


class HandlerChannel:
    """A way to the controller; `broken` makes every request fail as a lost connection would."""

    def __init__(self, node: ControllerNode) -> None:
        self._node = node
        self.broken = False

    async def send(self, request: Message, version: int, *, timeout_ms: float) -> Message:
        if self.broken or self._node.services.controller is None:
            await asyncio.sleep(0.001)
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "The connection broke")
        api = self._node.services.apis.served("controller")[request.API_KEY]
        received, _ = codec.decode(request_class(request.API_KEY), version, bytearray(codec.encode(request, version)))
        context = RequestContext(
            RequestHeader(request.API_KEY, version, 1, "test"), 1, "127.0.0.1", "CONTROLLER", "controller"
        )
        try:
            outcome = api.handler(self._node.services, context, received)
            if isinstance(outcome, GeneratorType):
                outcome = await self._node.services.time_slicer.do(outcome)
            answer = outcome if isinstance(outcome, Message) else await cast(Awaitable[Message], outcome)
        except KafkaError as error:
            refused = error_response(api, received, version, error.code, error.message)
            assert refused is not None
            answer = refused
        made, _ = codec.decode(response_class(request.API_KEY), version, codec.encode(answer, version))
        return made


class BrokerHalf:
    """A broker without data: a node without a vote that follows the metadata and keeps itself registered."""

    def __init__(self, node: ControllerNode, broker_id: int, folder: Path, **properties: str) -> None:
        self.id = broker_id
        self._ports = node.ports
        own_folder = Path(mkdtemp(dir=folder, prefix=f"broker-{broker_id}-"))
        self._config = config_of(own_folder, broker_id, **{"process.roles": "broker", **properties})
        self.cache = MetadataCache()
        self.metadata_channel = HandlerChannel(node)
        self.lifecycle_channel = HandlerChannel(node)
        self.lifecycle = BrokerLifecycle(
            node.ports,
            self._config,
            self.lifecycle_channel,
            cluster_id=CLUSTER_ID,
            endpoints=[Endpoint("PLAINTEXT", "127.0.0.1", 19091 + broker_id)],
            log_dirs=[uuid_of(5000 + broker_id)],
            features=FEATURES,
            applied_offset=lambda: self.cache.applied_offset,
        )
        self.publishers: list[MetadataPublisher] = []
        self.failures: list[str] = []

    async def start(self) -> int:
        log = await open_metadata_log(self._ports, self._config)
        voters = {CONTROLLER_ID: self.metadata_channel}
        self.raft = RaftNode(self._ports, self._config, log, cluster_id=CLUSTER_ID, votes=False, peers=voters)
        self.metadata = NodeMetadata(self._ports, self._config, self.raft, cluster_id=CLUSTER_ID)
        await self.metadata.start()
        self.metadata.start_following(self.failures.append)
        self.loader = MetadataLoader(self.metadata.committed, self.cache, self.publishers, node_id=self.id)
        self.loader.start()
        epoch = await self.lifecycle.start()
        await self.lifecycle.unfence()
        return epoch

    async def stop(self) -> None:
        await self.lifecycle.stop()
        await self.loader.stop()
        await self.metadata.stop()
        await self.raft.stop()
        self.metadata.log.close()


@asynccontextmanager
async def cluster(
    folder: Path, brokers: int = 0, *, clock: Clock | None = None, **properties: str
) -> AsyncIterator[tuple[ControllerNode, list[BrokerHalf]]]:
    """A started controller and brokers."""
    folder.mkdir(exist_ok=True)
    ports = ports_here()
    if clock is not None:
        ports = replace(ports, clock=clock)
    node = ControllerNode(ports, folder, **properties)
    halves: list[BrokerHalf] = []
    try:
        await node.start()
        for broker_id in range(1, brokers + 1):
            half = BrokerHalf(node, broker_id, folder, **properties)
            halves.append(half)
            await half.start()
        yield node, halves
    finally:
        for half in halves:
            await half.stop()
        if node.services.controller is not None:
            await node.stop()
        ports.workers.close()


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Runs one test's coroutine on a fresh loop, within a time that only a hang reaches."""

    async def bounded() -> None:
        await asyncio.wait_for(test(), 30)

    run_virtual(bounded())


async def until(question: Callable[[], bool]) -> None:
    """Waits until it is so; `run` bounds the time."""
    while not question():
        await asyncio.sleep(0.002)
