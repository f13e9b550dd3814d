"""`/metrics`: the product's own numbers (`ebbline_*`) and those of every broker in this process, merged by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, Protocol

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric

from backend.control.alerts.prometheus_rules import OPEN_METRIC
from backend.control.http.call import ApiEndpoint
from backend.control.observer.cluster_observer import ClusterObserver
from backend.control.observer.sample_recorder import SampleRecorder
from backend.control.wall_clock import now_ms
from backend.store.blind_spots import unwatched

SECONDS: Final = (0.005, 0.025, 0.1, 0.5, 2.5, 10.0)


class MetricSource(Protocol):
    """A registry, or anything else that lists its metric families."""

    def collect(self) -> Iterable[Metric]: ...


class ProductMetrics:
    """Counts calls, and puts all sources together when it is scraped."""

    def __init__(
        self,
        observer: ClusterObserver,
        pipeline: MetricSource,
        brokers: Callable[[], Iterable[MetricSource]] | None = None,
        alerts: MetricSource | None = None,
    ) -> None:
        self._brokers = brokers
        self._more = [pipeline] if alerts is None else [pipeline, alerts]
        self._registry = CollectorRegistry()
        self._registry.register(_ObserverNumbers(observer))
        self._calls = Counter(
            "ebbline_http_requests_total", "Calls of the control API", ["endpoint", "status"], registry=self._registry
        )
        self._unknown_tokens = Counter(
            "ebbline_http_authentication_failures_total",
            "Calls with a token that is not known, and those that had to wait for having tried too many",
            ["reason"],
            registry=self._registry,
        )
        self._seconds = Histogram(
            "ebbline_http_request_duration_seconds",
            "Time to answer",
            ["endpoint"],
            buckets=SECONDS,
            registry=self._registry,
        )

    def count_unknown_token(self, *, looked_up: bool) -> None:
        """A call with a token that is none of ours; not looked up: its address had to wait."""
        self._unknown_tokens.labels("unknown" if looked_up else "slowed").inc()

    def count_call(self, endpoint: ApiEndpoint, status: int, duration_s: float) -> None:
        """One answered call. The endpoint's name, not its path, so that numbers do not grow with the cluster."""
        self._calls.labels(endpoint.name, str(status)).inc()
        self._seconds.labels(endpoint.name).observe(duration_s)

    def exposition(self) -> bytes:
        """Prometheus text; a name that several brokers have stands once, with the samples of all."""
        sources: list[MetricSource] = [self._registry, *self._more]
        if self._brokers is not None:
            sources.extend(self._brokers())
        return generate_latest(_Merged(sources))


class _Merged:
    def __init__(self, sources: Iterable[MetricSource]) -> None:
        self._sources = list(sources)

    def collect(self) -> Iterator[Metric]:
        families: dict[tuple[str, str], Metric] = {}
        for source in self._sources:
            for family in source.collect():
                key = (family.name, family.type)
                if key not in families:
                    merged = families[key] = Metric(family.name, family.documentation, family.type, family.unit)
                    merged.samples = list(family.samples)
                else:
                    families[key].samples.extend(family.samples)
        yield from families.values()


class _ObserverNumbers:
    """Read from the observer at each scrape."""

    def __init__(self, observer: ClusterObserver) -> None:
        self._observer = observer

    def collect(self) -> Iterator[Metric]:
        state, recorder = self._observer.state, self._observer.recorder
        yield _gauge("ebbline_cluster_up", "1 while the watched cluster answers", float(state.cluster_answers))
        yield _gauge(
            "ebbline_brokers_answer",
            "1 while a broker answers, whatever becomes of rounds",
            float(self._observer.brokers_answer),
        )
        yield _gauge("ebbline_observer_rounds", "Rounds of samples since the start", state.rounds)
        yield _gauge("ebbline_observer_last_round_timestamp_seconds", "Time of the last round", _s(state.last_round_ms))
        yield _gauge("ebbline_observer_round_duration_seconds", "Length of the last round", _s(state.round_duration_ms))
        yield from _recorder_numbers(recorder)
        yield _gauge(
            "ebbline_engine_events_read", "Records read of __ebbline_events", self._observer.events.events_read
        )
        yield _gauge(
            "ebbline_engine_events_passed_over",
            "Records of __ebbline_events that cannot be read",
            self._observer.events.unreadable,
        )
        counts = GaugeMetricFamily(
            OPEN_METRIC,
            "Open findings that are neither muted, in maintenance, nor explained",
            labels=("slug", "severity"),
        )
        for (slug, severity), number in sorted(self._observer.findings.open_counts.items()):
            counts.add_metric((slug, severity), number)
        yield counts
        verdicts_current = not recorder.takes_samples or not unwatched(
            self._observer.findings.behind_ms, self._observer.interval_ms
        )
        yield _gauge(
            "ebbline_rounds_judged",
            "0 while rounds of samples are not judged by the rules for too long, though the database takes writes",
            float(verdicts_current),
        )
        checked_ms = self._observer.checked_ms
        yield _gauge(
            "ebbline_cluster_sample_age_seconds",
            "Age of the offsets that were listed longest ago",
            None if checked_ms is None else max(0, now_ms() - checked_ms) / 1000,
        )
        for name, value in self._observer.totals().items():
            text = "Sum over the cluster, as on the Overview; absent while it is not known"
            yield _gauge(f"ebbline_cluster_{name}", text, value)


def _recorder_numbers(recorder: SampleRecorder) -> Iterator[Metric]:
    yield _gauge("ebbline_database_up", "1 while the database takes samples", float(recorder.takes_samples))
    yield _gauge("ebbline_observer_rounds_waiting", "Rounds that wait for the database", recorder.waiting_rounds)
    yield _gauge("ebbline_observer_rounds_dropped", "Rounds lost while the database was away", recorder.dropped_rounds)


def _gauge(name: str, documentation: str, value: float | None) -> Metric:
    """A gauge; one without a known value has no sample, never a 0."""
    family = GaugeMetricFamily(name, documentation)
    if value is not None:
        family.add_metric([], value)
    return family


def _s(value_ms: int | None) -> float | None:
    return None if value_ms is None else value_ms / 1000
