"""Operations on leaders and replica lists, and the moves of another tool."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from tests.incidents.rigs import cluster_requests as requests
from tests.incidents.rigs.cluster_clients import ClusterClients
from tests.incidents.rigs.cluster_requests import Partition
from tests.waiting import wait_until

MOVE_S: Final = 180.0
ALL_REPLICAS: Final = "*"
THROTTLED_BROKERS: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
THROTTLED_TOPICS: Final = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


class LeaderOperations(ClusterClients):
    """Replica lists are reordered with the same members, so that no data moves."""

    def __init__(self) -> None:
        super().__init__()
        self._lists: dict[Partition, list[int]] = {}

    def rotate_leaders(self) -> None:
        self._reorder(lambda brokers: [*brokers[1:], brokers[0]])

    def prefer_others(self, *, broker: int) -> None:
        def last(brokers: list[int]) -> list[int]:
            return sorted(brokers, key=lambda replica: (replica == broker, brokers.index(replica)))

        self._reorder(last)

    def _reorder(self, change: Callable[[list[int]], list[int]]) -> None:
        port = self.live_port()
        lists = requests.replica_lists(port)
        self._lists = self._lists or lists
        changed = {
            partition: new for partition, brokers in lists.items() if (new := change(list(brokers))) != list(brokers)
        }
        self._apply(port, changed)

    def _apply(self, port: int, lists: Mapping[Partition, Sequence[int]]) -> None:
        if lists:
            requests.reassign(port, lists)
            wait_until("all replica lists are as asked for", lambda: not requests.moving(port), MOVE_S)
        self.elect_preferred()

    def restore_leaders(self) -> None:
        port = self.live_port()
        lists = requests.replica_lists(port)
        self._apply(port, {at: was for at, was in self._lists.items() if at in lists and lists[at] != was})
        self._lists = {}

    def elect_preferred(self) -> None:
        port = self.live_port()

        def elected() -> bool:
            lists = requests.replica_lists(port)
            leaders = requests.leaders(port)
            # A topic that is deleted meanwhile is in one of them only.
            others = [at for at, brokers in lists.items() if leaders.get(at, brokers[0]) != brokers[0]]
            if others:
                # One that is not in sync yet is refused.
                with suppress(requests.RefusedRequest):
                    requests.elect(port, requests.PREFERRED, others)
            return not others

        wait_until("preferred leaders lead", elected, MOVE_S)

    def elect_unclean(self, *, topic: str, partition: int) -> None:
        requests.elect(self.live_port(), requests.UNCLEAN, [(topic, partition)])

    def set_replication(self, *, topic: str, factor: int) -> None:
        brokers = sorted(self.ports)
        port = self.live_port()
        lists = {}
        for at, replicas in requests.replica_lists(port, [topic]).items():
            others = [broker for broker in brokers if broker not in replicas]
            lists[at] = [*replicas, *others][:factor]
        requests.reassign(port, lists)
        wait_until(f"{topic} has {factor} replicas", lambda: not requests.moving(port), MOVE_S)

    def reassign(self, *, topic: str, replicas: Sequence[Sequence[int]], throttle: int) -> None:
        for broker, port in self.ports.items():
            self._alter(port, requests.BROKER, str(broker), dict.fromkeys(THROTTLED_BROKERS, str(throttle)))
        port = self.live_port()
        self._alter(port, requests.TOPIC, topic, dict.fromkeys(THROTTLED_TOPICS, ALL_REPLICAS))
        before = requests.replica_lists(port, [topic])
        lists = {(topic, number): list(brokers) for number, brokers in enumerate(replicas)}
        requests.reassign(port, {at: brokers for at, brokers in lists.items() if before[at] != brokers})

    def _alter(self, port: int, kind: int, name: str, settings: Mapping[str, str]) -> None:
        requests.alter_configs(port, kind, name, settings)
        self.altered |= {(kind, name, setting) for setting in settings}

    def cancel_move(self, *, topic: str) -> None:
        port = self.live_port()
        requests.reassign(port, {at: None for at in requests.moving(port) if at[0] == topic})

    def wait_moved(self, *, topic: str) -> None:
        port = self.live_port()
        wait_until(f"{topic} has moved", lambda: topic not in {at[0] for at in requests.moving(port)}, MOVE_S)
