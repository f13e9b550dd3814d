"""The fetchers of one broker, one per leader broker that it follows (Kafka's `ReplicaFetcherManager`)."""

from __future__ import annotations

from collections.abc import Iterable

from backend.engine.config.listeners import inter_broker_listener_name
from backend.engine.controller.image.metadata_image import NO_LEADER
from backend.engine.ports import tasks
from backend.engine.replica.fetchers.fetch_state import FetchState
from backend.engine.replica.fetchers.leader_end_point import ConnectToLeader
from backend.engine.replica.fetchers.replica_fetcher import ReplicaFetcher
from backend.engine.replica.partition import Partition
from backend.engine.replica.partition_context import PartitionContext
from backend.tiering.ids import TopicIdPartition


class ReplicaFetcherManager:
    """Starts a fetcher with the first partition of a leader; `stop_idle` stops those that have none left."""

    def __init__(self, context: PartitionContext, connect: ConnectToLeader) -> None:
        self._context = context
        self._connect = connect
        self._listener = inter_broker_listener_name(context.metadata.config)
        self._fetchers: dict[int, ReplicaFetcher] = {}
        self._stopping: set[tasks.Task[None]] = set()

    def add_partition(self, partition: Partition) -> None:
        """Fetches the partition from its leader; a partition that is fetched already begins again. Without a leader, or
        with one whose address is unknown, the partition is not fetched.
        """
        self._remove(partition.topic_id_partition, except_leader=partition.leader)
        address = self._address_of(partition.leader)
        if address is None:
            self._remove(partition.topic_id_partition)
            return
        fetcher = self._fetchers.get(partition.leader)
        if fetcher is None:
            fetcher = ReplicaFetcher(self._context, partition.leader, address, self._connect)
            self._fetchers[partition.leader] = fetcher
            fetcher.start()
        fetcher.add(partition)

    def remove_partition(self, tip: TopicIdPartition) -> None:
        """Fetches the partition no longer."""
        self._remove(tip)

    def _remove(self, tip: TopicIdPartition, *, except_leader: int = NO_LEADER) -> None:
        for leader, fetcher in self._fetchers.items():
            if leader != except_leader:
                fetcher.remove(tip)

    def note_isr(self, partition: Partition) -> None:
        """Metadata changed the ISR of a followed partition."""
        fetcher = self._fetchers.get(partition.leader)
        if fetcher is not None:
            fetcher.note_isr(partition.topic_id_partition)

    def state_of(self, tip: TopicIdPartition) -> FetchState | None:
        """The state of a followed partition; None when it is not followed."""
        for fetcher in self._fetchers.values():
            state = fetcher.state_of(tip)
            if state is not None:
                return state
        return None

    def max_lag(self) -> int:
        """The largest lag of a followed partition, in records."""
        return max((fetcher.max_lag() for fetcher in list(self._fetchers.values())), default=0)

    def reconnect(self, partitions: Iterable[Partition]) -> None:
        """Brokers have registered again: leaders that have moved or come back are fetched from at their new address."""
        for leader, fetcher in list(self._fetchers.items()):
            if self._address_of(leader) != fetcher.address:
                self._stop_fetcher(leader)
        reached = frozenset(self._fetchers)
        for partition in partitions:
            if not partition.is_leader and partition.leader != NO_LEADER and partition.leader not in reached:
                self.add_partition(partition)

    def stop_idle(self) -> None:
        """Ends fetchers that have nothing left to fetch."""
        for leader, fetcher in list(self._fetchers.items()):
            if fetcher.is_empty:
                self._stop_fetcher(leader)

    def _stop_fetcher(self, leader: int) -> None:
        task = tasks.spawn(self._fetchers.pop(leader).stop(), name=f"stop of the fetcher from broker {leader}")
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)

    def _address_of(self, broker_id: int) -> tuple[str, int] | None:
        broker = self._context.metadata.image.broker(broker_id)
        endpoint = None if broker is None else broker.endpoint(self._listener)
        return None if endpoint is None else (endpoint.host, endpoint.port)

    async def shutdown(self) -> None:
        """Follows nothing any more."""
        for leader in list(self._fetchers):
            self._stop_fetcher(leader)
        await tasks.gather_settled(list(self._stopping))
