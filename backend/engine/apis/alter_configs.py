"""IncrementalAlterConfigs (44), versions 0-1, and AlterConfigs (33), versions 0-2 (KIP-133, KIP-226, KIP-339).

The broker that is asked refuses what only another broker may change and sends the rest on to the controller.
Kafka: `ControllerApis.handleIncrementalAlterConfigs`, `handleLegacyAlterConfigs`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, Protocol, TypeVar

from backend.engine.apis.api_declaration import BROKER, CONTROLLER, Api, RequestContext
from backend.engine.apis.support.broker_loggers import BROKER_LOGGER_RESOURCE, alter_loggers
from backend.engine.apis.support.forwarding import carried_out, caught_up, forward
from backend.engine.common.controller_channel import ControllerChannel
from backend.engine.config import BrokerConfig, ConfigError
from backend.engine.config.listener_security import has_tls, is_store_setting, tls_settings, with_stores
from backend.engine.config.listeners import broker_listeners
from backend.engine.controller.commands.config.configuration_control import (
    DELETE,
    SET,
    alter_configs,
    incremental_alter_configs,
)
from backend.engine.controller.image.metadata_image import BROKER_RESOURCE, CLUSTER_DEFAULT, MetadataImage
from backend.engine.controller.metadata.metadata_cache import MetadataCache
from backend.engine.controller.quorum_controller import Controller
from backend.engine.ports import Ports
from backend.engine.ports.tls import ServerTls, TlsSettingsError
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError

INCREMENTAL_KEY: Final = 44
WHOLE_KEY: Final = 33

A = TypeVar("A")
_Incremental = m.IncrementalAlterConfigsRequest.Resources
_Whole = m.AlterConfigsRequest.Resources
# Error code and message of what needs no controller, by place in the request.
_Refusals = dict[int, tuple[ErrorCode, str | None]]


def refusal(resource: _Incremental | _Whole, node_id: int) -> str | None:
    """Why this broker may not pass a change on, in Kafka's words, or None (validateResourceNameIsCurrentNodeId)."""
    name = resource.resource_name
    if resource.resource_type != BROKER_RESOURCE or name == CLUSTER_DEFAULT:
        return None
    if not name.isdecimal():
        return f"Node id must be an integer, but it is: {name}"
    if int(name) != node_id:
        return f"Unexpected broker id, expected {node_id}, but received {name}"
    return None


def _refusals(resources: Sequence[_Incremental | _Whole], node_id: int) -> _Refusals:
    refusals = ((index, refusal(resource, node_id)) for index, resource in enumerate(resources))
    return {index: (ErrorCode.INVALID_REQUEST, text) for index, text in refusals if text is not None}


class AlterConfigsServices(Protocol):
    """The parts of the node that these functions use."""

    node_id: int
    config: BrokerConfig
    ports: Ports
    metadata: MetadataCache
    controller_channel: ControllerChannel
    controller: Controller | None


def _unusable_stores(services: AlterConfigsServices, after: Mapping[str, str]) -> str | None:
    """Why this broker's listeners could not use such key and trust stores; only the broker itself has the files."""
    for address in broker_listeners(services.config):
        if not has_tls(address.security_protocol):
            continue
        try:
            made = tls_settings(with_stores(services.config, after), address.name, address.security_protocol)
            ServerTls(made)
        except (ConfigError, TlsSettingsError) as error:
            return str(error)
    return None


def _store_refusals(
    services: AlterConfigsServices, resources: Sequence[_Incremental | _Whole], *, whole: bool
) -> _Refusals:
    refusals: _Refusals = {}
    for index, resource in enumerate(resources):
        if resource.resource_type != BROKER_RESOURCE or resource.resource_name != str(services.node_id):
            continue
        current = dict(services.metadata.image.config(BROKER_RESOURCE, resource.resource_name))
        if not any(is_store_setting(name) for name in (*current, *(config.name for config in resource.configs))):
            continue
        after = {} if whole else current
        for config in resource.configs:
            if config.value is None:
                after.pop(config.name, None)
            else:
                after[config.name] = config.value
        if (reason := _unusable_stores(services, after)) is not None:
            refusals[index] = (ErrorCode.INVALID_REQUEST, reason)
    return refusals


def _logger_changes(request: m.IncrementalAlterConfigsRequest, node_id: int) -> _Refusals:
    """Carries out what is about log levels, which only this broker can."""
    settled: _Refusals = {}
    for index, resource in enumerate(request.resources):
        if resource.resource_type != BROKER_LOGGER_RESOURCE:
            continue
        try:
            alter_loggers(resource.resource_name, node_id, resource.configs, validate_only=request.validate_only)
        except KafkaError as error:
            settled[index] = (error.code, error.message)
        else:
            settled[index] = (ErrorCode.NONE, None)
    return settled


def _in_order(
    resources: Sequence[_Incremental | _Whole],
    settled: _Refusals,
    controller_results: Sequence[A],
    make_result: Callable[..., A],
) -> list[A]:
    """The controller's results and those of this broker, in the order of the request."""
    results = iter(controller_results)
    return [
        make_result(
            error_code=settled[index][0],
            error_message=settled[index][1],
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        if index in settled
        else next(results)
        for index, resource in enumerate(resources)
    ]


async def incremental_on_broker(
    services: AlterConfigsServices, context: RequestContext, request: m.IncrementalAlterConfigsRequest
) -> m.IncrementalAlterConfigsResponse:
    """The controller's answers and this broker's refusals; then this broker knows the new values."""
    refused = _refusals(request.resources, services.node_id) | _logger_changes(request, services.node_id)
    refused |= _store_refusals(services, request.resources, whole=False)
    passed_on = [resource for index, resource in enumerate(request.resources) if index not in refused]
    response = m.IncrementalAlterConfigsResponse()
    if passed_on:
        smaller = m.IncrementalAlterConfigsRequest(resources=passed_on, validate_only=request.validate_only)
        response = await forward(services, context, smaller, m.IncrementalAlterConfigsResponse)
        if not request.validate_only:
            await caught_up(services, _shows(smaller, response))
    response.responses = _in_order(
        request.resources, refused, response.responses, m.IncrementalAlterConfigsResponse.Responses
    )
    return response


def _shows(
    request: m.IncrementalAlterConfigsRequest, response: m.IncrementalAlterConfigsResponse
) -> Callable[[MetadataImage], bool]:
    expected: list[tuple[int, str, str, str | None]] = []
    for resource, result in zip(request.resources, response.responses, strict=False):
        if not result.error_code:
            for config in resource.configs:
                if config.config_operation in (SET, DELETE):
                    value = config.value if config.config_operation == SET else None
                    expected.append((resource.resource_type, resource.resource_name, config.name, value))
    return lambda image: all(image.config(kind, name).get(key) == value for kind, name, key, value in expected)


async def whole_on_broker(
    services: AlterConfigsServices, context: RequestContext, request: m.AlterConfigsRequest
) -> m.AlterConfigsResponse:
    """The same for the older request."""
    refused = _refusals(request.resources, services.node_id)
    refused |= _store_refusals(services, request.resources, whole=True)
    passed_on = [resource for index, resource in enumerate(request.resources) if index not in refused]
    response = m.AlterConfigsResponse()
    if passed_on:
        smaller = m.AlterConfigsRequest(resources=passed_on, validate_only=request.validate_only)
        response = await forward(services, context, smaller, m.AlterConfigsResponse)
    response.responses = _in_order(request.resources, refused, response.responses, m.AlterConfigsResponse.Responses)
    return response


async def incremental_on_controller(
    services: AlterConfigsServices, context: RequestContext, request: m.IncrementalAlterConfigsRequest
) -> m.IncrementalAlterConfigsResponse:
    """See `controller.commands.config.configuration_control`."""
    command = partial(incremental_alter_configs, request=request, config=services.config)
    return await carried_out(services, "alter configs", command, by_worker=True)


async def whole_on_controller(
    services: AlterConfigsServices, context: RequestContext, request: m.AlterConfigsRequest
) -> m.AlterConfigsResponse:
    """See `controller.commands.config.configuration_control`."""
    return await carried_out(
        services, "alter configs", partial(alter_configs, request=request, config=services.config), by_worker=True
    )


def _all_refused(
    resources: Sequence[_Incremental | _Whole], code: int, message: str, make_result: Callable[..., A]
) -> list[A]:
    return [
        make_result(
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            error_code=code,
            error_message=message,
        )
        for resource in resources
    ]


def incremental_on_error(
    request: m.IncrementalAlterConfigsRequest, version: int, code: int, message: str
) -> m.IncrementalAlterConfigsResponse:
    """Every resource with the error."""
    response = m.IncrementalAlterConfigsResponse
    return response(responses=_all_refused(request.resources, code, message, response.Responses))


def whole_on_error(request: m.AlterConfigsRequest, version: int, code: int, message: str) -> m.AlterConfigsResponse:
    """Every resource with the error."""
    response = m.AlterConfigsResponse
    return response(responses=_all_refused(request.resources, code, message, response.Responses))


APIS: Final = (
    Api(INCREMENTAL_KEY, 0, 1, incremental_on_broker, BROKER, on_error=incremental_on_error),
    Api(INCREMENTAL_KEY, 0, 1, incremental_on_controller, CONTROLLER, on_error=incremental_on_error),
    Api(WHOLE_KEY, 0, 2, whole_on_broker, BROKER, on_error=whole_on_error),
    Api(WHOLE_KEY, 0, 2, whole_on_controller, CONTROLLER, on_error=whole_on_error),
)
