"""Whether a topic's settings may stand together, and what they come to (LogConfig.validate)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from backend.engine.config import (
    BROKER_SETTINGS,
    TOPIC_SETTINGS,
    BrokerConfig,
    ConfigError,
    ResolvedSetting,
    resolve_topic,
    topic_values,
)
from backend.engine.controller.commands.cluster_bootstrap import MIN_ISR
from backend.engine.controller.image.metadata_image import BROKER_RESOURCE, CLUSTER_DEFAULT, MetadataImage
from backend.protocol.errors import ErrorCode, KafkaError

REMOTE_STORAGE: Final = "remote.storage.enable"
COPY_DISABLE: Final = "remote.log.copy.disable"
DELETE_ON_DISABLE: Final = "remote.log.delete.on.disable"
# ThrottledReplicaListValidator.
THROTTLED_REPLICAS: Final = frozenset(
    {"follower.replication.throttled.replicas", "leader.replication.throttled.replicas"}
)
_REPLICA_LIST: Final = re.compile(r"\s*(?:\*|\d+:\d+(?:\s*,\s*\d+:\d+)*)?\s*")
# Texts of local.retention.*: the same as retention.*; and of both: no limit.
SAME_AS_TOTAL: Final = "-2"
UNLIMITED: Final = "-1"


def resolved_topic_settings(
    image: MetadataImage, config: BrokerConfig, overrides: Mapping[str, str]
) -> dict[str, ResolvedSetting]:
    """Every topic setting by name, as this node would use it for a topic with these overrides."""
    return {
        name: resolve_topic(
            setting,
            topic=overrides,
            broker=image.config(BROKER_RESOURCE, str(config.id)),
            cluster=image.config(BROKER_RESOURCE, CLUSTER_DEFAULT),
            static=config.originals,
            broker_settings=BROKER_SETTINGS,
        )
        for name, setting in TOPIC_SETTINGS.items()
    }


def topic_setting(image: MetadataImage, config: BrokerConfig, topic: str, name: str) -> str:
    """The effective text of one setting of a topic that exists."""
    resolved = resolve_topic(
        TOPIC_SETTINGS[name],
        topic=image.topic_config(topic),
        broker=image.config(BROKER_RESOURCE, str(config.id)),
        cluster=image.config(BROKER_RESOURCE, CLUSTER_DEFAULT),
        static=config.originals,
        broker_settings=BROKER_SETTINGS,
    )
    return resolved.value or ""


def unclean_election_enabled(image: MetadataImage, config: BrokerConfig, topic: str) -> bool:
    """Whether a replica outside the ISR may lead the topic's partitions."""
    return topic_setting(image, config, topic, "unclean.leader.election.enable") == "true"


def effective_min_isr(image: MetadataImage, config: BrokerConfig, topic: str) -> int:
    """In-sync replicas that a committed record needs: the topic's `min.insync.replicas`, at most its replicas
    (getTopicEffectiveMinIsr)."""
    topic_image = image.topic(topic)
    first = topic_image.partitions.get(0) if topic_image else None
    least = int(topic_setting(image, config, topic, MIN_ISR))
    return least if first is None else min(least, len(first.replicas))


def check_topic_settings(
    image: MetadataImage, config: BrokerConfig, *, before: Mapping[str, str], after: Mapping[str, str]
) -> None:
    """KafkaError INVALID_CONFIG unless the overrides `after` (those now: `before`) are known, well formed and agree."""
    for name, text in after.items():
        setting = TOPIC_SETTINGS.get(name)
        if setting is None:
            raise _invalid(f"Unknown topic config name: {name}")
        try:
            setting.parse(text)
        except ConfigError as error:
            raise _invalid(str(error)) from None
        if name in THROTTLED_REPLICAS and not _REPLICA_LIST.fullmatch(text):
            raise _invalid(
                f"Invalid value {text} for configuration {name}: {name} must be the literal '*' or a list of replicas"
                " in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],..."
            )
    values = topic_values(
        after,
        broker=image.config(BROKER_RESOURCE, str(config.id)),
        cluster=image.config(BROKER_RESOURCE, CLUSTER_DEFAULT),
        static=config.originals,
    )
    effective = {name: value for name, value in values.items() if value is not None}
    _check_compaction_lag(effective)
    if effective.get(REMOTE_STORAGE) == "true":
        _check_tiering(effective, remote_system=config.remote_log_storage_system_enable)
    elif before.get(REMOTE_STORAGE) == "true" and effective.get(DELETE_ON_DISABLE) != "true":
        raise _invalid(
            "It is invalid to disable remote storage without deleting remote data. If you want to keep the remote data"
            " and turn to read only, please set `remote.storage.enable=true,remote.log.copy.disable=true`. If you want"
            " to disable remote storage and delete all remote data, please set"
            " `remote.storage.enable=false,remote.log.delete.on.disable=true`."
        )


def _check_compaction_lag(effective: Mapping[str, str]) -> None:
    low, high = effective["min.compaction.lag.ms"], effective["max.compaction.lag.ms"]
    if int(low) > int(high):
        raise _invalid(f"conflict topic config setting min.compaction.lag.ms ({low}) > max.compaction.lag.ms ({high})")


def _check_tiering(effective: Mapping[str, str], *, remote_system: bool) -> None:
    if not remote_system:
        raise _invalid(
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log"
            " storage."
        )
    if "compact" in effective["cleanup.policy"].split(","):
        raise _invalid(
            "Remote log storage is unsupported for the compacted topics. Valid cleanup.policy: delete, or empty list"
            " (infinite retention)"
        )
    for unit in ("bytes", "ms"):
        _check_local_retention(effective, f"local.retention.{unit}", f"retention.{unit}")
    if effective[COPY_DISABLE] == "true":
        for unit in ("bytes", "ms"):
            if effective[f"local.retention.{unit}"] not in (SAME_AS_TOTAL, effective[f"retention.{unit}"]):
                raise _invalid(
                    "When `remote.log.copy.disable` is set to true, the `local.retention.ms` and `retention.ms` must be"
                    " set to the identical value or `-2`, and so must `local.retention.bytes` and `retention.bytes`"
                    f" (here: local.retention.{unit})."
                )


def _check_local_retention(effective: Mapping[str, str], local_name: str, total_name: str) -> None:
    local, total = effective[local_name], effective[total_name]
    if total == UNLIMITED or local == SAME_AS_TOTAL:
        return
    if local == UNLIMITED:
        raise _invalid(
            f"Invalid value {local} for configuration {local_name}: Value must not be -1 as {total_name} value is set"
            f" as {total}."
        )
    if int(local) > int(total):
        raise _invalid(
            f"Invalid value {local} for configuration {local_name}: Value must not be more than property: {total_name}"
            f" value {total}"
        )


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, message)
