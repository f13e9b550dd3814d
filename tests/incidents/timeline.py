"""The record of one incident that was played: the findings at each read, steps, notices, commands. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.incidents.steps import Phase, Step

Key = tuple[str, str]
"""(slug, object)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenFinding:
    """An open finding, as the API gives it, or as a command told it when the API did not answer."""

    slug: str
    object: str
    severity: str
    sentence: str = ""
    why: str = ""
    action: str = ""
    cause: Key | None = None

    @property
    def key(self) -> Key:
        return self.slug, self.object

    @property
    def name(self) -> str:
        return f"{self.slug} {self.object}"


@dataclass(frozen=True, slots=True)
class FindingsRead:
    """All open findings at one moment."""

    at_s: float
    findings: tuple[SeenFinding, ...] = ()


@dataclass(frozen=True, slots=True)
class StepRun:
    """A step that was carried out."""

    step: Step
    began_s: float
    ended_s: float


@dataclass(frozen=True, slots=True)
class SentNotice:
    """A message that the receiver got."""

    at_s: float
    event: str
    slug: str
    object: str
    severity: str = ""

    @property
    def key(self) -> Key:
        return self.slug, self.object


@dataclass(frozen=True, slots=True)
class CommandRead:
    """One run of `ebbline status`; `at_s`: when it ended."""

    at_s: float
    code: int
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """`names`: facts that steps gave, such as who led. `readers`: groups that `ebbline readers` listed at any time.
    `missing_records`: acknowledged records that could not be read at the end. `beats`: times of heartbeats.
    Times are of one monotonic clock.
    """

    steps: tuple[StepRun, ...]
    reads: tuple[FindingsRead, ...] = ()
    notices: tuple[SentNotice, ...] = ()
    commands: tuple[CommandRead, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    readers: frozenset[str] = frozenset()
    missing_records: int = 0
    beats: tuple[float, ...] = ()

    @property
    def broke_s(self) -> float:
        """Begin of the first step that breaks."""
        return next((run.began_s for run in self.steps if run.step.phase is Phase.BREAK), 0.0)

    @property
    def mending_s(self) -> float | None:
        """Begin of the first step that mends; None: nothing is mended."""
        return next((run.began_s for run in self.steps if run.step.phase is Phase.MEND), None)

    @property
    def mended_s(self) -> float | None:
        """End of the last step that mends."""
        return max((run.ended_s for run in self.steps if run.step.phase is Phase.MEND), default=None)

    def labelled(self, label: str) -> StepRun:
        """The step of this label; a test holds each label of the catalogue to a step."""
        return next(run for run in self.steps if run.step.label == label)

    def began_s(self, label: str) -> float:
        """Moment from which a finding's time counts."""
        return self.labelled(label).began_s if label else self.broke_s

    def ended_s(self, label: str) -> float | None:
        """Moment from which the time of its closing counts."""
        return self.labelled(label).ended_s if label else self.mended_s

    def judged_reads(self) -> tuple[FindingsRead, ...]:
        """Reads since the first step that breaks."""
        return tuple(read for read in self.reads if read.at_s >= self.broke_s)
