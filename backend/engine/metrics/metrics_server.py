"""A broker's own ``/metrics`` port: prometheus_client's server on its own thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from prometheus_client import CollectorRegistry, start_http_server

from backend.engine.metrics.broker_metrics import BrokerMetrics
from backend.engine.metrics.collector import BrokerCollector


class MetricsServer:
    """A running metrics port."""

    def __init__(self, port: int, stop: Callable[[], None]) -> None:
        self.port = port
        self._stop = stop

    def close(self) -> None:
        """Returns once the port is free."""
        self._stop()


class _Registry(CollectorRegistry):
    """Of one collector, which reads only what a scrape asks for with ``name[]``."""

    def __init__(self, collector: BrokerCollector) -> None:
        super().__init__(auto_describe=False)
        self._collector = collector
        self.register(collector)

    def restricted_registry(self, names: Iterable[str]) -> Any:
        return _Registry(self._collector.only(frozenset(names)))


def serve_metrics(metrics: BrokerMetrics, host: str, port: int) -> MetricsServer:
    """Serves one broker's metrics; port 0 picks a free one. OSError when the port is taken."""
    registry = _Registry(BrokerCollector(metrics))
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise OSError(error.errno, error.strerror, f"{host}:{port}") from error

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return MetricsServer(int(server.server_port), stop)
