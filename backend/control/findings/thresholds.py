"""Thresholds of the rules: their values, the reason of each default, and the settings of rules by topic. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Final


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Values that rules compare with; `THRESHOLDS` names, limits and explains each."""

    disk_warning_share: float = 0.85
    disk_critical_share: float = 0.95
    disk_warning_hours: float = 12.0
    disk_critical_hours: float = 2.0
    throttle_left_s: float = 15.0
    stuck_s: float = 30.0
    move_stalled_s: float = 30.0
    move_undone_s: float = 30.0
    thin_records: float = 100.0
    thin_share: float = 0.5
    divergence_s: float = 15.0
    metadata_replicas: float = 3.0
    metadata_gone_s: float = 5.0
    metadata_joins_s: float = 20.0
    metadata_failed_s: float = 300.0
    catching_up_s: float = 10.0
    gone_topics: float = 10.0
    gone_share: float = 0.1
    gone_most_share: float = 0.5
    gone_together_s: float = 60.0
    broker_absences: float = 3.0
    broker_lived_s: float = 60.0
    transaction_held_s: float = 20.0
    transaction_open_s: float = 900.0
    copy_still_s: float = 120.0
    copy_full_still_s: float = 60.0
    skew_share: float = 0.5
    skew_partitions: float = 10.0
    pipeline_lag_s: float = 10.0
    read_errors: float = 3.0
    reads_expired: float = 3.0


@dataclass(frozen=True, slots=True)
class ThresholdEntry:
    """A threshold as a person sets it: `name` in the table `[rules."SLUG"]` of the file sets `field` of `Thresholds`.

    `by_topic`: its rule is about a topic, so that it may differ by topic.
    """

    slug: str
    name: str
    field: str
    unit: str
    minimum: float
    maximum: float
    by_topic: bool
    reason: str

    @property
    def default(self) -> float:
        value: float = getattr(Thresholds(), self.field)
        return value


# A hold of a day is none any more; a week of hours is as far as a fill rate of half an hour can see.
HOLD_S_MAX: Final = 86_400.0
HOURS_MAX: Final = 168.0

THRESHOLDS: Final[tuple[ThresholdEntry, ...]] = (
    ThresholdEntry(
        "disk-runway", "warning_share", "disk_warning_share", "share", 0.1, 1.0, False,
        "15 % of a disk of 1 TB is an hour of 40 MB/s: time to act before anything stops.",
    ),
    ThresholdEntry(
        "disk-runway", "critical_share", "disk_critical_share", "share", 0.1, 1.0, False,
        "At 5 % file systems become slow and fragmented, and Kafka takes a full one offline.",
    ),
    ThresholdEntry(
        "disk-runway", "warning_hours", "disk_warning_hours", "h", 0.0, HOURS_MAX, False,
        "A disk that is full within a night has to be known before the working day ends.",
    ),
    ThresholdEntry(
        "disk-runway", "critical_hours", "disk_critical_hours", "h", 0.0, HOURS_MAX, False,
        "Moving replicas away or making room takes an hour or two.",
    ),
    ThresholdEntry(
        "throttle-left", "hold_s", "throttle_left_s", "s", 0.0, HOLD_S_MAX, True,
        "Tools set the throttle, then begin the move; and a change is seen when all settings are read next.",
    ),
    ThresholdEntry(
        "follower-stuck", "stuck_s", "stuck_s", "s", 0.0, HOLD_S_MAX, True,
        "Kafka takes a follower out of the ISR after replica.lag.time.max.ms, 30 s.",
    ),
    ThresholdEntry(
        "move-stalled", "stalled_s", "move_stalled_s", "s", 0.0, HOLD_S_MAX, True,
        "A move fetches all the time; half a minute without one byte is no pause.",
    ),
    ThresholdEntry(
        "move-stalled", "undone_s", "move_undone_s", "s", 0.0, HOLD_S_MAX, True,
        "A replica that is added and removed at once is out of a healthy move within seconds.",
    ),
    ThresholdEntry(
        "thin-leader", "records_min", "thin_records", "records", 1.0, 1e12, True,
        "Below 100 records a follower holds everything a reader could want within moments.",
    ),
    ThresholdEntry(
        "thin-leader", "share", "thin_share", "share", 0.0, 1.0, True,
        "Half of what a follower holds locally: readers of the other half go to the remote tier.",
    ),
    ThresholdEntry(
        "divergence", "hold_s", "divergence_s", "s", 0.0, HOLD_S_MAX, True,
        "A round sees leader and followers at different times, a restarted one seconds later; a difference lasts.",
    ),
    ThresholdEntry(
        "metadata-unsafe", "replicas", "metadata_replicas", "replicas", 1.0, 9.0, False,
        "With 3 replicas a broker may be down for maintenance and another one fail.",
    ),
    ThresholdEntry(
        "metadata-unsafe", "gone_s", "metadata_gone_s", "s", 0.0, HOLD_S_MAX, False,
        "A first start makes the topic within seconds.",
    ),
    ThresholdEntry(
        "metadata-unsafe", "joins_s", "metadata_joins_s", "s", 0.0, HOLD_S_MAX, False,
        "The replicas of a broker that starts join again within 20 s.",
    ),
    ThresholdEntry(
        "metadata-failed", "failed_s", "metadata_failed_s", "s", 0.0, HOLD_S_MAX, False,
        "A leader reads the metadata within a task interval (30 s); ten of them are not a start any more.",
    ),
    ThresholdEntry(
        "voter-catching-up", "hold_s", "catching_up_s", "s", 0.0, HOLD_S_MAX, False,
        "A voter with a new disk fetches a snapshot of 100,000 partitions and counts again within seconds.",
    ),
    ThresholdEntry(
        "topics-gone", "topics_min", "gone_topics", "topics", 1.0, 1e6, False,
        "Fewer than 10 are somebody's work; nobody deletes so many by hand without knowing it.",
    ),
    ThresholdEntry(
        "topics-gone", "share", "gone_share", "share", 0.0, 1.0, False,
        "Applications of a large cluster delete tens of topics as a matter of course; a tenth of all is no routine.",
    ),
    ThresholdEntry(
        "topics-gone", "most_share", "gone_most_share", "share", 0.0, 1.0, False,
        "Two topics or more with over half of all topics or partitions are no clean-up, in a small cluster either.",
    ),
    ThresholdEntry(
        "topics-gone", "together_s", "gone_together_s", "s", 1.0, HOLD_S_MAX, False,
        "A script deletes several topics a second; what goes within a minute went together.",
    ),
    ThresholdEntry(
        "broker-away", "absences_min", "broker_absences", "absences", 2.0, 1000.0, False,
        "A broker may be restarted twice by hand; one that is away for a third time comes and goes.",
    ),
    ThresholdEntry(
        "broker-away", "lived_s", "broker_lived_s", "s", 1.0, HOLD_S_MAX, False,
        "One that fails after its start does so within seconds; one that has answered for a minute is back.",
    ),
    ThresholdEntry(
        "transaction-open", "held_s", "transaction_held_s", "s", 0.0, HOLD_S_MAX, True,
        "Copying waits for it; transactions of applications last milliseconds, those of Kafka Streams up to 30 s.",
    ),
    ThresholdEntry(
        "transaction-open", "open_s", "transaction_open_s", "s", 0.0, HOLD_S_MAX, True,
        "No copy waits for it; Kafka's transaction.max.timeout.ms, 15 min, is the longest that a coordinator allows.",
    ),
    ThresholdEntry(
        "copy-slow", "still_s", "copy_still_s", "s", 0.0, HOLD_S_MAX, True,
        "Four of Kafka's task intervals (30 s): a sealed segment is copied in the next one. Brokers that look less"
        " often get four of theirs.",
    ),
    ThresholdEntry(
        "copy-slow", "full_still_s", "copy_full_still_s", "s", 0.0, HOLD_S_MAX, True,
        "Two of the task intervals where local retention is passed meanwhile: the disk grows.",
    ),
    ThresholdEntry(
        "leader-skew", "share", "skew_share", "share", 0.0, 1.0, False,
        "A broker that leads less than half of what it should leaves the others twice its load.",
    ),
    ThresholdEntry(
        "leader-skew", "partitions_min", "skew_partitions", "partitions", 1.0, 1e6, False,
        "Of fewer than 10 partitions one that was moved by hand is a tenth already.",
    ),
    ThresholdEntry(
        "pipeline-behind", "lag_s", "pipeline_lag_s", "s", 1.0, HOLD_S_MAX, False,
        "A pipeline that keeps pace reads within a second or two; its heartbeat comes every 2 s.",
    ),
    ThresholdEntry(
        "remote-read-failing", "errors_min", "read_errors", "errors", 1.0, 1e6, False,
        "A single failed read is tried again by its consumer; three within 15 s and none that works are no accident.",
    ),
    ThresholdEntry(
        "remote-read-slow", "expired_min", "reads_expired", "reads", 1.0, 1e6, False,
        "One cold read may pass remote.fetch.max.wait.ms; three, and none in time, hold consumers.",
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RuleSetting:
    """One table of the file: a rule as it is to judge, of all topics or of those that fit a pattern."""

    slug: str
    topics: str | None = None
    for_ms: int | None = None
    severity: str | None = None
    off: bool = False
    thresholds: Mapping[str, float] = field(default_factory=dict)
    """By field of `Thresholds`."""

    def fits(self, slug: str, topic: str | None) -> bool:
        """Whether it is about findings of that rule and topic; one with a pattern is about no finding without topic."""
        return slug == self.slug and (self.topics is None or (topic is not None and fnmatchcase(topic, self.topics)))


@dataclass(frozen=True, slots=True)
class RuleSettings:
    """All tables of the file in its order. Of those of one rule the first that fits counts."""

    settings: Sequence[RuleSetting] = ()

    def of(self, slug: str, topic: str | None) -> RuleSetting | None:
        """The setting of a rule for a topic; None: it judges as it was made."""
        return next((setting for setting in self.settings if setting.fits(slug, topic)), None)

    def thresholds(self, topic: str | None) -> Thresholds:
        """The values for a topic, or for what has none."""
        changed: dict[str, float] = {}
        for slug in dict.fromkeys(setting.slug for setting in self.settings):
            setting = self.of(slug, topic)
            changed |= {} if setting is None else setting.thresholds
        return replace(DEFAULTS, **changed) if changed else DEFAULTS


DEFAULTS: Final = Thresholds()


@dataclass(frozen=True, slots=True)
class ThresholdInForce:
    """A threshold with its value; `topics`: for those of this pattern alone."""

    entry: ThresholdEntry
    value: float
    topics: str | None = None


def in_force(settings: RuleSettings) -> Iterator[ThresholdInForce]:
    """Each threshold for all topics, then where a pattern of topics has another."""
    for entry in THRESHOLDS:
        yield ThresholdInForce(entry, getattr(settings.thresholds(None), entry.field))
        for setting in settings.settings:
            if setting.topics is not None and entry.field in setting.thresholds:
                yield ThresholdInForce(entry, setting.thresholds[entry.field], setting.topics)
