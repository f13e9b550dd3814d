"""State of the observer and its age: for `/readyz`, `/metrics`, its heartbeat and the finding of a silent one. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from backend.control.findings.finding_context import RoundAge
from backend.control.gateway.requests.rights_requests import MissingRight
from backend.store.blind_spots import observer_sight, stale


@dataclass(frozen=True, slots=True)
class ObserverState:
    """`away_since_ms`: since when no round has ended well, whether brokers answer or not; None: the newest did."""

    rounds: int = 0
    last_round_ms: int | None = None
    round_duration_ms: int | None = None
    away_since_ms: int | None = None
    away_reason: str | None = None

    @property
    def cluster_answers(self) -> bool:
        return self.last_round_ms is not None and self.away_since_ms is None

    def is_fresh(self, at_ms: int, interval_ms: int) -> bool:
        """Whether the newest round is of now: the cluster answers, and rounds end."""
        last_ms = self.last_round_ms
        return self.cluster_answers and last_ms is not None and not stale(max(0, at_ms - last_ms), interval_ms)


def round_age(sampled_for_s: float, back_ms: int | None, interval_ms: int, reason: str | None) -> RoundAge:
    """`sampled_for_s`: since the last round that ended well; the time before the cluster was back does not count."""
    age_ms = round(sampled_for_s * 1000)
    return RoundAge(age_ms if back_ms is None else min(age_ms, back_ms), interval_ms, reason)


def sight(rights: Sequence[MissingRight], behind_ms: int, at_ms: int) -> dict[str, Any]:
    """Rights that are missing and rounds that are not judged, for the list of blind spots."""
    return observer_sight(
        [str(right) for right in rights],
        tiers_hidden=any(right.hides_tiers for right in rights),
        unjudged_since_ms=at_ms - behind_ms if behind_ms else None,
    )
