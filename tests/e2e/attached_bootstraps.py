"""New replicas on a real Apache Kafka, and what the API of an attached ebbline shows of them."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from backend.control.gateway.kafka_client import Gateway
from backend.control.gateway.requests.config_requests import BROKER, ConfigChange, ConfigResource, alter_configs
from backend.control.lab.bootstrap.race_steps import remove_replica, set_flag
from backend.control.lab.lab_topic import LabFailed, LabTopic, until
from backend.protocol import offset_timestamps
from backend.protocol.config_enums import AlterConfigOp
from tests.e2e.attached_site import Site

NEW: Final = 3
RATE: Final = "follower.replication.throttled.rate"
TRICKLE: Final = "50000"


class Bootstraps:
    """New replicas on broker 3 of a real Kafka, and what the API shows of them. Kafka tells no phases itself."""

    def __init__(self, site: Site, gateway: Gateway) -> None:
        self._site = site
        self._gateway = gateway
        self.topic = LabTopic(gateway, "phases")

    async def shown(self, what: str, **expected: Any) -> dict[str, Any]:
        """The row of the new replica once it is so."""
        row: dict[str, Any] = {}

        async def probe() -> bool | None:
            answer = await asyncio.to_thread(self._site.api.get, "/v1/partitions/phases/0")
            replicas = answer.json()["replicas"] if answer.status_code == 200 else []
            row.clear()
            row.update(next((replica for replica in replicas if replica["broker_id"] == NEW), {}))
            return (bool(row) and all(row[name] == value for name, value in expected.items())) or None

        try:
            await until(what, probe, 120)
        except LabFailed as error:
            raise AssertionError(f"{error} Shown was {row}") from error
        return row

    async def throttle(self, rate: str | None) -> None:
        change = ConfigChange(RATE, AlterConfigOp.DELETE if rate is None else AlterConfigOp.SET, rate)
        await alter_configs(self._gateway, ConfigResource(BROKER, str(NEW)), [change])

    async def starts_at(self, offset: int, *, flag: bool) -> None:
        """It is fetching from there, slowly; then it is in sync, and goes away again."""
        await set_flag(self._gateway, NEW, "true" if flag else "false")
        await self.throttle(TRICKLE)
        await self.topic.move([1, NEW])
        start = {"log_start_offset": 0, "local_log_start_offset": offset}
        row = await self.shown("it is fetching", phase="FETCHING", in_isr=False, **start)
        assert row["phase_source"] == "inferred"
        await self.throttle(None)
        row = await self.shown("it is in sync", phase="IN_SYNC", in_isr=True, **start)
        assert row["phase_source"] == "exact"
        await remove_replica(self.topic, 1, NEW)

    async def everything_is_copied(self) -> None:
        await self.topic.configure(remote_log_copy_disable=None, local_retention_ms="1")

        async def copied() -> bool | None:
            end, local, pending = [
                await self.topic.offset(1, at)
                for at in (
                    offset_timestamps.LATEST,
                    offset_timestamps.EARLIEST_LOCAL,
                    offset_timestamps.EARLIEST_PENDING_UPLOAD,
                )
            ]
            return (end == local and pending == -1) or None

        await until("nothing is local", copied, 120)

    async def is_kept_out(self) -> None:
        """Kafka's trap: with the flag on it never joins; with the flag off it does."""
        await set_flag(self._gateway, NEW, "true")
        await self.topic.move([1, NEW])
        await self.shown("it is building", phase="BUILDING_REMOTE_AUX", log_end_offset=0)
        row = await self.shown("it is delayed", phase="DELAYED", log_end_offset=0)
        assert row["phase_source"] == "inferred"
        await set_flag(self._gateway, NEW, None)
        await self.shown("it is in sync", phase="IN_SYNC", in_isr=True)
