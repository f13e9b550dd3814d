"""Delivery of findings: the receivers of the file and of the setting, each with its task; the file is watched.

The observer gives the state after each round and never waits. A file that cannot be used leaves everything as it was.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from backend.control.alerts.alert_texts import ClusterName
from backend.control.alerts.alerts_file import OF_SETTING, AlertsConfig
from backend.control.alerts.alerts_watch import AlertsFileWatch
from backend.control.alerts.delivered_file import read_delivered, write_delivered
from backend.control.alerts.notices import Notice, OpenAlerts
from backend.control.alerts.receiver_config import ReceiverConfig, ReceiverKind
from backend.control.alerts.receiver_task import ReceiverStatus, ReceiverTask
from backend.control.alerts.routing import RoutedFindings, Routing
from backend.control.alerts.rule_edits import RuleEdit
from backend.control.alerts.senders.send_result import SendResult
from backend.control.findings.thresholds import RuleSettings
from backend.control.supervised_tasks import keep_running

# A deletion of the file and an editor's save look alike for a moment; a person waits this long for an effect.
WATCH_INTERVAL_S: Final = 5.0
# Deliveries of a storm are kept together: 20,000 notices are 6 MB.
SAVE_PAUSE_S: Final = 1.0
_log = logging.getLogger(__name__)


class AlertDelivery:
    """Belongs to one event loop. `load` once, then `run`."""

    def __init__(
        self,
        cluster: ClusterName,
        files: AlertsFileWatch,
        state_file: Path | None = None,
        webhook_url: str | None = None,
    ) -> None:
        """`state_file` keeps what receivers have; `webhook_url` gets everything, whatever the file says."""
        self._cluster = cluster
        self.files = files
        self._state_file = state_file
        self._webhook_url = webhook_url
        self._tasks: dict[str, ReceiverTask] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._routes = RoutedFindings(Routing())
        self._alerts: OpenAlerts | None = None
        self._restored: dict[str, list[Notice]] = {}
        self._changed = asyncio.Event()
        self._reading = asyncio.Lock()  # the file is read or changed by one at a time
        self._saving: asyncio.Future[None] | None = None

    @property
    def rules(self) -> RuleSettings:
        """Settings of rules that are in force."""
        return self.files.config.rules

    @property
    def statuses(self) -> list[ReceiverStatus]:
        """The receivers by name."""
        return [task.status for _, task in sorted(self._tasks.items())]

    async def test(self, name: str) -> SendResult | None:
        """Sends a test message to a receiver; None: there is none of that name."""
        task = self._tasks.get(name)
        return None if task is None else await task.test()

    async def change_rule(self, edit: RuleEdit) -> None:
        """Changes a rule's settings in the file, and puts them in force. Raises AlertsFileError."""
        async with self._reading:
            await asyncio.to_thread(self.files.change, edit)
        await self._reread()

    async def _reread(self) -> None:
        """Puts the file's content in force if it has changed."""
        async with self._reading:
            changed = await asyncio.to_thread(self.files.read)
        if changed:
            self._apply(self.files.config)
            self._start_tasks()

    def submit(self, alerts: OpenAlerts) -> None:
        """The state after a round; never waits."""
        self._alerts = alerts
        chosen = self._routes.chosen(alerts.open, self._tasks)
        for name, task in self._tasks.items():
            task.update(alerts, chosen[name])

    async def load(self) -> None:
        """Reads the file and what receivers have; before the first round, so that no rule judges by other settings."""
        if self._state_file is not None:
            self._restored = await asyncio.to_thread(read_delivered, self._state_file)
        await asyncio.to_thread(self.files.read)
        self._apply(self.files.config)

    async def run(self) -> None:
        """Delivers and watches the file until it is cancelled."""
        keeper = asyncio.create_task(keep_running("alerts-state", self._keep))
        try:
            self._start_tasks()
            while True:
                await asyncio.sleep(WATCH_INTERVAL_S)
                await self._reread()
        finally:
            ending = [keeper, *self._running.values()]
            self._running = {}
            for task in ending:
                task.cancel()
            await asyncio.gather(*ending, return_exceptions=True)
            if self._saving is not None:  # else an older state would be written over the last one
                await asyncio.wait([self._saving])
            if self._changed.is_set():
                _save(self._state_file, self._has())

    def _apply(self, config: AlertsConfig) -> None:
        """Receivers that stay as they are go on; a changed one takes over what it has."""
        configs = dict(config.receivers)
        everything = config.routing.everything
        if self._webhook_url is not None:
            configs[OF_SETTING] = ReceiverConfig(OF_SETTING, ReceiverKind.WEBHOOK, (self._webhook_url,))
            everything = everything | {OF_SETTING}
        tasks: dict[str, ReceiverTask] = {}
        for name, receiver in configs.items():
            before = self._tasks.get(name)
            if before is not None and before.config == receiver:
                tasks[name] = before
                continue
            has = before.queue.delivered if before is not None else self._restored.get(name, ())
            tasks[name] = ReceiverTask(receiver, self._cluster, has, self._changed.set)
        self._tasks, self._restored = tasks, {}
        self._routes = RoutedFindings(replace(config.routing, everything=everything))
        if self._alerts is not None:
            self.submit(self._alerts)
        self._changed.set()

    def _start_tasks(self) -> None:
        """One task for each receiver; those of receivers that are gone or changed end."""
        for name, running in list(self._running.items()):
            task = self._tasks.get(name)
            if task is None or running.get_name() != _task_name(task):
                self._running.pop(name).cancel()
        for name, task in self._tasks.items():
            if name not in self._running:
                self._running[name] = asyncio.create_task(
                    keep_running(f"receiver {name}", task.run), name=_task_name(task)
                )

    async def _keep(self) -> None:
        """Writes what receivers have, each time that it has changed."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            self._saving = asyncio.ensure_future(asyncio.to_thread(_save, self._state_file, self._has()))
            await asyncio.shield(self._saving)
            await asyncio.sleep(SAVE_PAUSE_S)

    def _has(self) -> dict[str, list[Notice]]:
        return {name: list(task.queue.delivered) for name, task in self._tasks.items()}


def _save(path: Path | None, delivered: Mapping[str, list[Notice]]) -> None:
    if path is None:
        return
    try:
        write_delivered(path, delivered)
    except OSError as error:
        _log.warning("%s cannot be written: %s", path.name, error.strerror)


def _task_name(task: ReceiverTask) -> str:
    return f"receiver-{task.config.name}-{id(task)}"
