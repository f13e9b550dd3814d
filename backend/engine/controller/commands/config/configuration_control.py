"""Dynamic settings of topics, brokers, groups and subscriptions to clients' metrics → ConfigRecord.

IncrementalAlterConfigs (KIP-339) and AlterConfigs.

Errors of a resource stand in its own answer: 40 for a topic's setting, 42 for a broker's, 3 for an unknown topic. That
a request for one broker must go through that very broker is checked there (`apis.alter_configs`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from backend.engine.common.topic_names import check_topic_name
from backend.engine.config import BROKER_SETTINGS, TOPIC_SETTINGS, BrokerConfig
from backend.engine.controller.commands.command import ControllerResult, checked_result
from backend.engine.controller.commands.config.broker_settings import check_broker_settings
from backend.engine.controller.commands.config.min_isr import check_min_isr, min_isr_changes
from backend.engine.controller.commands.config.resource_settings import check_client_metrics, check_group
from backend.engine.controller.commands.config.topic_settings import check_topic_settings, resolved_topic_settings
from backend.engine.controller.image.metadata_image import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    CLUSTER_DEFAULT,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    MetadataImage,
)
from backend.protocol import messages as m
from backend.protocol.config_enums import ConfigType
from backend.protocol.errors import ErrorCode, KafkaError
from backend.protocol.messages import Message

SET: Final = 0
DELETE: Final = 1
APPEND: Final = 2
SUBTRACT: Final = 3

_APPENDABLE: Final = {TOPIC_RESOURCE: TOPIC_SETTINGS, BROKER_RESOURCE: BROKER_SETTINGS}

# (operation, value) by name of the setting.
ConfigOperations = Mapping[str, tuple[int, str | None]]


def incremental_alter_configs(
    image: MetadataImage, request: m.IncrementalAlterConfigsRequest, config: BrokerConfig
) -> ControllerResult[m.IncrementalAlterConfigsResponse]:
    """Each resource on its own: all of its changes or none."""
    records: list[Message] = []
    response = m.IncrementalAlterConfigsResponse()
    times = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)
    for resource in request.resources:
        result = m.IncrementalAlterConfigsResponse.Responses(
            resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=None
        )
        response.responses.append(result)
        try:
            if times[resource.resource_type, resource.resource_name] > 1:
                raise _bad_request("Each resource must appear at most once.")
            changed = operations(resource.configs)
            check_resource(image, resource.resource_type, resource.resource_name)
            changes = alter_resource(image, config, resource.resource_type, resource.resource_name, changed)
            records += [*changes, *min_isr_changes(image, config, changes)]
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
    return checked_result([] if request.validate_only else records, response)


def operations(configs: list[m.IncrementalAlterConfigsRequest.Resources.Configs]) -> ConfigOperations:
    """The changes by name; KafkaError when they are not well formed."""
    names = Counter(config.name for config in configs)
    if twice := [name for name, count in names.items() if count > 1]:
        raise _bad_request(f"Error due to duplicate config keys: {','.join(twice)}")
    if empty := [config.name for config in configs if config.config_operation != DELETE and config.value is None]:
        raise _bad_request(f"Null value not supported for : {','.join(empty)}")
    for config in configs:
        if config.config_operation not in (SET, DELETE, APPEND, SUBTRACT):
            raise _bad_request(f"Unknown config operation {config.config_operation} for {config.name}")
    return {config.name: (config.config_operation, config.value) for config in configs}


def alter_configs(
    image: MetadataImage, request: m.AlterConfigsRequest, config: BrokerConfig
) -> ControllerResult[m.AlterConfigsResponse]:
    """The older request: what a resource does not name is deleted."""
    records: list[Message] = []
    response = m.AlterConfigsResponse()
    times = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)
    for resource in request.resources:
        result = m.AlterConfigsResponse.Responses(
            resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=None
        )
        response.responses.append(result)
        try:
            if times[resource.resource_type, resource.resource_name] > 1:
                raise _bad_request("Each resource must appear at most once.")
            check_resource(image, resource.resource_type, resource.resource_name)
            current = image.config(resource.resource_type, resource.resource_name)
            operations: dict[str, tuple[int, str | None]] = dict.fromkeys(current, (DELETE, None))
            for setting in resource.configs:
                if setting.value is None:
                    raise _bad_request(f"Null value not supported for : {setting.name}")
                operations[setting.name] = (SET, setting.value)
            changes = alter_resource(image, config, resource.resource_type, resource.resource_name, operations)
            records += [*changes, *min_isr_changes(image, config, changes)]
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
    return checked_result([] if request.validate_only else records, response)


def check_resource(image: MetadataImage, resource_type: int, name: str) -> None:
    """KafkaError unless the resource can have dynamic settings and exists."""
    if resource_type == TOPIC_RESOURCE:
        if not name:
            raise _bad_request("Default topic resources are not allowed.")
        check_topic_name(name)
        if name not in image.topic_ids:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    elif resource_type == BROKER_RESOURCE:
        if name == CLUSTER_DEFAULT:
            return
        if not name.isdecimal():
            raise _bad_request("Unable to parse broker name as a base 10 number.")
        if int(name) not in image.brokers:
            raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No broker with id {name} found.")
    elif resource_type == GROUP_RESOURCE:
        if not name:
            raise _bad_request("Default group resources are not allowed.")
    elif resource_type == CLIENT_METRICS_RESOURCE:
        if not name:
            raise _bad_request("Subscription name can't be empty")
    else:
        raise _bad_request(f"Unknown resource type {resource_type}")


def alter_resource(
    image: MetadataImage, config: BrokerConfig, resource_type: int, name: str, operations: ConfigOperations
) -> list[m.ConfigRecord]:
    """ConfigRecords that carry out the operations on one resource; KafkaError when they may not stand."""
    current = image.config(resource_type, name)
    changes: dict[str, str | None] = {
        setting: _value_after(image, config, resource_type, setting, current.get(setting), operation, value)
        for setting, (operation, value) in operations.items()
    }
    if resource_type == BROKER_RESOURCE:
        check_broker_settings(image, config, name, changes)
        check_min_isr(image, name, changes)
    else:
        # An unchanged value gives no record, except a broker's: setting it again reloads it (KAFKA-14136).
        changes = {setting: value for setting, value in changes.items() if value != current.get(setting)}
        merged = {**current, **changes}
        after = {setting: value for setting, value in merged.items() if value is not None}
        if resource_type == TOPIC_RESOURCE:
            check_topic_settings(image, config, before=current, after=after)
        elif resource_type == GROUP_RESOURCE:
            check_group(config, after)
        else:
            check_client_metrics(after)
    return [
        m.ConfigRecord(resource_type=resource_type, resource_name=name, name=setting, value=value)
        for setting, value in changes.items()
    ]


def _value_after(
    image: MetadataImage,
    config: BrokerConfig,
    resource_type: int,
    name: str,
    current: str | None,
    operation: int,
    value: str | None,
) -> str | None:
    if operation == DELETE:
        return None
    if operation == SET:
        return value
    verb = "APPEND" if operation == APPEND else "SUBTRACT"
    # Kafka keeps no types of the other resources' settings where this is decided.
    setting = _APPENDABLE.get(resource_type, {}).get(name)
    if setting is None or setting.type is not ConfigType.LIST:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Can't {verb} to key {name} because its type is not LIST.")
    if current is None:
        current = (
            resolved_topic_settings(image, config, {})[name].value
            if resource_type == TOPIC_RESOURCE
            else setting.text(setting.default)
        )
    parts = [part for part in (current or "").split(",") if part]
    for part in (value or "").split(","):
        if operation == APPEND and part not in parts:
            parts.append(part)
        elif operation == SUBTRACT and part in parts:
            parts.remove(part)
    return ",".join(parts)


def _bad_request(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
