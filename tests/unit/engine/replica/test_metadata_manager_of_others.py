"""A remote log metadata manager of others may fail in ways that no contract names: a new replica tries again."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from backend.engine.remote.plugins import METADATA_GROUP
from tests.unit.engine.replica.nodes import Nodes, play
from tests.unit.engine.replica.test_bootstrap_trouble import NEW, TOPIC, joins, remote_up_to_5, waits

# Their own facts are as good as the topic's; of broker 3 the way to them can be broken.
PLUGIN = """
from backend.engine.remote.metadata.topic_based_metadata_manager import RlmmSettings, TopicBasedRemoteLogMetadataManager

broken = set()

class Theirs(TopicBasedRemoteLogMetadataManager):
    fails = False

    def lookup(self, partition, epoch, offset):
        if self.fails and "lookup" in broken:
            raise ConnectionError("the database is away")
        return super().lookup(partition, epoch, offset)

    def is_ready(self, partition):
        return super().is_ready(partition) and not (self.fails and "wait_ready" in broken)

    async def wait_ready(self, partition, timeout_ms):
        if self.fails and "wait_ready" in broken:
            raise ConnectionError("the database is away")
        return await super().wait_ready(partition, timeout_ms)

def open_theirs(config, context):
    settings = RlmmSettings.parse(config, context.overlap)
    made = Theirs(context.topic, settings, context.ports, context.events, on_fatal=context.on_fatal)
    made.fails = config["broker.id"] == "3"
    return made
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A distribution that offers the plug-in, as an installer lays it out."""
    site = tmp_path / "site"
    facts = site / "their_metadata-1.0.dist-info"
    facts.mkdir(parents=True)
    (site / "their_metadata.py").write_text(PLUGIN)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: their-metadata\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(f"[{METADATA_GROUP}]\ntheirs = their_metadata:open_theirs\n")
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.delitem(sys.modules, "their_metadata", raising=False)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("call", ["lookup", "wait_ready"])
def test_a_new_replica_goes_on_once_their_metadata_can_be_had_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, call: str
) -> None:
    caplog.set_level("INFO", "backend.engine.replica")

    async def run() -> None:
        async with Nodes(tmp_path, tiered=True, remote_log_metadata_manager_class_name="theirs") as nodes:
            await remote_up_to_5(nodes)
            broken: set[str] = importlib.import_module("their_metadata").broken
            broken.add(call)
            await nodes.reassign(TOPIC, 1, 2, NEW)
            await waits(nodes, "ConnectionError: the database is away", caplog)
            assert nodes[NEW].offsets(TOPIC) == (0, 0, 0, 0)
            broken.clear()
            await joins(nodes)

    play(run)
