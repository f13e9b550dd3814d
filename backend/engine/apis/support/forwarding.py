"""Requests that only the controller can carry out: a broker sends them there unchanged (KIP-590).

Between nodes of one cluster the request goes under its own key and version to the controller's listener, without
Kafka's Envelope: every node runs the same code and there is no authorizer whose principal would have to travel along.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol, TypeVar, cast

from backend.engine.apis.api_declaration import ListenerKind, RequestContext
from backend.engine.common.controller_channel import ControllerChannel, is_from_standby
from backend.engine.controller.commands.command import ControllerResult
from backend.engine.controller.image.metadata_image import MetadataImage
from backend.engine.controller.metadata.metadata_cache import MetadataCache
from backend.engine.controller.quorum_controller import Controller
from backend.engine.ports import Ports, tasks
from backend.protocol.errors import ErrorCode, KafkaError
from backend.protocol.messages import Message

R = TypeVar("R", bound=Message)

# Kafka's request.timeout.ms of the forwarding channel.
FORWARD_TIMEOUT_MS: Final = 30_000
RETRY_PAUSE_MS: Final = 100
# Time that an answer waits for this broker's own metadata to show the change.
CATCH_UP_MS: Final = 1000
_TRY_AGAIN: Final = frozenset({ErrorCode.NETWORK_EXCEPTION, ErrorCode.NOT_CONTROLLER, ErrorCode.BROKER_NOT_AVAILABLE})


class ForwardServices(Protocol):
    """The parts of a broker that sends a request on."""

    ports: Ports
    controller_channel: ControllerChannel


class CommandServices(Protocol):
    """The parts of a node that may have the controller role."""

    node_id: int
    # None without that role.
    controller: Controller | None


class ImageServices(Protocol):
    """The two images that a node may answer from."""

    metadata: MetadataCache
    controller: Controller | None


class ForwardingServices(Protocol):
    """The image that a broker has loaded."""

    metadata: MetadataCache


async def forward(services: ForwardServices, context: RequestContext, request: Message, response_class: type[R]) -> R:
    """The controller's answer. While none can be reached the request is sent again, as Kafka does, at most 30 s long.

    REQUEST_TIMED_OUT after that. A request whose connection broke may so be carried out twice; all of them bear it.
    """
    clock = services.ports.clock
    deadline_ms = clock.monotonic_ms() + FORWARD_TIMEOUT_MS
    while True:
        left_ms = deadline_ms - clock.monotonic_ms()
        if left_ms <= 0:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"No controller answered within {FORWARD_TIMEOUT_MS} ms")
        try:
            response = await services.controller_channel.send(request, context.api_version, timeout_ms=left_ms)
        except KafkaError as error:
            if error.code not in _TRY_AGAIN:
                raise
        else:
            if not is_from_standby(response):
                return cast(R, response)
        await tasks.sleep_ms(RETRY_PAUSE_MS)


async def carried_out(
    services: CommandServices,
    name: str,
    command: Callable[[MetadataImage], ControllerResult[R]],
    *,
    by_worker: bool = False,
) -> R:
    """A command's response on the node that has the controller; see `Controller.submit`."""
    controller = services.controller
    if controller is None:
        raise KafkaError(ErrorCode.NOT_CONTROLLER, f"Node {services.node_id} has no controller role")
    return await controller.submit(name, command, by_worker=by_worker)


def image_of(services: ImageServices, context: RequestContext) -> MetadataImage:
    """The image that a listener answers from: the controller's own, or what this broker has loaded."""
    return image_of_kind(services, context.listener_kind)


def image_of_kind(services: ImageServices, kind: ListenerKind) -> MetadataImage:
    """The same by the kind of listener."""
    if kind == "controller" and services.controller is not None:
        return services.controller.image
    return services.metadata.image


async def caught_up(services: ForwardingServices, shows: Callable[[MetadataImage], bool]) -> None:
    """Waits, at most CATCH_UP_MS, for this broker's metadata to show a change, so that the client finds it here."""
    await services.metadata.wait_for(shows, CATCH_UP_MS)
