"""A controller that writes snapshots while it leads, forgets the log below them, and starts again from them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from backend.engine.controller.commands.command import ControllerResult, checked_result
from backend.engine.controller.image.metadata_image import MetadataImage
from backend.engine.controller.image.snapshot_images import image_of_snapshot, snapshot_batches
from backend.engine.log.log_errors import CorruptLog
from backend.engine.ports import Ports
from backend.engine.raft.snapshot_files import SnapshotId, parse_file_name
from backend.protocol import messages as m
from backend.protocol.record_batches.record_batch import iter_batches, iter_records
from tests.unit.engine.controller.controller_node import ControllerNode
from tests.unit.engine.virtual_time import ports_here, run_virtual
from tests.unit.protocol.kafka_fixtures import ROOT as KAFKA

# Settings under which every few records make a snapshot and a segment.
EAGER = {
    "metadata_log_max_record_bytes_between_snapshots": "400",
    "metadata_log_segment_bytes": "1000",
    "metadata_max_retention_bytes": "3000",
}
WAIT_S = 10.0


def run(test: Callable[[Ports], Coroutine[Any, Any, None]]) -> None:
    async def with_ports() -> None:
        ports = ports_here()
        try:
            await asyncio.wait_for(test(ports), 30)
        finally:
            ports.workers.close()

    run_virtual(with_ports())


def config_record(number: int) -> m.ConfigRecord:
    return m.ConfigRecord(resource_type=4, resource_name="", name=f"setting.{number % 5}", value=str(number))


async def write(node: ControllerNode, *numbers: int) -> None:
    for number in numbers:
        await node.controller.submit("test", partial(_set, number))


def _set(number: int, image: MetadataImage) -> ControllerResult[None]:
    return checked_result([config_record(number)], None)


def folder_of(tmp_path: Path) -> Path:
    return tmp_path / "__cluster_metadata-0"


def snapshots_in(tmp_path: Path) -> list[SnapshotId]:
    return sorted(file_name for path in folder_of(tmp_path).iterdir() if (file_name := parse_file_name(path.name)))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.01)


def test_a_snapshot_is_written_by_bytes_and_the_next_start_needs_only_what_follows(tmp_path: Path) -> None:
    async def play(ports: Ports) -> None:
        node = ControllerNode(ports, tmp_path, metadata_log_max_record_bytes_between_snapshots="400")
        await node.start()
        await write(node, *range(20))
        await until(lambda: bool(snapshots_in(tmp_path)))
        before = node.controller.image
        written = node.controller.snapshotter
        await node.stop()
        # Without the log's beginning only the snapshot has it.
        again = ControllerNode(ports, tmp_path)
        await again.start()
        image = again.controller.image
        assert image.configs == before.configs
        assert image.features == before.features
        # Its age and size are known although this run has written none.
        snapshotter = again.controller.snapshotter
        latest = again.controller.log.snapshots.latest
        assert latest is not None
        assert snapshotter.latest_generated_bytes == (folder_of(tmp_path) / latest.file_name).stat().st_size
        assert snapshotter.latest_generated_ms is not None
        assert written.latest_generated_ms is not None
        # The stop may have come while the last one was being written.
        assert abs(written.latest_generated_ms - snapshotter.latest_generated_ms) < 30_000
        await again.stop()

    run(play)


def test_the_log_and_old_snapshots_go_and_the_cluster_is_whole_after_a_restart(tmp_path: Path) -> None:
    async def play(ports: Ports) -> None:
        node = ControllerNode(ports, tmp_path, **EAGER)
        await node.start()
        for number in range(100):
            await write(node, number)
            if number % 10 == 0:
                await node.controller.snapshotter.write_snapshot()
        await node.controller.snapshotter.clean()
        log = node.controller.log
        assert log.start_offset > 0
        assert log.earliest_snapshot is not None
        assert log.earliest_snapshot.end_offset == log.start_offset
        assert log.size_bytes + sum(stored_snapshot.size_bytes for stored_snapshot in log.snapshots.stored()) <= 3000
        assert min(int(path.stem) for path in folder_of(tmp_path).glob("*.log")) > 0
        before = node.controller.image
        await node.stop()
        again = ControllerNode(ports, tmp_path, **EAGER)
        await again.start()
        assert again.controller.image.configs == before.configs
        assert again.controller.raft.epoch == 2
        await again.stop()

    run(play)


async def with_two_snapshots(ports: Ports, tmp_path: Path) -> list[SnapshotId]:
    node = ControllerNode(ports, tmp_path)
    await node.start()
    await write(node, 1, 2, 3)
    await node.controller.snapshotter.write_snapshot()
    await write(node, 4, 5)
    assert await node.controller.snapshotter.write_snapshot()
    assert not await node.controller.snapshotter.write_snapshot(), "there is one of this image already"
    await node.stop()
    return snapshots_in(tmp_path)


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty"])
def test_a_damaged_snapshot_gives_way_to_the_one_before(tmp_path: Path, damage: str) -> None:
    async def play(ports: Ports) -> None:
        older, newer = await with_two_snapshots(ports, tmp_path)
        path = folder_of(tmp_path) / newer.file_name
        data = bytearray(path.read_bytes())
        if damage == "flipped":
            data[150] ^= 0x40
        path.write_bytes(data if damage == "flipped" else data[:-10] if damage == "cut" else b"")
        node = ControllerNode(ports, tmp_path)
        await node.start()
        assert node.controller.image.config(4, "")["setting.0"] == "5"
        assert node.controller.log.snapshots.ids == (older,)
        await node.stop()

    run(play)
    assert [path.name for path in folder_of(tmp_path).glob("*.corrupt")]


def test_a_log_that_begins_behind_every_snapshot_is_no_cluster(tmp_path: Path) -> None:
    async def play(ports: Ports) -> None:
        node = ControllerNode(ports, tmp_path, **EAGER)
        await node.start()
        for number in range(60):
            await write(node, number)
        await node.controller.snapshotter.write_snapshot()
        await node.controller.snapshotter.clean()
        await write(node, *range(5))
        await node.controller.snapshotter.write_snapshot()
        await node.controller.snapshotter.clean()
        await node.stop()
        assert min(int(path.stem) for path in folder_of(tmp_path).glob("*.log")) > 0
        for snapshot in snapshots_in(tmp_path):
            (folder_of(tmp_path) / snapshot.file_name).unlink()
        with pytest.raises(CorruptLog, match="no whole snapshot"):
            await ControllerNode(ports, tmp_path).start()

    run(play)


def test_a_snapshot_by_interval_is_written_without_any_new_bytes(tmp_path: Path) -> None:
    async def play(ports: Ports) -> None:
        node = ControllerNode(ports, tmp_path, metadata_log_max_snapshot_interval_ms="1")
        await node.start()
        node.controller.snapshotter._wake.set()
        await until(lambda: bool(snapshots_in(tmp_path)))
        await node.stop()

    run(play)


def test_a_snapshot_of_apache_kafka_loads_and_comes_back_with_the_same_records() -> None:
    captured = (KAFKA / "kraft" / "00000000000000000776-0000000002.checkpoint").read_bytes()
    unknown: list[object] = []
    image, last_ms = image_of_snapshot(captured, SnapshotId(776, 2), "c", report_unknown=unknown.append)
    assert (image.offset, image.epoch, unknown) == (775, 2, [])
    assert {"orders", "__remote_log_metadata"} <= set(image.topic_ids)
    written = b"".join(snapshot_batches(image, last_contained_ms=last_ms, now_ms=last_ms))

    def values(data: bytes) -> list[bytes]:
        return sorted(
            bytes(record.value or b"")
            for position, header in iter_batches(data)
            if not header.is_control
            for record in iter_records(data, position)
        )

    assert values(written) == values(captured)
