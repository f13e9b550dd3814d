"""Brokers that come and go, as one does that fails after each start: one finding, not one each time. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from backend.control.findings.thresholds import Thresholds


@dataclass(frozen=True, slots=True)
class BrokerAbsences:
    """Times that a broker stopped answering, each soon after the one before; by a clock that nobody sets.

    `first_s`: when the first of them began; `returned_s`: when it answered last after one, None: it is away, or always
    answered.
    """

    count: int = 0
    first_s: float = 0.0
    returned_s: float | None = None

    def next(self, *, was_reachable: bool, reachable: bool, now_s: float, limits: Thresholds) -> BrokerAbsences:
        """The absences after another probe; a broker that lives for long enough begins to count again."""
        if was_reachable and not reachable:
            if self.count and self._lives_s(now_s) < limits.broker_lived_s:
                return replace(self, count=self.count + 1, returned_s=None)
            return BrokerAbsences(1, now_s)
        if reachable and not was_reachable and self.count:
            return replace(self, returned_s=now_s)
        if reachable and self.count and self._lives_s(now_s) >= limits.broker_lived_s:
            return BrokerAbsences()
        return self

    def _lives_s(self, now_s: float) -> float:
        return 0.0 if self.returned_s is None else now_s - self.returned_s

    def repeated(self, now_s: float, limits: Thresholds) -> RepeatedAbsence | None:
        """The absences of a broker that comes and goes; None: it does not."""
        if self.count < limits.broker_absences:
            return None
        back_ms = None if self.returned_s is None else round(1000 * (now_s - self.returned_s))
        return RepeatedAbsence(self.count, round(1000 * (now_s - self.first_s)), back_ms)


@dataclass(frozen=True, slots=True)
class RepeatedAbsence:
    """A broker was away `count` times in the last `within_ms`; `back_ms`: since when it answers, None: it does not."""

    count: int
    within_ms: int
    back_ms: int | None
