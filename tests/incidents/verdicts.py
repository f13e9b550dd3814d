"""The result of a judgement: what was missed, late, false or said wrongly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.incidents.expectations import CRITICAL


@dataclass(frozen=True, slots=True)
class FalseFinding:
    """A finding, or a notice, that no expectation covers."""

    slug: str
    object: str
    severity: str
    because: str

    def __str__(self) -> str:
        return f"{self.slug} {self.object} ({self.severity}): {self.because}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """`seconds`, `cleared_s`: by the name of what was expected. `right_action` None: nothing was expected, or no
    action was carried out.
    """

    expected: int
    missed: tuple[str, ...] = ()
    false_findings: tuple[FalseFinding, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    cleared_s: Mapping[str, float] = field(default_factory=dict)
    notices: int = 0
    notices_expected: int = 0
    """Without those of findings that are only allowed."""
    right_action: bool | None = None
    complaints: tuple[str, ...] = ()
    """Lateness, wrong severities, missing words, notices, exit codes: a sentence each."""

    @property
    def recall(self) -> float:
        """Share of the expected findings that came, however late."""
        return 1.0 if not self.expected else 1 - len(self.missed) / self.expected

    @property
    def false_criticals(self) -> int:
        return sum(finding.severity == CRITICAL for finding in self.false_findings)

    @property
    def passed(self) -> bool:
        return not (self.missed or self.false_findings or self.complaints) and self.right_action is not False
