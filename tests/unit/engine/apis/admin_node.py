"""Services of a broker that stands still: an image, settings, and a channel to the controller that tests answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from types import GeneratorType
from typing import Any, cast

from backend.engine.apis.api_declaration import RequestContext
from backend.engine.apis.services import Services
from backend.engine.apis.table import api_table
from backend.engine.common.event_sink import NullEventSink
from backend.engine.config import BrokerConfig
from backend.engine.controller.image.metadata_image import EMPTY_IMAGE, BrokerRegistration, Endpoint, MetadataImage
from backend.engine.controller.metadata.metadata_cache import MetadataCache
from backend.engine.metrics import BrokerMetrics
from backend.engine.net.client_request import error_response
from backend.engine.ports import system_ports
from backend.protocol.errors import KafkaError
from backend.protocol.frames import RequestHeader
from backend.protocol.messages import Message
from tests.unit.engine.virtual_time import run_virtual

Answer = Callable[[Message], Message]


def registered(broker_id: int, port: int = 0, *, fenced: bool = False, rack: str | None = None) -> BrokerRegistration:
    endpoint = Endpoint("PLAINTEXT", "127.0.0.1", port or 19091 + broker_id)
    return BrokerRegistration(broker_id, 1, bytes(16), (endpoint,), rack=rack, fenced=fenced)


def image_with(*brokers: BrokerRegistration, image: MetadataImage = EMPTY_IMAGE) -> MetadataImage:
    return replace(image, brokers=image.brokers.update({broker.id: broker for broker in brokers}))


class RecordingChannel:
    """Requests that were sent to the controller, answered by the test's function."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.answer: Answer | None = None

    async def send(self, request: Message, version: int, *, timeout_ms: float) -> Message:
        self.sent.append(request)
        assert self.answer is not None, request
        return self.answer(request)


class AdminNode:
    """A broker as the admin APIs see it."""

    def __init__(self, image: MetadataImage, *, node_id: int = 1, cluster_id: str = "c", **properties: str) -> None:
        absent: Any = None
        self.channel = RecordingChannel()
        given = {name.replace("_", "."): value for name, value in properties.items()}
        self.services = Services(
            node_id=node_id,
            cluster_id=cluster_id,
            config=BrokerConfig.parse({"node.id": str(node_id), **given}),
            ports=system_ports(),
            metadata=MetadataCache(image),
            log_manager=absent,
            controller_channel=self.channel,
            events=NullEventSink(),
            metrics=BrokerMetrics(node_id),
            remote_log_manager=None,
            controller=None,
            apis=api_table(),
        )

    async def ask(self, request: Message, version: int) -> Any:
        """The answer as the listener would send it."""
        api = self.services.apis.served("broker")[request.API_KEY]
        context = RequestContext(
            RequestHeader(request.API_KEY, version, 1, "test"), 1, "127.0.0.1", "PLAINTEXT", "broker"
        )
        try:
            outcome = api.handler(self.services, context, request)
            if isinstance(outcome, GeneratorType):
                outcome = await self.services.time_slicer.do(outcome)
            return outcome if isinstance(outcome, Message) else await cast(Awaitable[Message], outcome)
        except KafkaError as error:
            return error_response(api, request, version, error.code, error.message)

    def answer(self, request: Message, version: int) -> Any:
        """`ask` outside of a loop."""

        async def ask_inside() -> Any:
            return await self.ask(request, version)

        return run_virtual(ask_inside())
