"""Reports of the engine's durability: refused cuts, records passed over, copied replicas, databases, old folders."""

from __future__ import annotations

from typing import Final

from tests.incidents.catalogue.brokers import COMPARED, away
from tests.incidents.catalogue.rights import STARTS
from tests.incidents.expectations import CRITICAL, NOTICE, WARNING, Allowed, Expected, Incident, Where
from tests.incidents.steps import PAUSE, before, breaks, mends

EMBEDDED: Final = frozenset({Where.EMBEDDED})
OURS: Final = {Where.KAFKA: "only the embedded engine does so; Apache Kafka cuts the log"}

INCIDENTS: Final = (
    Incident(
        name="cut-refused",
        title="A former leader comes back after an unclean election and refuses to give acknowledged records up",
        steps=(
            before("create_topic", topic="two", replicas=((2, 3),), config={"min.insync.replicas": "1"}),
            before("produce", topic="two", records=100),
            before("kill", broker=3),
            before(PAUSE, seconds=12),
            before("produce", topic="two", records=50),
            before("kill", broker=2),
            before("start", broker=3),
            before(PAUSE, seconds=15),
            before("elect_unclean", topic="two", partition=0),
            before("produce", topic="two", records=10),
            breaks("start", broker=2),
            breaks(PAUSE, label="back", seconds=30),
        ),
        expected=(
            Expected(
                slug="truncation-refused",
                objects=("two-0 on broker 2",),
                severity=CRITICAL,
                says=("two-0", "broker 2", "acknowledged"),
                action=("producer", "broker 2"),
                never=("remove the replica", "format"),
                since="back",
                cleared_within_s=None,
            ),
        ),
        allowed=(
            Allowed(slug="broker-away", objects=("broker 2",), severity=CRITICAL, because="it was killed to get there"),
            Allowed(slug="unclean-recovery", severity=CRITICAL, because="the election itself"),
        ),
        on=frozenset(),
        why_not={
            Where.EMBEDDED: "no new disk, damaged file or backup makes the engine elect such a leader"
            " (docs/durability.md has them all), and after an operator's unclean election followers do cut;"
            " tests/simulation plants the election, tests/unit/engine/replica/test_kept_records.py refuses the cut",
            **OURS,
        },
        spoils=True,
        loses=True,
    ),
    Incident(
        name="records-passed-over",
        title="A client writes into an internal topic, and the brokers pass it over",
        # Its coordinator reads it again once another broker leads.
        steps=(breaks("write_garbage", topic="__consumer_offsets", led_by=2), breaks("restart", broker=2)),
        expected=(
            Expected(
                slug="records-unreadable",
                objects=("broker *|*__consumer_offsets*",),
                severity=WARNING,
                says=("1", "passed over|cannot be read"),
                action=("client", "write|only brokers"),
                cleared_within_s=None,
            ),
        ),
        allowed=(
            Allowed(slug="broker-away", objects=("broker 2",), because="it is restarted to read the topic again"),
        ),
        on=EMBEDDED,
        why_not={Where.KAFKA: "Apache Kafka does not tell that its coordinator passed records over"},
        spoils=True,
    ),
    Incident(
        name="replica-copied-again",
        title="A file of a replica is damaged while its broker is down; the broker copies the replica again",
        steps=(
            before("create_topic", topic="damaged", replicas=((1, 2, 3),)),
            before("produce", topic="damaged", records=2_000),
            before(PAUSE, seconds=5),
            # In order: after a kill a damaged end is what a power failure leaves, cut off and fetched again.
            before("stop", broker=3),
            before("damage", broker=3, topic="damaged", partition=0),
            breaks("start", broker=3),
            breaks(PAUSE, label="back", seconds=20),
        ),
        expected=(
            Expected(
                slug="set-aside",
                objects=("broker 3",),
                severity=NOTICE,
                says=("broker 3", "damaged-0"),
                action=("remove",),
                never=("unclean",),
                since="back",
                cleared_within_s=None,
            ),
        ),
        allowed=(Allowed(slug="broker-away", objects=("broker 3",), because="it is stopped to damage the file"),),
        on=EMBEDDED,
        why_not={Where.KAFKA: "Apache Kafka cuts the damaged end off and fetches it again: nothing is set aside"},
        spoils=True,
    ),
    Incident(
        name="database-lost",
        title="The file of the database is lost, and the product puts it back from its copy",
        steps=(
            # The first copy is made when the product has run for a minute.
            before(PAUSE, seconds=65),
            before("stop_product"),
            before("remove_database"),
            breaks("start_product"),
            breaks(PAUSE, label="up", seconds=1),
        ),
        expected=(
            Expected(
                slug="database-lost",
                objects=("database",),
                severity="warning|critical",
                says=("database", "put back|restored"),
                action=("token|plan|who",),
                since="up",
                cleared_within_s=None,
            ),
        ),
        allowed=(
            STARTS,
            Allowed(slug="metadata-loading", severity=NOTICE, because="brokers of `ebbline up` have just started"),
        ),
        spoils=True,
    ),
    Incident(
        name="old-feature-level",
        title="The cluster is at an old feature level: eligible leader replicas are off",
        steps=(breaks("set_elr", level=0), mends("set_elr", level=1)),
        expected=(
            Expected(
                slug="elr-off",
                objects=("cluster",),
                severity=WARNING,
                says=("eligible.leader.replicas.version", "0"),
                action=("upgrade",),
                never=("restart",),
            ),
        ),
    ),
    Incident(
        name="start-waits",
        title="A cluster starts with one of its three brokers: it waits for a second one",
        steps=(
            before("kill_all"),
            breaks("start", broker=1, wait=False),
            breaks(PAUSE, seconds=30),
            mends("start_all"),
        ),
        expected=(
            Expected(
                slug="cluster-away",
                objects=("cluster",),
                severity=CRITICAL,
                says=("not answer|wait",),
                action=("start",),
                never=("recover", "unclean", "format"),
            ),
        ),
        allowed=(
            Allowed(slug="broker-away", objects=("broker *",), because="they start one after another"),
            Allowed(slug="metadata-loading", severity=NOTICE, because="the brokers have just started"),
            COMPARED,
        ),
    ),
    Incident(
        name="start-refuses",
        title="A start is refused: the folders of two voters of three are gone",
        steps=(),
        expected=(away(2, CRITICAL),),
        on=frozenset(),
        why_not={
            Where.EMBEDDED: "nothing runs then that could find something: the refusal is one sentence and exit code 2"
            " (tests/e2e/test_up_refuses.py)",
            Where.KAFKA: "the product starts no broker there; a cluster that does not start is cluster-away",
        },
    ),
)
