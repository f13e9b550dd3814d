"""Brokers' replica layers joined without sockets: real logs on disk, real handlers, real controller commands.

A request goes through the codec both ways, so what a peer gets is what it would get from a wire. `stop` of a node makes
it unreachable; `Nodes.apply` publishes what a controller command changed to every node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import GeneratorType
from typing import Any, Self, TypeVar, cast

import pytest

from backend.engine.apis import delete_records, list_offsets, offset_for_leader_epoch
from backend.engine.apis.api_declaration import RequestContext
from backend.engine.apis.fetch import fetch
from backend.engine.apis.produce import produce
from backend.engine.apis.services import BrokerServices
from backend.engine.common.event_sink import NullEventSink
from backend.engine.controller.commands.brokers import fence_broker
from backend.engine.controller.commands.command import ControllerResult
from backend.engine.controller.commands.partition.isr_change import alter_partition
from backend.engine.controller.commands.partition.partition_reassignment import alter_partition_reassignments
from backend.engine.controller.image.metadata_image import EMPTY_IMAGE, MetadataImage
from backend.engine.log.log_config import LogManagerConfig
from backend.engine.log.manager.log_manager import LogManager
from backend.engine.metrics import BrokerMetrics
from backend.engine.ports import Ports
from backend.engine.remote.assembly import open_remote_log_manager
from backend.engine.remote.manager.remote_log_manager import RemoteLogManager
from backend.engine.replica.applied_metadata import AppliedMetadata
from backend.engine.replica.partition import Partition
from backend.engine.replica.replica_manager import ReplicaManager
from backend.protocol import codec
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError
from backend.protocol.frames import RequestHeader
from backend.protocol.messages import Message
from backend.protocol.record_batches.record_batch import RecordData, build_batch, iter_batches, iter_records
from tests.conformance.memory_topic import MemoryMetadataTopic, MemoryTopicLog
from tests.unit.engine.controller.clusters import CLUSTER_ID, Play, broker_config
from tests.unit.engine.virtual_time import ports_here, run_virtual

R = TypeVar("R")
M = TypeVar("M", bound=Message)

HANDLERS: dict[int, Callable[..., Any]] = {
    api.key: api.handler
    for module in (produce, fetch, list_offsets, offset_for_leader_epoch, delete_records)
    for api in module.APIS
}


TIERED = {
    "remote_log_storage_system_enable": "true",
    "remote_log_manager_task_interval_ms": "20",
    "remote_log_manager_task_retry_backoff_ms": "10",
    "rlmm_config_remote_log_metadata_topic_num_partitions": "3",
}
# A segment holds two one-record batches, as in the fixtures; it goes local once it is tiered and `retain` is called.
SMALL_SEGMENTS = {
    "segment_index_bytes": "24",
    "index_interval_bytes": "1",
    "remote_storage_enable": "true",
    "retention_ms": "-1",
}


def through_codec(message: M, version: int) -> M:
    """The message as the other side decodes it."""
    decoded, _ = codec.decode(type(message), version, bytearray(codec.encode(message, version)))
    return decoded


class Metadata:
    """The image a node has."""

    def __init__(self) -> None:
        self.image: MetadataImage = EMPTY_IMAGE


class Events(NullEventSink):
    """Keeps what was reported."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, dict[str, Any]]] = []

    def emit(self, type: str, *, topic: str, topic_id: bytes, partition: int, **detail: Any) -> None:
        self.seen.append((type, {"topic": topic, "partition": partition, **detail}))

    def phases(self, topic: str) -> list[str]:
        return [seen["phase"] for kind, seen in self.seen if kind == "phase" and seen["topic"] == topic]


class Peer:
    """The way to a node."""

    def __init__(self, nodes: Nodes, sender: int, node: int) -> None:
        self._nodes, self._sender, self._node = nodes, sender, node
        self._running: set[asyncio.Task[Message]] = set()

    async def send(self, request: Message, version: int, *, timeout_ms: float) -> Message:
        target = self._nodes.nodes.get(self._node)
        refused = self._nodes.refuse(self._sender, self._node, request)
        if refused is not None:
            raise KafkaError(refused)
        if target is None or not target.up or (self._sender, self._node) in self._nodes.cut:
            await asyncio.sleep(0)
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"node {self._node} is down")
        response: asyncio.Task[Message] = asyncio.ensure_future(target.ask(request, version))
        self._running.add(response)
        target.serving.add(response)
        try:
            answer = await response
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if current is not None and current.cancelling():
                raise
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"node {self._node} went away") from None
        finally:
            self._running.discard(response)
            target.serving.discard(response)
        if self._nodes.listen is not None:
            self._nodes.listen(self._sender, self._node, request, answer)
        return answer

    def close(self) -> None:
        for response in self._running:
            response.cancel()


class Node:
    """One broker's replica layer."""

    # Whether what its logs lack other replicas have, so that they are not shortened.
    has_others = False

    def __init__(self, nodes: Nodes, node_id: int, settings: dict[str, str], *, tiered: bool) -> None:
        self.nodes = nodes
        self.id = node_id
        self.up = False
        self.ports: Ports = ports_here()
        self.events = Events()
        self.metrics = BrokerMetrics(node_id)
        self.metadata = Metadata()
        self.serving: set[asyncio.Task[Message]] = set()
        self.config = broker_config(
            **{"node_id": str(node_id), "replica_fetch_backoff_ms": "50", "replica_lag_time_max_ms": "2000", **settings}
        )
        folders = [
            str(nodes.folder / str(node_id)),
            *(f"{nodes.folder}/{node_id}-{n}" for n in range(2, nodes.dirs + 1)),
        ]
        self.logs = LogManager(self.ports, LogManagerConfig.of(self.config), folders)
        self.applied = AppliedMetadata(self.config)
        self.metadata_topic = MemoryMetadataTopic(nodes.metadata_topic)
        self.remote: RemoteLogManager | None = self._remote_log_manager() if tiered else None
        self.replicas = ReplicaManager(
            self.applied,
            ports=self.ports,
            log_manager=self.logs,
            controller_channel=nodes,
            connect_to_leader=lambda host, port: Peer(nodes, node_id, port - 19091),
            events=self.events,
            metrics=self.metrics,
            remote_logs=self.remote,
        )
        none = cast(Any, None)
        self.services = BrokerServices(
            node_id=node_id, cluster_id=CLUSTER_ID, config=self.config, ports=self.ports,
            metadata=cast(Any, self.metadata), log_manager=self.logs,
            controller_channel=nodes, events=self.events,
            metrics=self.metrics, remote_log_manager=none, controller=None, apis=none,
            replica_manager=self.replicas, group_coordinator=none, transaction_coordinator=none,
            transaction_verifier=none, producer_ids=none,
        )  # fmt: skip

    def _remote_log_manager(self) -> RemoteLogManager:
        folder = self.nodes.folder / str(self.id)
        folder.mkdir(parents=True, exist_ok=True)
        return open_remote_log_manager(
            broker_id=self.id,
            log_dir=str(folder),
            config=lambda: self.applied.config,
            ports=self.ports,
            workers=self.ports.workers,
            topic=self.metadata_topic,
            events=self.events,
            metrics=self.metrics,
            on_fatal=pytest.fail,
        )

    async def start(self) -> None:
        self.logs.directories.open_dirs(CLUSTER_ID, self.id)
        # A topic's settings decide how its logs are opened.
        self.applied.image = self.nodes.play.image
        await self.logs.load_all(self.replicas.topic_config, has_others=lambda _: self.has_others)
        if self.remote is not None:
            await self.remote.start()
        self.replicas.start()
        self.up = True

    async def stop(self) -> None:
        self.up = False
        for response in list(self.serving):
            response.cancel()
        await self.replicas.shutdown()
        if self.remote is not None:
            await self.remote.close()
        await self.logs.shutdown()
        self.ports.workers.close()

    def publish(self, image: MetadataImage) -> None:
        old, self.metadata.image = self.metadata.image, image
        for _ in self.replicas.on_metadata(old, image):
            pass

    async def ask(self, request: Message, version: int, *, client_id: str = "test") -> Any:
        """The answer a client would decode."""
        answer = self.begin(request, version, client_id=client_id)
        if isinstance(answer, GeneratorType):
            answer = await self.services.time_slicer.do(answer)
        if answer is not None and not isinstance(answer, Message):
            answer = await answer
        return None if answer is None else through_codec(answer, version)

    def begin(self, request: Message, version: int, *, client_id: str = "test") -> Any:
        """Calls the handler and returns its result."""
        header = RequestHeader(request.API_KEY, version, 1, client_id)
        context = RequestContext(header, 1, "127.0.0.1", "PLAINTEXT", "broker")
        return HANDLERS[request.API_KEY](self.services, context, through_codec(request, version))

    def partition(self, topic: str, index: int = 0) -> Partition:
        return self.replicas.partition(topic, index)

    def offsets(self, topic: str, index: int = 0) -> tuple[int, int, int, int]:
        """(log start, local start, high watermark, log end)."""
        log = self.partition(topic, index).log
        return log.log_start_offset, log.local_log_start_offset, log.high_watermark, log.log_end_offset

    def values(self, topic: str, index: int = 0) -> list[tuple[int, bytes | None]]:
        """(offset, value) of every local record."""
        log = self.partition(topic, index).log
        offset = max(log.local_log_start_offset, log.log_start_offset)
        values: list[tuple[int, bytes | None]] = []
        while offset < log.log_end_offset:
            info = log.reader.read(offset, 1 << 20, up_to_offset=log.log_end_offset, min_one_message=True)
            if not info.records:
                break
            for position, header in iter_batches(info.records):
                for record in iter_records(info.records, position):
                    if record.offset >= offset:
                        values.append((record.offset, record.value))
                offset = header.next_offset
        return values


def _taken(request: m.AssignReplicasToDirsRequest) -> m.AssignReplicasToDirsResponse:
    """Every assignment is right."""
    answer = m.AssignReplicasToDirsResponse.Directories
    return m.AssignReplicasToDirsResponse(
        directories=[
            answer(
                id=directory.id,
                topics=[
                    answer.Topics(
                        topic_id=topic.topic_id,
                        partitions=[
                            answer.Topics.Partitions(partition_index=row.partition_index) for row in topic.partitions
                        ],
                    )
                    for topic in directory.topics
                ],
            )
            for directory in request.directories
        ]
    )


class Nodes:
    """Several nodes and the controller they share; also their controller channel."""

    # Log directories of each.
    dirs = 1

    def __init__(
        self,
        folder: Path,
        count: int = 3,
        *,
        tiered: bool = False,
        **settings: str,
    ) -> None:
        self.folder = folder
        self.tiered = tiered
        self.metadata_topic = MemoryTopicLog()
        if tiered:
            settings = {**TIERED, "rsm_config_dir": str(folder / "remote"), **settings}
        self.play = Play(broker_config(**settings))
        self.settings = settings
        # (sender, receiver) pairs that cannot talk.
        self.cut: set[tuple[int, int]] = set()
        self.controller_errors: list[ErrorCode] = []
        # The error that a sender gets in place of a receiver's response to a request; None: the response.
        self.refuse: Callable[[int, int, Message], ErrorCode | None] = lambda *_: None
        # The directories that the brokers have reported, by (broker, topic id, partition).
        self.assigned: dict[tuple[int, bytes, int], bytes] = {}
        # Called with every (sender, receiver, request, response).
        self.listen: Callable[[int, int, Message, Message], None] | None = None
        self.nodes: dict[int, Node] = {node: self._node(node) for node in range(1, count + 1)}

    def _node(self, node: int) -> Node:
        return Node(self, node, self.settings, tiered=self.tiered)

    async def __aenter__(self) -> Self:
        for node in self.nodes.values():
            await node.start()
        self.play.start_brokers(*self.nodes)
        self.publish()
        return self

    async def __aexit__(self, *_: object) -> None:
        for node in self.nodes.values():
            if node.up:
                await node.stop()

    def __getitem__(self, node: int) -> Node:
        return self.nodes[node]

    def publish(self, *only: int) -> None:
        """Every node that is up gets the present image."""
        for node in self.nodes.values():
            if node.up and node.metadata.image is not self.play.image and (not only or node.id in only):
                node.publish(self.play.image)

    def apply(self, command: Callable[[MetadataImage], ControllerResult[R]]) -> R:
        response = self.play.do(command)
        self.publish()
        return response

    def create(self, topic: str, *assignments: Sequence[int], **settings: str) -> bytes:
        """The id of a topic with these replicas."""
        created = self.play.create(topic, assignments, **settings)
        assert created.error_code == 0, created
        self.publish()
        return bytes(created.topic_id)

    def delete(self, topic: str) -> None:
        """The topic is gone for every node."""
        from backend.engine.controller.commands.topic_commands import delete_topics

        request = m.DeleteTopicsRequest(topics=[m.DeleteTopicsRequest.Topics(name=topic)])
        [answer] = self.apply(partial(delete_topics, request=request, config=self.play.config, version=6)).responses
        assert answer.error_code == 0, answer

    def config(self, resource_type: int, name: str, **settings: str) -> None:
        """Sets dynamic configuration."""
        from backend.engine.controller.commands.config.configuration_control import incremental_alter_configs

        resource = m.IncrementalAlterConfigsRequest.Resources
        request = m.IncrementalAlterConfigsRequest(
            resources=[
                resource(
                    resource_type=resource_type,
                    resource_name=name,
                    configs=[
                        resource.Configs(name=key.replace("_", "."), config_operation=0, value=value)
                        for key, value in settings.items()
                    ],
                )
            ]
        )
        response = self.apply(partial(incremental_alter_configs, request=request, config=self.play.config))
        assert all(result.error_code == 0 for result in response.responses), response

    async def stop(self, node: int) -> None:
        """The node goes away and the controller fences it."""
        await self.nodes[node].stop()
        self.apply(partial(fence_broker, broker_id=node, config=self.play.config))

    def renew(self, node: int) -> Node:
        """A stopped node as a new process, which has to be started."""
        self.nodes[node] = self._node(node)
        return self.nodes[node]

    async def restart(self, node: int, *, clean: bool = True) -> None:
        """A stopped node comes back with what is on its disk; `clean`: the controller knows that it was stopped."""
        await self.renew(node).start()
        self.play.register(node, incarnation=self.play.image.brokers[node].epoch + 2, clean=clean)
        self.publish()
        self.play.heartbeat(node)
        self.publish()

    async def send(self, request: Message, version: int, *, timeout_ms: float) -> Message:
        """The controller's side of AlterPartition. Where replicas lie is noted here alone: the brokers are registered
        without directories.
        """
        await asyncio.sleep(0)
        if isinstance(request, m.AssignReplicasToDirsRequest):
            for directory in request.directories:
                for topic in directory.topics:
                    for row in topic.partitions:
                        replica = request.broker_id, bytes(topic.topic_id), row.partition_index
                        self.assigned[replica] = bytes(directory.id)
            return through_codec(_taken(request), version)
        assert isinstance(request, m.AlterPartitionRequest)
        if self.controller_errors:
            code = self.controller_errors.pop(0)
            if code is ErrorCode.NETWORK_EXCEPTION:
                raise KafkaError(code)
            return m.AlterPartitionResponse(error_code=code)
        try:
            response = self.play.do(
                partial(
                    alter_partition,
                    request=through_codec(request, version),
                    config=self.play.config,
                    version=version,
                )
            )
        except KafkaError as error:
            return m.AlterPartitionResponse(error_code=error.code)
        asyncio.get_running_loop().call_soon(self.publish)
        return through_codec(response, version)

    # Clients

    async def produce(
        self,
        node: int,
        topic: str,
        *values: bytes,
        acks: int = -1,
        index: int = 0,
        timeout_ms: int = 5000,
        **batch: Any,
    ) -> m.ProduceResponse.Responses.PartitionResponses:
        """One batch; the answer of its partition."""
        records = build_batch([RecordData(1_700_000_000_000, None, value) for value in values], **batch)
        return await self.produce_raw(node, topic, records, acks=acks, index=index, timeout_ms=timeout_ms)

    async def produce_raw(
        self, node: int, topic: str, records: Any, *, acks: int = -1, index: int = 0, timeout_ms: int = 5000,
        version: int = 12,
    ) -> m.ProduceResponse.Responses.PartitionResponses:  # fmt: skip
        data = m.ProduceRequest.TopicData
        request = m.ProduceRequest(
            acks=acks,
            timeout_ms=timeout_ms,
            topic_data=[data(name=topic, partition_data=[data.PartitionData(index=index, records=records)])],
        )
        answer: m.ProduceResponse | None = await self.nodes[node].ask(request, version)
        if answer is None:
            return m.ProduceResponse.Responses.PartitionResponses()
        return answer.responses[0].partition_responses[0]

    async def fetch(
        self, node: int, topic: str, offset: int, *, index: int = 0, version: int = 12, replica_id: int = -1,
        wait_ms: int = 0, min_bytes: int = 1, max_bytes: int = 1 << 20, current_epoch: int = -1,
        last_epoch: int = -1, isolation: int = 0, partition_max_bytes: int = 1 << 20,
    ) -> m.FetchResponse.Responses.Partitions:  # fmt: skip
        fetch_request = m.FetchRequest
        topic_id = self.play.image.topic_ids.get(topic, bytes(16))
        request = fetch_request(
            replica_id=replica_id,
            max_wait_ms=wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=isolation,
            replica_state=fetch_request.ReplicaState(replica_id=replica_id, replica_epoch=-1),
            topics=[
                fetch_request.Topics(
                    topic=topic,
                    topic_id=topic_id,
                    partitions=[
                        fetch_request.Topics.Partitions(
                            partition=index,
                            fetch_offset=offset,
                            partition_max_bytes=partition_max_bytes,
                            current_leader_epoch=current_epoch,
                            last_fetched_epoch=last_epoch,
                        )
                    ],
                )
            ],
        )
        answer: m.FetchResponse = await self.nodes[node].ask(request, version)
        assert answer.error_code == 0, answer
        return answer.responses[0].partitions[0]

    async def list_offset(
        self, node: int, topic: str, timestamp: int, *, index: int = 0, version: int = 11, replica_id: int = -1,
        isolation: int = 0, current_epoch: int = -1,
    ) -> m.ListOffsetsResponse.Topics.Partitions:  # fmt: skip
        topics = m.ListOffsetsRequest.Topics
        request = m.ListOffsetsRequest(
            replica_id=replica_id,
            isolation_level=isolation,
            topics=[
                topics(
                    name=topic,
                    partitions=[
                        topics.Partitions(
                            partition_index=index, timestamp=timestamp, current_leader_epoch=current_epoch
                        )
                    ],
                )
            ],
        )
        answer: m.ListOffsetsResponse = await self.nodes[node].ask(request, version)
        return answer.topics[0].partitions[0]

    async def tiered_up_to(self, node: int, topic: str, last_offset: int, index: int = 0) -> None:
        """Waits until a replica knows that everything up to the offset is in the remote tier."""
        log = self.nodes[node].partition(topic, index).log
        await self.until(f"{topic} tiered up to {last_offset}", lambda: log.highest_remote_offset >= last_offset)

    async def retain(self, *nodes: int) -> None:
        """One pass of local retention."""
        for node in nodes or tuple(self.nodes):
            await self.nodes[node].logs.housekeeping.apply_retention()

    async def reassign(self, topic: str, *replicas: int, index: int = 0) -> None:
        """Begins to move a partition."""
        topics = m.AlterPartitionReassignmentsRequest.Topics
        part = topics.Partitions(partition_index=index, replicas=list(replicas))
        request = m.AlterPartitionReassignmentsRequest(topics=[topics(name=topic, partitions=[part])])
        answer = self.apply(partial(alter_partition_reassignments, request=request, config=self.play.config))
        row = answer.responses[0].partitions[0]
        assert row.error_code == 0, row

    # Waiting

    async def until(self, what: str, question: Callable[[], bool], timeout_s: float = 10.0) -> None:
        """Waits until something is so; fails with `what` when it never is."""
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout_s
        while not question():
            assert loop.time() < end, f"{what} did not happen within {timeout_s} s"
            await asyncio.sleep(0.002)

    async def in_sync(self, topic: str, *members: int, index: int = 0) -> None:
        """Waits until the ISR is exactly these."""
        await self.until(
            f"ISR {members} of {topic}-{index}", lambda: set(self.play.partition(topic, index).isr) == set(members)
        )


def play(scenario: Callable[..., Any], *args: Any, **settings: Any) -> None:
    """Runs one scenario on virtual time."""
    run_virtual(scenario(*args, **settings))
