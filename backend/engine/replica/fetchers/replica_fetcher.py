"""Replication from one leader broker: asks for all its partitions in one Fetch after the other.

One task keeps one long-polling Fetch at the leader. When a partition becomes ready meanwhile (new, rebuilt, its
back-off over) a second Fetch of the same session goes out at once, which makes the leader answer the first.
`fetch_state` says what every result means and `followed_partition` does it; plans run in `tier_state_runner`, so that
one partition's rebuilding delays no other. Kafka: `AbstractFetcherThread`, `ReplicaFetcherThread`, KIP-227.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final, assert_never

from backend.engine.log.log_errors import NoSpace
from backend.engine.ports import tasks
from backend.engine.replica.fetch_data import EpochEnd
from backend.engine.replica.fetchers import fetch_state, tier_state
from backend.engine.replica.fetchers.fetch_session_handler import FetchRequestData, FetchSessionHandler, FetchTarget
from backend.engine.replica.fetchers.fetch_state import FetchPartitionResult, FetchState
from backend.engine.replica.fetchers.followed_partition import FollowedPartition, FollowerKey
from backend.engine.replica.fetchers.leader_end_point import ConnectToLeader, LeaderConnection
from backend.engine.replica.fetchers.tier_state_runner import TierStateRunner
from backend.engine.replica.partition import Partition
from backend.engine.replica.partition_context import PartitionContext
from backend.protocol import messages as m
from backend.protocol.errors import DecodeError, ErrorCode, KafkaError, error_code
from backend.tiering.ids import TopicIdPartition

FETCH_VERSION: Final = 18
# A new session begins at once; every other error of a whole response waits for the back-off.
_SESSION_ERRORS: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
# Another fetch of the same records may bring them whole.
_DAMAGED_RECORDS: Final = frozenset({ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD})

_log = logging.getLogger(__name__)


class ReplicaFetcher:
    """Follows one broker. Use from the loop's thread."""

    def __init__(
        self, context: PartitionContext, leader: int, address: tuple[str, int], connect: ConnectToLeader
    ) -> None:
        self.leader = leader
        self.address = address
        self._context = context
        self._endpoint: LeaderConnection = connect(*address)
        self._plans = TierStateRunner(context, address, connect, self._plan_ended)
        self._followers: dict[FollowerKey, FollowedPartition] = {}
        self._session: FetchSessionHandler[FollowerKey] = FetchSessionHandler()
        # Partitions whose values may differ from what the session knows.
        self._dirty: dict[FollowerKey, None] = {}
        self._delayed: dict[FollowerKey, float] = {}
        self._timer: tasks.TimerHandle | None = None
        self._timer_ms = 0.0
        self._wake = tasks.Event()
        self._in_flight = 0
        self._task: tasks.Task[None] | None = None
        self._stopped = False

    # --- partitions

    def start(self) -> None:
        """Begins to fetch."""
        self._task = tasks.spawn(self._run(), name=f"fetcher of broker {self._context.node_id} from {self.leader}")

    async def stop(self) -> None:
        """Ends all work; partitions keep what they have."""
        self._stopped = True
        for follower in self._followers.values():
            follower.dropped = True
        if self._timer is not None:
            self._timer.cancel()
        await self._plans.stop()
        await tasks.cancel(self._task)
        self._endpoint.close()

    @property
    def is_empty(self) -> bool:
        return not self._followers

    def state_of(self, tip: TopicIdPartition) -> FetchState | None:
        """The state of a partition; None when it is not followed here."""
        follower = self._followers.get((tip.topic_id, tip.partition))
        return None if follower is None else follower.state

    def max_lag(self) -> int:
        """The largest known lag, in records."""
        return max((follower.state.lag or 0 for follower in list(self._followers.values())), default=0)

    def add(self, partition: Partition) -> None:
        """Follows a partition from where its log stands, under its present leader epoch."""
        self.remove(partition.topic_id_partition)
        follower = FollowedPartition(self._context, partition, self.leader)
        self._followers[follower.key] = follower
        try:
            follower.prepare()
        except KafkaError as error:
            follower.fail(error.message)
        self._may_differ(follower.key)

    def remove(self, tip: TopicIdPartition) -> None:
        """Follows the partition no longer."""
        key = (tip.topic_id, tip.partition)
        follower = self._followers.pop(key, None)
        if follower is None:
            return
        follower.dropped = True
        self._delayed.pop(key, None)
        self._plans.cancel(key)
        self._dirty[key] = None

    def note_isr(self, tip: TopicIdPartition) -> None:
        """Metadata changed the ISR of a followed partition."""
        follower = self._followers.get((tip.topic_id, tip.partition))
        if follower is not None:
            follower.note_isr()

    # --- requests

    def _may_differ(self, key: FollowerKey) -> None:
        """The partition is to be asked for, or asked for otherwise, as soon as possible."""
        self._dirty[key] = None
        if not self._wake.is_set():
            self._wake.set()
            # A Fetch that waits at the leader knows nothing of this: send another, with all that come together.
            tasks.call_soon(self._send_second)

    def _send_second(self) -> None:
        if self._second_is_due():
            tasks.spawn(self._second(), name=f"second fetch of broker {self._context.node_id} from {self.leader}")

    def _second_is_due(self) -> bool:
        if self._stopped or self._in_flight != 1 or not self._session.established:
            return False
        # A partition that is only to be forgotten can wait for the next request.
        return self._session.would_change(self._targets(self._dirty)[0])

    async def _second(self) -> None:
        # The first may have been answered since, and the next of its kind may have carried the change along. No pause
        # between making a request and sending it: the leader refuses epochs that come out of order.
        if self._second_is_due() and (request := self._next_request()) is not None:
            await self._exchange(request)
            # The first Fetch may be waiting at the leader again, with what it knew before this answer. A change that
            # came while two were under way could not send one either, whether it has set `_wake` or not.
            if self._dirty:
                self._wake.set()
                tasks.call_soon(self._send_second)

    async def _run(self) -> None:
        while not self._stopped:
            self._wake.clear()
            request = self._next_request()
            if request is None:
                await self._wake.wait()
                continue
            await self._exchange(request)

    def _targets(self, keys: Iterable[FollowerKey]) -> tuple[dict[FollowerKey, FetchTarget], list[FollowerKey]]:
        """The partitions that are ready, with their targets, and those that are not."""
        now_ms = self._context.clock.monotonic_ms()
        ready: dict[FollowerKey, FetchTarget] = {}
        not_ready: list[FollowerKey] = []
        for key in keys:
            follower = self._followers.get(key)
            if follower is not None and follower.state.is_ready(now_ms):
                if follower.is_throttled(now_ms):
                    self._ask_later(key, now_ms)
                    not_ready.append(key)
                    continue
                ready[key] = follower.target()
            else:
                not_ready.append(key)
        return ready, not_ready

    def _next_request(self) -> FetchRequestData[FollowerKey] | None:
        established = self._session.established
        ready, not_ready = self._targets(self._dirty if established else self._followers)
        self._dirty = {}
        if not ready and (not established or self._session.would_be_empty(not_ready)):
            self._session.reset()
            return None
        return self._session.next_request(ready, not_ready)

    def _encoded(self, request: FetchRequestData[FollowerKey]) -> m.FetchRequest:
        fetch = m.FetchRequest
        topics: dict[bytes, m.FetchRequest.Topics] = {}
        for (topic_id, index), target in request.changed.items():
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = fetch.Topics(topic_id=topic_id)
            topic.partitions.append(
                fetch.Topics.Partitions(
                    partition=index,
                    current_leader_epoch=target.leader_epoch,
                    fetch_offset=target.fetch_offset,
                    last_fetched_epoch=target.last_fetched_epoch,
                    log_start_offset=target.log_start_offset,
                    partition_max_bytes=target.max_bytes,
                    high_watermark=target.high_watermark,
                )
            )
        forgotten: dict[bytes, list[int]] = {}
        for topic_id, index in request.forgotten:
            forgotten.setdefault(topic_id, []).append(index)
        config = self._context.metadata.config
        return fetch(
            max_wait_ms=config.replica_fetch_wait_max_ms,
            min_bytes=config.replica_fetch_min_bytes,
            max_bytes=config.replica_fetch_response_max_bytes,
            session_id=request.session_id,
            session_epoch=request.epoch,
            topics=list(topics.values()),
            forgotten_topics_data=[
                fetch.ForgottenTopicsData(topic_id=topic_id, partitions=indexes)
                for topic_id, indexes in forgotten.items()
            ],
            replica_state=fetch.ReplicaState(
                replica_id=self._context.node_id, replica_epoch=self._context.metadata.broker_epoch
            ),
        )

    async def _exchange(self, request: FetchRequestData[FollowerKey]) -> None:
        """One Fetch and its answer."""
        timeout_ms = self._context.metadata.config.replica_socket_timeout_ms
        self._in_flight += 1
        try:
            response = await self._endpoint.send(self._encoded(request), FETCH_VERSION, timeout_ms=timeout_ms)
        except (KafkaError, DecodeError) as error:
            if self._session.is_current(request):
                self._lost(f"broker {self.leader} cannot be fetched from: {error}")
            return
        finally:
            self._in_flight -= 1
        assert isinstance(response, m.FetchResponse)
        if not self._session.is_current(request):
            return
        error_of_all = error_code(response.error_code)
        if not self._session.answered(request, error_of_all, response.session_id):
            if error_of_all not in _SESSION_ERRORS:
                self._lost(f"broker {self.leader} refused to be fetched from: {error_of_all.name}")
            return
        for topic in response.responses:
            for row in topic.partitions:
                self._on_row((topic.topic_id, row.partition_index), request, row)

    def _lost(self, reason: str) -> None:
        """The connection, not a partition, has a problem: everything is tried again after the back-off."""
        if self._stopped:
            return
        self._session.reset()
        for follower in self._followers.values():
            if not follower.state.busy and not follower.state.failed:
                self._delay(follower, reason)

    # --- answers

    def _on_row(
        self, key: FollowerKey, request: FetchRequestData[FollowerKey], row: m.FetchResponse.Responses.Partitions
    ) -> None:
        follower = self._followers.get(key)
        target = self._session.target(key, request)
        if follower is None or target is None:
            return
        state = follower.state
        if not state.matches(target.fetch_offset, target.leader_epoch) or state.busy or state.failed:
            return
        ends = row.diverging_epoch
        result = FetchPartitionResult(
            error_code(row.error_code),
            row.high_watermark,
            row.log_start_offset,
            EpochEnd(ends.epoch, ends.end_offset) if ends.end_offset >= 0 else None,
        )
        decision = fetch_state.decide(
            state,
            result,
            request_leader_epoch=target.leader_epoch,
            log_end_offset=follower.partition.log.log_end_offset,
        )
        try:
            self._carry_out(follower, decision, target, row)
        except KafkaError as error:
            if error.code in _DAMAGED_RECORDS:
                self._delay(follower, f"records of broker {self.leader} were refused: {error.message}")
            elif isinstance(error, NoSpace):
                self._delay(follower, error.message)
            else:
                follower.fail(error.message)
        except Exception as error:
            # One partition's error must not stop the others of this leader.
            _log.exception("%s could not take over an answer of broker %d", follower, self.leader)
            follower.fail(repr(error))
        self._dirty[key] = None

    def _carry_out(
        self,
        follower: FollowedPartition,
        decision: fetch_state.FetchDecision,
        target: FetchTarget,
        row: m.FetchResponse.Responses.Partitions,
    ) -> None:
        match decision:
            case fetch_state.Append():
                follower.append(target, row)
            case fetch_state.Truncate(leader=leader_end):
                follower.truncate(leader_end)
            case fetch_state.ResolveOutOfRange():
                self._start_plan(follower, tier_state.out_of_range(follower.view()))
            case fetch_state.ResolveTiered():
                self._start_plan(follower, tier_state.moved_to_tiered_storage(follower.view()))
            case fetch_state.Retry(reason=reason, behind=behind):
                self._delay(follower, f"{reason} (broker {self.leader})", behind=behind)
            case fetch_state.Fail(reason=reason, expected=expected):
                follower.fail(reason, expected=expected)
            case _:
                assert_never(decision)

    # --- failures and plans

    def _delay(self, follower: FollowedPartition, reason: str, *, behind: bool = False) -> None:
        follower.delay(reason, behind=behind)
        self._note_delay(follower)

    def _note_delay(self, follower: FollowedPartition) -> None:
        resume_ms = follower.state.resume_ms
        if resume_ms is None:
            return
        self._dirty[follower.key] = None
        self._resume_at(follower.key, resume_ms)

    def _ask_later(self, key: FollowerKey, now_ms: float) -> None:
        """A throttle holds the partition back: it is looked at again after the back-off."""
        if key not in self._delayed:
            self._resume_at(key, now_ms + self._context.metadata.config.replica_fetch_backoff_ms)

    def _resume_at(self, key: FollowerKey, resume_ms: float) -> None:
        self._delayed[key] = resume_ms
        if self._timer is None or resume_ms < self._timer_ms:
            self._set_timer(resume_ms)

    def _set_timer(self, due_ms: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = due_ms
        self._timer = tasks.call_later(max(0.0, due_ms - self._context.clock.monotonic_ms()), self._resume)

    def _resume(self) -> None:
        self._timer = None
        now_ms = self._context.clock.monotonic_ms()
        for key in [key for key, resume_ms in self._delayed.items() if resume_ms <= now_ms]:
            del self._delayed[key]
            self._may_differ(key)
        if self._delayed:
            self._set_timer(min(self._delayed.values()))

    def _start_plan(self, follower: FollowedPartition, plan: tier_state.TierStatePlan) -> None:
        follower.plan()
        self._dirty[follower.key] = None
        self._plans.start(follower, plan)

    def _plan_ended(self, follower: FollowedPartition) -> None:
        if follower.state.resume_ms is not None:
            self._note_delay(follower)
        else:
            self._may_differ(follower.key)
