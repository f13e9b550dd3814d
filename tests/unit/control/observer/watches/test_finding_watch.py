"""The watch over findings on a real database: maintenance windows, mutes, and clocks that are set."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from backend.control.alerts.notices import OpenAlerts
from backend.control.control_database import Database
from backend.control.findings.endangered_partitions import EndangeredPartition, EndangeredPartitions
from backend.control.findings.finding_context import ClusterSilence, RoundAge
from backend.control.findings.open_in_memory import AWAY
from backend.control.findings.thresholds import RuleSetting, RuleSettings
from backend.control.gateway.requests.config_requests import ConfigEntry
from backend.control.gateway.requests.metadata_requests import PartitionMetadata
from backend.control.gateway.requests.rights_requests import TOPICS, MissingRight
from backend.control.observer.sampling.settings_sample import SettingsSample
from backend.control.observer.sampling_round import SamplingRound
from backend.control.observer.watches import finding_watch
from backend.control.observer.watches.finding_contexts import ObservedLiveness, ObservedRound
from backend.control.observer.watches.finding_watch import FindingWatch
from backend.control.observer.watches.liveness_watch import BrokerLiveness, Liveness
from backend.protocol.config_enums import ConfigSource, ConfigType
from backend.protocol.errors import ErrorCode
from backend.store.connection.database import reading, writing
from backend.store.connection.limits import SERVING
from backend.store.queries import findings as queries
from backend.store.writes.finding_rows import mute_findings
from backend.store.writes.maintenance_rows import add_window, end_window
from backend.store.writes.samples import PartitionSample, ReplicaSample
from backend.tiering.ids import TopicPartition
from tests.databases import new_sqlite
from tests.unit.control.findings.sights import MINUTE_MS, NOW_MS, broker, partition, replica, topic

HOUR_MS = 60 * MINUTE_MS
REFUSED = ("truncation-refused", "orders-0 on broker 2")


def observed(
    at_ms: int, partitions: Sequence[PartitionSample] = (), replicas: Sequence[ReplicaSample] = ()
) -> ObservedRound:
    round_ = SamplingRound(at_ms, tuple(partitions), tuple(replicas), {}, {})
    topics = [asdict(topic()), asdict(topic("__remote_log_metadata"))]
    return ObservedRound(round_, [asdict(broker(number)) for number in (1, 2, 3)], topics, SettingsSample())


class Watched:
    """A watch that is given rounds one by one."""

    def __init__(self, url: str, **more: Any) -> None:
        self.database = Database(url)
        self.runner = asyncio.Runner()
        self.states: list[OpenAlerts] = []
        self.monotonic_ms = 1_000
        self.watch = FindingWatch(
            self.database, "c1", notify=self.states.append, monotonic_ms=lambda: self.monotonic_ms, **more
        )

    def play(self, *rounds: tuple[int, ObservedRound | ObservedLiveness]) -> OpenAlerts:
        """The state after these rounds, each with the time that the monotonic clock has then."""

        async def run() -> None:
            task = asyncio.create_task(self.watch.run())
            for monotonic_ms, seen in rounds:
                self.monotonic_ms = monotonic_ms
                states = len(self.states)
                if isinstance(seen, ObservedRound):
                    self.watch.submit(seen)
                else:
                    self.watch.submit_liveness(seen)
                async with asyncio.timeout(60):
                    while len(self.states) == states:
                        await asyncio.sleep(0.005)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        self.runner.run(run())
        return self.states[-1]

    def close(self) -> None:
        self.runner.run(self.database.close())
        self.runner.close()


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Watched]]:
    # The pause after a round is twenty times what the round took.
    monkeypatch.setattr(finding_watch, "SHARE_MAX", 1.0)
    watches: list[Watched] = []

    def make(**more: Any) -> Watched:
        watches.append(Watched(new_sqlite(tmp_path / f"{len(watches)}.db"), **more))
        return watches[-1]

    yield make
    for watched in watches:
        watched.close()


def window(watched: Watched, **more: Any) -> int:
    row = {"cluster_id": "c1", "begins_ms": NOW_MS - 1, "ends_ms": NOW_MS + HOUR_MS, "slug": None, "topic": "ord*",
           "broker_id": None, "reason": "x", "created_ms": 0, "created_by": "ada"}  # fmt: skip
    with writing(watched.database.engine) as connection:
        return add_window(connection, row | more)


def refused(at_ms: int) -> ObservedRound:
    evidence = {"rule": "keeps-acknowledged-records", "reason": "it would be cut"}
    keeps = replica(2, phase="FAILED", in_isr=False, log_end_offset=900, evidence=evidence)
    return observed(at_ms, [partition()], [replica(1), keeps, replica(3)])


def test_a_finding_in_a_window_is_stored_and_sent_when_the_window_ends(made: Callable[..., Watched]) -> None:
    watched = made()
    number = window(watched)
    state = watched.play((1_000, refused(NOW_MS)))
    assert (REFUSED in state.withheld, state.open, watched.watch.open_counts) == (True, {}, {})
    with writing(watched.database.engine) as connection:
        assert [finding.slug for finding in queries.all_open(connection, "c1")] == ["truncation-refused"]
        end_window(connection, "c1", number, NOW_MS + 2_000)
    state = watched.play((3_000, refused(NOW_MS + 2_000)))
    assert (set(state.open), set(state.withheld)) == ({REFUSED}, set())
    assert watched.watch.open_counts == {("truncation-refused", "critical"): 1}
    assert state.open[REFUSED].opened_ms == NOW_MS


def test_a_window_that_runs_out_is_as_one_that_is_ended(made: Callable[..., Watched]) -> None:
    watched = made()
    window(watched, ends_ms=NOW_MS + 1_000)
    assert watched.play((1_000, refused(NOW_MS))).open == {}
    assert watched.play((2_000, refused(NOW_MS + 1_000))).open.keys() == {REFUSED}


def test_what_is_muted_is_sent_when_the_silence_ends(made: Callable[..., Watched]) -> None:
    watched = made()
    watched.play((1_000, refused(NOW_MS)))
    with writing(watched.database.engine) as connection:
        mute_findings(connection, "c1", *REFUSED, NOW_MS + 5_000)
    assert REFUSED in watched.play((3_000, refused(NOW_MS + 2_000))).withheld
    assert REFUSED in watched.play((9_000, refused(NOW_MS + 8_000))).open


@pytest.mark.parametrize("jump_ms", [HOUR_MS, -HOUR_MS])
def test_a_wall_clock_that_is_set_neither_opens_nor_delays_a_finding(
    jump_ms: int, made: Callable[..., Watched]
) -> None:
    watched = made()
    differs = [replica(1), replica(2, evidence={"disagrees_with_leader_at": 400}), replica(3)]

    def seen(at_ms: int) -> ObservedRound:
        return observed(at_ms, [partition()], differs)

    state = watched.play((1_000, seen(NOW_MS)), (3_000, seen(NOW_MS + jump_ms)), (15_900, seen(NOW_MS + jump_ms + 1)))
    assert state.open == {}, "it has held for 14.9 s"
    state = watched.play((16_000, seen(NOW_MS + jump_ms + 100)))
    assert {slug for slug, _ in state.open} == {"divergence"}


def test_a_rule_that_the_file_switches_off_closes_what_it_had_opened(made: Callable[..., Watched]) -> None:
    settings = [RuleSettings()]
    watched = made(rule_settings=lambda: settings[-1])
    assert REFUSED in watched.play((1_000, refused(NOW_MS))).open
    settings.append(RuleSettings((RuleSetting("truncation-refused", off=True),)))
    assert watched.play((3_000, refused(NOW_MS + 2_000))).open == {}


def test_rounds_that_are_not_judged_show_their_age(made: Callable[..., Watched]) -> None:
    watched = made()
    assert watched.watch.behind_ms == 0
    watched.watch.submit(refused(NOW_MS))
    watched.monotonic_ms += 7_000
    watched.watch.submit(refused(NOW_MS))
    assert watched.watch.behind_ms == 7_000
    watched.play((9_000, refused(NOW_MS)))
    assert watched.watch.behind_ms == 0


def alive(at_ms: int, *, away: str | None = None, leader: int = 1) -> ObservedLiveness:
    """All brokers answer, or none; one partition."""
    lost = ClusterSilence(at_ms - 2_000, away) if away is not None else None
    led = PartitionMetadata("orders", b"o" * 16, 0, leader, 1, (1, 2, 3), (1, 2, 3), (), ErrorCode.NONE)
    brokers = {number: BrokerLiveness(number, at_ms) for number in (1, 2, 3)}
    rows = [asdict(broker(number)) for number in (1, 2, 3)]
    return ObservedLiveness(Liveness(at_ms, brokers, (led,), away=lost), rows, [asdict(topic())])


def test_a_principal_without_any_right_sees_no_topic_and_is_told_what_it_lacks(
    made: Callable[..., Watched],
) -> None:
    watched, seen = made(), alive(NOW_MS)
    blind = replace(seen.liveness, partitions=(), missing_rights=(MissingRight("Describe", TOPICS),))
    state = watched.play((1_000, ObservedLiveness(blind, seen.brokers, [])))
    assert state.open.keys() == {("rights-missing", "cluster")}


def test_a_last_leader_that_lacks_records_counts_down_by_the_setting_of_the_newest_round(
    made: Callable[..., Watched],
) -> None:
    watched, orders_0 = made(attached=True), TopicPartition("orders", 0)
    name, kind = "leader.imbalance.check.interval.seconds", ConfigType.LONG
    checks = {name: ConfigEntry(name, "60", ConfigSource.STATIC_BROKER_CONFIG, kind, True, False, ())}
    watched.play((1_000, replace(refused(NOW_MS), settings=SettingsSample(brokers={1: checks}))))
    lacks = EndangeredPartition(orders_0, 3, {1: (4, 1000), 3: (-1, 0)}, NOW_MS - 10_000)
    seen = alive(NOW_MS, leader=-1)
    seen = replace(seen, liveness=replace(seen.liveness, endangered=EndangeredPartitions({orders_0: lacks})))
    state = watched.play((2_000, seen))
    assert (state.open["last-leader-behind", "broker 3"].evidence or {})["within_s"] == 50


def test_while_no_broker_answers_all_else_is_explained_and_stays_as_it_was_seen_last(
    made: Callable[..., Watched],
) -> None:
    watched = made()
    watched.play((1_000, refused(NOW_MS)))
    watched.play((1_000, alive(NOW_MS + 1, leader=-1)))
    state = watched.play((3_000, alive(NOW_MS + 5_000, away="No broker answers.")))
    state = watched.play((5_000, alive(NOW_MS + 7_000, away="No broker answers.")))
    assert state.open.keys() == {("cluster-away", "cluster")}
    assert state.explained.keys() == {REFUSED, ("offline", "orders-0")}
    state = watched.play((20_000, alive(NOW_MS + 27_000, away="No broker answers.")))
    with reading(watched.database.engine) as connection:
        seen_ms = {finding.slug: finding.seen_ms for finding in queries.all_open(connection, "c1")}
    assert seen_ms["truncation-refused"] == NOW_MS, "nobody has seen it since"
    assert seen_ms["cluster-away"] == NOW_MS + 27_000
    # It is back: what is no more so closes, what is still so stands for itself.
    state = watched.play((22_000, alive(NOW_MS + 29_000)), (23_000, refused(NOW_MS + 29_500)))
    assert state.open == {}, "what its silence has explained may end with it"
    state = watched.play((43_000, refused(NOW_MS + 49_500)))
    assert state.open.keys() == {REFUSED}


def test_a_new_process_closes_nothing_before_it_has_seen_it(made: Callable[..., Watched], tmp_path: Path) -> None:
    before = made()
    before.play((1_000, refused(NOW_MS)), (1_100, alive(NOW_MS, leader=-1)))
    after = Watched(f"sqlite:///{tmp_path / '0.db'}")
    try:
        assert after.play((1_000, alive(NOW_MS + 1_000))).open.keys() == {REFUSED}
        assert after.play((2_000, observed(NOW_MS + 2_000, [partition()]))).open == {}
    finally:
        after.close()


def test_a_process_that_starts_while_no_broker_answers_closes_nothing(
    made: Callable[..., Watched], tmp_path: Path
) -> None:
    """Else each finding is sent as ended, and once more when the cluster is back."""
    before = made()
    before.play((1_000, alive(NOW_MS, leader=-1)))
    assert before.play((9_000, alive(NOW_MS + 8_000, leader=-1))).open.keys() == {("offline", "orders-0")}
    after = Watched(f"sqlite:///{tmp_path / '0.db'}")
    try:
        after.play((1_000, alive(NOW_MS + 10_000, away="No broker answers.")))
        state = after.play((9_000, alive(NOW_MS + 18_000, away="No broker answers.")))
        assert (set(state.open), set(state.explained)) == (
            {("cluster-away", "cluster")},
            {("offline", "orders-0")},
        )
    finally:
        after.close()


def unseen(at_ms: int, *missing: MissingRight) -> ObservedLiveness:
    """All brokers answer, and no topic is seen."""
    seen = alive(at_ms)
    return replace(seen, liveness=replace(seen.liveness, partitions=(), missing_rights=missing))


def test_what_a_right_is_missing_for_stays_as_it_was_seen_last(made: Callable[..., Watched]) -> None:
    watched = made()
    watched.play((1_000, refused(NOW_MS)), (1_001, alive(NOW_MS + 1, leader=-1)))
    right = MissingRight("Describe", TOPICS)
    for after_ms in (3_000, 20_000, 60_000):
        state = watched.play(
            (1_000 + after_ms, unseen(NOW_MS + after_ms, right)), (1_001 + after_ms, observed(NOW_MS + after_ms))
        )
    assert {REFUSED, ("offline", "orders-0"), ("rights-missing", "cluster")} == state.open.keys()
    with reading(watched.database.engine) as connection:
        seen_ms = {finding.slug: finding.seen_ms for finding in queries.all_open(connection, "c1")}
    assert seen_ms["truncation-refused"] == NOW_MS, "nobody has seen it since"
    state = watched.play((70_000, alive(NOW_MS + 70_000)), (70_001, refused(NOW_MS + 70_001)))
    assert state.open.keys() == {REFUSED}


def test_what_is_said_of_a_topic_that_was_deleted_ends_when_the_rights_are_known_to_be_there(
    made: Callable[..., Watched],
) -> None:
    watched = made()
    watched.play((1_000, refused(NOW_MS)), (1_001, alive(NOW_MS + 1)))
    state = watched.play((3_000, unseen(NOW_MS + 2_000)), (3_001, observed(NOW_MS + 2_001)))
    assert state.open.keys() == {REFUSED}, "whether the rights are there is not known yet"
    state = watched.play((12_000, unseen(NOW_MS + 11_000)), (12_001, observed(NOW_MS + 11_001)))
    assert state.open == {}


def test_a_partition_that_dies_with_a_broker_in_maintenance_is_sent(made: Callable[..., Watched]) -> None:
    watched = made()
    number = window(watched, topic=None, broker_id=3)
    seen = alive(NOW_MS, leader=-1)
    away = {**seen.liveness.brokers, 3: BrokerLiveness(3, NOW_MS - 5_000, "It does not answer.")}
    led = replace(seen.liveness.partitions[0], isr=(3,))
    seen = replace(seen, liveness=replace(seen.liveness, brokers=away, partitions=(led,)))
    state = watched.play((1_000, seen))
    assert state.open.keys() == {("offline", "orders-0")}
    assert state.withheld == {("broker-away", "broker 3")}
    assert watched.watch.open_counts == {("offline", "critical"): 1}
    with writing(watched.database.engine) as connection:
        end_window(connection, "c1", number, NOW_MS)
    state = watched.play((2_000, seen))
    assert state.open.keys() == {("broker-away", "broker 3")}


def test_liveness_is_judged_while_a_round_waits_for_its_turn(made: Callable[..., Watched]) -> None:
    watched = made()
    watched.play((1_000, refused(NOW_MS)))
    watched.watch._round_due_s = time.monotonic() + 60  # as after a round of 10,000 partitions
    state = watched.play((2_000, alive(NOW_MS + 1_000, leader=-1)))
    assert ("offline", "orders-0") in state.open


def test_while_the_database_is_away_people_hear_of_it_and_of_who_died_meanwhile(
    made: Callable[..., Watched], monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = made()
    watched.play((1_000, refused(NOW_MS)), (1_001, alive(NOW_MS + 1)))
    monkeypatch.setattr(finding_watch, "RETRY_S", 0.0)
    watched.database.refuse("The database does not answer.")
    state = watched.play((2_000, alive(NOW_MS + 1_000)))
    assert state.open.keys() == {REFUSED}, "a server that restarts is nobody's matter"
    state = watched.play((12_000, alive(NOW_MS + 11_000, leader=-1)))
    assert state.open.keys() == {REFUSED, AWAY, ("offline", "orders-0")}
    assert "does not answer" in state.open[AWAY].evidence["sentence"]
    state = watched.play((14_000, alive(NOW_MS + 13_000, leader=-1)))
    assert state.open["offline", "orders-0"].opened_ms == NOW_MS + 11_000
    watched.database.admit()
    state = watched.play((16_000, alive(NOW_MS + 15_000, leader=-1)))
    assert state.open.keys() == {REFUSED, ("offline", "orders-0")}, "without another wait"
    with reading(watched.database.engine) as connection:
        stored = {finding.slug: finding for finding in queries.findings(connection, "c1", state="all")}
    assert (stored["offline"].opened_ms, stored["offline"].closed_ms) == (NOW_MS + 11_000, None)
    assert (stored["database-away"].opened_ms, stored["database-away"].closed_ms) == (NOW_MS + 11_000, NOW_MS + 15_000)
    assert watched.play((18_000, alive(NOW_MS + 17_000))).open.keys() == {REFUSED}


def test_the_settings_of_rules_hold_for_the_database_as_for_all_others(
    made: Callable[..., Watched], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finding_watch, "RETRY_S", 0.0)
    at_once, never = (RuleSettings((RuleSetting("database-away", **more),)) for more in ({"for_ms": 0}, {"off": True}))
    for settings, opened in ((at_once, {AWAY}), (never, set())):
        watched = made(rule_settings=lambda settings=settings: settings)
        watched.play((1_000, alive(NOW_MS)))
        watched.database.refuse("The database does not answer.")
        assert watched.play((2_000, alive(NOW_MS + 1_000))).open.keys() == opened


def test_what_is_over_before_the_database_is_back_closes_once(
    made: Callable[..., Watched], monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = made()
    watched.play((1_000, observed(NOW_MS, [partition()])), (1_001, alive(NOW_MS + 1, leader=-1)))
    monkeypatch.setattr(finding_watch, "RETRY_S", 0.0)
    watched.database.refuse("The database does not answer.")
    assert watched.play((2_000, alive(NOW_MS + 1_000))).open == {}
    watched.database.admit()
    assert watched.play((3_000, alive(NOW_MS + 2_000))).open == {}
    with reading(watched.database.engine) as connection:
        (offline,) = queries.findings(connection, "c1", state="all")
    assert offline.closed_ms == NOW_MS + 2_000


def test_while_another_program_holds_the_lock_who_dies_is_told_without_waiting_for_it(
    made: Callable[..., Watched], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backend.control.control_database.SERVING", replace(SERVING, busy_ms=2_000))
    monkeypatch.setattr(finding_watch, "RETRY_S", 0.0)
    watched = made()
    watched.play((1_000, refused(NOW_MS)), (1_001, alive(NOW_MS + 1)))
    steps = [(7_000, alive(NOW_MS + 6_000))]
    steps += [(at_ms, alive(NOW_MS + at_ms - 1_000, leader=-1)) for at_ms in (8_000, 9_000, 10_000)]
    with closing(sqlite3.connect(watched.database.file or "")) as other:
        other.execute("BEGIN EXCLUSIVE")
        began_s = time.monotonic()
        state = watched.play(*steps)
    assert ("offline", "orders-0") in state.open
    assert time.monotonic() - began_s < 4.0, "the first attempt alone waits for the lock"
    assert ("offline", "orders-0") in watched.play((20_000, alive(NOW_MS + 19_000, leader=-1))).open


OBSERVER = ("observer-down", "observer")


def without_rounds(at_ms: int) -> ObservedLiveness:
    """Brokers answer, and this process has not ended one round for half a minute."""
    return ObservedLiveness(Liveness(at_ms), (), (), round_age=RoundAge(30_000, 2_000, "Brokers of another cluster."))


def test_an_observer_without_a_round_is_a_finding_and_what_the_process_before_saw_stays(
    made: Callable[..., Watched], tmp_path: Path
) -> None:
    before = made()
    before.play((1_000, observed(NOW_MS, [partition()])), (1_001, alive(NOW_MS + 1, leader=-1)))
    after = Watched(f"sqlite:///{tmp_path / '0.db'}")
    try:
        state = after.play((2_000, without_rounds(NOW_MS + 30_000)), (21_999, without_rounds(NOW_MS + 49_999)))
        assert state.open.keys() == {("offline", "orders-0")}, "it is held: a frozen backend has just gone on"
        state = after.play((22_000, without_rounds(NOW_MS + 50_000)))
        assert state.open.keys() == {("offline", "orders-0"), OBSERVER}
        assert "Brokers of another cluster." in state.open[OBSERVER].evidence["sentence"]
        assert after.play((23_000, alive(NOW_MS + 51_000))).open.keys() == set()
    finally:
        after.close()


def test_a_round_that_waits_for_a_broker_that_is_away_is_explained_by_it(made: Callable[..., Watched]) -> None:
    watched = made()
    watched.play((1_000, observed(NOW_MS, [partition()])), (1_001, alive(NOW_MS + 1)))
    silent = {2: BrokerLiveness(2, NOW_MS, "Broker 2 did not answer in 3 s.")}
    seen = alive(NOW_MS + 30_000)
    hung = replace(seen, liveness=replace(seen.liveness, brokers=silent), round_age=RoundAge(30_000, 2_000))
    state = watched.play((30_000, hung), (60_000, hung))
    assert state.open.keys() == {("broker-away", "broker 2")}, "one cause, one message"
    assert state.open["broker-away", "broker 2"].evidence["explains"]["by_slug"] == {"observer-down": 1}
