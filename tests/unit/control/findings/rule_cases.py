"""Facts that raise each rule and facts that clear it, by slug; and the values that tests of rules share."""

from __future__ import annotations

from typing import Any

from backend.control.findings.evaluate import candidates
from backend.control.findings.finding_context import (
    Candidate,
    ClusterSilence,
    GroupOffset,
    LogBounds,
    RoundAge,
    ThrottleSetting,
)
from backend.control.findings.remote_read_growth import ReadGrowth
from backend.control.findings.still_offsets import PartitionStill, StillOffset
from backend.control.findings.unclean_elections import UncleanElection
from backend.control.findings.vanished_topics import VanishedTopics
from backend.control.gateway.requests.feature_requests import FeatureLevel
from backend.control.gateway.requests.quorum_requests import QuorumReplicaState
from backend.control.gateway.requests.rights_requests import GROUPS, MissingRight
from backend.store.backups.restoring import Restored
from backend.store.queries.findings import UncleanRecovery
from backend.store.queries.health import ProcessHealth
from backend.store.writes.samples import PartitionSample
from backend.tiering.durability import ELIGIBLE_LEADER_REPLICAS as ELR
from backend.tiering.segment_state import SegmentState
from tests.unit.control.findings.sights import (
    MINUTE_MS,
    NOW_MS,
    attempt,
    broker,
    context,
    copy_event,
    disk,
    finished,
    finished_copy,
    partition,
    replica,
    segment,
    topic,
)

METADATA = "__remote_log_metadata"


def voters(number: int, *, catching_up: int = 0) -> list[QuorumReplicaState]:
    """A quorum; its last voters have lost their copies."""
    return [
        QuorumReplicaState(node_id, "voter", 100, NOW_MS, NOW_MS, counted=node_id <= number - catching_up)
        for node_id in range(1, number + 1)
    ]


STUCK: dict[str, Any] = {"in_isr": False, "phase": "DELAYED", "log_end_offset": 0}
# Broker 2's replica has not moved for a minute; the rule sees that it did not in this round, and waits.
STILL: dict[str, Any] = {"moved_ms": {("orders", 0, 2): NOW_MS - MINUTE_MS}}
LEFTOVER: dict[str, Any] = {"state": SegmentState.DELETE_SEGMENT_STARTED}
DELETING: dict[str, Any] = {**LEFTOVER, "copy_finished_ms": NOW_MS - 9 * MINUTE_MS}


CUT = {("orders", 0): LogBounds(100, 200)}
LEAST_TWO: dict[str, Any] = {"topics": {"orders": topic(min_insync_replicas="2"), METADATA: topic(METADATA)}}


LESS = UncleanElection("orders", 0, "id-orders", NOW_MS, 3, 5, 100, 150, 2, (2,), (2,))


def silent_voter(for_ms: int) -> list[QuorumReplicaState]:
    return [*voters(2), QuorumReplicaState(3, "voter", 100, NOW_MS - for_ms, NOW_MS - for_ms)]


def no_pipeline(for_ms: int, *, expected: bool = True) -> dict[str, Any]:
    """A backend that started so long ago beside a pipeline that has not reported yet."""
    row = pipeline(process="backend", started_ms=NOW_MS - for_ms, detail={"pipeline_expected": expected})
    return {"processes": {"backend": row["processes"]["pipeline"]}}


def pipeline(**more: Any) -> dict[str, Any]:
    row: dict[str, Any] = {
        "process": "pipeline",
        "pid": 1,
        "started_ms": NOW_MS - MINUTE_MS,
        "updated_ms": NOW_MS,
        "interval_ms": 2_000,
        "state": "running",
        "message": None,
        "detail": {"lag_ms": 0, "lag_records": 0},
        "data_version": 1,
        "age_ms": 0,
    }
    return {"processes": {"pipeline": ProcessHealth(**row | more)}}


def led_by_another(preferred: int, others: int) -> list[PartitionSample]:
    """Partitions that broker 1 should lead; broker 2 leads so many of them."""
    return [partition("t", number, leader=2 if number < others else 1, tiered=False) for number in range(preferred)]


def meta(**more: Any) -> dict[str, Any]:
    """A metadata topic beside the healthy one."""
    made = topic(METADATA, **more)
    return {"topics": {"orders": topic(), METADATA: made}}


def rules(**more: Any) -> dict[str, Candidate]:
    """Returns the findings of the rules by slug; no slug occurs twice."""
    result = candidates(context(**more))
    assert len({slug for slug, _ in result}) == len(result)
    return {slug: candidate for (slug, _), candidate in result.items()}


# slug: (what raises it, the same nearly, which does not)
CASES: dict[str, list[tuple[dict[str, Any], dict[str, Any]]]] = {
    "broker-away": [({"brokers": [broker(1, reachable=False, error="Connection refused.")]}, {"brokers": [broker(1)]})],
    "below-min-isr": [
        (LEAST_TWO | {"partitions": [partition(isr=(1,))]}, LEAST_TWO | {"partitions": [partition(isr=(1, 2))]}),
        (LEAST_TWO | {"partitions": [partition(isr=(1,))]}, {"partitions": [partition(isr=(1,))]}),
        (LEAST_TWO | {"partitions": [partition(isr=(1,))]}, LEAST_TWO | {"partitions": [partition(leader=-1, isr=())]}),
    ],
    "cluster-away": [({"away": ClusterSilence(NOW_MS - 1, "No broker answers.")}, {"away": None})],
    "rights-missing": [({"missing_rights": [MissingRight("Describe", GROUPS)]}, {"missing_rights": []})],
    "topics-gone": [({"vanished_topics": VanishedTopics(NOW_MS - 5_000, 12, 30, ("a", "b"))}, {})],
    "move-foreign": [
        (
            {"partitions": [partition(replicas=(1, 2, 3), adding_replicas=(3,))]},
            {"partitions": [partition(replicas=(1, 2, 3), adding_replicas=(3,))], "own_moves": {("orders", 0)}},
        )
    ],
    "leader-skew": [
        ({"partitions": led_by_another(10, 6), "replicas": []}, {"partitions": led_by_another(10, 5), "replicas": []}),
        ({"partitions": led_by_another(10, 6), "replicas": []}, {"partitions": led_by_another(9, 9), "replicas": []}),
    ],
    "observer-down": [
        ({"round_age": RoundAge(10_001, 2_000)}, {"round_age": RoundAge(10_000, 2_000)}),
        ({"round_age": RoundAge(60_001, 20_000, "It failed.")}, {"round_age": RoundAge(60_000, 20_000)}),
        ({"round_age": RoundAge(90_000, 2_000)},
         {"round_age": RoundAge(90_000, 2_000), "away": ClusterSilence(NOW_MS - 1, "No broker answers.")}),
        ({"round_age": RoundAge(90_000, 2_000)}, {"round_age": None}),
    ],
    "pipeline-behind": [
        (pipeline(detail={"lag_ms": 10_001, "lag_records": 9}), pipeline(detail={"lag_ms": 10_000, "lag_records": 9})),
        (pipeline(detail={"lag_ms": 10_001, "lag_records": 9}), pipeline(detail={"lag_ms": None, "lag_records": 9})),
    ],
    "pipeline-down": [
        (pipeline(age_ms=6_001), pipeline(age_ms=6_000)),
        (pipeline(state="failed"), pipeline()),
        (pipeline(state="waiting", message="The topic is missing."), {"processes": {}}),
        (no_pipeline(60_000), no_pipeline(59_999)),
        (no_pipeline(60_000), no_pipeline(60_000, expected=False)),
    ],
    "voter-away": [
        ({"quorum_ms": NOW_MS, "quorum_replicas": silent_voter(3_001)},
         {"quorum_ms": NOW_MS, "quorum_replicas": silent_voter(3_000)}),
        ({"quorum_ms": NOW_MS, "quorum_replicas": silent_voter(NOW_MS + 1)},
         {"quorum_ms": NOW_MS - 30_001, "quorum_replicas": silent_voter(NOW_MS + 1)}),
        ({"quorum_ms": NOW_MS, "quorum_replicas": silent_voter(3_001)},
         {"quorum_ms": None, "quorum_replicas": silent_voter(3_001)}),
        ({"quorum_silent_since_ms": NOW_MS - 1, "quorum_replicas": voters(3)},
         {"quorum_silent_since_ms": NOW_MS - 1, "quorum_replicas": voters(3),
          "away": ClusterSilence(NOW_MS - 1, "No broker answers.")}),
    ],
    "database-away": [],
    "broker-fenced": [({"brokers": [broker(1, fenced=True)]}, {"brokers": [broker(1)]})],
    "offline": [({"partitions": [partition(leader=-1, isr=(2,))]}, {"partitions": [partition(leader=2, isr=(2,))]})],
    "disk-offline": [
        ({"brokers": [broker(1, log_dirs=[disk(error="KAFKA_STORAGE_ERROR")])]}, {"brokers": [broker(1)]})
    ],
    "set-aside": [
        (
            {"brokers": [broker(1, log_dirs=[{**disk(), "set_aside_count": 1, "set_aside_bytes": 5, "set_aside": [
                {"name": "t-0.00-stray", "size_bytes": 5, "since_ms": 7, "reason": "nobody knows it"}]}])]},
            {"brokers": [broker(1, log_dirs=[{**disk(), "set_aside": []}])]},
        ),
    ],
    "unclean-recovery": [
        ({"recoveries": [UncleanRecovery("orders", 0, 2, True, 1)]}, {"recoveries": []}),
        ({"unclean_elections": [LESS]}, {"unclean_elections": []}),
    ],
    "disk-runway": [
        ({"brokers": [broker(1, log_dirs=[disk(0.86)])]}, {"brokers": [broker(1, log_dirs=[disk(0.84)])]}),
        ({"disk_rates": {(1, "/data"): 100.0}}, {"disk_rates": {(1, "/data"): 10.0}}),
        ({"disk_rates": {(1, "/data"): 100.0}}, {"disk_rates": {(1, "/data"): -100.0}}),
    ],
    "metadata-unsafe": [
        (meta(replication_factor=1), meta(replication_factor=3)),
        (meta(retention_ms="1000"), meta(retention_ms="-1")),
        # The topic was deleted.
        ({"topics": {"orders": topic()}}, {"topics": {}}),
        ({"topics": {"orders": topic()}}, {"topics": {"orders": topic()}, "kafka_rules": True}),
        (
            {"topics": {"orders": topic()}},
            {"topics": {"orders": topic()}, "partitions": [partition(latest_tiered_offset=-1)]},
        ),
        (meta(retention_bytes="1000"), meta(retention_bytes="-1")),
        (
            meta() | {"partitions": [partition(METADATA, tiered=False, isr=(1, 2))]},
            meta() | {"partitions": [partition(METADATA, tiered=False, isr=(1, 2, 3))]},
        ),
    ],
    "database-lost": [
        (
            {"restored": [Restored(NOW_MS - 86_399_999, "It was put back", "plan 7")]},
            {"restored": [Restored(NOW_MS - 86_400_000, "It was put back", "plan 7")]},
        ),
    ],
    "elr-off": [
        ({"feature_levels": {ELR: FeatureLevel(0, 1)}}, {"feature_levels": {ELR: FeatureLevel(1, 1)}}),
        ({"feature_levels": {ELR: FeatureLevel(0, 1)}}, {"feature_levels": {}}),
        ({"feature_levels": {ELR: FeatureLevel(0, 1)}}, {"feature_levels": {ELR: FeatureLevel(0, 0)}}),
    ],
    "voter-catching-up": [
        ({"quorum_replicas": voters(3, catching_up=1)}, {"quorum_replicas": voters(3)}),
        ({"quorum_replicas": voters(5, catching_up=1)}, {"quorum_replicas": ()}),
    ],
    "throttle-left": [
        (
            {"throttles": [ThrottleSetting("leader.replication.throttled.replicas", "*", topic="orders")]},
            {
                "throttles": [ThrottleSetting("leader.replication.throttled.replicas", "*", topic="orders")],
                "partitions": [partition(adding_replicas=(3,))],
            },
        ),
        (
            {"throttles": [ThrottleSetting("leader.replication.throttled.rate", "100", broker_id=-1)]},
            {
                "throttles": [ThrottleSetting("leader.replication.throttled.rate", "100", broker_id=-1)],
                "partitions": [partition(removing_replicas=(3,))],
            },
        ),
    ],
    "copy-hung": [
        ({"open_segments": [segment(age_ms=MINUTE_MS + 1)]}, {"open_segments": [segment(age_ms=MINUTE_MS)]}),
        (
            {"open_segments": [segment(age_ms=7 * MINUTE_MS)], "p99_ms": {("orders", 0): 2 * MINUTE_MS}},
            {"open_segments": [segment(age_ms=6 * MINUTE_MS)], "p99_ms": {("orders", 0): 2 * MINUTE_MS}},
        ),
        # Without a history the other partitions tell, and a large segment has the time of its size.
        (
            {"open_segments": [segment(age_ms=6 * MINUTE_MS + 1)], "cluster_p99_ms": 2 * MINUTE_MS},
            {"open_segments": [segment(age_ms=6 * MINUTE_MS)], "cluster_p99_ms": 2 * MINUTE_MS},
        ),
        (
            {"open_segments": [segment(age_ms=5 * MINUTE_MS + 1, segment_size_bytes=300_000_000)]},
            {"open_segments": [segment(age_ms=5 * MINUTE_MS, segment_size_bytes=300_000_000)]},
        ),
        ({"open_segments": [segment(age_ms=MINUTE_MS * 2)]}, {"open_segments": [segment(age_ms=MINUTE_MS * 2)],
                                                              "ledger_ms": NOW_MS - MINUTE_MS}),
    ],
    "copy-dangling": [
        (
            {"open_segments": [segment(age_ms=2 * MINUTE_MS, copy_broker_id=2)]},
            {"open_segments": [segment(age_ms=MINUTE_MS, copy_broker_id=2)]},
        ),
        (
            {"open_segments": [segment(age_ms=2 * MINUTE_MS, topic="gone")]},
            {"open_segments": []},
        ),
        (
            {"open_segments": [segment(age_ms=7 * 24 * 60 * MINUTE_MS, superseded=True)]},
            {"open_segments": [segment(age_ms=MINUTE_MS, superseded=True)]},
        ),
    ],
    "copy-failing": [
        (
            {"copy_events": [copy_event("failed", age_ms=40_000, error="503"), copy_event("finished", age_ms=41_000)]},
            {"copy_events": [copy_event("finished", age_ms=1), copy_event("failed", age_ms=40_000, error="503")]},
        ),
        (
            {"copy_events": [copy_event("started"), copy_event("failed", age_ms=40_000, error="503")]},
            {"copy_events": [copy_event("failed", age_ms=40_000, broker_id=2, error="it led before")]},
        ),
        (
            {"failed_attempts": [attempt(1), attempt(40_000)]},
            {"failed_attempts": [attempt(1), attempt(40_000)], "finished_copies": [finished_copy()]},
        ),
    ],
    "copy-slow": [
        (
            # Local retention allows 1,000, and the active segment may have 100.
            {"partitions": [partition(local_log_bytes=1_100, earliest_pending_upload_offset=500)]},
            {"partitions": [partition(local_log_bytes=1_099, earliest_pending_upload_offset=500)]},
        ),
    ],
    "transaction-open": [
        (
            {"still": {("orders", 0): PartitionStill("id-orders", None, StillOffset(700, NOW_MS - 30_000))}},
            {"still": {("orders", 0): PartitionStill("id-orders", StillOffset(700, NOW_MS - 30_000), None)}},
        ),
    ],
    "delete-lag": [
        (
            {"open_segments": [segment(delete_started_ms=NOW_MS - MINUTE_MS - 1, **DELETING)]},
            {"open_segments": [segment(delete_started_ms=NOW_MS - MINUTE_MS, **DELETING)]},
        ),
        (
            {"open_segments": [segment(delete_started_ms=NOW_MS - MINUTE_MS - 1, **DELETING)]},
            # Kafka leaves it until retention passes it.
            {"open_segments": [segment(delete_started_ms=NOW_MS - MINUTE_MS - 1, **LEFTOVER)]},
        ),
    ],
    "local-debt": [
        (
            {"partitions": [partition(local_log_bytes=1_101)]},  # 440 pending, 1,000 and a segment of 100 allowed
            {"partitions": [partition(local_log_bytes=1_100)]},
        ),
        (
            {"partitions": [partition(local_log_bytes=1_101)]},
            {
                "partitions": [partition(local_log_bytes=1_101)],
                "topics": {"orders": topic(remote_log_copy_disable="true")},
            },
        ),
    ],
    "segment-leak": [
        (
            {"finished": [finished("foreign", 100, 199, [[1, 100]])]},
            {"finished": [finished("own", 100, 199, [[0, 100]])]},
        ),
        (
            {"finished": [finished("first", 0, 399, [[0, 0]], copy_finished_ms=1),
                          finished("second", 0, 299, [[0, 0]], copy_finished_ms=2)], "kafka_rules": True},
            {"finished": [finished("first", 0, 399, [[0, 0]], copy_finished_ms=1),
                          finished("second", 0, 299, [[0, 0]], copy_finished_ms=2)], "kafka_rules": False},
        ),
    ],
    "follower-stuck": [
        ({"replicas": [replica(2, **STUCK)], **STILL}, {"replicas": [replica(2, **STUCK)]}),
        (
            {"replicas": [replica(2, **STUCK)], **STILL},
            {"replicas": [replica(2, **STUCK | {"log_end_offset": 1000})], **STILL},
        ),
        (
            {"replicas": [replica(2, **STUCK | {"phase": "FETCHING"})], **STILL},
            {"replicas": [replica(2, **STUCK | {"phase": None, "error": "away"})], **STILL},
        ),
        ({"replicas": [replica(2, **STUCK)], **STILL}, {"replicas": [replica(2)], **STILL}),
    ],
    "records-unreadable": [
        ({"passed_over": {("__consumer_offsets", "broker 2"): 1}}, {"passed_over": {}}),
        ({"passed_over": {("__ebbline_events", "the backend"): 12}}, {"passed_over": {}}),
        ({"passed_over": {("__remote_log_metadata", "the pipeline"): 1}, "kafka_rules": True}, {"kafka_rules": True}),
    ],
    "remote-read-storm": [
        (
            {"group_offsets": [GroupOffset("g", "orders", 0, 499)], "reader_queues": {1: 2.0}},
            {"group_offsets": [GroupOffset("g", "orders", 0, 500)], "reader_queues": {1: 2.0}},
        ),
        (
            {"group_offsets": [GroupOffset("g", "orders", 0, 499, moved=True)]},
            {"group_offsets": [GroupOffset("g", "orders", 0, 499, moved=False)]},
        ),
        (
            {"group_offsets": [GroupOffset("g", "orders", 0, 0)], "reader_queues": {1: 1.0}},
            {"group_offsets": [GroupOffset("g", "orders", 0, 0, moved=True)], "reader_queues": {1: 0.0}},
        ),
    ],
    "group-below-log-start": [
        (
            {"group_offsets": [GroupOffset("g", "orders", 0, 99)], "group_bounds": CUT},
            {"group_offsets": [GroupOffset("g", "orders", 0, 100)], "group_bounds": CUT},
        ),
    ],
    "remote-read-failing": [
        (
            {"read_growth": [ReadGrowth(NOW_MS, NOW_MS - 15_000, 1, "orders", 3.0, 3.0, 0.0, 0.0)]},
            {"read_growth": [ReadGrowth(NOW_MS, NOW_MS - 15_000, 1, "orders", 2.0, 2.0, 0.0, 0.0)]},
        ),
    ],
    "remote-read-slow": [
        (
            {"read_growth": [ReadGrowth(NOW_MS - n, NOW_MS - n - 15_000, 1, None, 0.0, 2.0, 0.0, 2.0)
                             for n in (15_000, 0)]},
            {"read_growth": [ReadGrowth(NOW_MS - n, NOW_MS - n - 15_000, 1, None, 0.0, 9.0, 5.0, 2.0)
                             for n in (15_000, 0)]},
        ),
    ],
    "truncation-refused": [
        (
            {"replicas": [replica(2, phase="FAILED", in_isr=False, log_end_offset=900,
                                  evidence={"rule": "keeps-acknowledged-records", "reason": "it would be cut"})]},
            {"replicas": [replica(2, phase="FAILED", in_isr=False, log_end_offset=900, evidence={"rule": "other"})]},
        ),
        (
            # Behind the leader's end by now, and still the same.
            {"replicas": [replica(2, phase="FAILED", in_isr=False, log_end_offset=400,
                                  evidence={"rule": "keeps-acknowledged-records", "reason": "it would be cut"})]},
            {"replicas": [replica(2, phase="FETCHING", in_isr=False, log_end_offset=900,
                                  evidence={"rule": "keeps-acknowledged-records"})]},
        ),
    ],
    "thin-leader": [
        (
            {"replicas": [replica(1, local_log_start_offset=751), replica(2)]},
            {"replicas": [replica(1, local_log_start_offset=750), replica(2)]},
        ),
        (
            {"replicas": [replica(1, local_log_start_offset=999), replica(2)]},
            {"replicas": [replica(1, local_log_start_offset=999), replica(2, in_isr=False)]},
        ),
    ],
    "divergence": [
        (
            {"replicas": [replica(2, evidence={"disagrees_with_leader_at": 400})]},
            {"replicas": [replica(2, evidence={"disagrees_with_leader_at": 400}, in_isr=False)]},
        ),
        (
            {"partitions": [partition(earliest_pending_upload_offset=499)]},
            {"partitions": [partition(earliest_pending_upload_offset=500)]},
        ),
    ],
}  # fmt: skip
