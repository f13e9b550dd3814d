"""Ten incidents of a second stranger: mistakes of operators, things that happen during others, half mends, flapping.

An on-call engineer who had not read the rules wrote down what a page has to say at three in the morning, and what must
call nobody. Each is played on the common rig, on both clusters, and mends what it breaks.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tests.incidents.catalogue.brokers import LOSES, away
from tests.incidents.catalogue.metadata_topic import TOPIC, unsafe
from tests.incidents.catalogue.moves import MOVED, foreign
from tests.incidents.catalogue.readers import ASTRAY, OLD_RECORDS, READS_REMOTE, reader
from tests.incidents.catalogue.rights import OPENS_ITS_DATABASE
from tests.incidents.catalogue.store import DANGLING, failing
from tests.incidents.expectations import BROKER_S, CRITICAL, REST_S, WARNING, Allowed, Expected, Incident
from tests.incidents.steps import PAUSE, Step, before, breaks, mends

SPREAD: Final = ((1, 2, 3), (2, 3, 1), (3, 1, 2))
COPY_QUOTA: Final = "remote.log.manager.copy.max.bytes.per.second"
# A broker counts as stable again when it has answered for a minute; then the same as of everything else.
STABLE_S: Final = 60 + REST_S
# A deletion takes seconds and is tried again each task interval; a minute without an end is none, then as everything.
OVERDUE_S: Final = 60 + REST_S
# A load of 200 kB a second for each broker passes local retention (2 segments of 1 MiB) after half a minute of next to
# no copies; then the same as of everything else.
BEHIND_S: Final = 30 + REST_S


def crash(*, up_s: float) -> tuple[Step, ...]:
    """Broker 2 dies, is started again, and serves for some seconds."""
    return (
        breaks("kill", broker=2),
        breaks(PAUSE, seconds=3),
        breaks("start", broker=2),
        breaks(PAUSE, seconds=up_s),
    )


INCIDENTS: Final = (
    Incident(
        name="all-brokers-hang",
        title="All three brokers hang at once for 40 s (SIGSTOP), as when their shared storage stalls, and go on",
        steps=(
            *(breaks("hang", broker=broker) for broker in (1, 2, 3)),
            breaks(PAUSE, seconds=40),
            *(mends("resume", broker=broker) for broker in (1, 2, 3)),
        ),
        expected=(
            Expected(
                slug="cluster-away",
                objects=("cluster",),
                severity=CRITICAL,
                says=("not answer", "broker"),
                action=("start|restart|process|network|listener",),
                never=LOSES,
                # All of service is lost: no later than a single broker.
                within_s=BROKER_S,
            ),
        ),
        allowed=(Allowed(slug="broker-away", objects=("broker *",), because="they come back within some seconds"),),
        # A supervisor may take a process that is silent for a minute for dead, and replace it.
        hold_s=0,
        # Writers send at once what they have kept for 40 s, and its copies take some seconds: nobody is called for it.
        watch_s=45,
    ),
    Incident(
        name="broker-crash-loops",
        title="A broker crash-loops: it dies again some seconds after each start, four times in about a minute",
        steps=(
            *crash(up_s=8),
            *crash(up_s=8),
            *crash(up_s=6),
            breaks("kill", broker=2),
            breaks(PAUSE, seconds=10),
            mends("start", broker=2),
        ),
        expected=(
            Expected(
                slug="broker-away",
                objects=("broker 2",),
                # Each partition is led, and at its minimum.
                severity=WARNING,
                says=(
                    "broker 2",
                    "comes and goes|third time|fourth time|3 times|4 times|three times|four times|times within|times in"
                    "|not the first|repeatedly|crash|keeps ending|keeps stopping|keeps dying|flap",
                ),
                # A start is what it has had three times already.
                action=("log|why",),
                never=LOSES,
                within_s=BROKER_S,
                # Closed at the moment in which it answers, it would be opened again by its next death.
                cleared_within_s=STABLE_S,
                # Two absences may be somebody who restarts it.
                opens=3,
            ),
        ),
        hold_s=5,
    ),
    Incident(
        name="copy-quota-too-low",
        title="A copy quota in the wrong unit (50 kB/s, where 50 MB/s is meant): copies of all brokers fall behind",
        steps=(
            breaks("set_brokers", name=COPY_QUOTA, value="50000"),
            breaks(PAUSE, seconds=45),
            mends("set_brokers", name=COPY_QUOTA, value="50000000"),
        ),
        expected=(
            Expected(
                slug="copy-slow",
                # The cause is a setting of the cluster: it is a page for the cluster, not for each of its partitions.
                objects=("remote storage|cluster|broker*",),
                severity=WARNING,
                says=(
                    "behind|slow|wait",
                    "50000|50,000|50.000|50 000|50_000|50 kB|50.0 kB|50kB|0.05 MB|48.8 KiB|48.8 kB|49 KiB|49 kB",
                ),
                action=(COPY_QUOTA, "raise|higher|larger|increase|lift|remove|clear"),
                # The store does what it is asked for, and more threads share the same quota.
                never=("delete records", "move leadership", "thread.pool", "copier thread", "credentials", "repair"),
                within_s=BEHIND_S,
                # The backlog of a minute and a half is copied first.
                cleared_within_s=60,
            ),
        ),
        watch_s=45,
    ),
    Incident(
        name="map-swept-while-broker-away",
        title="While a broker is down, a script gives every topic 7 days of retention, the tier's map among them",
        steps=(
            breaks("kill", broker=3),
            # Time in which the broker's missing replicas of the map are a finding under the broker.
            breaks(PAUSE, seconds=15),
            breaks("set_topic", label="swept", topic=TOPIC, name="retention.ms", value="604800000"),
            breaks(PAUSE, seconds=10),
            mends("set_topic", label="unswept", topic=TOPIC, name="retention.ms", value="-1"),
            # Time in which the broker alone is what is left.
            mends(PAUSE, seconds=20),
            mends("start", label="back", broker=3),
        ),
        expected=(
            away(3, WARNING, "partition", cleared_from="back"),
            # The start of the broker ends nothing of it: under the broker it would be read by nobody.
            replace(
                unsafe(
                    CRITICAL,
                    "retention.ms",
                    "604800000|7 d|168 h|1 week|a week|10080 min",
                    action=("retention.ms", "-1|unlimited"),
                ),
                since="swept",
                cleared_from="unswept",
            ),
        ),
    ),
    Incident(
        name="store-half-mended",
        title="The store is away and comes back half: writes are allowed again, and every read is still refused",
        steps=(
            *OLD_RECORDS,
            breaks("fault_store", fault="away"),
            # The group comes after the finding of the copies, so that the store is a cause already.
            breaks(PAUSE, seconds=35),
            reader(),
            breaks(PAUSE, seconds=15),
            breaks("fault_store", label="half", fault="refuse-reads"),
            breaks(PAUSE, seconds=20),
            mends("heal_store"),
        ),
        expected=(
            replace(failing("fail", "cop"), cleared_from="half"),
            Expected(
                slug="remote-read-failing",
                objects=("remote storage|old-0",),
                severity=CRITICAL,
                says=("read", "fail", "old-0"),
                action=("store|remote storage",),
                never=ASTRAY,
                # The copies' finding closes within 15 s of the half mend: who has seen that goes back to sleep, and
                # must be called for the reads as for everything else, if they were under it until then.
                within_s=15 + REST_S,
                since="half",
            ),
        ),
        allowed=(DANGLING, READS_REMOTE),
        watch_s=30,
    ),
    Incident(
        name="copies-paused-for-maintenance",
        title="Maintenance of the store by the book: copies of a topic are paused, it is written to, they are resumed",
        steps=(
            before("create_topic", topic="archive", replicas=SPREAD, tiered=True),
            before("produce", topic="archive", records=9_000),
            before(PAUSE, seconds=15),
            # In the order that Kafka takes: copies are paused only where local retention is that of all.
            breaks("set_topic", topic="archive", name="local.retention.bytes", value="-2"),
            breaks("set_topic", topic="archive", name="remote.log.copy.disable", value="true"),
            breaks(PAUSE, seconds=5),
            breaks("fault_store", fault="refuse-writes", topic="archive"),
            # Five segments of each partition wait, more than local retention was, and nothing fails: nobody copies.
            breaks("produce", topic="archive", records=18_000),
            breaks(PAUSE, seconds=45),
            mends("heal_store"),
            mends("set_topic", topic="archive", name="remote.log.copy.disable", value="false"),
            mends("set_topic", topic="archive", name="local.retention.bytes", value="2097152"),
        ),
        watch_s=45,
    ),
    Incident(
        name="min-isr-above-replicas",
        title="min.insync.replicas is set above the number of replicas: it looks forbidding, and brokers cap it",
        steps=(
            before("create_topic", topic="pairs", replicas=((1, 2), (2, 3), (3, 1))),
            before("produce", topic="pairs", records=300),
            before(PAUSE, seconds=5),
            breaks("set_topic", topic="pairs", name="min.insync.replicas", value="3"),
            breaks(PAUSE, seconds=15),
            # The proof that nobody is refused (acks=all): it fails where a record is not acknowledged.
            breaks("produce", topic="pairs", records=300),
            breaks(PAUSE, seconds=30),
            mends("set_topic", topic="pairs", name="min.insync.replicas", value="2"),
        ),
    ),
    Incident(
        name="move-loses-its-target",
        title="Another tool moves replicas with a limit, and the broker that they go to dies on the way and comes back",
        steps=(
            *MOVED,
            # 24 MB at 600 kB a second: two thirds are left when the broker dies.
            breaks("reassign", topic="moved", replicas=((1, 2, 3), (2, 1, 3)), throttle=600_000),
            breaks(PAUSE, seconds=8),
            breaks("kill", label="target", broker=3),
            # Time in which a move that stands still is a finding, under the broker.
            breaks(PAUSE, seconds=40),
            mends("start", label="back", broker=3),
            mends("wait_moved", topic="moved"),
            mends("clear_throttles"),
        ),
        expected=(foreign(), away(3, WARNING, "partition", since="target", cleared_from="back")),
    ),
    Incident(
        name="backend-dies-during-outage",
        title="The product's backend dies while a broker is away, and comes back: nobody is called twice",
        steps=(
            breaks("kill", broker=2),
            breaks(PAUSE, seconds=12),
            breaks("kill_process", process="backend"),
            breaks(PAUSE, seconds=15),
            breaks("start_process", process="backend"),
            breaks(PAUSE, seconds=20),
            mends("start", broker=2),
        ),
        # Its notices are counted as ever: opened once, closed once.
        expected=(away(2, WARNING, "partition"),),
        allowed=(
            Allowed(
                slug="broker-away",
                objects=("broker 2",),
                because="it is not read while the API is away; its notices say whether it was opened again",
                times=2,
            ),
            Allowed(
                slug="backend-down",
                severity=CRITICAL,
                because="the backend is killed; commands say so meanwhile",
                times=2,
            ),
            replace(OPENS_ITS_DATABASE, because="the backend is being started", times=2),
        ),
    ),
    Incident(
        name="deletes-refused",
        title="Retention is cut to save money, and the bucket's policy allows no deletion: what expired stays",
        steps=(
            # A leader on each broker, so that the store is the cause, and no broker and no partition.
            before("create_topic", topic="slim", replicas=SPREAD, tiered=True),
            before("produce", topic="slim", records=18_000),
            before("wait_remote", topic="slim"),
            breaks("fault_store", fault="refuse-deletes"),
            breaks("set_topic", label="cut", topic="slim", name="retention.bytes", value="3145728"),
            breaks(PAUSE, seconds=60),
            mends("heal_store"),
        ),
        expected=(
            Expected(
                slug="delete-lag",
                # One policy, one page, like the copies that it could refuse.
                objects=("remote storage|cluster",),
                # Nothing is lost and nobody waits: money is.
                severity=WARNING,
                # A finding for many partitions may name whichever it likes.
                says=("delet", "slim|orders|partition|segment"),
                action=("delet", "bucket|polic|grant|permission|allow|right|store"),
                never=("delete records", "restart", "unclean", "by hand", "retention.bytes"),
                since="cut",
                within_s=OVERDUE_S,
            ),
        ),
        loses=True,
        watch_s=20,
    ),
)
