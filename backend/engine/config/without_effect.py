"""Settings of Kafka 4.3.1 that change nothing here: those that this engine takes, and those that it does not have.

The latter stand in `not_served.tsv` (scope in Kafka, name). Such a name is no plug-in's, whose settings are nobody's
business: a start that finds one in the broker's file says so, and no client may set one while brokers run. Settings
that would change what is let in are refused (`security`).
"""

from __future__ import annotations

from importlib.resources import files
from typing import Final

from backend.engine.config.broker_config import BROKER_SETTINGS, BrokerConfig


def _not_served(scope: str) -> frozenset[str]:
    lines = files(__package__).joinpath("not_served.tsv").read_text(encoding="utf-8").splitlines()
    return frozenset(name for its_scope, _, name in (line.partition("\t") for line in lines) if its_scope == scope)


# Whether Kafka lets them be changed while a broker runs.
NOT_SERVED_READ_ONLY: Final = _not_served("read-only")
NOT_SERVED_DYNAMIC: Final = _not_served("dynamic")

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
    return sorted(changed | ((NOT_SERVED_READ_ONLY | NOT_SERVED_DYNAMIC) & config.originals.keys()))
