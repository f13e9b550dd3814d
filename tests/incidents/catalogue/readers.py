"""Consumers of the remote tier: reads that fail or are too slow, objects that are gone, groups that read there."""

from __future__ import annotations

from typing import Final

from tests.incidents.expectations import CRITICAL, NOTICE, WARNING, Allowed, Expected, Incident
from tests.incidents.steps import PAUSE, Step, before, breaks, mends

MAX_WAIT: Final = "remote.fetch.max.wait.ms"
ASTRAY: Final = ("quota", "delete records", "move leadership", "unclean")
# Most of it is in the remote tier only: 12 MB under a local retention of 2 MiB.
OLD_RECORDS: Final = (
    before("create_topic", topic="old", replicas=((1, 2, 3),), tiered=True),
    before("produce", topic="old", records=12_000),
    before("wait_remote", topic="old"),
)
READS_REMOTE: Final = Allowed(
    slug="remote-read-storm",
    objects=("group *",),
    severity=NOTICE,
    because="that a group reads there is worth a line; that its reads wait is not known without the brokers' metrics",
)


def reader(*, group: str = "backfill") -> Step:
    """A group with members that begins at offset 0 and goes on until the incident ends, again and again."""
    return breaks("read_from_start", topic="old", group=group)


INCIDENTS: Final = (
    Incident(
        name="reads-refused",
        title="The store refuses every read while copies go on",
        steps=(*OLD_RECORDS, breaks("fault_store", fault="refuse-reads"), reader(), mends("heal_store")),
        expected=(
            Expected(
                slug="remote-read-failing",
                objects=("remote storage|old-0",),
                severity=CRITICAL,
                says=("read", "fail", "old-0"),
                action=("store|remote storage",),
                never=ASTRAY,
            ),
        ),
        allowed=(READS_REMOTE,),
    ),
    Incident(
        name="object-gone",
        title="The object of one segment is gone",
        steps=(
            *OLD_RECORDS,
            breaks("delete_objects", topic="old", segments=1),
            reader(),
            mends("restore_objects"),
        ),
        expected=(
            Expected(
                slug="remote-read-failing",
                objects=("old-0",),
                severity=CRITICAL,
                says=("old-0", "read", "object|segment"),
                action=("restore|put back|version|backup|remote verify",),
                never=(*ASTRAY, "credentials"),
            ),
        ),
        allowed=(READS_REMOTE,),
    ),
    Incident(
        name="store-emptied",
        title="All objects are gone: somebody has emptied the bucket",
        steps=(*OLD_RECORDS, breaks("delete_objects", topic="", segments=-1), reader(), mends("restore_objects")),
        expected=(
            Expected(
                slug="remote-read-failing",
                objects=("remote storage|old-0",),
                severity=CRITICAL,
                says=("read", "object|segment", "old-0"),
                action=("restore|put back|version|backup|remote verify",),
                never=ASTRAY,
            ),
        ),
        allowed=(READS_REMOTE,),
    ),
    Incident(
        name="reads-too-slow",
        title="Each read of the store takes 2 s, more than remote.fetch.max.wait.ms: consumers stand still",
        steps=(
            *OLD_RECORDS,
            breaks("fault_store", fault="slow-reads", delay_ms=2_000),
            reader(),
            mends("set_brokers", name=MAX_WAIT, value="9000"),
        ),
        expected=(
            Expected(
                slug="remote-read-slow",
                objects=("remote storage|old-0",),
                severity=CRITICAL,
                says=("read", "old-0", MAX_WAIT),
                action=(MAX_WAIT,),
                never=ASTRAY,
            ),
        ),
        allowed=(READS_REMOTE,),
        watch_s=20,
    ),
    Incident(
        name="group-reads-remote",
        title="A group with members reads old records from the remote tier, and nothing is wrong",
        steps=(*OLD_RECORDS, reader(), breaks(PAUSE, seconds=60)),
        allowed=(READS_REMOTE,),
        readers=("backfill",),
    ),
    Incident(
        name="assigned-group-reads-remote",
        title="A group without members reads old records by assign and commit, as Flink does",
        steps=(
            *OLD_RECORDS,
            breaks("read_assigned", topic="old", group="flink-job"),
            breaks(PAUSE, seconds=60),
        ),
        allowed=(READS_REMOTE,),
        readers=("flink-job",),
    ),
    Incident(
        name="group-below-log-start",
        title="Records are deleted that a group has not read yet",
        steps=(
            before("create_topic", topic="missed", replicas=((1, 2, 3),)),
            before("produce", topic="missed", records=1_000),
            before("commit", topic="missed", group="slow", offset=10),
            before(PAUSE, seconds=25),
            breaks("delete_records", topic="missed", partition=0, offset=600),
            # The log start, as kafka-consumer-groups.sh --reset-offsets --to-earliest commits it.
            mends("commit", topic="missed", group="slow", offset=600),
        ),
        expected=(
            Expected(
                slug="group-below-log-start",
                objects=("group slow|slow",),
                severity=WARNING,
                says=("slow", "590", "missed-0"),
                action=("--group slow --topic missed:0 --reset-offsets --to-earliest", "owner"),
                never=("unclean", "restart", "to-latest"),
            ),
        ),
        loses=True,
    ),
)
