"""A follower does not give up acknowledged records because its leader lacks them; an unclean election lets it go on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from backend.engine.controller.commands.command import ControllerResult
from backend.engine.controller.image.image_records import image_records
from backend.engine.controller.image.metadata_image import RECOVERING, MetadataImage, PartitionRegistration
from backend.engine.controller.image.replay import merge_partition, new_partition
from backend.engine.replica.fetchers.fetch_state import must_keep
from backend.protocol import codec
from backend.protocol import messages as m
from backend.tiering.follower_phase import KEEPS_ACKNOWLEDGED, FollowerPhase
from tests.unit.engine.replica.nodes import Nodes, play

FIVE = [(number, b"v%d" % number) for number in range(5)]


@pytest.mark.parametrize(
    ("offset", "high_watermark", "lost_epoch", "unclean", "keeps"),
    [
        (5, 5, 0, -1, False),
        (4, 5, 0, -1, True),
        (0, 5, -1, -1, True),
        # The election that gave epoch 3 ended what was written before, and nothing that came later.
        (4, 5, 2, 3, False),
        (4, 5, 3, 3, True),
        (4, 5, 7, 3, True),
        (0, 0, -1, -1, False),
    ],
)
def test_what_is_acknowledged_is_kept_unless_an_unclean_election_gave_it_up(
    offset: int, high_watermark: int, lost_epoch: int, unclean: int, keeps: bool
) -> None:
    result = must_keep(
        offset=offset, high_watermark=high_watermark, lost_epoch=lost_epoch, unclean_leader_epoch=unclean
    )
    assert result is keeps


def test_the_epoch_of_an_unclean_election_stays_known_over_further_changes_and_snapshots() -> None:
    before = PartitionRegistration(replicas=(1, 2), isr=(1,), leader=-1, leader_epoch=6, partition_epoch=1)
    unclean = merge_partition(before, m.PartitionChangeRecord(leader=2, isr=[2], leader_recovery_state=RECOVERING))
    assert unclean.unclean_leader_epoch == 7
    # The same again, while the state is still that of the first time.
    away = merge_partition(unclean, m.PartitionChangeRecord(leader=-1))
    again = merge_partition(away, m.PartitionChangeRecord(leader=1, isr=[1]))
    assert (away.unclean_leader_epoch, again.unclean_leader_epoch) == (7, 9)
    assert merge_partition(away, m.PartitionChangeRecord(leader=2)).unclean_leader_epoch == 7
    recovered = merge_partition(unclean, m.PartitionChangeRecord(isr=[2, 1], leader_recovery_state=0))
    clean = merge_partition(recovered, m.PartitionChangeRecord(leader=1))
    assert (clean.leader_epoch, clean.unclean_leader_epoch) == (8, 7)
    # A record from before the field says it by its state.
    old = m.PartitionRecord(replicas=[1], isr=[1], leader=1, leader_epoch=4, leader_recovery_state=RECOVERING)
    assert new_partition(old).unclean_leader_epoch == 4
    assert new_partition(m.PartitionRecord(replicas=[1], isr=[1], leader=1, leader_epoch=4)).unclean_leader_epoch == -1


async def leader_that_lost_records(nodes: Nodes) -> None:
    """Five acknowledged records on 1, 2 and 3, of which the leader, 1, then has two left."""
    nodes.create("orders", [1, 2, 3])
    for _, value in FIVE:
        await nodes.produce(1, "orders", value)
    # Followers hear of a high watermark with their next fetch.
    await nodes.until("all know", lambda: all(nodes[node].offsets("orders")[2] == 5 for node in (2, 3)))
    nodes[1].partition("orders").log.truncate_to(2)
    # As after a restart: it leads in another epoch.
    nodes.apply(lambda image: elected(image, unclean=False))
    await nodes.produce(1, "orders", b"other", acks=1)


def phase_of(nodes: Nodes, node: int) -> FollowerPhase | None:
    state = nodes[node].replicas.fetch_state(nodes[node].partition("orders").topic_id_partition)
    return None if state is None else state.phase


async def followers_stop(nodes: Nodes) -> None:
    await nodes.until(
        "the followers stop", lambda: all(phase_of(nodes, node) is FollowerPhase.FAILED for node in (2, 3))
    )


def test_followers_of_a_leader_that_lost_records_keep_theirs_and_say_so(tmp_path: Path) -> None:
    async def run() -> None:
        async with Nodes(tmp_path) as nodes:
            await leader_that_lost_records(nodes)
            await followers_stop(nodes)
            for node in (2, 3):
                assert nodes[node].values("orders") == FIVE
                failure, *_ = [
                    seen
                    for kind, seen in nodes[node].events.seen
                    if kind == "phase" and seen["phase"] == FollowerPhase.FAILED
                ]
                assert failure["evidence"]["rule"] == KEEPS_ACKNOWLEDGED
                assert "below its high watermark 5" in failure["evidence"]["reason"]
            # Another leader epoch of the same leader changes nothing.
            nodes.apply(lambda image: elected(image, unclean=False))
            await asyncio.sleep(0.2)
            await followers_stop(nodes)
            assert [nodes[node].values("orders") for node in (2, 3)] == [FIVE, FIVE]
            # Once a follower leads, the other and the old leader go on with what is acknowledged.
            await nodes.stop(1)
            await nodes.until("leadership of 2", lambda: nodes[2].partition("orders").is_leader)
            await nodes.restart(1)
            await nodes.in_sync("orders", 1, 2, 3)
            for node in (1, 2, 3):
                assert nodes[node].values("orders") == FIVE

    play(run)


def elected(image: MetadataImage, *, unclean: bool) -> ControllerResult[None]:
    """Broker 1 leads in a new epoch."""
    topic_id = image.topic_ids["orders"]
    if not unclean:
        return ControllerResult((m.PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=1),), None)
    left = m.PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=-1, isr=[2])
    led = m.PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=1, isr=[1])
    led.leader_recovery_state = RECOVERING
    return ControllerResult((left, led), None)


def test_an_unclean_election_lets_followers_go_on_also_those_that_were_away(tmp_path: Path) -> None:
    async def run() -> None:
        async with Nodes(tmp_path) as nodes:
            await leader_that_lost_records(nodes)
            await followers_stop(nodes)
            await nodes.stop(3)
            nodes.apply(lambda image: elected(image, unclean=True))
            await nodes.in_sync("orders", 1, 2)
            assert nodes.play.partition("orders").leader_recovery_state != RECOVERING
            await nodes.restart(3)
            await nodes.in_sync("orders", 1, 2, 3)
            expected = [*FIVE[:2], (2, b"other")]
            assert [nodes[node].values("orders") for node in (1, 2, 3)] == [expected] * 3
            # Records that are acknowledged since are kept again.
            await nodes.produce(1, "orders", b"new")
            await nodes.until("all know", lambda: all(nodes[node].offsets("orders")[2] == 4 for node in (2, 3)))
            nodes[1].partition("orders").log.truncate_to(3)
            nodes.apply(lambda image: elected(image, unclean=False))
            await followers_stop(nodes)

    play(run)


def test_a_snapshot_has_the_epoch_of_an_unclean_election(tmp_path: Path) -> None:
    async def run() -> None:
        async with Nodes(tmp_path) as nodes:
            nodes.create("orders", [1, 2])
            nodes.apply(lambda image: elected(image, unclean=True))
            [record] = [
                image_record
                for image_record in image_records(nodes.play.image)
                if isinstance(image_record, m.PartitionRecord)
            ]
            again, _ = codec.decode(m.PartitionRecord, 2, bytearray(codec.encode(record, 2)))
            assert new_partition(again).unclean_leader_epoch == 2

    play(run)
