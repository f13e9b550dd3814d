"""The faults that the lab can inject into the embedded cluster: texts, what to watch and how it heals. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Cure(StrEnum):
    """The end of a scenario."""

    BUTTON = "button"  # a person, or the time limit
    ITSELF = "itself"  # it comes to its end; the button ends it early


@dataclass(frozen=True, slots=True)
class Scenario:
    """`watch_page` is a page of the dashboard; `heals_after_s` a limit after which the lab mends it itself."""

    slug: str
    name: str
    does: str
    watch: str
    watch_page: str
    heals: str
    cure: Cure
    heals_after_s: int
    runbook: str | None = None


# A demonstration takes minutes; who forgets the button finds a healthy cluster after the coffee.
FORGOTTEN_S: Final = 600
# Copying a small topic, two elections and three starts of a broker.
RUN_S: Final = 600

SCENARIOS: Final = (
    Scenario(
        "stuck-copy",
        "Stuck copy",
        "Uploads to the object store never end, on every broker; nothing fails, nothing is logged.",
        "Open copies grow older than the p99 of their partition; pending bytes rise; latest tiered stands still.",
        "remote",
        "Heal lets the uploads go on: the open copies finish.",
        Cure.BUTTON,
        FORGOTTEN_S,
        "copy-hung",
    ),
    Scenario(
        "store-away",
        "Object store unreachable",
        "Every call to the object store fails at once, on every broker.",
        "Copies start and fail; reads below the local start fail; the finding copy-failing opens.",
        "overview",
        "Heal gives the store back: copies are tried again within seconds.",
        Cure.BUTTON,
        FORGOTTEN_S,
        "copy-failing",
    ),
    Scenario(
        "store-slow",
        "Slow object store",
        "Every call to the object store takes two seconds more, on every broker.",
        "Median and p99 of Copy started → Copy finished rise by seconds.",
        "remote",
        "Heal takes the delay away; the times fall with the next copies.",
        Cure.BUTTON,
        FORGOTTEN_S,
        "copy-slow",
    ),
    Scenario(
        "dangling-copy",
        "Dangling copy",
        "A broker is killed in the middle of an upload, so that nobody ever finishes that copy; then it starts again.",
        "An open copy turns to ◇ dangling: its author is gone, the epoch moved on. Its offsets are copied again.",
        "remote",
        "The broker comes back by itself. The dangling copy stays until retention passes its offsets, as in Kafka.",
        Cure.ITSELF,
        RUN_S,
        "copy-dangling",
    ),
    Scenario(
        "broker-kill",
        "Broker kill",
        "A broker ends as a crash ends it: nothing handed over, nothing flushed.",
        "Its leaders move after the session timeout; its replicas leave the ISR.",
        "followers",
        "Heal starts the broker again: it recovers its logs and catches up.",
        Cure.BUTTON,
        FORGOTTEN_S,
        "follower-stuck",
    ),
    Scenario(
        "thin-leader",
        "Thin leader",
        "A new replica that began at the tiered offset is made leader of a topic of the lab's own.",
        "Local depth of the leader of ebbline.lab.thin: less than half of the other replica's.",
        "followers",
        "Heal deletes the topic.",
        Cure.BUTTON,
        FORGOTTEN_S,
        "thin-leader",
    ),
    Scenario(
        "unclean-election",
        "Unclean election and truncation",
        "A follower misses records and, with the leader killed, is made leader all the same; then the old one returns.",
        "Records are lost: the log end of ebbline.lab.unclean falls, the epoch rises, the old leader truncates.",
        "followers",
        "Both brokers are started again by itself; Heal deletes the topic.",
        Cure.BUTTON,
        FORGOTTEN_S,
        "unclean-recovery",
    ),
)
BY_SLUG: Final = {scenario.slug: scenario for scenario in SCENARIOS}


class FaultState(StrEnum):
    BREAKING = "breaking"
    BROKEN = "broken"
    HEALING = "healing"
    HEALED = "healed"
    FAILED = "failed"


ENDED: Final = (FaultState.HEALED, FaultState.FAILED)


@dataclass(frozen=True, slots=True)
class FaultStep:
    """One thing that was done or seen."""

    at_ms: int
    text: str


@dataclass(frozen=True, slots=True)
class FaultRun:
    """One time that something was broken. `heals_by_ms`: the lab mends it then at the latest."""

    slug: str
    state: FaultState
    broker: int | None
    by: str
    started_ms: int
    heals_by_ms: int
    ended_ms: int | None = None
    message: str | None = None
    told: tuple[FaultStep, ...] = ()
