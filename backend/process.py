"""The backend process: composition root of engine and control plane, the one module that sees both.

Started by `ebbline up`; reads only ``EBBLINE_*``. Engine first, then the control plane that watches
it over the Kafka protocol like any client, then the demo workload. Stops the other way round.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from backend.control.lab.demo import DemoWorkload
from backend.control.plane import ControlError, ControlPlane
from backend.control.settings import ControlSettings
from backend.data_folder import DataFolder
from backend.engine.broker.node import StartRefused
from backend.engine.cluster import Cluster, ClusterLayout
from backend.engine.common.log_context import configure_logging
from backend.engine.metrics.collector import BrokerCollector
from backend.engine_profile import embedded_settings
from backend.settings import Settings

EXIT_OK, EXIT_FAILED = 0, 1
_log = logging.getLogger(__name__)


def cluster_layout(settings: Settings, environment: Mapping[str, str]) -> ClusterLayout:
    """Where the embedded brokers live, from settings and the identity that the supervisor hands down."""
    folder = DataFolder(settings.data_dir)
    nodes = range(1, settings.brokers + 1)
    return ClusterLayout(
        cluster_id=environment["EBBLINE_CLUSTER_ID"],
        log_dirs={n: str(folder.broker_log_dir(n)) for n in nodes},
        ports={n: settings.broker_port + n - 1 for n in nodes},
        controller_port=settings.controller_port,
        metrics_ports={n: settings.metrics_port + n - 1 for n in nodes},
        settings=embedded_settings(settings.remote_location or str(folder.remote)),
    )


async def run(settings: Settings, environment: Mapping[str, str]) -> int:
    """Serves until SIGTERM or SIGINT; the exit code."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)

    cluster = Cluster(cluster_layout(settings, environment))
    try:
        await cluster.start()
    except StartRefused as error:
        _log.error("%s", error)
        return EXIT_FAILED
    plane = ControlPlane(
        # Everything comes from the environment; pydantic checks it.
        ControlSettings(),  # type: ignore[call-arg]
        registries=lambda: [BrokerCollector(broker.services.metrics) for broker in cluster.brokers.values()],
    )
    demo: DemoWorkload | None = None
    try:
        await plane.start()
        if settings.demo:
            demo = DemoWorkload(settings.bootstrap_servers, replication_factor=min(3, settings.brokers))
            demo.start()
        _log.info(
            "Backend serves brokers at %s and the control API at %s", settings.bootstrap_servers, settings.api_url
        )
        return await _until_stopped(stop, cluster)
    except ControlError as error:
        _log.error("%s", error)
        return EXIT_FAILED
    finally:
        _log.info("Backend stops")
        if demo is not None:
            await asyncio.to_thread(demo.stop)
        await plane.stop()
        await cluster.stop()


async def _until_stopped(stop: asyncio.Event, cluster: Cluster) -> int:
    """Waits for a signal, or for a node that cannot go on: then the supervisor starts the process anew."""
    failures = [broker.failed for broker in cluster.brokers.values()]
    for failure in failures:
        failure.add_done_callback(lambda _: stop.set())
    await stop.wait()
    for failure in failures:
        if failure.done():
            _log.error("A node cannot go on: %s", failure.result())
            return EXIT_FAILED
    return EXIT_OK


def main() -> int:
    """Entry point of ``python -m backend.process``."""
    configure_logging(logging.StreamHandler(sys.stdout), os.environ.get("EBBLINE_LOG_LEVEL", "INFO"))
    logging.getLogger("httpx").setLevel(logging.WARNING)
    settings = Settings()
    Path(settings.data_dir).mkdir(parents=True, exist_ok=True)
    try:
        return asyncio.run(run(settings, os.environ))
    except Exception as error:
        # The traceback belongs in the log; the last line is what a person is shown.
        _log.exception("The backend failed")
        _log.error("The backend failed: %s", error)
        return EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main())
