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
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from backend.data_folder.data_folder import DataFolder
from backend.engine.broker import StartRefused
from backend.engine.cluster import LOOPBACK, Cluster, ClusterLayout
from backend.engine.common.log_context import configure_logging
from backend.engine.controller.image.metadata_image import MetadataImage
from backend.engine.metrics.collector import BrokerCollector
from backend.engine.remote.metadata.metadata_topic import METADATA_TOPIC
from backend.runtime.liveness import answer_liveness
from backend.startup.child_environment import ChildSettings, ChildSettingsError
from backend.startup.engine_profile import embedded_settings
from backend.startup.fault_injector import FaultInjector

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from backend.control.control_plane import ControlPlane
    from backend.control.lab.demo.workload import DemoWorkload
    from backend.settings.settings import Settings

EXIT_OK, EXIT_FAILED = 0, 1
# The supervisor kills after 30 s. The brokers, which have data to write down, get what the others leave of the time.
STOP_TIMEOUT_S: Final = 27.0
STOP_STEP_TIMEOUT_S: Final = 8.0
SCRAPE_TIMEOUT_S: Final = 1.0
# The API waits for it; without its topic a cluster works as well, but for tiering.
SETTLE_TIMEOUT_MS: Final = 3_000
_log = logging.getLogger(__name__)


def cluster_layout(settings: Settings | ChildSettings, environment: Mapping[str, str]) -> ClusterLayout:
    """Where the embedded brokers live, from settings and the identity that the supervisor hands down."""
    folder = DataFolder(settings.data_dir)
    nodes = range(1, settings.brokers + 1)
    return ClusterLayout(
        cluster_id=environment["EBBLINE_CLUSTER_ID"],
        log_dirs={n: str(folder.broker_log_dir(n)) for n in nodes},
        ports={n: settings.broker_port + n - 1 for n in nodes},
        controller_port=settings.controller_port,
        voter_ports={n: settings.controller_port + n - 1 for n in range(1, settings.voters + 1)},
        metrics_ports={n: settings.metrics_port + n - 1 for n in nodes},
        settings=embedded_settings(settings.remote_location or str(folder.remote), settings.brokers)
        | {"ebbline.quorum.acknowledged.dir": str(folder.quorum)},
    )


class NodeFailed(Exception):
    """A node of this process cannot go on; the supervisor restarts the process."""


class ControlPlaneFailed(Exception):
    """The control plane did not start; the message is its own."""


async def run(settings: ChildSettings, environment: Mapping[str, str]) -> int:
    """Serves until SIGTERM or SIGINT; the exit code. The reason of a failure is the last line of the log."""
    try:
        await _serve(settings, environment)
    except (ControlPlaneFailed, StartRefused, NodeFailed) as error:
        _log.error("%s", error)
        return EXIT_FAILED
    return EXIT_OK


async def _serve(settings: ChildSettings, environment: Mapping[str, str]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    answer_liveness(loop)

    layout = cluster_layout(settings, environment)
    fault_injector = FaultInjector(layout, failed=stop.set)
    cluster = fault_injector.cluster
    # With a process per broker, and attached to another cluster, this process only watches.
    watches = settings.process_per_broker or settings.attach is not None
    plane: ControlPlane | None = None
    demo: DemoWorkload | None = None
    try:
        if not watches:
            if not await _started(cluster, stop):
                return
            await _settled(cluster)
        plane = await _control_plane(
            lambda: _broker_metrics(settings, layout, cluster), None if watches else fault_injector
        )
        if settings.demo and settings.attach is None:
            demo = _demo(settings)
        _log.info(
            "Backend serves brokers at %s and the control API at %s", settings.bootstrap_servers, settings.api_url
        )
        await _until_stopped(stop, cluster)
    finally:
        _log.info("Backend stops")
        deadline_s = loop.time() + STOP_TIMEOUT_S
        overdue = demo is not None and await _ends(
            "The demo workload", asyncio.to_thread(demo.stop), STOP_STEP_TIMEOUT_S
        )
        overdue |= plane is not None and await _ends("The control plane", plane.stop(), STOP_STEP_TIMEOUT_S)
        overdue |= await _ends("The cluster", cluster.stop(), deadline_s - loop.time())
        if overdue:
            # Threads that hang would hold up the interpreter's own end as well.
            logging.shutdown()
            os._exit(EXIT_FAILED)


async def _control_plane(
    registries: Callable[[], Iterable[BrokerScrape | BrokerCollector]], fault_injector: FaultInjector | None
) -> ControlPlane:
    """The control plane at work; its database may come later. Raises ControlPlaneFailed.

    It is imported only now, on a thread: that takes longer than the start of the brokers, which serve meanwhile.
    """

    def prepared() -> tuple[ControlPlane, type[Exception]]:
        from pydantic import ValidationError

        from backend.control.control_parts import ProcessPorts
        from backend.control.control_plane import ControlError, ControlPlane
        from backend.control.control_settings import ControlSettings
        from backend.settings.settings import describe_invalid

        # Everything comes from the environment; pydantic checks it.
        try:
            settings = ControlSettings()  # type: ignore[call-arg]
        except ValidationError as error:
            raise ControlPlaneFailed(describe_invalid(error)) from None
        try:
            return ControlPlane(settings, ProcessPorts(registries, faults=fault_injector)), ControlError
        except ControlError as error:
            raise ControlPlaneFailed(str(error)) from error

    plane, refusal = await asyncio.to_thread(prepared)
    try:
        await plane.start()
    except refusal as error:
        raise ControlPlaneFailed(str(error)) from error
    return plane


def _demo(settings: ChildSettings) -> DemoWorkload:
    from backend.control.lab.demo.workload import DemoWorkload

    demo = DemoWorkload(settings.bootstrap_servers, replication_factor=min(3, settings.brokers))
    demo.start()
    return demo


async def _started(cluster: Cluster, stop: asyncio.Event) -> bool:
    """Whether all nodes serve; False when a signal came first. Raises StartRefused."""
    starting = asyncio.ensure_future(cluster.start())
    stopped = asyncio.ensure_future(stop.wait())
    await asyncio.wait({starting, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if starting.done():
        starting.result()
        return True
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    return False


async def _settled(cluster: Cluster) -> None:
    """Returns once the brokers have made the logs of the metadata topic, 150 on three brokers, or have taken long.

    The import of the control plane would share the interpreter with that, and with the first clients.
    """

    def made(image: MetadataImage) -> bool:
        return image.topic(METADATA_TOPIC) is not None

    caches = [broker.services.metadata for broker in cluster.brokers.values()]
    await asyncio.gather(*(cache.wait_for(made, SETTLE_TIMEOUT_MS) for cache in caches))


async def _ends(what: str, end: Coroutine[Any, Any, None], timeout_s: float) -> bool:
    """Waits for the end of a part, but not for ever; whether it is overdue. A failure is logged."""
    task = asyncio.ensure_future(end)
    await asyncio.wait({task}, timeout=timeout_s)
    if not task.done():
        _log.error("%s did not stop within %.0f s and is left behind", what, timeout_s)
        return True
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("%s did not stop cleanly: %s", what, error, exc_info=error)
    return False


class BrokerScrape:
    """The metrics of a broker in another process; none while it does not answer."""

    def __init__(self, port: int, names: Collection[str] = ()) -> None:
        """`names`: of the families to ask for; none: all."""
        self._port, self._names = port, names

    def only(self, names: Collection[str]) -> BrokerScrape:
        """The same, but the broker makes a page of these families alone."""
        return BrokerScrape(self._port, names)

    def collect(self) -> Iterable[Metric]:
        from http.client import HTTPConnection, HTTPException
        from urllib.parse import urlencode

        from prometheus_client.parser import text_string_to_metric_families

        # httpx would make a client with a TLS context for each scrape.
        connection = HTTPConnection(LOOPBACK, self._port, timeout=SCRAPE_TIMEOUT_S)
        try:
            connection.request("GET", f"/metrics?{urlencode({'name[]': list(self._names)}, doseq=True)}")
            text = connection.getresponse().read().decode()
        except (OSError, HTTPException, UnicodeDecodeError) as error:
            _log.debug("no metrics from the broker at port %d: %s", self._port, error)
            return []
        finally:
            connection.close()
        return text_string_to_metric_families(text)


def _broker_metrics(
    settings: ChildSettings, layout: ClusterLayout, cluster: Cluster
) -> Iterable[BrokerScrape | BrokerCollector]:
    if settings.attach is not None:
        return []
    if settings.process_per_broker:
        return [BrokerScrape(port) for port in layout.metrics_ports.values()]
    return [BrokerCollector(broker.services.metrics) for broker in cluster.brokers.values() if broker.started]


async def _until_stopped(stop: asyncio.Event, cluster: Cluster) -> None:
    """Waits for a signal. Raises NodeFailed when a node cannot go on."""
    for broker in cluster.brokers.values():
        broker.failed.add_done_callback(lambda _: stop.set())
    await stop.wait()
    # Asked of those that run now: the lab kills nodes and restarts them.
    for failure in [broker.failed for broker in cluster.brokers.values()]:
        if failure.done():
            raise NodeFailed(f"A node cannot go on: {failure.result()}")


def main() -> int:
    """Entry point of ``python -m backend.startup.backend_process``."""
    configure_logging(logging.StreamHandler(sys.stdout), os.environ.get("EBBLINE_LOG_LEVEL", "INFO"))
    # Below that they write whole addresses, and a webhook's may hold its key.
    for name in ("httpx", "httpcore"):
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        settings = ChildSettings.from_environment(os.environ)
    except ChildSettingsError as error:
        _log.error("%s", error)
        return EXIT_FAILED
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    try:
        return asyncio.run(run(settings, os.environ))
    except Exception as error:
        # The traceback belongs in the log; the last line is what a person is shown.
        _log.exception("The backend failed")
        _log.error("The backend failed: %s", error)
        return EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main())
