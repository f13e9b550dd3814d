"""Every row of the table of causes does something: of each pair the smallest facts, by the rules themselves."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import pytest

from backend.control.findings.broker_absences import RepeatedAbsence
from backend.control.findings.catalogue import SLUGS, lane_of
from backend.control.findings.causes import EXPLANATIONS, Link, with_causes
from backend.control.findings.endangered_partitions import EndangeredPartition, EndangeredPartitions
from backend.control.findings.evaluate import candidates, retained
from backend.control.findings.finding_context import Candidate, ClusterSilence, GroupOffset, RoundAge, ThrottleSetting
from backend.control.findings.open_in_memory import database_away
from backend.control.findings.remote_read_growth import ReadGrowth
from backend.control.findings.still_offsets import PartitionStill, StillOffset
from backend.control.findings.unseen_findings import NEEDED_BY, unseen
from backend.tiering.ids import TopicPartition
from backend.tiering.pending import PendingReason
from tests.incidents.expectations import EXPLAINS
from tests.unit.control.findings.rule_cases import (
    CASES,
    DELETING,
    LEAST_TWO,
    METADATA,
    STILL,
    STUCK,
    led_by_another,
    pipeline,
    silent_voter,
    voters,
)
from tests.unit.control.findings.sights import (
    MINUTE_MS,
    NOW_MS,
    attempt,
    broker,
    context,
    disk,
    partition,
    replica,
    segment,
    stored,
    topic,
)

Facts = dict[str, Any]


class Pair(NamedTuple):
    """A cause, what links it, and what it explains."""

    cause: str
    link: Link
    consequence: str
    unseen_only: bool = False


def brokers(broker_id: int, **more: Any) -> Facts:
    return {"brokers": [broker(number, **(more if number == broker_id else {})) for number in (1, 2, 3)]}


def away(broker_id: int) -> Facts:
    return brokers(broker_id, reachable=False, error="It does not answer.")


def reads(broker_id: int, topic_name: str | None, **more: float) -> Facts:
    """Two readings of a broker's meters, one after the other."""
    row: dict[str, float] = {"errors": 0.0, "requests": 3.0, "fetched_bytes": 0.0, "expired": 0.0} | more
    return {
        "read_growth": [
            ReadGrowth(NOW_MS - n, NOW_MS - n - 15_000, broker_id, topic_name, *row.values()) for n in (15_000, 0)
        ]
    }


ORDERS_0: Final = TopicPartition("orders", 0)
LAGS: Final = {"lag_ms": 20_000, "lag_records": 9}
NO_ROUND: Facts = {"round_age": RoundAge(90_000, 2_000)}
METADATA_PARTITION: Facts = {"partitions": [partition(METADATA, tiered=False)]}
UNKNOWING: Facts = {"partitions": [partition(leader=2, pending_reason=PendingReason.LEADER_DOES_NOT_KNOW)]}
# Broker 2 alone lacks in each of these.
BELOW: Facts = LEAST_TWO | {"partitions": [partition(replicas=(1, 2), isr=(1,))]}
STUCK_ON_2: Facts = {"replicas": [replica(2, **STUCK)], **STILL}
UNSAFE: Facts = {"partitions": [partition(), partition(METADATA, tiered=False, isr=(1, 3))]}
MOVING: Facts = {
    "partitions": [partition(adding_replicas=(2,), isr=(1, 3))],
    "replicas": [replica(2, in_isr=False, error="It does not answer.")],
}
LEADERLESS: Facts = {"partitions": [partition(leader=-1, isr=(2,))]}
OF_A_BROKER: dict[str, Facts] = {
    "below-min-isr": BELOW,
    "follower-stuck": STUCK_ON_2,
    "metadata-unsafe": UNSAFE,
    "move-stalled": MOVING,
    "offline": LEADERLESS,
}
BEHIND: Facts = {
    "endangered": EndangeredPartitions({ORDERS_0: EndangeredPartition(ORDERS_0, 2, {1: (4, 1000), 2: (3, 0)})}),
    "partitions": [partition(leader=-1, isr=())],
    "kafka_rules": True,
}
THROTTLED: Facts = {
    "throttles": [
        ThrottleSetting("follower.replication.throttled.replicas", "*", topic="orders"),
        ThrottleSetting("follower.replication.throttled.rate", "1", broker_id=-1),
    ],
    "partitions": [partition(isr=(1,), replicas=(1, 2))],
}
DEBT: Facts = {"partitions": [partition(local_log_bytes=1_101)]}
SLOW: Facts = {"partitions": [partition(local_log_bytes=1_100, earliest_pending_upload_offset=500)]}
HUNG: Facts = {"open_segments": [segment(age_ms=MINUTE_MS + 1)]}
DELETES: Facts = {"open_segments": [segment(delete_started_ms=NOW_MS - MINUTE_MS - 1, **DELETING)]}
STORM: Facts = {"group_offsets": [GroupOffset("g", "orders", 0, 499)], "reader_queues": {1: 2.0}}
FAILING_STORE: Facts = {
    "failed_attempts": [attempt(age, broker_id=id_, index=id_ - 1) for id_ in (1, 2) for age in (1, 40_000)],
    "partitions": [partition(), partition(index=1, leader=2)],
}
GARBAGE: Facts = {"passed_over": {("__remote_log_metadata", "the pipeline"): 1}, "kafka_rules": True}
FAILING_BROKER: Facts = {"failed_attempts": [attempt(1), attempt(40_000)]}
OF_THE_STORE: dict[str, Facts] = {
    # Begun by broker 1, which leads no more.
    "copy-dangling": {
        "open_segments": [segment(age_ms=2 * MINUTE_MS, partition=7)],
        "partitions": [partition(), partition(index=7, leader=2)],
    },
    "copy-hung": HUNG,
    "copy-slow": SLOW,
    "delete-lag": DELETES,
    "local-debt": DEBT,
    "remote-read-failing": reads(1, "orders", errors=3.0),
    "remote-read-slow": reads(1, None, expired=3.0),
    "remote-read-storm": STORM,
}
SLOW_STORE: Facts = {
    "partitions": [partition(index=number, leader=1 + number % 2) for number in (1, 2, 3)],
    "open_segments": [
        segment(age_ms=30_000, segment_id=f"s{number}", partition=number, copy_broker_id=1 + number % 2)
        for number in (1, 2, 3)
    ],
}
READS_FAIL: Facts = {
    "read_growth": [growth for id_ in (2, 3) for growth in reads(id_, None, errors=3.0)["read_growth"]]
}
READS_SLOW: Facts = {
    "read_growth": [growth for id_ in (2, 3) for growth in reads(id_, None, expired=3.0)["read_growth"]]
}
TRANSACTION: Facts = {"still": {("orders", 0): PartitionStill("id-orders", None, StillOffset(700, NOW_MS - 1_000_000))}}
RIGHTS: Facts = {"missing_rights": sorted(NEEDED_BY, key=str)}

BY_BROKER, BY_PARTITION, BY_CLUSTER = Link.BROKER, Link.PARTITION, Link.CLUSTER
# (facts of the cause, facts of what it explains)
SCENES: dict[Pair, tuple[Facts, Facts]] = {
    **{Pair("database-away", BY_CLUSTER, slug): ({}, facts) for slug, facts in {
        "observer-down": NO_ROUND, "pipeline-behind": pipeline(detail=LAGS), "pipeline-down": pipeline(age_ms=6_001)
    }.items()},
    **{Pair("rights-missing", BY_CLUSTER, slug): (RIGHTS, facts) for slug, facts in {
        "pipeline-behind": pipeline(detail=LAGS), "pipeline-down": pipeline(state="waiting")}.items()},
    **{Pair("last-leader-behind", BY_BROKER, slug): (BEHIND, facts) for slug, facts in {
        "broker-away": away(2), "metadata-unsafe": UNSAFE, "offline": {}}.items()},
    **{Pair("broker-away", BY_BROKER, slug): (away(2), facts) for slug, facts in {
        **OF_A_BROKER,
        "observer-down": NO_ROUND,
        "copy-hung": {"partitions": [partition(leader=2)],
                      "open_segments": [segment(age_ms=MINUTE_MS + 1, copy_broker_id=2)]},
        "metadata-failed": UNKNOWING,
        "metadata-loading": UNKNOWING,
        "pipeline-behind": pipeline(detail=LAGS) | METADATA_PARTITION,
        "pipeline-down": pipeline(state="waiting") | METADATA_PARTITION,
        "remote-read-failing": reads(2, "orders", errors=3.0),
        "remote-read-slow": reads(2, None, expired=3.0)}.items()},
    Pair("broker-away", BY_BROKER, "voter-away"):
        (away(3), {"quorum_ms": NOW_MS, "quorum_replicas": silent_voter(3_001)}),
    Pair("broker-away", BY_BROKER, "voter-catching-up"): (away(3), {"quorum_replicas": voters(3, catching_up=1)}),
    # One that comes and goes: it answers, and leads little as often as it was away.
    Pair("broker-away", BY_BROKER, "leader-skew"):
        ({"repeated_absences": {1: RepeatedAbsence(3, 60_000, 1_000)}}, {"partitions": led_by_another(10, 6)}),
    **{Pair("disk-offline", BY_BROKER, slug): (brokers(2, log_dirs=[disk(error="KAFKA_STORAGE_ERROR")]), facts)
       for slug, facts in OF_A_BROKER.items()},
    Pair("disk-offline", BY_BROKER, "disk-runway"):
        ({}, brokers(2, log_dirs=[disk(error="KAFKA_STORAGE_ERROR"), disk(0.9, path="/other")])),
    **{Pair("broker-fenced", BY_BROKER, slug): (brokers(2, fenced=True), facts) for slug, facts in OF_A_BROKER.items()},
    Pair("offline", BY_PARTITION, "follower-stuck"): (LEADERLESS, STUCK_ON_2 | {"partitions": [partition()]}),
    Pair("offline", BY_PARTITION, "move-stalled"): (LEADERLESS, MOVING),
    Pair("throttle-left", BY_PARTITION, "below-min-isr"): (THROTTLED, BELOW),
    Pair("throttle-left", BY_PARTITION, "follower-stuck"): (THROTTLED, STUCK_ON_2),
    Pair("follower-stuck", BY_PARTITION, "below-min-isr"): (STUCK_ON_2, BELOW),
    Pair("follower-stuck", BY_PARTITION, "move-stalled"):
        (STUCK_ON_2, {"partitions": [partition(adding_replicas=(2,), isr=(1, 3))]}),
    Pair("metadata-failed", BY_BROKER, "copy-slow"): (
        {}, {"partitions": [partition(leader=2, pending_reason=PendingReason.LEADER_DOES_NOT_KNOW, index=1),
                            partition(leader=2, local_log_bytes=1_100, earliest_pending_upload_offset=500)]}),
    Pair("pipeline-down", BY_CLUSTER, "pipeline-behind"): ({}, pipeline(state="waiting", detail=LAGS)),
    Pair("metadata-unsafe", Link.TOPIC, "pipeline-down"):
        ({"topics": {"orders": topic()}}, {"topics": {"orders": topic()}, **pipeline(state="waiting")}),
    Pair("records-unreadable", BY_CLUSTER, "copy-failing"): (GARBAGE, FAILING_STORE),
    **{Pair("records-unreadable", BY_CLUSTER, slug): (GARBAGE, facts) for slug, facts in OF_THE_STORE.items()},
    **{Pair("copy-failing", BY_CLUSTER, slug): (FAILING_STORE, facts) for slug, facts in OF_THE_STORE.items()},
    **{Pair("copy-failing", BY_BROKER, slug): (FAILING_BROKER, facts) for slug, facts in OF_THE_STORE.items()},
    Pair("copy-hung", BY_PARTITION, "copy-slow"): (HUNG, SLOW),
    Pair("copy-slow", BY_CLUSTER, "delete-lag"): (SLOW_STORE, DELETES),
    Pair("copy-slow", BY_CLUSTER, "local-debt"): (SLOW_STORE, DEBT),
    Pair("remote-read-failing", BY_CLUSTER, "remote-read-slow"): (READS_FAIL, reads(1, None, expired=3.0)),
    Pair("remote-read-failing", BY_CLUSTER, "remote-read-storm"): (READS_FAIL, STORM),
    Pair("remote-read-slow", BY_CLUSTER, "remote-read-storm"): (READS_SLOW, STORM),
    Pair("transaction-open", BY_PARTITION, "local-debt"): (TRANSACTION, DEBT),
}  # fmt: skip
# Of a cluster that is away, and of rights that are missing, what was seen before is kept.
UNSEEN_FACTS: Final = {slug: cases[0][0] for slug, cases in CASES.items() if cases} | {
    "last-leader-behind": BEHIND,
    "metadata-failed": UNKNOWING,
    "metadata-loading": UNKNOWING,
    "move-stalled": MOVING,
}
OF_THE_PRODUCT: Final = {"cluster-away", "database-away", "database-lost", "pipeline-behind", "pipeline-down"}
KEPT: Final = [Pair("cluster-away", BY_CLUSTER, slug) for slug in sorted(SLUGS.keys() - OF_THE_PRODUCT)] + [
    Pair("rights-missing", BY_CLUSTER, slug, unseen_only=True)
    for slug in (
        "copy-dangling",
        "copy-failing",
        "copy-slow",
        "delete-lag",
        "group-below-log-start",
        "local-debt",
        "metadata-unsafe",
        "records-unreadable",
        "remote-read-storm",
        "segment-leak",
        "throttle-left",
        "voter-away",
        "voter-catching-up",
    )
]


def seen(pair: Pair) -> list[Candidate]:
    """The cause and what it explains, as the rules see both at once. Each lane judges when its facts are new: those of
    another may be of a moment before.
    """
    of_cause, of_consequence = SCENES[pair]
    if pair.cause == "database-away":
        both = [{}, of_consequence]
    elif lane_of(pair.cause) is lane_of(pair.consequence):
        both = [merged(of_cause, of_consequence)] * 2
    elif pair.cause == "rights-missing":
        both = [of_cause, of_cause | of_consequence]
    else:
        both = [of_cause, merged(of_cause, of_consequence)]
    return [raised_first(pair.cause, both[0]), raised_first(pair.consequence, both[1])]


def raised_first(slug: str, facts: Facts) -> Candidate:
    if slug == "database-away":
        return database_away("It does not answer.", None)
    return next(c for c in candidates(context(**facts)).values() if c.slug == slug)


def merged(of_cause: Facts, of_consequence: Facts) -> Facts:
    """Lists of both, of one partition or broker that of the consequence."""
    result = of_cause | of_consequence
    for name in of_cause.keys() & of_consequence.keys() & {"partitions", "read_growth", "open_segments"}:
        theirs = [identity(row) for row in of_consequence[name]]
        result[name] = [*of_consequence[name], *(row for row in of_cause[name] if identity(row) not in theirs)]
    return result


def identity(row: Any) -> object:
    return (row.broker_id, row.topic) if isinstance(row, ReadGrowth) else (row.topic, row.partition)


@pytest.mark.parametrize("pair", SCENES, ids=lambda pair: f"{pair.cause}-{pair.link}-{pair.consequence}")
def test_what_rules_see_at_once_stands_under_its_cause(pair: Pair) -> None:
    cause, consequence = seen(pair)
    assert with_causes({c.key: c for c in (cause, consequence)})[consequence.key].cause == cause.key


@pytest.mark.parametrize("pair", KEPT, ids=lambda pair: f"{pair.cause}-{pair.consequence}")
def test_what_cannot_be_seen_any_more_stands_under_the_reason(pair: Pair) -> None:
    before = stored(raised_first(pair.consequence, UNSEEN_FACTS[pair.consequence]))
    kept = retained(before)
    facts: Facts = {"away": ClusterSilence(NOW_MS - 5_000, "No broker answers.")}
    if pair.unseen_only:
        [kept] = unseen([before], lane_of(pair.consequence), (), RIGHTS["missing_rights"], NOW_MS).values()
        facts = RIGHTS
    cause = raised_first(pair.cause, facts)
    assert with_causes({c.key: c for c in (cause, kept)})[kept.key].cause == cause.key


def test_the_table_has_these_pairs_and_no_others() -> None:
    pairs = [Pair(row.cause, row.link, slug, row.unseen_only) for row in EXPLANATIONS for slug in row.consequences]
    assert sorted(pairs) == sorted([*SCENES, *KEPT])


def test_the_table_explains_no_more_than_the_incidents_allow() -> None:
    beyond = {
        (row.cause, slug)
        for row in EXPLANATIONS
        for slug in row.consequences
        if not {slug, "*"} & EXPLAINS.get(row.cause, frozenset())
    }
    assert beyond == set()
