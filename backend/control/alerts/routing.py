"""Routes: the receivers of a finding, by its severity, its rule and its topic. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from backend.control.alerts.notices import Notice
from backend.control.findings.finding_context import FindingKey


@dataclass(frozen=True, slots=True)
class AlertRoute:
    """One table of the file. An empty field limits nothing; `slugs` and `topics` are patterns as a shell has them.

    `continues`: later routes are asked as well.
    """

    receivers: tuple[str, ...]
    severities: frozenset[str] = frozenset()
    slugs: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    continues: bool = False

    def fits(self, notice: Notice) -> bool:
        """Whether it leads the finding anywhere. One with patterns of topics fits no finding without a topic."""
        topic = notice.topic
        return (
            (not self.severities or notice.severity in self.severities)
            and (not self.slugs or any(fnmatchcase(notice.slug, pattern) for pattern in self.slugs))
            and (not self.topics or (topic is not None and any(fnmatchcase(topic, p) for p in self.topics)))
        )


@dataclass(frozen=True, slots=True)
class Routing:
    """Routes in their order, and the receivers that get everything."""

    routes: Sequence[AlertRoute] = ()
    everything: frozenset[str] = frozenset()

    def receivers_of(self, notice: Notice) -> frozenset[str]:
        """Receivers of the first route that fits, and of the routes after it as long as each continues."""
        result = set(self.everything)
        for route in self.routes:
            if route.fits(notice):
                result.update(route.receivers)
                if not route.continues:
                    break
        return frozenset(result)


class RoutedFindings:
    """Receivers of open findings, kept from round to round: ten thousand patterns are not matched each two seconds."""

    def __init__(self, routing: Routing) -> None:
        self.routing = routing
        self._kept: dict[FindingKey, tuple[str, frozenset[str]]] = {}

    def chosen(
        self, notices: Mapping[FindingKey, Notice], receivers: Iterable[str]
    ) -> dict[str, Collection[FindingKey]]:
        """The findings that each of the receivers gets."""
        kept: dict[FindingKey, tuple[str, frozenset[str]]] = {}
        result: dict[str, set[FindingKey]] = {name: set() for name in receivers}
        for key, notice in notices.items():
            before = self._kept.get(key)
            if before is None or before[0] != notice.severity:
                before = (notice.severity, self.routing.receivers_of(notice))
            kept[key] = before
            for name in before[1] & result.keys():
                result[name].add(key)
        self._kept = kept
        return {name: frozenset(keys) for name, keys in result.items()}
