"""Life of the control plane of one cluster: starts and stops its parts (`control_parts`), in one event loop.

It shares the loop with the engine in an embedded cluster and sees it only through the Kafka protocol: everything slow
(the database) runs on threads, everything long (a round of samples) awaits between requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from typing import Final

from starlette.applications import Starlette

from backend.control.control_database import DatabaseAway
from backend.control.control_parts import ProcessPorts, build_parts
from backend.control.control_settings import ControlSettings
from backend.control.gateway.client_security import SecurityError
from backend.control.gateway.kafka_client import parse_bootstrap
from backend.control.http.api_server import ApiServer, ApiServerError
from backend.control.http.authentication import NOBODY
from backend.control.http.token_guesses import AUDIT_INTERVAL_S
from backend.control.supervised_tasks import keep_running
from backend.control.wall_clock import now_ms
from backend.store.blind_spots import PIPELINE_EXPECTED
from backend.store.connection.database import StoreError
from backend.store.writes import cluster_rows

HEARTBEAT_INTERVAL_MS: Final = 2_000
_log = logging.getLogger(__name__)


class ControlError(Exception):
    """The control plane cannot start. The message is one sentence for people."""


def _outside(app: Starlette, settings: ControlSettings) -> ApiServer | None:
    """The listener for other machines."""
    if settings.api_listen is None or settings.api_tls_certificate is None or settings.api_tls_key is None:
        return None
    (address,) = parse_bootstrap(settings.api_listen)[:1]
    return ApiServer(app, address.host, address.port, (settings.api_tls_certificate, settings.api_tls_key))


class ControlPlane:
    """One cluster's control plane. Make it, `start` it and `stop` it; start and stop on the same event loop."""

    def __init__(self, settings: ControlSettings, ports: ProcessPorts | None = None) -> None:
        """Builds all parts; nothing runs yet. Raises ControlError with one sentence."""
        self.settings = settings
        self.started_ms = now_ms()
        try:
            self.parts = build_parts(settings, ports or ProcessPorts(), self.started_ms)
        except (StoreError, SecurityError) as error:
            raise ControlError(str(error)) from error
        self._tasks: list[asyncio.Task[None]] = []
        self._server = ApiServer(self.parts.api, settings.api_host, settings.api_port)
        self._outside = _outside(self.parts.api, settings)
        self._stopped = False

    async def start(self) -> None:
        """Begins to watch, serves the API. The cluster may come later, and the database.

        Raises ControlError with one sentence; nothing is left running then.
        """
        try:
            await asyncio.to_thread(self.parts.tokens.make_files, self.settings.run_dir)
            await self._server.start()
            if self._outside is not None:
                await self._outside.start()
        except ApiServerError as error:
            await self.stop()
            raise ControlError(str(error)) from error
        except OSError as error:
            await self.stop()
            raise ControlError(f"The folder {self.settings.run_dir} cannot be written: {error.strerror}.") from error
        self._tasks = [
            asyncio.create_task(keep_running("database", self.parts.keeper.run), name="control-database"),
            asyncio.create_task(keep_running("observer", self.parts.observer.run), name="control-observer"),
            asyncio.create_task(keep_running("heartbeat", self._beat), name="control-heartbeat"),
            asyncio.create_task(keep_running("life signal", self.parts.life_signal.run), name="control-life-signal"),
            asyncio.create_task(keep_running("quorum watch", self._watch_quorum), name="control-quorum"),
            asyncio.create_task(keep_running("recovery", self._recover), name="control-recovery"),
            asyncio.create_task(keep_running("guesses", self._watch_guesses), name="control-guesses"),
        ]
        _log.info("The control API listens on %s:%d", self.settings.api_host, self.port)

    @property
    def port(self) -> int:
        """The port of the API: the setting, or after the start the free port that was found for 0."""
        return self._server.port

    async def stop(self) -> None:
        """Stops serving, lets plans in progress go on for a moment, stores what was seen, closes everything.

        Does nothing the second time.
        """
        if self._stopped:
            return
        self._stopped = True
        for server in (self._outside, self._server):
            if server is not None:
                await server.stop()
        await self._audit_guesses()
        await self.parts.bootstrap_lab.close()
        await self.parts.fault_lab.close()
        await self.parts.operations.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._tasks:
            await self.parts.observer.stop()
            await self._write_heartbeat("stopped", "The backend was stopped.")
        self._tasks = []
        await self.parts.gateway.close()
        await self.parts.database.close()

    async def _beat(self) -> None:
        while True:
            away = self.parts.observer.state.away_reason
            await self._write_heartbeat("running", None if away is None else f"The cluster does not answer. {away}")
            await asyncio.sleep(HEARTBEAT_INTERVAL_MS / 1000)

    async def _watch_quorum(self) -> None:
        while True:
            await self.parts.quorum.refresh(now_ms())
            self.parts.observer.feature_levels = self.parts.quorum.feature_levels
            self.parts.observer.quorum = self.parts.quorum.quorum
            await asyncio.sleep(max(HEARTBEAT_INTERVAL_MS, self.settings.sample_interval_ms) / 1000)

    async def _watch_guesses(self) -> None:
        while True:
            await asyncio.sleep(AUDIT_INTERVAL_S)
            await self._audit_guesses()

    async def _audit_guesses(self) -> None:
        """One row of the audit for all of them."""
        summary = self.parts.guesses.take_summary()
        if summary is None:
            return
        _log.warning("The control API was called with tokens that are not known: %s", summary)
        with contextlib.suppress(DatabaseAway):
            await self.parts.operations.refused(NOBODY, "authenticate", "control API", summary)

    async def _write_heartbeat(self, state: str, message: str | None) -> None:
        try:
            await self.parts.database.write(
                lambda c: cluster_rows.heartbeat(
                    c,
                    self.settings.cluster_id,
                    "backend",
                    pid=os.getpid(),
                    started_ms=self.started_ms,
                    now_ms=now_ms(),
                    interval_ms=HEARTBEAT_INTERVAL_MS,
                    state=state,
                    message=message,
                    detail={
                        "quorum": self.parts.quorum.facts,
                        PIPELINE_EXPECTED: self.settings.pipeline,
                        "readers": self.parts.observer.reader_facts(),
                        "eligible": self.parts.observer.eligible_report(),
                    },
                )
            )
        except DatabaseAway as error:
            _log.debug("no sign of life was stored: %s", error)

    async def _recover(self) -> None:
        """Once the cluster answers, and the database: plans that a process before left in the middle."""
        while not self.parts.observer.state.cluster_answers:
            await asyncio.sleep(0.5)
        await self.parts.bootstrap_lab.recover()
        while True:
            await self.parts.database.opened()
            try:
                recovered = await self.parts.operations.recover(self.started_ms)
            except DatabaseAway as error:
                _log.info("Plans of an earlier run wait to be looked after: %s", error)
                await asyncio.sleep(HEARTBEAT_INTERVAL_MS / 1000)
                continue
            if recovered:
                _log.warning("%d plans of an earlier run were looked after", recovered)
            return
