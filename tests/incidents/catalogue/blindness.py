"""The product does not see: the cluster, one of its processes or its database is away, frozen or behind.

When the API does not answer, the recorder asks the commands: `ebbline status` and `ebbline findings` must end with 3
within seconds, and their text is the finding (`backend-down`, `database-away`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tests.incidents.catalogue.brokers import COMPARED
from tests.incidents.expectations import CRITICAL, WARNING, Allowed, Expected, Incident, RigForm, Where
from tests.incidents.steps import PAUSE, before, breaks, mends

POSTGRESQL: Final = RigForm(postgresql=True)
TASK: Final = (
    "the observer is a task of the backend's process: it is silent alone only by a fault inside, which"
    " tests/unit/control has; the process that is dead or frozen is backend-killed and backend-frozen"
)


def down(slug: str, object_: str, *says: str, severity: str = CRITICAL, action: str = "log|start|restart") -> Expected:
    """The finding of something that the product needs in order to see."""
    return Expected(
        slug=slug,
        objects=(object_,),
        severity=severity,
        says=says,
        action=(action,),
        never=("unclean", "delete", "rebuild"),
        # A backend that is gone sends nothing: its absence is for a heartbeat and Prometheus' absent().
        sends=slug != "backend-down",
    )


INCIDENTS: Final = (
    Incident(
        name="cluster-away",
        title="All brokers are away for 2 minutes and come back",
        steps=(breaks("kill_all"), breaks(PAUSE, seconds=120), mends("start_all")),
        expected=(down("cluster-away", "cluster", "not answer", "broker", action="start|network|listener"),),
        allowed=(
            Allowed(slug="broker-away", objects=("broker *",), because="they come back one after another"),
            Allowed(slug="metadata-loading", severity="notice", because="the brokers have just started"),
            COMPARED,
        ),
        hold_s=0,
        watch_s=60,
    ),
    Incident(
        name="pipeline-stopped",
        title="The pipeline ends and does not come back",
        steps=(breaks("kill_process", process="pipeline"), mends("start_process", process="pipeline")),
        expected=(down("pipeline-down", "pipeline", "pipeline"),),
    ),
    Incident(
        name="pipeline-frozen",
        title="The pipeline is frozen (SIGSTOP): it runs and does nothing",
        steps=(
            breaks("freeze", process="pipeline"),
            breaks(PAUSE, seconds=45),
            mends("thaw", process="pipeline"),
        ),
        expected=(
            replace(
                down("pipeline-down", "pipeline", "pipeline", "silent|not answer|no sign", action="killed"),
                ends_by_itself=True,
            ),
        ),
    ),
    Incident(
        name="pipeline-frozen-killed",
        title="The pipeline is frozen (SIGSTOP), and killed as the finding says",
        steps=(
            breaks("freeze", process="pipeline"),
            breaks(PAUSE, seconds=45),
            # `ebbline up` starts another one once it is let go.
            mends("kill_process", process="pipeline"),
            mends("start_process", process="pipeline"),
        ),
        expected=(down("pipeline-down", "pipeline", "pipeline", "silent|not answer|no sign", action="killed"),),
    ),
    Incident(
        name="pipeline-behind",
        title="The pipeline falls behind: a quota of the brokers holds its reads",
        steps=(
            # A pipeline that has just started gets a minute to catch up.
            before(PAUSE, seconds=60),
            breaks("limit_pipeline", bytes_per_s=50),
            breaks(PAUSE, seconds=45),
            mends("limit_pipeline", bytes_per_s=0),
        ),
        expected=(down("pipeline-behind", "pipeline", "behind", severity=WARNING, action="log|quota|pipeline"),),
    ),
    Incident(
        name="pipeline-quarantines",
        title="A client writes something into the metadata topic that is no record of it",
        steps=(breaks("write_garbage", topic="__remote_log_metadata"), breaks(PAUSE, seconds=20)),
        expected=(
            Expected(
                slug="records-unreadable",
                objects=("*__remote_log_metadata*",),
                severity=WARNING,
                says=("1", "__remote_log_metadata"),
                action=("client", "write|only brokers"),
                never=("delete",),
                cleared_within_s=None,
            ),
        ),
        spoils=True,
        on=frozenset({Where.EMBEDDED}),
        why_not={Where.KAFKA: "its brokers do not pass it over: metadata-reading-ends"},
    ),
    Incident(
        name="metadata-reading-ends",
        title="A client writes something into the metadata topic at which the brokers stop to read it",
        steps=(breaks("write_garbage", topic="__remote_log_metadata"), breaks(PAUSE, seconds=45)),
        expected=(
            Expected(
                slug="records-unreadable",
                objects=("*__remote_log_metadata*",),
                severity=CRITICAL,
                says=("__remote_log_metadata", "nothing is copied|stop"),
                action=("Restart no broker", "only brokers write"),
                never=("delete", "unclean", "start it again"),
                cleared_within_s=None,
            ),
        ),
        on=frozenset({Where.KAFKA}),
        why_not={Where.EMBEDDED: "the engine passes it over: pipeline-quarantines"},
        spoils=True,
    ),
    Incident(
        name="observer-frozen",
        title="The observer does nothing while the API answers",
        steps=(),
        expected=(down("observer-down", "observer", "observer", "no round|silent|checked"),),
        on=frozenset(),
        why_not=dict.fromkeys(Where, TASK),
    ),
    Incident(
        name="backend-killed",
        title="The backend ends and does not come back",
        steps=(breaks("kill_process", process="backend"), mends("start_process", process="backend")),
        expected=(down("backend-down", "backend", "cannot be reached", action="start|ebbline up"),),
        # Two heartbeats do not come.
        hold_s=25,
    ),
    Incident(
        name="backend-frozen",
        title="The backend is frozen (SIGSTOP)",
        steps=(
            breaks("freeze", process="backend"),
            breaks(PAUSE, seconds=30),
            mends("thaw", process="backend"),
        ),
        expected=(down("backend-down", "backend", "not answer in time", action="start|ebbline up|restart|runs"),),
    ),
    Incident(
        name="database-away",
        title="The database ends and comes back (PostgreSQL)",
        steps=(breaks("stop_database"), breaks(PAUSE, seconds=40), mends("start_database")),
        expected=(down("database-away", "database", "database", "not answer", action="start|see whether its server"),),
        form=POSTGRESQL,
    ),
    Incident(
        name="database-frozen",
        title="The database is frozen: its connections stay open and nothing comes (PostgreSQL)",
        steps=(breaks("freeze_database"), breaks(PAUSE, seconds=40), mends("thaw_database")),
        expected=(down("database-away", "database", "database", action="see whether its server|start|restart"),),
        form=POSTGRESQL,
    ),
    Incident(
        name="database-refuses",
        title="The database answers and refuses writes: read-only, as after a failover (PostgreSQL)",
        steps=(breaks("refuse_database_writes"), breaks(PAUSE, seconds=40), mends("take_database_writes")),
        expected=(down("database-away", "database", "read-only|refuses", action="read-only|writ|server"),),
        form=POSTGRESQL,
    ),
    Incident(
        name="database-locked",
        title="Another program holds the database (SQLite)",
        steps=(breaks("lock_database"), breaks(PAUSE, seconds=40), mends("unlock_database")),
        expected=(down("database-away", "database", "another program|lock", action="program|end"),),
    ),
)
