"""An hour in which an operator works and nothing is wrong: restarts, retention, compaction, idle and busy topics."""

from __future__ import annotations

from typing import Final

from tests.incidents.catalogue.brokers import RESTARTED
from tests.incidents.catalogue.readers import READS_REMOTE
from tests.incidents.expectations import Incident
from tests.incidents.steps import PAUSE, Step, before, breaks, mends

SPREAD: Final = ((1, 2, 3), (2, 3, 1), (3, 1, 2))
TOPICS: Final = (
    # Nobody writes to most partitions of a cluster.
    before("create_topic", topic="idle", replicas=SPREAD * 20),
    before("create_topic", topic="idle-tiered", replicas=SPREAD * 4, tiered=True),
    # Cleaned again and again, with keys that come back.
    before(
        "create_topic",
        topic="compacted",
        replicas=SPREAD,
        config={"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.01"},
    ),
    # Local and remote data that retention takes away all the time, by size and by age.
    before("create_topic", topic="short", replicas=SPREAD, tiered=True, config={"retention.bytes": "4194304"}),
    before("create_topic", topic="minutes", replicas=SPREAD, config={"retention.ms": "120000", "segment.ms": "30000"}),
    # A segment that stays active for hours, larger than what local retention allows.
    before("create_topic", topic="trickle", replicas=SPREAD, tiered=True, config={"local.retention.bytes": "500000"}),
    before("produce", topic="trickle", records=2_400),
    # Old records that a group reads again, and that nobody takes away meanwhile.
    before("create_topic", topic="archive", replicas=SPREAD, tiered=True),
    before("produce", topic="archive", records=12_000),
    before("load", topic="compacted", bytes_per_s=50_000),
    before("load", topic="short", bytes_per_s=300_000),
    before("load", topic="minutes", bytes_per_s=50_000),
    before("follow", topic="orders", group="tail"),
)
ENDS: Final = tuple(mends("stop_load", topic=topic) for topic in ("compacted", "short", "minutes"))


def hour(minutes: float) -> tuple[Step, ...]:
    """The work of an operator, spread over a time."""
    rest_s = minutes * 60 / 8
    return (
        *TOPICS,
        before(PAUSE, seconds=30),
        breaks(PAUSE, seconds=rest_s),
        breaks("restart", broker=1),
        breaks(PAUSE, seconds=rest_s),
        breaks("restart", broker=2),
        breaks(PAUSE, seconds=rest_s),
        breaks("restart", broker=3),
        breaks(PAUSE, seconds=rest_s),
        breaks("elect_preferred"),
        breaks("create_topic", topic="new", replicas=SPREAD, tiered=True),
        breaks("produce", topic="new", records=6_000),
        breaks(PAUSE, seconds=rest_s),
        breaks("set_topic", topic="new", name="retention.ms", value="3600000"),
        breaks("read_from_start", topic="archive", group="again"),
        breaks(PAUSE, seconds=rest_s),
        breaks("rotate_leaders"),
        breaks(PAUSE, seconds=rest_s),
        breaks("restore_leaders"),
        breaks("delete_topic", topic="new"),
        breaks(PAUSE, seconds=rest_s),
        *ENDS,
    )


INCIDENTS: Final = (
    Incident(
        name="quiet-hour",
        title="A quiet hour: restarts in order, retention, compaction, idle and busy topics",
        steps=hour(60),
        allowed=(RESTARTED, READS_REMOTE),
        hold_s=0,
        spoils=True,
    ),
    Incident(
        name="quiet-minutes",
        title="Five minutes of the quiet hour, for those who change rules",
        steps=hour(5),
        allowed=(RESTARTED, READS_REMOTE),
        hold_s=0,
        spoils=True,
    ),
)
