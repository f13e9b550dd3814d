"""Every rule: what raises it, what clears it, what it says."""

from __future__ import annotations

from typing import Any

import pytest

from backend.control.findings.catalogue import SLUGS
from backend.control.findings.causes import with_causes
from backend.control.findings.evaluate import candidates
from backend.control.findings.finding_context import (
    SEVERITIES,
    Candidate,
    ClusterSilence,
    GroupOffset,
    ThrottleSetting,
)
from backend.control.findings.rules.own_data_rules import unreadable_records
from backend.control.gateway.requests.eligible_replica_requests import EligibleReplicas
from backend.control.gateway.requests.quorum_requests import QuorumReplicaState
from backend.store.queries.findings import UncleanRecovery
from backend.tiering.ids import TopicPartition
from tests.unit.control.findings.rule_cases import CASES, METADATA, STILL, STUCK, meta, pipeline, rules, voters
from tests.unit.control.findings.sights import (
    MINUTE_MS,
    NOW_MS,
    broker,
    context,
    disk,
    finished,
    partition,
    replica,
    segment,
    topic,
)


@pytest.mark.parametrize(
    ("slug", "raises", "clears"), [(slug, *pair) for slug, pairs in CASES.items() for pair in pairs]
)
def test_a_rule_speaks_when_it_is_so_and_is_silent_when_it_is_nearly_so(
    slug: str, raises: dict[str, Any], clears: dict[str, Any]
) -> None:
    by_slug = rules(**raises)
    assert set(by_slug) == {slug}
    candidate = by_slug[slug]
    assert candidate.severity in SEVERITIES
    assert candidate.sentence
    assert not candidate.sentence.endswith(".")
    assert candidate.why
    assert candidate.action.endswith(".")
    assert slug not in rules(**clears)


def test_a_healthy_cluster_has_no_finding() -> None:
    assert rules() == {}
    assert rules(**meta()) == {}


def test_every_slug_of_the_catalogue_is_raised_by_a_test() -> None:
    # Below: with each of them another speaks.
    elsewhere = {"last-leader-behind", "metadata-loading", "metadata-failed", "move-stalled"}
    assert set(CASES) | elsewhere == set(SLUGS)
    assert not set(CASES) & elsewhere


def test_a_leader_that_does_not_know_the_remote_tier_is_loading_and_after_five_minutes_failed() -> None:
    unknowing = [partition(pending_reason="leader_does_not_know", earliest_pending_upload_offset=-1)]
    by_slug = rules(partitions=unknowing)
    assert set(by_slug) == {"metadata-loading", "metadata-failed"}
    assert (by_slug["metadata-loading"].severity, by_slug["metadata-loading"].for_ms) == ("notice", 35_000)
    assert (by_slug["metadata-failed"].severity, by_slug["metadata-failed"].for_ms) == ("critical", 300_000)
    assert by_slug["metadata-failed"].replaces == "metadata-loading"
    assert "-1 for the latest tiered offset" in by_slug["metadata-loading"].why
    assert rules(partitions=[partition(pending_reason="all_copied", earliest_pending_upload_offset=-1)]) == {}


@pytest.mark.parametrize(
    ("row", "flag", "rule"),
    [
        ({"pending_reason": "all_copied", "earliest_pending_upload_offset": -1}, True, "never-joins-all-copied"),
        ({"log_start_offset": 500}, True, "never-joins-nothing-remote"),
        ({"pending_reason": "all_copied", "earliest_pending_upload_offset": -1}, False, "no-progress"),
        ({}, True, "no-progress"),
    ],
)
def test_the_traps_of_kafka_are_named_with_their_way_out(row: dict[str, Any], flag: bool, rule: str) -> None:
    candidate = rules(partitions=[partition(**row)], replicas=[replica(2, **STUCK)], flags={2: flag}, **STILL)[
        "follower-stuck"
    ]
    assert candidate.facts["rule"] == rule
    assert ("follower.fetch.last.tiered.offset.enable off" in candidate.action) is (rule != "no-progress")
    assert "produce" not in candidate.action, "a record that no application made has no place in its topic"


def test_a_replica_whose_broker_says_what_it_waits_for_is_stuck_for_that_reason() -> None:
    evidence = {"sentence": "The broker reported it.", "rule": "event", "reason": "No remote segment holds offset 5."}
    stuck = rules(replicas=[replica(2, **STUCK, evidence=evidence)], **STILL)["follower-stuck"]
    assert stuck.why.startswith("No remote segment holds offset 5. For ")


def test_a_replica_with_data_is_in_no_trap_of_empty_ones() -> None:
    behind = replica(2, **STUCK | {"log_end_offset": 900})
    row = partition(pending_reason="all_copied", earliest_pending_upload_offset=-1)
    by_slug = rules(partitions=[row], replicas=[behind], flags={2: True}, **STILL)
    assert by_slug["follower-stuck"].facts["rule"] == "no-progress"


def test_a_replica_is_stuck_after_half_a_minute_and_one_that_gave_up_at_once() -> None:
    holds = {
        phase: rules(replicas=[replica(2, **STUCK | {"phase": phase})], **STILL)["follower-stuck"].for_ms
        for phase in ("DELAYED", "FETCHING", "FAILED")
    }
    assert holds == {"DELAYED": 30_000, "FETCHING": 30_000, "FAILED": 0}


def test_who_reads_from_the_remote_tier_is_a_warning_when_reads_wait_and_else_inferred() -> None:
    offsets = [GroupOffset("g", "orders", 0, 300, moved=True), GroupOffset("g", "plain", 0, 0, moved=True)]
    busy = rules(group_offsets=offsets, reader_queues={1: 2.0, 2: 9.0})["remote-read-storm"]
    assert (busy.severity, busy.facts["source"], busy.facts["reader_queue"]) == ("warning", "exact", 2)
    assert (busy.facts["offsets_left"], busy.facts["bytes_left"], busy.facts["partitions"]) == (200, 200, ["orders-0"])
    unknown = rules(group_offsets=offsets)["remote-read-storm"]
    assert (unknown.severity, unknown.facts["source"], unknown.facts["reader_queue"]) == ("notice", "inferred", None)
    assert rules(group_offsets=offsets, partitions=[partition(tiered=False)]) == {}
    below = rules(group_offsets=[GroupOffset("g", "orders", 0, 0)], partitions=[partition(log_start_offset=1)])
    assert "remote-read-storm" not in below


def test_a_move_is_stalled_when_its_new_replica_makes_no_progress_for_half_a_minute() -> None:
    moving: dict[str, Any] = {"partitions": [partition(adding_replicas=(2,))], "own_moves": {("orders", 0)}}
    by_slug = rules(**moving, replicas=[replica(2, **STUCK)], **STILL)
    assert set(by_slug) == {"move-stalled", "follower-stuck"}
    assert (by_slug["move-stalled"].facts["rule"], by_slug["move-stalled"].for_ms) == ("no-progress", 30_000)
    assert rules(**moving, replicas=[replica(2, **STUCK)]) == {}
    assert rules(**moving, replicas=[replica(2)], **STILL) == {}
    away = replica(2, in_isr=False, phase=None, error="Broker 2 is not alive.")
    assert set(rules(**moving, replicas=[away])) == {"move-stalled"}


def test_a_move_that_was_asked_to_go_back_is_told_to_be_cancelled() -> None:
    both = [partition(adding_replicas=(2,), removing_replicas=(2,))]
    by_slug = rules(partitions=both, replicas=[replica(2, **STUCK | {"phase": "FETCHING"})], **STILL)
    assert (by_slug["move-stalled"].facts["rule"], by_slug["move-stalled"].for_ms) == ("added-and-removed", 30_000)
    assert "Cancel" in by_slug["move-stalled"].action
    joined = rules(partitions=both, replicas=[replica(2)])["move-stalled"]
    assert (joined.facts["rule"], joined.sentence) == ("added-and-removed", "Move stalled: orders-0 to broker 2")


def test_what_is_not_known_is_no_finding() -> None:
    unknown: dict[str, Any] = {
        "local_log_bytes": None,
        "earliest_pending_upload_offset": None,
        "local_log_start_offset": None,
        "log_end_offset": None,
    }
    assert rules(partitions=[partition(**unknown)]) == {}
    assert rules(ledger_ms=None, open_segments=[segment(age_ms=9 * MINUTE_MS)]) == {}
    assert rules(finished=None) == {}
    assert rules(topics={}, partitions=[partition(local_log_bytes=10**9)]) == {}
    assert rules(replicas=[replica(1, leader_epochs=None)], finished=[finished("x", 0, 9, [[7, 0]])]) == {}
    assert rules(brokers=[broker(1, log_dirs=[disk(usable_bytes=None)])]) == {}


def test_a_segment_below_the_log_start_is_no_leak() -> None:
    leader = replica(1, log_start_offset=200)
    assert rules(replicas=[leader], finished=[finished("old", 100, 199, [[1, 100]])]) == {}


def test_a_full_disk_is_critical_and_a_nearly_full_one_a_warning() -> None:
    severities = [rules(brokers=[broker(1, log_dirs=[disk(used)])])["disk-runway"].severity for used in (0.86, 0.96)]
    assert severities == ["warning", "critical"]
    assert rules(disk_rates={(1, "/data"): 600.0})["disk-runway"].severity == "critical"


@pytest.mark.parametrize(
    ("number", "catching_up", "severity"), [(3, 1, "critical"), (5, 1, "warning"), (5, 2, "critical")]
)
def test_a_voter_that_catches_up_is_critical_where_one_more_loss_stops_the_quorum(
    number: int, catching_up: int, severity: str
) -> None:
    looked_at = context(quorum_replicas=voters(number, catching_up=catching_up))
    voter_candidates = [
        candidate for candidate in candidates(looked_at).values() if candidate.slug == "voter-catching-up"
    ]
    assert [candidate.broker_id for candidate in voter_candidates] == list(range(number - catching_up + 1, number + 1))
    assert {candidate.severity for candidate in voter_candidates} == {severity}
    assert {"no majority" in candidate.why for candidate in voter_candidates} == {severity == "critical"}


def test_an_observer_is_no_voter_that_catches_up() -> None:
    observer = QuorumReplicaState(4, "observer", 10, NOW_MS, NOW_MS, counted=False)
    assert "voter-catching-up" not in rules(quorum_replicas=[*voters(3), observer])


@pytest.mark.parametrize(
    ("isr", "eligible", "waits_for", "why", "action"),
    [
        ((2,), EligibleReplicas(), [2], "Last in sync: broker 2.", "Start broker 2;"),
        ((), EligibleReplicas((2, 3), (3,)), [2, 3], "every acknowledged record: broker 2, 3.", "Start broker 2, 3;"),
        (
            (),
            EligibleReplicas((), (2,)),
            [2],
            "Broker 2 was in sync last: nobody leads before it is back.",
            "Start broker 2;",
        ),
        (
            (),
            EligibleReplicas((), (3, 1, 2)),
            [1, 2, 3],
            "All that were in sync stopped uncleanly (broker 1, 2, 3); their logs are compared before the best of them"
            " leads.",
            "Start broker 2, 3;",
        ),
        # It runs and does not lead: with another disk.
        (
            (),
            EligibleReplicas((1,)),
            [1],
            "every acknowledged record: broker 1.",
            "Look in the log of broker 1 whether",
        ),
        ((), EligibleReplicas(), [1, 2, 3], "No replica is known to have", "Start broker 2, 3;"),
        ((), None, [1, 2, 3], "Nobody is in sync; an eligible replica leads", "Start broker 2, 3;"),
    ],
)
def test_a_partition_without_a_leader_names_who_is_waited_for(
    isr: tuple[int, ...], eligible: EligibleReplicas | None, waits_for: list[int], why: str, action: str
) -> None:
    eligible_by_partition = {} if eligible is None else {TopicPartition("orders", 0): eligible}
    brokers = [broker(1), broker(2, fenced=True), broker(3, reachable=False)]
    candidate = rules(partitions=[partition(leader=-1, isr=isr)], brokers=brokers, eligible=eligible_by_partition)[
        "offline"
    ]
    assert candidate.facts["waits_for"] == waits_for
    assert why in candidate.why
    assert candidate.action.startswith(action)
    assert "an unclean election may lose records" in candidate.action


@pytest.mark.parametrize("fenced", [False, True], ids=["registered", "asked before it registered"])
def test_a_broker_that_runs_and_cannot_use_its_log_is_named_with_the_file_before_anything_is_deleted(
    fenced: bool,
) -> None:
    row = partition(leader=-1, isr=(2,), replicas=(2, 3))
    reasons = {(TopicPartition("orders", 0), 2): "orders-0/00.log is corrupt at byte 7"}
    up = [broker(2, fenced=fenced), broker(3)]
    candidate = rules(partitions=[row], brokers=up, offline_logs=reasons)["offline"]
    assert candidate.why.endswith("Broker 2 runs and cannot use its log: orders-0/00.log is corrupt at byte 7.")
    assert candidate.action.startswith("Delete nothing. Mend the disk of broker 2,")
    assert candidate.facts["unusable"] == {"2": "orders-0/00.log is corrupt at byte 7"}
    # One that is away, whose log may be whole, is started first.
    row = partition(leader=-1, isr=(2, 3), replicas=(2, 3))
    candidate = rules(partitions=[row], brokers=[broker(2), broker(3, reachable=False)], offline_logs=reasons)[
        "offline"
    ]
    assert candidate.action.startswith("Start broker 3;")
    assert "orders-0/00.log" in candidate.why
    # Another partition's log says nothing of this one.
    other = {(TopicPartition("orders", 1), 2): "orders-1/00.log is corrupt at byte 7"}
    assert "unusable" not in rules(partitions=[row], brokers=up, offline_logs=other)["offline"].facts


def test_one_crash_is_one_finding_and_a_warning_only_where_too_few_logs_were_compared() -> None:
    whole = [UncleanRecovery("orders", at, 2, True, 1) for at in range(5)]
    candidate = rules(recoveries=whole)["unclean-recovery"]
    assert (candidate.severity, candidate.sentence) == ("notice", "5 leaders elected by comparing logs")
    assert "orders-0, orders-1, orders-2 and 2 more" in candidate.why
    most = rules(recoveries=whole * 200)["unclean-recovery"]
    assert most.sentence == "1000 leaders or more elected by comparing logs"
    candidate = rules(recoveries=[*whole, UncleanRecovery("payments", 3, 1, False, 1)])["unclean-recovery"]
    assert candidate.severity == "warning"
    assert candidate.why.startswith("Of payments-3 fewer than min.insync.replicas of the logs that had every")


def test_a_refused_truncation_says_what_an_election_drops_and_who_must_be_the_first() -> None:
    row = replica(2, phase="FAILED", in_isr=False, evidence={"rule": "keeps-acknowledged-records", "reason": "Cut."})
    action = rules(replicas=[row])["truncation-refused"].action
    assert "records that broker 1 took since are dropped" in action
    assert "the follower with the highest log" in action
    assert "first" in action


def test_a_dangling_copy_of_a_deleted_topic_waits_for_no_retention() -> None:
    def dangling(*, kafka_rules: bool, **more: Any) -> Candidate:
        copies = [segment(age_ms=2 * MINUTE_MS, **more)]
        return rules(open_segments=copies, kafka_rules=kafka_rules)["copy-dangling"]

    for more in ({"topic": "gone", "topic_id": "id-gone"}, {"topic_id": "id-gone"}):
        left = dangling(kafka_rules=True, **more)
        assert "retention" not in left.action
        assert "topic id id-gone" in left.action
        assert left.action.index("Check") < left.action.index("by hand"), "a topic may be hidden, or lost by mistake"
        taken = dangling(kafka_rules=False, **more)
        assert taken.action == "Nothing is lost: the brokers remove it with its deleted topic."
    assert "its topic was deleted and made again" in dangling(kafka_rules=True, topic_id="id-gone").why
    assert "retention removes them" in dangling(kafka_rules=True, copy_broker_id=2).action
    assert "retention removes them" in dangling(kafka_rules=True, superseded=True).action


def test_copies_that_restarts_cut_off_are_one_finding_and_only_when_they_last() -> None:
    copies = [segment(age_ms=(2 + n) * MINUTE_MS, superseded=True, segment_id=f"id-{n}") for n in range(3)]
    cut_off = rules(open_segments=copies)["copy-dangling"]
    assert (cut_off.object, cut_off.topic, cut_off.for_ms) == ("remote storage", None, 10 * MINUTE_MS)
    assert cut_off.sentence == "3 copies will never finish"
    assert cut_off.why.startswith("Of orders-0, the oldest begun 4 m ago: ")
    assert cut_off.depends_on == frozenset({1})


def test_a_missing_replica_of_the_metadata_topic_is_a_warning_that_depends_on_its_broker() -> None:
    row = partition(METADATA, tiered=False, isr=(1, 2))
    missing = rules(**meta(), partitions=[row])["metadata-unsafe"]
    assert missing.severity == "warning"
    assert missing.depends_on == frozenset({3})
    few = rules(**meta(replication_factor=1))["metadata-unsafe"]
    assert few.severity == "warning", "the next lost disk loses it; this moment nothing is lost"
    assert few.why.startswith("1 of 3 replicas")
    lasting = rules(**meta(replication_factor=1, retention_ms="1000"))["metadata-unsafe"]
    assert lasting.severity == "critical"
    assert lasting.why.startswith("1 of 3 replicas; retention.ms is 1000")


def test_a_metadata_topic_that_is_compacted_is_unsafe() -> None:
    candidate = rules(**meta(cleanup_policy="compact"))["metadata-unsafe"]
    assert candidate.severity == "critical"
    assert "cleanup.policy has compact" in candidate.why
    assert "retention" not in candidate.why


def test_a_compacted_metadata_topic_is_given_its_retention_before_its_policy() -> None:
    """With cleanup.policy=delete first, a retention that slept beside compact would delete the map at once."""
    for config in ({}, {"retention_ms": "1000"}, {"retention_bytes": "5"}):
        action = rules(**meta(cleanup_policy="compact", **config))["metadata-unsafe"].action
        assert 0 < action.index("retention.ms=-1,retention.bytes=-1") < action.index("cleanup.policy=delete")
    asleep = rules(**meta(cleanup_policy="compact", retention_ms="1000"))["metadata-unsafe"]
    assert "retention.ms is 1000, so cleanup.policy=delete would remove events" in asleep.why
    both = rules(**meta(cleanup_policy="compact,delete", retention_ms="1000"))["metadata-unsafe"]
    assert "retention.ms is 1000, so events are removed" in both.why
    lasting = rules(**meta(retention_ms="1000"))["metadata-unsafe"]
    assert "cleanup.policy" not in lasting.action


def test_a_replica_whose_partition_has_no_leader_follows_nobody_and_is_not_stuck() -> None:
    by_slug = rules(partitions=[partition(leader=-1, isr=(1,))], replicas=[replica(2, **STUCK)], **STILL)
    assert set(by_slug) == {"offline"}


def test_a_stuck_replica_of_a_topic_that_is_not_tiered_is_not_told_of_remote_objects() -> None:
    row = partition(tiered=False, local_log_start_offset=0)
    stuck = rules(partitions=[row], replicas=[replica(2, **STUCK)], **STILL)["follower-stuck"]
    assert "remote" not in stuck.action


def test_all_throttles_that_one_act_left_are_one_finding_with_its_way_out() -> None:
    left = [ThrottleSetting("leader.replication.throttled.rate", "100", broker_id=number) for number in range(1, 8)]
    left.append(ThrottleSetting("replica.alter.log.dirs.io.max.bytes.per.second", "5", broker_id=-1))
    candidate = rules(throttles=left)["throttle-left"]
    assert candidate.object == "cluster"
    assert candidate.sentence == "8 throttles without a move"
    assert "and 3 more" in candidate.why
    assert len(candidate.facts["throttles"]) == 8


def test_a_broker_that_a_partition_needs_for_its_writes_is_critical_as_soon_as_it_is_away() -> None:
    away = [broker(1), broker(2, reachable=False), broker(3)]
    least = {"orders": topic(min_insync_replicas="2"), METADATA: topic(METADATA)}

    def severity(isr: tuple[int, ...], **more: Any) -> str:
        return rules(brokers=away, partitions=[partition(isr=isr)], **more)["broker-away"].severity

    assert severity((1, 2, 3)) == severity((1, 2)) == severity((3,)) == "warning"
    assert severity((2,)) == "critical", "nobody else can lead"
    assert severity((1, 2), topics=least) == "critical", "producers are refused without it"
    assert severity((1, 2, 3), topics=least) == severity((1, 3), topics=least) == "warning"
    started = frozenset({2})
    assert severity((1, 2), topics=least, returning=started) == "warning", "it was silent before it joined the ISR"
    assert severity((1, 2), topics=least, rejoining=frozenset({3})) == "warning", "another one joins it in a moment"
    assert severity((2,), rejoining=frozenset({3})) == "critical", "nobody else can lead until then"


def test_min_isr_above_the_number_of_replicas_asks_for_all_of_them() -> None:
    asks = {"orders": topic(min_insync_replicas="4"), METADATA: topic(METADATA)}
    assert rules(topics=asks, partitions=[partition()]) == {}, "Apache Kafka 4.3 takes acks=all then"
    assert set(rules(topics=asks, partitions=[partition(isr=(1, 2))])) == {"below-min-isr"}


def test_a_pipeline_that_waits_because_the_cluster_is_away_is_no_second_cause() -> None:
    away = ClusterSilence(NOW_MS - MINUTE_MS, "No broker answers.")
    assert set(rules(**pipeline(state="waiting", message="No broker answers."), away=away)) == {"cluster-away"}


def test_the_silence_of_a_cluster_is_said_once_with_the_reason() -> None:
    reason = "No broker answers. The broker at localhost:9092 cannot be reached."
    why = rules(away=ClusterSilence(NOW_MS - 5_000, reason))["cluster-away"].why
    assert why == "No broker answers for 5 s. The broker at localhost:9092 cannot be reached."


@pytest.mark.parametrize(("runs_for_ms", "for_ms"), [(MINUTE_MS, 60_000), (MINUTE_MS + 1, 10_000)])
def test_a_pipeline_that_has_just_started_may_be_behind_for_a_minute(runs_for_ms: int, for_ms: int) -> None:
    behind = pipeline(detail={"lag_ms": 20_000, "lag_records": 9}, started_ms=NOW_MS - runs_for_ms)
    assert rules(**behind)["pipeline-behind"].for_ms == for_ms
    assert rules(**behind, back_ms=1)["pipeline-behind"].for_ms == 60_000, "brokers that start have a backlog, too"


def test_after_a_cluster_was_away_elections_get_their_time() -> None:
    def hold_ms(**more: Any) -> int:
        return rules(partitions=[partition(leader=-1, isr=(2,))], **more)["offline"].for_ms

    assert hold_ms() == hold_ms(back_ms=60_000) == 0
    assert hold_ms(back_ms=59_999) == 15_000
    damaged = {(TopicPartition("orders", 0), 1): "a file is damaged"}
    unusable = rules(partitions=[partition(leader=-1, isr=(2,))], offline_logs=damaged, back_ms=1)
    assert unusable["offline"].for_ms == 0, "no time mends that"


def test_a_pipeline_whose_read_stalls_waits_and_is_behind() -> None:
    """A read that stalls ends its stream, and the next one begins: it waits for moments only."""
    lacks = {"lag_ms": 11_000, "lag_records": 9, "waiting_since_ms": NOW_MS}
    stalled = rules(**pipeline(state="waiting", message="No record came for 30 s.", detail=lacks))
    assert set(stalled) == {"pipeline-behind", "pipeline-down"}
    assert with_causes({c.key: c for c in stalled.values()})["pipeline-behind", "pipeline"].cause == (
        "pipeline-down",
        "pipeline",
    )
    unknown = lacks | {"lag_ms": None, "lag_records": None}
    assert set(rules(**pipeline(state="waiting", detail=unknown))) == {"pipeline-down"}


def test_a_pipeline_is_behind_because_of_a_broker_for_a_minute_after_that_was_seen() -> None:
    behind = pipeline(detail={"lag_ms": 20_000, "lag_records": 9})

    def brokers_of(seen_ms: int, topic_name: str = METADATA) -> frozenset[int]:
        away = [broker(1), broker(2, reachable=False, error="It does not answer.", seen_ms=seen_ms)]
        given = candidates(context(**behind, brokers=away, partitions=[partition(topic_name)]))
        return given["pipeline-behind", "pipeline"].depends_on

    assert brokers_of(NOW_MS - 60_000) == {2}
    assert brokers_of(NOW_MS - 60_001) == brokers_of(NOW_MS, "orders") == frozenset(), "it has another reason"


def test_brokers_of_apache_kafka_stop_at_a_record_of_the_metadata_that_they_cannot_read() -> None:
    """Played on 4.3.1: "Error occurred while processing the records", then "Exited from consumer task thread"."""
    passed = {("__remote_log_metadata", "the pipeline"): 1, ("__consumer_offsets", "broker 2"): 3}
    by_topic = {c.object: c for c in unreadable_records(context(passed_over=passed, kafka_rules=True))}
    theirs = by_topic["topic __remote_log_metadata"]
    assert by_topic["topic __consumer_offsets"].severity == "warning"
    assert (theirs.severity, theirs.object) == ("critical", "topic __remote_log_metadata")
    assert "nothing is copied any more" in theirs.why
    assert theirs.action.startswith("Restart no broker and move no leader")
    ours = list(unreadable_records(context(passed_over=passed)))
    assert {c.severity for c in ours} == {"warning"}, "the embedded engine passes it over"
