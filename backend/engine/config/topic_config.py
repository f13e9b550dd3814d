"""The settings of a topic, as Kafka's LogConfig and DescribeConfigs list them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from backend.engine.config.broker_config import BROKER_SETTINGS
from backend.engine.config.setting_definition import LONG_MAX, Setting, topic_value
from backend.protocol.config_enums import ConfigType

_HOUR_MS: Final = 3_600_000
_MINUTE_MS: Final = 60_000
# KIP-1030: smaller segments than this are refused (segment.index.bytes makes small ones).
SEGMENT_BYTES_MIN: Final = 1 << 20
# A record batch header and its length field: no smaller segment could hold anything.


def _same(name: str) -> tuple[tuple[str, int], ...]:
    return ((name, 1),)


_SETTINGS: Final = (
    Setting(
        "cleanup.policy", ConfigType.LIST, ("delete",), one_of=("compact", "delete"),
        synonyms=_same("log.cleanup.policy"),
        doc="delete old segments, keep the latest record of each key, or both",
    ),
    Setting("compression.gzip.level", ConfigType.INT, -1, synonyms=_same("compression.gzip.level")),
    Setting("compression.lz4.level", ConfigType.INT, 9, minimum=1, maximum=17, synonyms=_same("compression.lz4.level")),
    Setting(
        "compression.type", ConfigType.STRING, "producer", synonyms=_same("compression.type"),
        one_of=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        doc="final codec of stored batches; producer keeps the producer's",
    ),
    Setting("compression.zstd.level", ConfigType.INT, 3, synonyms=_same("compression.zstd.level")),
    Setting(
        "delete.retention.ms", ConfigType.LONG, 86_400_000, minimum=0,
        synonyms=_same("log.cleaner.delete.retention.ms"),
        doc="how long delete markers of compacted topics stay",
    ),
    Setting(
        "file.delete.delay.ms", ConfigType.LONG, 60_000, minimum=0, synonyms=_same("log.segment.delete.delay.ms"),
        doc="wait before a removed segment's files are deleted",
    ),
    Setting("flush.messages", ConfigType.LONG, LONG_MAX, minimum=1, synonyms=_same("log.flush.interval.messages")),
    Setting(
        "flush.ms", ConfigType.LONG, LONG_MAX, minimum=0,
        synonyms=(("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
    ),
    Setting("follower.replication.throttled.replicas", ConfigType.LIST, ()),
    Setting(
        "index.interval.bytes", ConfigType.INT, 4096, minimum=0, synonyms=_same("log.index.interval.bytes"),
        doc="bytes of log between two index entries",
    ),
    Setting("leader.replication.throttled.replicas", ConfigType.LIST, ()),
    Setting(
        "local.retention.bytes", ConfigType.LONG, -2, minimum=-2, synonyms=_same("log.local.retention.bytes"),
        doc="bytes kept local once tiered; -2 means retention.bytes",
    ),
    Setting(
        "local.retention.ms", ConfigType.LONG, -2, minimum=-2, synonyms=_same("log.local.retention.ms"),
        doc="time kept local once tiered; -2 means retention.ms",
    ),
    Setting(
        "max.compaction.lag.ms", ConfigType.LONG, LONG_MAX, minimum=1,
        synonyms=_same("log.cleaner.max.compaction.lag.ms")
    ),
    Setting(
        "max.message.bytes", ConfigType.INT, 1_048_588, minimum=0, synonyms=_same("message.max.bytes"),
        doc="largest record batch",
    ),
    Setting(
        "message.timestamp.after.max.ms", ConfigType.LONG, 3_600_000, minimum=0,
        synonyms=_same("log.message.timestamp.after.max.ms"),
    ),
    Setting(
        "message.timestamp.before.max.ms", ConfigType.LONG, LONG_MAX, minimum=0,
        synonyms=_same("log.message.timestamp.before.max.ms"),
    ),
    Setting(
        "message.timestamp.type", ConfigType.STRING, "CreateTime", one_of=("CreateTime", "LogAppendTime"),
        synonyms=_same("log.message.timestamp.type"),
    ),
    Setting(
        "min.cleanable.dirty.ratio", ConfigType.DOUBLE, 0.5, minimum=0, maximum=1,
        synonyms=_same("log.cleaner.min.cleanable.ratio"),
    ),
    Setting("min.compaction.lag.ms", ConfigType.LONG, 0, minimum=0,
            synonyms=_same("log.cleaner.min.compaction.lag.ms")),
    Setting(
        "min.insync.replicas", ConfigType.INT, 1, minimum=1, synonyms=_same("min.insync.replicas"),
        doc="in-sync replicas that acks=all needs",
    ),
    Setting("preallocate", ConfigType.BOOLEAN, False, synonyms=_same("log.preallocate")),
    Setting("remote.log.copy.disable", ConfigType.BOOLEAN, False,
            doc="keep what is remote, copy nothing more (KIP-950)"),
    Setting(
        "remote.log.delete.on.disable", ConfigType.BOOLEAN, False,
        doc="drop remote data when remote storage is switched off (KIP-950)",
    ),
    Setting("remote.storage.enable", ConfigType.BOOLEAN, False, doc="tier this topic (KIP-405)"),
    Setting("retention.bytes", ConfigType.LONG, -1, synonyms=_same("log.retention.bytes"),
            doc="bytes kept; -1 is no limit"),
    Setting(
        "retention.ms", ConfigType.LONG, 604_800_000, minimum=-1, doc="time kept; -1 is no limit",
        synonyms=(("log.retention.ms", 1), ("log.retention.minutes", _MINUTE_MS), ("log.retention.hours", _HOUR_MS)),
    ),
    Setting(
        "segment.bytes", ConfigType.INT, 1 << 30, minimum=SEGMENT_BYTES_MIN, synonyms=_same("log.segment.bytes"),
        doc="size at which a segment is closed",
    ),
    Setting(
        "segment.index.bytes", ConfigType.INT, 10 << 20, minimum=4, synonyms=_same("log.index.size.max.bytes"),
        doc="largest offset or time index; a full one closes the segment",
    ),
    Setting(
        "segment.jitter.ms", ConfigType.LONG, 0, minimum=0,
        synonyms=(("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", _HOUR_MS)),
    ),
    Setting(
        "segment.ms", ConfigType.LONG, 604_800_000, minimum=1,
        synonyms=(("log.roll.ms", 1), ("log.roll.hours", _HOUR_MS)),
        doc="age at which a segment is closed",
    ),
    Setting(
        "unclean.leader.election.enable", ConfigType.BOOLEAN, False, synonyms=_same("unclean.leader.election.enable"),
        doc="let a replica outside the ISR lead, at the price of records",
    ),
)  # fmt: skip

TOPIC_SETTINGS: Final[dict[str, Setting]] = {setting.name: setting for setting in _SETTINGS}


def topic_values(
    topic: Mapping[str, str], *, broker: Mapping[str, str], cluster: Mapping[str, str], static: Mapping[str, str]
) -> dict[str, str | None]:
    """The effective text of every topic setting on one broker."""
    return {
        name: topic_value(
            setting, topic=topic, broker=broker, cluster=cluster, static=static, broker_settings=BROKER_SETTINGS
        )
        for name, setting in TOPIC_SETTINGS.items()
    }
