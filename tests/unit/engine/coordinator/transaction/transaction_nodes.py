"""Brokers with transaction and group coordinators on real logs, in a time that jumps to whatever is due next."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import GeneratorType
from typing import Any, Final

from backend.engine.apis import transactions, transactions_admin, txn_offset_commit, write_txn_markers
from backend.engine.apis.api_declaration import RequestContext
from backend.engine.apis.produce import produce
from backend.engine.controller.image.metadata_image import MetadataImage
from backend.engine.coordinator.group.group_records import coordinator_partition
from backend.engine.coordinator.transaction.transaction_coordinator import TransactionCoordinator
from backend.engine.coordinator.transaction.transaction_records import TRANSACTIONS_TOPIC
from backend.engine.coordinator.transaction.transaction_state import Producer
from backend.protocol import messages as m
from backend.protocol.frames import RequestHeader
from backend.protocol.messages import Message
from backend.protocol.record_batches.record_batch import build_batch
from backend.protocol.record_batches.record_codec import RecordData
from tests.unit.engine.coordinator.group.group_nodes import PARTITIONS, GroupNode, GroupNodes, run_nodes
from tests.unit.engine.replica.nodes import Node, Nodes, through_codec

HANDLERS: Final[dict[int, Callable[..., Any]]] = {
    api.key: api.handler
    for module in (produce, transactions, transactions_admin, txn_offset_commit, write_txn_markers)
    for api in module.APIS
}


class Ids:
    """Producer ids of one cluster, as the controller would give them."""

    def __init__(self) -> None:
        self._next = 1000

    async def next_id(self) -> int:
        self._next += 1
        return self._next


class TransactionNode(GroupNode):
    """A broker that coordinates transactions and groups."""

    def __init__(self, nodes: Nodes, node_id: int, settings: dict[str, str], *, tiered: bool) -> None:
        super().__init__(nodes, node_id, settings, tiered=tiered)
        ids: Any = Ids()
        self.transactions = TransactionCoordinator(
            clock=self.ports.clock,
            replica_manager=self.replicas,
            producer_ids=ids,
            send_to_broker=self.send_to_broker,
            unreadable_records=self.metrics.unreadable_records,
        )
        self.services.transaction_coordinator = self.transactions

    async def start(self) -> None:
        await super().start()
        self.transactions.start()

    async def stop(self) -> None:
        await self.transactions.shutdown()
        await super().stop()

    def publish(self, image: MetadataImage) -> None:
        super().publish(image)
        self.transactions.on_metadata(image)

    async def ask(self, request: Message, version: int, *, client_id: str = "test") -> Any:
        handler = HANDLERS.get(request.API_KEY)
        if handler is None:
            return await super().ask(request, version, client_id=client_id)
        header = RequestHeader(request.API_KEY, version, 1, client_id)
        context = RequestContext(header, 1, "127.0.0.1", "PLAINTEXT", "broker")
        answer = handler(self.services, context, through_codec(request, version))
        if isinstance(answer, GeneratorType):
            answer = await self.services.time_slicer.do(answer)
        if not isinstance(answer, Message):
            answer = await answer
        return through_codec(answer, version)


class TransactionNodes(GroupNodes):
    """Several of them; `__transaction_state` has three partitions."""

    def _node(self, node: int) -> Node:
        return TransactionNode(self, node, self.settings, tiered=False)

    def prepare(self, replicas: list[int]) -> None:
        super().prepare(replicas)
        self.create(TRANSACTIONS_TOPIC, *[replicas] * PARTITIONS, cleanup_policy="compact")

    def node(self, node: int) -> TransactionNode:
        transaction_node = self.nodes[node]
        assert isinstance(transaction_node, TransactionNode)
        return transaction_node

    def coordinator_of(self, transactional_id: str) -> TransactionNode:
        partition = self.play.image.partition(TRANSACTIONS_TOPIC, coordinator_partition(transactional_id, PARTITIONS))
        assert partition is not None
        return self.node(partition.leader)

    def topic_leader(self, topic: str) -> TransactionNode:
        partition = self.play.image.partition(topic, 0)
        assert partition is not None
        return self.node(partition.leader)


def run(
    folder: Path, work: Callable[[TransactionNodes], Coroutine[Any, Any, None]], *, brokers: int = 1, **settings: str
) -> None:
    """Plays with brokers, their internal topics on all of them."""
    run_nodes(TransactionNodes, folder, work, brokers=brokers, **settings)


class Client:
    """A transactional producer of the newest protocol: it keeps the id and the epoch of the last response."""

    def __init__(self, nodes: TransactionNodes, transactional_id: str, *, timeout_ms: int = 60_000) -> None:
        self.nodes, self.transactional_id, self.timeout_ms = nodes, transactional_id, timeout_ms
        self.me = Producer(-1, -1)
        self.sequence = 0

    async def init(self) -> int:
        """The error code, after as many tries as it takes for an earlier transaction to end."""
        for _ in range(50):
            try:
                self.me = await self.nodes.coordinator_of(self.transactional_id).transactions.init_producer(
                    self.transactional_id, self.timeout_ms, None
                )
            except Exception as error:
                code = int(getattr(error, "code", -1))
                if code not in (14, 51):
                    raise
                await asyncio.sleep(0.05)
                continue
            self.sequence = 0
            return 0
        return 51

    async def write(self, topic: str, *values: str, version: int = 12) -> int:
        """The error code of one batch."""
        data = m.ProduceRequest.TopicData
        batch = build_batch(
            [RecordData(1_700_000_000_000, None, value.encode()) for value in values],
            producer_id=self.me.producer_id,
            producer_epoch=self.me.epoch,
            base_sequence=self.sequence,
            transactional=True,
        )
        request = m.ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=5_000,
            topic_data=[data(name=topic, partition_data=[data.PartitionData(index=0, records=bytes(batch))])],
        )
        answer = await self.nodes.topic_leader(topic).ask(request, version)
        code = int(answer.responses[0].partition_responses[0].error_code)
        if code == 0:
            self.sequence += len(values)
        return code

    async def end(self, *, commit: bool, version: int = 5) -> int:
        """The error code; remembers the next epoch."""
        request = m.EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.me.producer_id,
            producer_epoch=self.me.epoch,
            committed=commit,
        )
        answer = await self.nodes.coordinator_of(self.transactional_id).ask(request, version)
        if answer.error_code == 0 and version >= 5:
            self.me, self.sequence = Producer(answer.producer_id, answer.producer_epoch), 0
        return int(answer.error_code)
