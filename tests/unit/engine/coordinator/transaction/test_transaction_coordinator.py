"""The coordinator of transactions on real logs: its records, markers and time-outs, and the state that it restores when
it takes over.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from backend.engine.controller.image.metadata_image import BROKER_RESOURCE
from backend.engine.coordinator.group.group_records import OFFSETS_TOPIC, coordinator_partition
from backend.engine.coordinator.transaction.transaction import Transaction, TransactionState
from backend.engine.coordinator.transaction.transaction_records import TRANSACTIONS_TOPIC
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode
from backend.tiering.ids import TopicPartition
from tests.unit.engine.coordinator.group.group_nodes import PARTITIONS
from tests.unit.engine.coordinator.transaction.transaction_nodes import Client, TransactionNodes, run

T: Final = "t"
S = TransactionState


def described(nodes: TransactionNodes, client: Client) -> Transaction:
    transaction = nodes.coordinator_of(client.transactional_id).transactions.describe(client.transactional_id)
    assert transaction is not None
    return transaction


def stable(nodes: TransactionNodes, topic: str = T) -> tuple[int, int]:
    """(last stable offset, log end) of the topic's partition."""
    log = nodes.topic_leader(topic).partition(topic).log
    return log.last_stable_offset, log.log_end_offset


def test_a_committed_transaction_has_its_marker_and_the_producer_its_next_epoch(tmp_path: Path) -> None:
    async def play(nodes: TransactionNodes) -> None:
        nodes.create(T, [1, 2, 3])
        client = Client(nodes, "x")
        await client.init()
        assert client.me.epoch == 0
        for round_ in range(1, 4):
            assert await client.write(T, "a", "b") == 0
            assert stable(nodes) == (3 * (round_ - 1), 3 * round_ - 1)
            assert described(nodes, client).state is S.ONGOING
            assert await client.end(commit=True) == 0
            assert client.me.epoch == round_
            await nodes.pass_ms(200)
            assert described(nodes, client).state is S.COMPLETE_COMMIT
            assert stable(nodes) == (3 * round_, 3 * round_)

    run(tmp_path, play, brokers=3)


def test_an_aborted_transaction_is_told_to_readers_of_what_is_committed(tmp_path: Path) -> None:
    async def play(nodes: TransactionNodes) -> None:
        nodes.create(T, [1])
        client = Client(nodes, "x")
        await client.init()
        await client.write(T, "a", "b")
        before = client.me
        assert await client.end(commit=False) == 0
        await nodes.pass_ms(200)
        answer = await nodes.fetch(1, T, 0, isolation=1)
        [aborted] = answer.aborted_transactions or []
        assert (aborted.producer_id, aborted.first_offset) == (before.producer_id, 0)
        assert (answer.last_stable_offset, answer.high_watermark) == (3, 3)
        assert (await nodes.fetch(1, T, 0)).aborted_transactions is None

    run(tmp_path, play)


def test_an_old_producer_must_have_added_the_partition_itself(tmp_path: Path) -> None:
    async def play(nodes: TransactionNodes) -> None:
        nodes.create(T, [1])
        client = Client(nodes, "x")
        await client.init()
        assert await client.write(T, "a", version=10) == ErrorCode.INVALID_TXN_STATE
        assert await client.write(T, "a", version=11) == ErrorCode.TRANSACTION_ABORTABLE
        request = m.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=client.me.producer_id,
            v3_and_below_producer_epoch=client.me.epoch,
            v3_and_below_topics=[m.AddPartitionsToTxnRequest.V3AndBelowTopics(name=T, partitions=[0])],
        )
        answer = await nodes.node(1).ask(request, 3)
        assert answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0
        assert await client.write(T, "a", version=10) == 0
        assert await client.end(commit=True, version=4) == 0
        await nodes.pass_ms(200)
        assert (described(nodes, client).epoch, described(nodes, client).state) == (0, S.COMPLETE_COMMIT)

    run(tmp_path, play)


def test_verification_of_an_old_producer_is_switched_off_while_the_broker_runs(tmp_path: Path) -> None:
    async def play(nodes: TransactionNodes) -> None:
        nodes.create(T, [1])
        client = Client(nodes, "old")
        assert await client.init() == 0
        assert await client.write(T, "a", version=10) == ErrorCode.INVALID_TXN_STATE
        nodes.config(BROKER_RESOURCE, "1", transaction_partition_verification_enable="false")
        assert await client.write(T, "a", version=10) == ErrorCode.NONE

    run(tmp_path, play)


def test_partitions_are_added_together_or_not_at_all(tmp_path: Path) -> None:
    async def play(nodes: TransactionNodes) -> None:
        nodes.create(T, [1])
        client = Client(nodes, "x")
        await client.init()
        transaction = m.AddPartitionsToTxnRequest.Transactions
        request = m.AddPartitionsToTxnRequest(
            transactions=[
                transaction(
                    transactional_id=name,
                    producer_id=client.me.producer_id,
                    producer_epoch=client.me.epoch,
                    topics=[transaction.Topics(name=T, partitions=partitions)],
                )
                for name, partitions in (("x", [0, 7]), ("unknown", [0]), ("", [0]), ("x", [0]))
            ]
        )
        answer = await nodes.node(1).ask(request, 5)
        codes = [
            [row.partition_error_code for row in result.topic_results[0].results_by_partition]
            for result in answer.results_by_transaction
        ]
        # The second and third go to the leader of all three partitions.
        assert codes == [
            [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
            [ErrorCode.INVALID_PRODUCER_ID_MAPPING],
            [ErrorCode.INVALID_REQUEST],
            [0],
        ]

    run(tmp_path, play)


def test_what_is_left_open_is_aborted_after_its_time_and_its_producer_is_out(tmp_path: Path) -> None:
    async def play(nodes: TransactionNodes) -> None:
        nodes.create(T, [1])
        client = Client(nodes, "x", timeout_ms=5_000)
        await client.init()
        await client.write(T, "a")
        await nodes.pass_ms(4_000)
        assert described(nodes, client).state is S.ONGOING
        await nodes.pass_ms(2_000)
        assert described(nodes, client).state is S.COMPLETE_ABORT
        assert stable(nodes) == (2, 2)
        assert await client.write(T, "late") == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await client.end(commit=True) == ErrorCode.PRODUCER_FENCED

    run(tmp_path, play, transaction_abort_timed_out_transaction_cleanup_interval_ms="500")


def test_a_second_producer_ends_what_the_first_left_open_and_fences_it(tmp_path: Path) -> None:
    async def play(nodes: TransactionNodes) -> None:
        nodes.create(T, [1])
        first, second = Client(nodes, "x"), Client(nodes, "x")
        await first.init()
        await first.write(T, "a")
        await second.init()
        assert second.me.producer_id == first.me.producer_id
        assert second.me.epoch == first.me.epoch + 2
        assert stable(nodes) == (2, 2)
        assert await first.write(T, "b") == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await first.end(commit=True) == ErrorCode.PRODUCER_FENCED
        assert await second.write(T, "c") == 0
        assert await second.end(commit=True) == 0

    run(tmp_path, play)


def test_the_next_coordinator_knows_an_open_transaction(tmp_path: Path) -> None:
    async def play(nodes: TransactionNodes) -> None:
        nodes.create(T, [1, 2, 3])
        client = Client(nodes, "x")
        await client.init()
        await client.write(T, "a")
        before = described(nodes, client)
        await nodes.stop(nodes.coordinator_of("x").id)
        await nodes.pass_ms(500)
        after = described(nodes, client)
        assert (after.state, after.partitions, after.epoch) == (before.state, before.partitions, before.epoch)
        assert await client.write(T, "b") == 0
        assert await client.end(commit=True) == 0
        await nodes.pass_ms(500)
        assert stable(nodes) == (3, 3)

    run(tmp_path, play, brokers=3)


def test_what_was_decided_is_finished_by_the_next_coordinator(tmp_path: Path) -> None:
    async def play(nodes: TransactionNodes) -> None:
        first = nodes.coordinator_of("x").id
        away = next(node for node in (1, 2, 3) if node != first)
        nodes.create(T, [away])
        client = Client(nodes, "x")
        await client.init()
        await client.write(T, "a")
        nodes.cut.add((first, away))
        assert await client.end(commit=True) == 0
        await nodes.pass_ms(1_000)
        assert described(nodes, client).state is S.PREPARE_COMMIT
        assert stable(nodes) == (0, 1)
        await nodes.stop(first)
        await nodes.pass_ms(1_000)
        assert described(nodes, client).state is S.COMPLETE_COMMIT
        assert stable(nodes) == (2, 2)
        assert await client.write(T, "b") == 0

    run(tmp_path, play, brokers=3)


def test_partitions_that_have_the_marker_are_no_longer_those_of_a_prepared_transaction(tmp_path: Path) -> None:
    """`TransactionMetadata.removePartition`. The next coordinator writes all markers again."""

    async def play(nodes: TransactionNodes) -> None:
        first = nodes.coordinator_of("x").id
        away, other = (node for node in (1, 2, 3) if node != first)
        nodes.create(T, [other])
        nodes.create("far", [away])
        client = Client(nodes, "x")
        await client.init()
        await client.write(T, "a")
        client.sequence = 0
        await client.write("far", "b")
        far = frozenset({TopicPartition("far", 0)})
        assert described(nodes, client).partitions == far | {TopicPartition(T, 0)}
        nodes.cut.add((first, away))
        assert await client.end(commit=True) == 0
        await nodes.pass_ms(1_000)
        transaction = described(nodes, client)
        assert (transaction.state, transaction.partitions) == (S.PREPARE_COMMIT, far)
        answer = await nodes.coordinator_of("x").ask(m.DescribeTransactionsRequest(transactional_ids=["x"]), 0)
        assert [topic.topic for topic in answer.transaction_states[0].topics] == ["far"]
        nodes.cut.clear()
        await nodes.pass_ms(1_000)
        transaction = described(nodes, client)
        assert (transaction.state, transaction.partitions) == (S.COMPLETE_COMMIT, frozenset())

    run(tmp_path, play, brokers=3)


def test_a_broker_that_restarts_finishes_what_it_had_decided(tmp_path: Path) -> None:
    async def play(nodes: TransactionNodes) -> None:
        nodes.create(T, [1])
        client = Client(nodes, "x")
        await client.init()
        await client.write(T, "a")
        nodes.cut.add((1, 1))
        assert await client.end(commit=False) == 0
        await nodes.pass_ms(500)
        await nodes.stop(1)
        nodes.cut.clear()
        await nodes.restart(1)
        await nodes.pass_ms(1_000)
        assert described(nodes, client).state is S.COMPLETE_ABORT
        assert stable(nodes) == (2, 2)

    run(tmp_path, play)


def test_a_transaction_goes_on_without_partitions_that_were_deleted(tmp_path: Path) -> None:
    async def play(nodes: TransactionNodes) -> None:
        nodes.create(T, [1])
        nodes.create("gone", [1])
        client = Client(nodes, "x")
        await client.init()
        await client.write("gone", "a")
        client.sequence = 0
        await client.write(T, "b")
        nodes.delete("gone")
        assert await client.end(commit=True) == 0
        await nodes.pass_ms(500)
        assert described(nodes, client).state is S.COMPLETE_COMMIT

    run(tmp_path, play)


def test_an_id_that_nobody_uses_is_forgotten_for_good(tmp_path: Path) -> None:
    async def play(nodes: TransactionNodes) -> None:
        client = Client(nodes, "x")
        await client.init()
        await nodes.pass_ms(3_000)
        assert nodes.node(1).transactions.describe("x") is None
        await nodes.stop(1)
        await nodes.restart(1)
        await nodes.pass_ms(1_000)
        assert nodes.node(1).transactions.describe("x") is None
        again = Client(nodes, "x")
        await again.init()
        assert again.me.producer_id > 0

    run(
        tmp_path,
        play,
        transactional_id_expiration_ms="1000",
        transaction_remove_expired_transaction_cleanup_interval_ms="500",
    )


async def offsets(nodes: TransactionNodes, group: str, *, stable: bool) -> tuple[int, int]:
    """(committed offset, error code) of the group in T-0."""
    groups = m.OffsetFetchRequest.Groups
    request = m.OffsetFetchRequest(
        groups=[groups(group_id=group, topics=[groups.Topics(name=T, partition_indexes=[0])])], require_stable=stable
    )
    answer = await nodes.leader_of(group).ask(request, 9)
    row = answer.groups[0].topics[0].partitions[0]
    return row.committed_offset, row.error_code


async def commit_offset(nodes: TransactionNodes, client: Client, group: str, offset: int, **fields: Any) -> int:
    topic = m.TxnOffsetCommitRequest.Topics
    request = m.TxnOffsetCommitRequest(
        transactional_id=client.transactional_id,
        group_id=group,
        producer_id=client.me.producer_id,
        producer_epoch=client.me.epoch,
        topics=[topic(name=T, partitions=[topic.Partitions(partition_index=0, committed_offset=offset)])],
        **fields,
    )
    answer = await nodes.leader_of(group).ask(request, 5)
    return int(answer.topics[0].partitions[0].error_code)


def test_offsets_of_a_transaction_count_when_it_is_committed_and_never_when_it_is_aborted(tmp_path: Path) -> None:
    async def play(nodes: TransactionNodes) -> None:
        nodes.create(T, [1])
        client = Client(nodes, "x")
        await client.init()
        for offset, commit, kept in ((5, True, 5), (9, False, 5), (7, True, 7)):
            before = await offsets(nodes, "g", stable=True)
            assert await commit_offset(nodes, client, "g", offset) == 0
            assert await offsets(nodes, "g", stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
            assert await offsets(nodes, "g", stable=False) == before
            partition = coordinator_partition("g", PARTITIONS)
            assert {
                (topic_partition.topic, topic_partition.partition)
                for topic_partition in described(nodes, client).partitions
            } == {(OFFSETS_TOPIC, partition)}
            assert await client.end(commit=commit) == 0
            await nodes.pass_ms(500)
            assert await offsets(nodes, "g", stable=True) == (kept, 0)

    run(tmp_path, play)


def test_pending_offsets_survive_the_coordinator_of_their_group(tmp_path: Path) -> None:
    async def play(nodes: TransactionNodes) -> None:
        nodes.create(T, [1])
        client = Client(nodes, "x")
        await client.init()
        assert await commit_offset(nodes, client, "g", 5) == 0
        await nodes.stop(1)
        await nodes.restart(1)
        await nodes.pass_ms(500)
        assert await offsets(nodes, "g", stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        assert await client.end(commit=True) == 0
        await nodes.pass_ms(500)
        assert await offsets(nodes, "g", stable=True) == (5, 0)
        await nodes.stop(1)
        await nodes.restart(1)
        await nodes.pass_ms(500)
        assert await offsets(nodes, "g", stable=True) == (5, 0)

    run(tmp_path, play)


def test_offsets_are_refused_for_strangers_to_the_group_and_for_fenced_producers(tmp_path: Path) -> None:
    async def play(nodes: TransactionNodes) -> None:
        nodes.create(T, [1])
        client = Client(nodes, "x")
        await client.init()
        stranger = await commit_offset(nodes, client, "g", 5, member_id="nobody", generation_id=3)
        assert stranger == ErrorCode.ILLEGAL_GENERATION
        second = Client(nodes, "x")
        await second.init()
        assert await commit_offset(nodes, client, "g", 5) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await offsets(nodes, "g", stable=True) == (-1, 0)

    run(tmp_path, play)


def test_administrators_see_transactions_and_producers(tmp_path: Path) -> None:
    async def play(nodes: TransactionNodes) -> None:
        nodes.create(T, [1])
        client, idle = Client(nodes, "x"), Client(nodes, "idle")
        await client.init()
        await idle.init()
        await client.write(T, "a")
        answer = await nodes.node(1).ask(m.DescribeTransactionsRequest(transactional_ids=["x", "none", ""]), 0)
        codes = [row.error_code for row in answer.transaction_states]
        assert codes == [0, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, ErrorCode.INVALID_REQUEST]
        row = answer.transaction_states[0]
        assert (row.transaction_state, row.producer_id) == ("Ongoing", client.me.producer_id)
        assert [(topic.topic, topic.partitions) for topic in row.topics] == [(T, [0])]

        async def listed(**filters: Any) -> set[str]:
            result = await nodes.node(1).ask(m.ListTransactionsRequest(**filters), 2)
            return {transaction_state.transactional_id for transaction_state in result.transaction_states}

        assert await listed(transactional_id_pattern="i.*") == {"idle"}
        assert await listed(transactional_id_pattern="i") == set()
        assert await listed(transactional_id_pattern="x|idle", state_filters=["Ongoing"]) == {"x"}
        assert await listed(transactional_id_pattern="") == {"x", "idle"}
        refused = await nodes.node(1).ask(m.ListTransactionsRequest(transactional_id_pattern="(x"), 2)
        assert (refused.error_code, refused.transaction_states) == (ErrorCode.INVALID_REGULAR_EXPRESSION, [])

        assert await listed() == {"x", "idle"}
        assert await listed(state_filters=["Ongoing"]) == {"x"}
        assert await listed(producer_id_filters=[idle.me.producer_id]) == {"idle"}
        await nodes.pass_ms(2_000)
        assert await listed(duration_filter=1_000, state_filters=["Ongoing"]) == {"x"}
        assert await listed(duration_filter=60_000, state_filters=["Ongoing"]) == set()
        strange = await nodes.node(1).ask(m.ListTransactionsRequest(state_filters=["Sleeping"]), 0)
        assert strange.unknown_state_filters == ["Sleeping"]
        request = m.DescribeProducersRequest.Topics(name=T, partition_indexes=[0, 9])
        producers = await nodes.node(1).ask(m.DescribeProducersRequest(topics=[request]), 0)
        existing, missing = producers.topics[0].partitions
        assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        [active] = existing.active_producers
        assert (active.producer_id, active.current_txn_start_offset, active.last_sequence) == (
            client.me.producer_id, 0, 0
        )  # fmt: skip

    run(tmp_path, play)


def test_a_marker_of_version_2_must_have_a_later_epoch_unless_it_is_repeated(tmp_path: Path) -> None:
    async def play(nodes: TransactionNodes) -> None:
        nodes.create(T, [1])
        client = Client(nodes, "x")
        await client.init()
        await client.write(T, "a")
        marker = m.WriteTxnMarkersRequest.Markers

        async def write(epoch: int, version: int, coordinator_epoch: int = 5) -> int:
            request = m.WriteTxnMarkersRequest(
                markers=[
                    marker(
                        producer_id=client.me.producer_id,
                        producer_epoch=epoch,
                        transaction_result=True,
                        coordinator_epoch=coordinator_epoch,
                        transaction_version=version,
                        topics=[marker.Topics(name=T, partition_indexes=[0])],
                    )
                ]
            )
            answer = await nodes.node(1).ask(request, 2)
            return int(answer.markers[0].topics[0].partitions[0].error_code)

        assert await write(0, 2) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await write(1, 2) == 0
        assert await write(1, 2) == 0
        assert await write(1, 0, coordinator_epoch=4) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
        assert await write(0, 0) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert stable(nodes) == (3, 3)

    run(tmp_path, play)


def test_only_the_leader_of_its_partition_coordinates_a_transactional_id(tmp_path: Path) -> None:
    async def play(nodes: TransactionNodes) -> None:
        coordinator = nodes.coordinator_of("x").id
        other = next(node for node in (1, 2, 3) if node != coordinator)
        answer = await nodes.node(other).ask(
            m.EndTxnRequest(transactional_id="x", producer_id=1, producer_epoch=0, committed=True), 5
        )
        assert answer.error_code == ErrorCode.NOT_COORDINATOR
        answer = await nodes.node(coordinator).ask(
            m.EndTxnRequest(transactional_id="x", producer_id=1, producer_epoch=0, committed=True), 5
        )
        assert answer.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert nodes.play.image.topic(TRANSACTIONS_TOPIC) is not None

    run(tmp_path, play, brokers=3)
