"""A node's own copy of the cluster metadata: log, image and snapshots, with a vote or without (Kafka's SharedServer).

On a node with the controller role the controller moves the image, since it knows what is committed first. Anywhere else
the image follows the log by itself.
"""

from __future__ import annotations

from collections.abc import Callable

from backend.engine.config import BrokerConfig
from backend.engine.controller.image.metadata_image import MetadataImage
from backend.engine.controller.metadata.committed_image import CommittedImage
from backend.engine.controller.metadata.snapshotter import Snapshotter
from backend.engine.controller.metadata.topic_deletions import TopicDeletions
from backend.engine.ports import Ports, tasks
from backend.engine.raft.metadata_log import MetadataLog, MetadataLogFailed
from backend.engine.raft.raft_node import RaftNode
from backend.protocol.errors import KafkaError


class NodeMetadata:
    """One per node. Start once, then stop; all methods on the loop's thread."""

    def __init__(self, ports: Ports, config: BrokerConfig, raft: RaftNode, *, cluster_id: str) -> None:
        self._node_id = config.id
        self.raft = raft
        self.topic_deletions = TopicDeletions()
        self.committed = CommittedImage(
            ports,
            raft.log,
            self.topic_deletions,
            node_id=config.id,
            cluster_id=cluster_id,
            applied=lambda size_bytes: self.snapshotter.applied(size_bytes),
            loaded=lambda snapshot: self.snapshotter.observe_snapshot(snapshot),
        )
        self.snapshotter = Snapshotter(
            ports, config, raft.log, lambda: (self.image, self.committed.last_record_ms), raft.lowest_needed
        )
        self._following: tasks.Task[None] | None = None

    @property
    def image(self) -> MetadataImage:
        """The newest committed image."""
        return self.committed.image

    @property
    def log(self) -> MetadataLog:
        return self.raft.log

    async def start(self) -> None:
        """The raft node takes its place, and the newest snapshot is loaded. QuorumMismatch, CorruptLog, OSError."""
        await self.raft.start()
        await self.committed.load_snapshot()
        self.snapshotter.start()

    def start_following(self, on_failure: Callable[[str], None]) -> None:
        """Starts following the log, on a node without the controller role; `on_failure` gets a failure's reason."""
        following = self._follow_always(on_failure)
        self._following = tasks.spawn(following, name=f"metadata of node {self._node_id}")

    async def stop(self) -> None:
        """Ends; the raft node and its log stay as they are."""
        await self.snapshotter.stop()
        await tasks.cancel(self._following)

    async def _follow_always(self, on_failure: Callable[[str], None]) -> None:
        raft, log = self.raft, self.log
        try:
            while True:
                await self.committed.catch_up()
                if raft.failure is not None:
                    raise MetadataLogFailed(str(raft.failure))
                await log.wait_until(lambda: log.high_watermark > self.image.offset + 1 or bool(raft.failure))
        except (OSError, KafkaError) as error:
            # Its copy may be the last one, from which `ebbline quorum recover` goes on: no text advises to remove it.
            on_failure(f"its metadata log {log.dir} failed: {error}; free or repair the disk and start it again: what"
                       " it lacks is fetched from the controllers")  # fmt: skip
