"""A maintenance window as a value, and the windows that a finding is in. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True, slots=True)
class MaintenanceWindow:
    """A time in which findings of a rule, topics or a broker send nothing; a field that is None limits nothing."""

    id: int
    begins_ms: int
    ends_ms: int
    slug: str | None
    topic: str | None
    """A pattern as a shell has it."""
    broker_id: int | None
    reason: str
    created_ms: int
    created_by: str

    def covers(self, slug: str, topic: str | None, broker_id: int | None, at_ms: int) -> bool:
        """Whether it holds at that moment for a finding of this rule, topic and broker."""
        return (
            self.begins_ms <= at_ms < self.ends_ms
            and self.slug in (None, slug)
            and (self.topic is None or (topic is not None and fnmatchcase(topic, self.topic)))
            and self.broker_id in (None, broker_id)
        )


def maintenance_until(
    windows: Iterable[MaintenanceWindow], slug: str, topic: str | None, broker_id: int | None, at_ms: int
) -> int | None:
    """Until when a finding is in maintenance, by the window that ends last; None: it is in none."""
    return max((window.ends_ms for window in windows if window.covers(slug, topic, broker_id, at_ms)), default=None)
