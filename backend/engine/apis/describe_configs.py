"""DescribeConfigs (32), versions 1-4: settings of topics, groups and of this broker, with where each value comes from.

A broker's settings are described by that broker only, the cluster-wide default by any.
Kafka: `KafkaApis.handleDescribeConfigsRequest`; KIP-133, KIP-226, KIP-569, KIP-714, KIP-848.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, Protocol

from backend.engine.apis.api_declaration import BOTH, Api, RequestContext
from backend.engine.apis.support.broker_loggers import BROKER_LOGGER_RESOURCE, describe_loggers
from backend.engine.apis.support.forwarding import image_of
from backend.engine.apis.support.response_budget import ResponseBudget
from backend.engine.common.topic_names import check_topic_name
from backend.engine.config import (
    BROKER_SETTINGS,
    TOPIC_SETTINGS,
    BrokerConfig,
    ConfigSynonym,
    ResolvedSetting,
    Setting,
    UpdateMode,
    resolve_broker,
    resolve_topic,
)
from backend.engine.config.client_metrics_config import CLIENT_METRICS_SETTINGS, resolve_client_metrics
from backend.engine.config.documentation import SettingKind, documentation_of
from backend.engine.config.group_config import GROUP_SETTINGS, resolve_group
from backend.engine.controller.image.metadata_image import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    CLUSTER_DEFAULT,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    MetadataImage,
)
from backend.engine.controller.metadata.metadata_cache import MetadataCache
from backend.engine.controller.quorum_controller import Controller
from backend.engine.ports.time_slices import Steps
from backend.protocol import messages as m
from backend.protocol.config_enums import ConfigSource, ConfigType
from backend.protocol.errors import ErrorCode, KafkaError

API_KEY: Final = 32

_KINDS: Final[dict[int, SettingKind]] = {
    TOPIC_RESOURCE: "topic",
    BROKER_RESOURCE: "broker",
    GROUP_RESOURCE: "group",
    CLIENT_METRICS_RESOURCE: "client-metrics",
}
_TABLES: Final[dict[SettingKind, dict[str, Setting]]] = {
    "topic": TOPIC_SETTINGS,
    "broker": BROKER_SETTINGS,
    "group": GROUP_SETTINGS,
    "client-metrics": CLIENT_METRICS_SETTINGS,
}

# A setting and a synonym without their texts.
ENTRY_BYTES: Final = 10
# Names that no topic has a setting of are the same question, whatever they are.
NO_SETTING: Final = frozenset({""})

_Result = m.DescribeConfigsResponse.Results
_Config = _Result.Configs


class DescribeConfigsServices(Protocol):
    """The parts of the node that these functions use."""

    node_id: int
    config: BrokerConfig
    metadata: MetadataCache
    controller: Controller | None


def describe_configs(
    services: DescribeConfigsServices, context: RequestContext, request: m.DescribeConfigsRequest
) -> Steps[m.DescribeConfigsResponse]:
    """Each resource on its own; what is asked for more than once in the same way is answered once.

    A topic has some 40 settings, 13 kB with their documentation: 20,000 times the same name would be 269 MB. A group
    need not exist to have settings, 3 kB, so other names can be as many. Raises KafkaError for too large an answer.
    """
    image = image_of(services, context)
    response = m.DescribeConfigsResponse()
    inherited: dict[str, _Config] = {}
    room = ResponseBudget()
    # Of what is inherited, which is nearly everything of many topics.
    sizes: dict[int, int] = {}
    seen: set[tuple[int, str, frozenset[str]]] = set()
    for resource in request.resources:
        yield
        keys = frozenset(resource.configuration_keys or ())
        if keys and resource.resource_type == TOPIC_RESOURCE:
            keys = keys.intersection(TOPIC_SETTINGS) or NO_SETTING
        cache_key = (resource.resource_type, resource.resource_name, keys)
        if cache_key in seen:
            continue
        seen.add(cache_key)
        result = _Result(resource_type=resource.resource_type, resource_name=resource.resource_name, error_message="")
        response.results.append(result)
        names = None if resource.configuration_keys is None else set(resource.configuration_keys)
        try:
            if resource.resource_type == BROKER_LOGGER_RESOURCE:
                loggers = describe_loggers(resource.resource_name, services.node_id)
                result.configs = [level for level in loggers if not names or level.name in names]
                continue
            if resource.resource_type == TOPIC_RESOURCE:
                result.configs = _topic_entries(
                    services, image, resource.resource_name, names or TOPIC_SETTINGS.keys(), request, inherited
                )
                sizes.update((id(entry), _size(entry)) for entry in inherited.values() if id(entry) not in sizes)
                room.reserve(sum(sizes.get(id(entry)) or _size(entry) for entry in result.configs))
                continue
            settings = _settings(services, image, resource.resource_type, resource.resource_name)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
            continue
        result.configs = [
            _entry(_KINDS[resource.resource_type], resolved, read_only, request)
            for resolved, read_only in settings
            if not names or resolved.setting.name in names
        ]
        room.reserve(sum(map(_size, result.configs)))
    return response


def _settings(
    services: DescribeConfigsServices, image: MetadataImage, resource_type: int, name: str
) -> list[tuple[ResolvedSetting, bool]]:
    """Settings of a resource and whether each is read-only. KafkaError when this broker does not describe it."""
    if resource_type == GROUP_RESOURCE:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        return _group_settings(services, image, name)
    if resource_type == CLIENT_METRICS_RESOURCE:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
        own = image.config(CLIENT_METRICS_RESOURCE, name)
        return [(resolve_client_metrics(setting, own), False) for setting in CLIENT_METRICS_SETTINGS.values()]
    if resource_type != BROKER_RESOURCE:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {resource_type}")
    if name == CLUSTER_DEFAULT:
        return _cluster_settings(image.config(BROKER_RESOURCE, CLUSTER_DEFAULT))
    if name != str(services.node_id):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {services.node_id} or empty string, but received {name}",
        )
    return _broker_settings(services, image)


def _topic_entries(
    services: DescribeConfigsServices,
    image: MetadataImage,
    name: str,
    names: Collection[str],
    request: m.DescribeConfigsRequest,
    inherited: dict[str, _Config],
) -> list[_Config]:
    """A topic's settings of the names. KafkaError when there is no such topic.

    `inherited` keeps the values that a topic inherits, which all topics of one request share: of a thousand topics
    nearly every setting is inherited.
    """
    check_topic_name(name)
    if name not in image.topic_ids:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    own = image.topic_config(name)
    entries = []
    for setting in TOPIC_SETTINGS.values():
        if setting.name not in names:
            continue
        entry = None if setting.name in own else inherited.get(setting.name)
        if entry is None:
            resolved = resolve_topic(
                setting,
                topic=own,
                broker=image.config(BROKER_RESOURCE, str(services.node_id)),
                cluster=image.config(BROKER_RESOURCE, CLUSTER_DEFAULT),
                static=services.config.originals,
                broker_settings=BROKER_SETTINGS,
            )
            entry = _entry("topic", resolved, False, request)
            if setting.name not in own:
                inherited[setting.name] = entry
        entries.append(entry)
    return entries


def _group_settings(
    services: DescribeConfigsServices, image: MetadataImage, name: str
) -> list[tuple[ResolvedSetting, bool]]:
    """A group need not exist to have settings."""
    return [
        (
            resolve_group(
                setting,
                group=image.config(GROUP_RESOURCE, name),
                broker=image.config(BROKER_RESOURCE, str(services.node_id)),
                cluster=image.config(BROKER_RESOURCE, CLUSTER_DEFAULT),
                static=services.config.originals,
            ),
            False,
        )
        for setting in GROUP_SETTINGS.values()
    ]


def _broker_settings(services: DescribeConfigsServices, image: MetadataImage) -> list[tuple[ResolvedSetting, bool]]:
    own = image.config(BROKER_RESOURCE, str(services.node_id))
    cluster = image.config(BROKER_RESOURCE, CLUSTER_DEFAULT)
    static = services.config.originals
    settings = {
        **BROKER_SETTINGS,
        **{name: _unknown(name) for name in (*static, *cluster, *own) if name not in BROKER_SETTINGS},
    }
    return [
        (
            resolve_broker(setting, broker=own, cluster=cluster, static=static),
            setting.scope is UpdateMode.READ_ONLY and setting.name in BROKER_SETTINGS,
        )
        for _, setting in sorted(settings.items())
    ]


def _cluster_settings(cluster: Mapping[str, str]) -> list[tuple[ResolvedSetting, bool]]:
    """Only what has been set cluster-wide."""
    settings = []
    for name, value in sorted(cluster.items()):
        place = ConfigSynonym(name, value, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
        setting = BROKER_SETTINGS.get(name) or _unknown(name)
        settings.append((ResolvedSetting(setting, value, place.source, (place,)), False))
    return settings


def _unknown(name: str) -> Setting:
    # A plug-in's setting: its text may be a secret, and is treated as one, as in Kafka.
    return Setting(name, ConfigType.PASSWORD, None)


def _entry(kind: SettingKind, resolved: ResolvedSetting, read_only: bool, request: m.DescribeConfigsRequest) -> _Config:
    setting = resolved.setting
    has_type = setting.name in _TABLES[kind]
    hidden = setting.sensitive
    return _Config(
        name=setting.name,
        value=None if hidden else resolved.value,
        read_only=read_only,
        config_source=resolved.source,
        is_sensitive=hidden,
        synonyms=[
            _Config.Synonyms(name=synonym.name, value=None if hidden else synonym.value, source=synonym.source)
            for synonym in (resolved.synonyms if request.include_synonyms else ())
        ],
        config_type=setting.type if has_type else ConfigType.UNKNOWN,
        documentation=documentation_of(kind, setting) if request.include_documentation else None,
    )


def _size(entry: _Config) -> int:
    """About as many bytes as it is answered with."""
    size = ENTRY_BYTES + len(entry.name) + len(entry.value or "") + len(entry.documentation or "")
    for synonym in entry.synonyms:
        size += ENTRY_BYTES + len(synonym.name) + len(synonym.value or "")
    return size


def on_error(request: m.DescribeConfigsRequest, version: int, code: int, message: str) -> m.DescribeConfigsResponse:
    """Every resource with the error."""
    return m.DescribeConfigsResponse(
        results=[
            _Result(
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                error_code=code,
                error_message=message,
            )
            for resource in request.resources
        ]
    )


APIS: Final = (Api(API_KEY, 1, 4, describe_configs, BOTH, on_error=on_error),)
