"""Operations on settings of topics and brokers, quotas and feature levels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.incidents.rigs import cluster_requests as requests
from tests.incidents.rigs.leader_operations import LeaderOperations

ALL_BROKERS: Final = ""
ELR: Final = "eligible.leader.replicas.version"
# Topics of the rig itself, which no incident makes or deletes.
KEPT_TOPICS: Final = frozenset({"orders", "quiet", "__remote_log_metadata"})
# Settings with which brokers make the metadata topic: what an incident has changed goes back to them.
MADE_WITH: Final = {
    ("__remote_log_metadata", "retention.ms"): "-1",
    ("__remote_log_metadata", "cleanup.policy"): "delete",
}
# The client of the pipeline's reader (spark.reading.open_consumer).
PIPELINE_CLIENT: Final = "ebbline-pipeline-source"


class SettingOperations(LeaderOperations):
    """Settings that are set here are remembered, so that `tidy` finds them."""

    def set_topic(self, *, topic: str, name: str, value: str) -> None:
        self._set(requests.TOPIC, topic, {name: value})

    def set_broker(self, *, broker: int, name: str, value: str) -> None:
        self._set(requests.BROKER, str(broker), {name: value})

    def set_brokers(self, *, name: str, value: str) -> None:
        self._set(requests.BROKER, ALL_BROKERS, {name: value})

    def _set(self, kind: int, resource: str, settings: Mapping[str, str]) -> None:
        self._alter(self._port_for(kind, resource), kind, resource, settings)

    def _port_for(self, kind: int, resource: str) -> int:
        """Settings of one broker are changed by that broker."""
        return self.ports[int(resource)] if kind == requests.BROKER and resource else self.live_port()

    def clear_throttles(self) -> None:
        self.clear_settings("throttled", "alter.log.dirs")

    def clear_settings(self, *parts: str) -> None:
        """Takes away settings that an incident has set; with `parts` only those with one of them in their name."""
        for kind, resource, name in sorted(self.altered):
            if parts and not any(part in name for part in parts):
                continue
            if kind != requests.TOPIC or resource in self.topics or resource in KEPT_TOPICS:
                requests.alter_configs(
                    self._port_for(kind, resource), kind, resource, {name: MADE_WITH.get((resource, name))}
                )
            self.altered.discard((kind, resource, name))

    def tiering_off(self, *, topic: str) -> None:
        port = self.live_port()
        off = {"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"}
        # Neither may be set while tiering is off.
        off_only = dict.fromkeys(("local.retention.bytes", "local.retention.ms"), None)
        requests.alter_configs(port, requests.TOPIC, topic, off | off_only)
        self.written.discard(topic)

    def tiering_on(self, *, topic: str) -> None:
        on = {
            "remote.storage.enable": "true",
            "remote.log.delete.on.disable": None,
            "local.retention.bytes": "2097152",
        }
        requests.alter_configs(self.live_port(), requests.TOPIC, topic, on)

    def set_elr(self, *, level: int) -> None:
        requests.set_feature(self.live_port(), ELR, level, upgrade=level > 0)

    def limit_pipeline(self, *, bytes_per_s: int) -> None:
        requests.limit_client(self.live_port(), PIPELINE_CLIENT, float(bytes_per_s) if bytes_per_s else None)
