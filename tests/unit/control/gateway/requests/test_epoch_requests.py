"""The chain of leader epochs, asked downward; the peer is a table of what a leader's cache answers."""

from __future__ import annotations

import pytest

from backend.control.gateway.requests.epoch_requests import ChainRequest, EpochChain, _Walk, from_log_start
from backend.control.observer.follower_epochs import epoch_at, follower_chain
from backend.control.observer.sampling.cluster_facts import EpochPoint

Entries = tuple[tuple[int, int], ...]


def answer(cache: Entries, log_end: int, epoch: int) -> tuple[int, int]:
    """Returns the response of a leader with this cache (semantics of LeaderEpochFileCache.endOffsetFor)."""
    if not cache or epoch == -1 or epoch > cache[-1][0]:
        return -1, -1
    if epoch == cache[-1][0]:
        return epoch, log_end
    higher = [entry for entry in cache if entry[0] > epoch]
    lower = [entry for entry in cache if entry[0] <= epoch]
    return (lower[-1][0] if lower else epoch), higher[0][1]


def walk(
    cache: Entries, log_end: int, *, leader_epoch: int, log_start: int = 0, earlier: Entries = ()
) -> tuple[Entries, int]:
    """The chain that is found, and with how many questions."""
    state = _Walk(ChainRequest(leader_epoch, log_start, log_end, earlier), [], leader_epoch)
    for questions in range(1, 1000):
        if state.record_epoch_end(*answer(cache, log_end, state.ask)):
            return state.chain(complete=True).entries, questions
    raise AssertionError("the walk does not end")


@pytest.mark.parametrize(
    ("cache", "log_end", "log_start"),
    [
        (((0, 0),), 10, 0),
        (((0, 0),), 0, 0),
        (((0, 0), (2, 5)), 11, 0),
        (((2, 6),), 11, 6),
        (((0, 0), (1, 15_000), (2, 35_000)), 52_000, 0),
        (((3, 40), (7, 90)), 100, 40),
        (((0, 0), (1, 10), (2, 10)), 10, 0),
    ],
)
def test_the_leaders_cache_is_found_as_it_is(cache: Entries, log_end: int, log_start: int) -> None:
    chain, _ = walk(cache, log_end, leader_epoch=cache[-1][0], log_start=log_start)
    assert chain == from_log_start(cache, log_start)


def test_a_leader_whose_own_epoch_has_no_entry_yet_is_asked_below_it() -> None:
    chain, _ = walk(((0, 0), (2, 5)), 11, leader_epoch=4)
    assert chain == ((0, 0), (2, 5))


def test_an_empty_cache_ends_the_walk() -> None:
    chain, questions = walk((), 0, leader_epoch=3)
    assert chain == ()
    assert questions <= 5


def test_what_was_known_before_is_not_asked_again() -> None:
    cache = tuple((epoch, epoch * 10) for epoch in range(50))
    chain, questions = walk(cache, 500, leader_epoch=49, earlier=cache[:-1])
    assert chain == cache
    assert questions == 3


def test_a_chain_that_was_replaced_below_is_asked_until_it_agrees() -> None:
    before = ((0, 0), (1, 10), (2, 20))
    cache = ((0, 0), (1, 10), (3, 15), (4, 30))
    chain, _ = walk(cache, 40, leader_epoch=4, earlier=before)
    assert chain == cache


def test_a_log_start_that_moved_on_cuts_the_chain() -> None:
    assert from_log_start(((0, 0), (1, 10), (2, 20)), 15) == ((1, 15), (2, 20))
    assert from_log_start(((0, 0), (1, 10)), 10) == ((1, 10),)
    assert EpochChain(()).complete


LEADER = ((0, 0), (1, 10), (2, 20))


def test_a_follower_has_the_leaders_epochs_up_to_its_own_log_end() -> None:
    chain = follower_chain(LEADER, [EpochPoint(0, 0), EpochPoint(12, 1)], 0, 18, 30)
    assert chain.entries == ((0, 0), (1, 10))
    assert chain.disagrees is None


def test_a_follower_that_names_another_epoch_disagrees_from_there_on() -> None:
    chain = follower_chain(LEADER, [EpochPoint(0, 0), EpochPoint(22, 1)], 0, 25, 30)
    assert chain.disagrees == EpochPoint(22, 1)
    assert chain.entries[-1][0] == 1


@pytest.mark.parametrize("log_end", [0, 10])
def test_a_follower_has_no_epoch_where_it_has_no_record(log_end: int) -> None:
    """An idle partition whose leader was elected again: it announces an epoch that no record has."""
    elected = (*([(0, 0)] if log_end else []), (2, log_end))
    chain = follower_chain(elected, [EpochPoint(log_end, 0)], 0, log_end, log_end + 5)
    assert chain.disagrees is None
    assert chain.entries == (((0, 0),) if log_end else ((2, 0),))
    # Records of different epochs differ; of what the leader has none, nothing is compared.
    differing = follower_chain(elected, [EpochPoint(log_end, 0)], 0, log_end + 1, log_end + 1)
    assert differing.disagrees == EpochPoint(log_end, 0)
    assert follower_chain(elected, [EpochPoint(log_end, 0)], 0, log_end + 1, log_end).disagrees is None


def test_an_empty_partition_whose_leader_moved_is_no_contradiction() -> None:
    """Seen on a healthy Apache Kafka 4.3.1: dozens of criticals after each rolling restart."""
    assert follower_chain([(2, 0)], [EpochPoint(0, 1)], 0, 0, 0).disagrees is None
    # Expired: it was full, its log starts where it ends.
    assert follower_chain([(5, 4096)], [EpochPoint(4096, 3)], 4096, 4096, 4096).disagrees is None


def test_a_leader_that_did_not_answer_is_compared_with_nobody() -> None:
    assert follower_chain(LEADER, [EpochPoint(22, 1)], 0, 25, None).disagrees is None


def test_an_offset_below_the_chain_has_no_epoch() -> None:
    assert [epoch_at(((1, 10), (3, 30)), offset) for offset in (9, 10, 29, 30, 99)] == [None, 1, 1, 3, 3]
