"""Settings of Kafka that this engine takes and that change nothing here."""

from __future__ import annotations

from typing import Final

from backend.engine.config.broker_config import BROKER_SETTINGS, BrokerConfig
from backend.engine.config.not_served import DYNAMIC, READ_ONLY

# Kafka's settings that are checked, kept and shown, and that nothing reads yet.
WITHOUT_EFFECT: Final = frozenset(
    {
        "background.threads",
        "controller.quorum.append.linger.ms",
        "controller.quorum.retry.backoff.ms",
        "controller.socket.timeout.ms",
        "log.dir.failure.timeout.ms",
        "metadata.max.idle.interval.ms",
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "num.replica.fetchers",
        "offsets.load.buffer.size",
        "queued.max.requests",
        "remote.log.metadata.manager.class.path",
        "remote.log.storage.manager.class.path",
        "ssl.protocol",
    }
)


def set_without_effect(config: BrokerConfig) -> list[str]:
    """Names that somebody set for nothing; of those that are shown only where the value is not the default."""
    changed = {
        name
        for name in WITHOUT_EFFECT & config.originals.keys()
        if getattr(config, name.replace(".", "_")) != BROKER_SETTINGS[name].default
    }
    return sorted(changed | ((READ_ONLY | DYNAMIC) & config.originals.keys()))
