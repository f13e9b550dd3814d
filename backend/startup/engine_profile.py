"""Broker settings of the embedded cluster: fast enough that tiering can be watched.

Kafka's own intervals (30 s, 5 min) would show nothing for minutes. `ebbline broker` keeps
Kafka's defaults.
"""

from __future__ import annotations

from typing import Final

EMBEDDED_SETTINGS: Final = {
    "remote.log.storage.system.enable": "true",
    "remote.log.metadata.manager.listener.name": "PLAINTEXT",
    "remote.log.manager.task.interval.ms": "1000",
    # After an outage of the remote storage nobody watches a copy wait for 30 s.
    "remote.log.manager.task.retry.backoff.max.ms": "5000",
    "remote.partition.remover.task.interval.ms": "5000",
    "log.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "500",
    "group.initial.rebalance.delay.ms": "500",
    # Its nodes share a machine, where a leader may have to wait for its turn longer than Kafka's 2 s when much is
    # created at once. One that has ended is noticed at once, by its closed port.
    "controller.quorum.fetch.timeout.ms": "6000",
    # Its metadata topic is its own: what it does not know was deleted, and came from nowhere else.
    "ebbline.delete.vanished.topics": "true",
    # Its 150 replicas take 0.4 s of CPU on one loop, which the first clients have unless a topic is tiered at once.
    "rlmm.config.ebbline.remote.log.metadata.topic.creation.delay.ms": "500",
}
# Of three one may be away while two are in sync.
BROKERS_FOR_TWO_COPIES: Final = 3


def embedded_settings(remote_location: str, brokers: int) -> dict[str, str]:
    """Kafka properties for every broker of `ebbline up`; ``remote_location`` is a folder or an obstore URL.

    With three brokers or more a record that acks=all has acknowledged is on two disks, in topics without their own
    `min.insync.replicas` too: one disk may be lost. With two, one broker away would stop every writer.
    """
    key = "rsm.config.url" if "://" in remote_location else "rsm.config.dir"
    safe = {"min.insync.replicas": "2"} if brokers >= BROKERS_FOR_TWO_COPIES else {}
    return EMBEDDED_SETTINGS | safe | {key: remote_location}
