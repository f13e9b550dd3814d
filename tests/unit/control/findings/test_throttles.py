"""Throttles: which replicas they hold back, what they explain, and moves that they let wait."""

from __future__ import annotations

from typing import Any

from backend.control.findings.causes import with_causes
from backend.control.findings.evaluate import candidates
from backend.control.findings.finding_context import Candidate, FindingKey, ThrottleSetting
from backend.control.findings.held_replicas import holding_throttles
from backend.control.findings.move_throttles import MoveThrottles, remember_throttles
from tests.unit.control.findings.sights import MINUTE_MS, NOW_MS, context, partition, replica

LEADERS = "leader.replication.throttled.replicas"
LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWERS = "follower.replication.throttled.replicas"
FOLLOWER_RATE = "follower.replication.throttled.rate"
LEFT = [ThrottleSetting(LEADERS, "*", topic="orders"), ThrottleSetting(LEADER_RATE, "1", broker_id=1)]
STUCK: dict[str, Any] = {
    "replicas": [replica(2, in_isr=False, phase="DELAYED", log_end_offset=900)],
    "moved_ms": {("orders", 0, 2): NOW_MS - MINUTE_MS},
}


def raised(**more: Any) -> dict[FindingKey, Candidate]:
    return with_causes(candidates(context(**STUCK | more)))


def test_a_replica_is_held_back_by_a_rate_of_its_broker_and_the_list_of_its_topic() -> None:
    row = partition()
    assert [t.name for t in holding_throttles(LEFT, row, 2)] == [LEADER_RATE, LEADERS]
    assert holding_throttles(LEFT[:1], row, 2) == [], "no rate"
    assert holding_throttles(LEFT[1:], row, 2) == [], "no list"
    assert holding_throttles([LEFT[0], ThrottleSetting(LEADER_RATE, "1", broker_id=3)], row, 2) == []
    listed = [ThrottleSetting(FOLLOWERS, "0:2,1:3", topic="orders"), ThrottleSetting(FOLLOWER_RATE, "9", broker_id=-1)]
    assert len(holding_throttles(listed, row, 2)) == 2
    assert holding_throttles(listed, row, 3) == []


def test_a_replica_that_a_left_throttle_keeps_out_stands_under_it_and_names_it() -> None:
    result = raised(throttles=LEFT, partitions=[partition(isr=(1, 3))])
    stuck = result["follower-stuck", "orders-0 on broker 2"]
    assert stuck.cause == ("throttle-left", "cluster")
    assert stuck.facts["rule"] == "throttled"
    assert stuck.why.startswith(
        "A throttle holds it back: leader.replication.throttled.rate of broker 1 is 1,"
        " leader.replication.throttled.replicas of orders is *."
    )
    assert "log" not in stuck.action
    assert "throttles of orders" in stuck.action


def test_a_new_replica_that_is_limited_while_it_fetches_is_a_stalled_move_and_not_stuck() -> None:
    """The embedded engine keeps the reason of the last truncation, which is none of the present."""
    cut = {"reason": "no leader epochs on disk: cut back to the high watermark 0"}
    new = replica(2, in_isr=False, phase="FETCHING", log_end_offset=900, evidence=cut)
    moves = [partition(isr=(1, 3), adding_replicas=(2,))]
    result = raised(throttles=LEFT, partitions=moves, replicas=[new])
    assert ("follower-stuck", "orders-0 on broker 2") not in result
    assert result["move-stalled", "orders-0"].cause is None
    (stuck,) = (c for c in raised(partitions=moves, replicas=[new]).values() if c.slug == "follower-stuck")
    assert cut["reason"] not in stuck.why


def test_a_throttle_of_another_topic_explains_no_stuck_replica() -> None:
    other = [ThrottleSetting(LEADERS, "*", topic="logs"), LEFT[1]]
    stuck = raised(throttles=other, partitions=[partition(isr=(1, 3))])["follower-stuck", "orders-0 on broker 2"]
    assert stuck.cause is None
    assert "throttle" not in stuck.why


def test_a_replica_whose_broker_says_why_it_is_stuck_is_not_said_to_be_throttled() -> None:
    evidence = {"rule": "event", "reason": "No remote segment holds offset 5."}
    rows = [replica(2, in_isr=False, phase="DELAYED", log_end_offset=900, evidence=evidence)]
    stuck = raised(throttles=LEFT, partitions=[partition(isr=(1, 3))], replicas=rows)
    assert stuck["follower-stuck", "orders-0 on broker 2"].why.startswith("No remote segment")


MOVING = [partition(isr=(1, 3), adding_replicas=(2,))]


def test_a_move_that_its_limit_lets_not_through_is_one_finding_that_names_the_limit() -> None:
    result = {key: c for key, c in raised(throttles=LEFT, partitions=MOVING).items() if key[0] != "move-foreign"}
    assert set(result) == {("move-stalled", "orders-0")}
    stalled = result["move-stalled", "orders-0"]
    assert stalled.for_ms == 30_000
    assert "A throttle limits it: leader.replication.throttled.rate of broker 1 is 1" in stalled.why
    assert stalled.action.startswith("Raise the throttle, or cancel")


def test_a_move_of_many_partitions_that_take_turns_under_a_limit_is_not_stalled() -> None:
    second = partition(index=1, isr=(1, 3), adding_replicas=(2,))
    throttles = [ThrottleSetting(LEADERS, "*", topic="orders"), LEFT[1]]
    moved = {("orders", 0, 2): NOW_MS - MINUTE_MS, ("orders", 1, 2): NOW_MS - 5_000}
    assert ("move-stalled", "orders-0") not in raised(throttles=throttles, partitions=[*MOVING, second], moved_ms=moved)
    without = raised(throttles=[], partitions=[*MOVING, second], moved_ms=moved)
    assert ("move-stalled", "orders-0") in without


RATE = ThrottleSetting(LEADER_RATE, "1", broker_id=1)
LIST = ThrottleSetting(LEADERS, "*", topic="orders")
MINUTES_10 = 10 * MINUTE_MS


def left(memory: MoveThrottles, at_ms: int) -> bool:
    """Whether throttle-left is raised once the move has ended."""
    given = context(throttles=[RATE, LIST], move_throttles=memory.in_use(at_ms))
    return ("throttle-left", "cluster") in candidates(given)


def test_throttles_of_a_move_are_left_ten_minutes_after_it_was_last_seen() -> None:
    memory = remember_throttles(MoveThrottles(), [RATE, LIST], MOVING, 0)
    memory = remember_throttles(memory, [RATE, LIST], [partition()], 5_000)
    assert not left(memory, MINUTES_10 - 1)
    assert left(memory, MINUTES_10)


def test_a_short_move_that_ended_before_its_throttles_were_read_counts() -> None:
    memory = remember_throttles(MoveThrottles(), [], MOVING, 0)
    seen = remember_throttles(memory, [RATE, LIST], [partition()], 15_000)
    assert not left(seen, MINUTES_10 - 1)
    late = remember_throttles(memory, [RATE, LIST], [partition()], 20_000)
    assert left(late, 20_000)


def test_throttles_without_a_move_are_left_at_once_and_so_are_those_that_are_set_again() -> None:
    memory = remember_throttles(MoveThrottles(), [RATE, LIST], [partition()], 0)
    assert left(memory, 0)
    of_move = remember_throttles(memory, [RATE, LIST], MOVING, MINUTE_MS)
    assert not left(of_move, MINUTE_MS)
    cleared = remember_throttles(of_move, [], [partition()], 2 * MINUTE_MS)
    assert left(remember_throttles(cleared, [RATE, LIST], [partition()], 3 * MINUTE_MS), 3 * MINUTE_MS)


def test_a_move_of_another_topic_uses_no_throttle_of_this_one() -> None:
    other = [partition(name="logs", replicas=(2, 3), adding_replicas=(3,))]
    memory = remember_throttles(MoveThrottles(), [RATE, LIST], other, 0)
    assert memory.in_use(0) == frozenset()
