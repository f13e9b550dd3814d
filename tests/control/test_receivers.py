"""Receivers against a real HTTP server: messages, signatures, repetition, routes, a file that changes, a restart."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from backend.control.alerts import alert_delivery, heartbeat, receiver_task
from backend.control.alerts.addresses import check_address
from backend.control.alerts.alert_delivery import AlertDelivery
from backend.control.alerts.alert_texts import ClusterName
from backend.control.alerts.alerts_watch import AlertsFiles, AlertsFileWatch
from backend.control.alerts.heartbeat import LifeSignal, WatchSigns
from backend.control.alerts.notices import OpenAlerts
from backend.control.alerts.receiver_config import ReceiverConfig
from backend.control.alerts.receiver_task import ReceiverStatus
from backend.control.alerts.webhook_body import signature
from tests.control.test_gateway import Peer, serving
from tests.unit.control.alerts.sample_notices import alerts, notice

CLUSTER = ClusterName("id", "demo", "https://ebbline.example.org")


@dataclass
class Server:
    """Requests in the order in which they came; answers with `statuses` in turn, then 200. `hangs`: never."""

    statuses: list[int] = field(default_factory=list)
    hangs: bool = False
    requests: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)
    raw: list[bytes] = field(default_factory=list)

    def peer(self) -> Peer:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                line, *rest = head.splitlines()
                headers = {n.lower(): v for n, _, v in (field_.partition(": ") for field_ in rest)}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                if self.hangs:
                    await asyncio.sleep(3600)
                self.raw.append(body)
                self.requests.append((line.split()[1], headers, json.loads(body) if body else None))
                status = self.statuses.pop(0) if self.statuses else 200
                writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n".encode())
                await writer.drain()

        return serve

    @property
    def bodies(self) -> list[Any]:
        return [body for _, _, body in self.requests]

    @property
    def events_and_objects(self) -> list[tuple[str, str]]:
        """(event, object) of each message about one finding."""
        return [(body["event"], body["finding"]["object"]) for body in self.bodies]


class Site:
    """A delivery with its file in a folder."""

    def __init__(self, folder: Path, webhook_url: str | None = None) -> None:
        self.file = folder / "alerts.toml"
        files = AlertsFiles(None, self.file, folder / "copy.toml")
        watch = AlertsFileWatch(files, {"SECRET": "s3cret"})
        self.delivery = AlertDelivery(CLUSTER, watch, folder / "state.json", webhook_url)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[AlertDelivery]:
        await self.delivery.load()
        task = asyncio.create_task(self.delivery.run())
        try:
            yield self.delivery
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def status(self, name: str) -> ReceiverStatus:
        return next(status for status in self.delivery.statuses if status.name == name)


async def until(what: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not what():
            await asyncio.sleep(0.01)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver_task, "GROUP_WAIT_S", 0.1)
    monkeypatch.setattr(receiver_task, "RETRY_FIRST_S", 0.01)
    monkeypatch.setattr(receiver_task, "RETRY_MAX_S", 0.05)
    monkeypatch.setattr(alert_delivery, "WATCH_INTERVAL_S", 0.05)
    monkeypatch.setattr(alert_delivery, "SAVE_PAUSE_S", 0.01)


def test_the_webhook_of_the_setting_gets_opening_and_end_and_the_same_number_after_a_failure(tmp_path: Path) -> None:
    async def play(server: Server) -> Site:
        async with serving(server.peer()) as address:
            site = Site(tmp_path, f"http://{address}/hook?key=CANARY")
            async with site.running() as delivery:
                delivery.submit(alerts(notice(0), notice(1)))
                await until(lambda: len(server.requests) == 4)
                delivery.submit(alerts(notice(0)))
                await until(lambda: len(server.requests) == 5)
                await until(lambda: site.status("webhook_url").delivered == 3)
        return site

    server = Server(statuses=[503, 429])
    site = asyncio.run(play(server))
    assert server.events_and_objects == [("opened", "t-0")] * 3 + [("opened", "t-1"), ("closed", "t-1")]
    numbers = [headers["ebbline-delivery"] for _, headers, _ in server.requests]
    assert (len(set(numbers[:3])), len(set(numbers))) == (1, 3)
    first = server.bodies[0]
    assert (first["version"], first["cluster_name"]) == (1, "demo")
    assert first["finding"]["runbook"] == "docs/runbooks/offline.md"
    assert first["finding"]["link"].startswith("https://ebbline.example.org/partition?")
    status = site.status("webhook_url")
    assert (status.waiting, status.open_there, status.last_error) == (0, 1, None)
    assert "CANARY" not in repr(status)


def test_a_severity_that_rises_in_the_moment_of_opening_is_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiver_task, "GROUP_WAIT_S", 0.5)

    async def play(server: Server) -> None:
        async with serving(server.peer()) as address:
            site = Site(tmp_path, f"http://{address}/")
            async with site.running() as delivery:
                delivery.submit(alerts(notice(0, severity="warning")))
                await until(lambda: site.status("webhook_url").waiting == 1)
                delivery.submit(alerts(notice(0)))
                await until(lambda: site.status("webhook_url").delivered == 1)
                delivery.submit(alerts())
                await until(lambda: site.status("webhook_url").delivered == 2)

    server = Server()
    asyncio.run(play(server))
    assert [(body["event"], body["finding"]["severity"]) for body in server.bodies] == [
        ("opened", "critical"),
        ("closed", "critical"),
    ]


def test_a_message_that_is_refused_for_good_holds_up_nobody_and_any_other_refusal_is_tried_again(
    tmp_path: Path,
) -> None:
    async def play(server: Server) -> Site:
        async with serving(server.peer()) as address:
            site = Site(tmp_path, f"http://{address}/hook")
            async with site.running() as delivery:
                delivery.submit(alerts(notice(0), notice(1)))
                await until(lambda: len(server.requests) == 4)
                await until(lambda: site.status("webhook_url").waiting == 0)
        return site

    server = Server(statuses=[400, 404, 401])
    site = asyncio.run(play(server))
    assert [name for _, name in server.events_and_objects] == ["t-0", "t-1", "t-1", "t-1"]
    assert (site.status("webhook_url").delivered, site.status("webhook_url").refused) == (1, 1)


def test_the_signed_webhook_has_headers_and_a_signature_over_timestamp_and_body(tmp_path: Path) -> None:
    async def play(server: Server) -> None:
        async with serving(server.peer()) as address:
            site = Site(tmp_path)
            site.file.write_text(
                f'[receivers.ops]\nkind = "webhook"\nurl = "http://{address}/x"\nsecret = "env:SECRET"\n'
                'headers = { "X-Team" = "storage" }\n'
            )
            async with site.running() as delivery:
                delivery.submit(alerts(notice()))
                await until(lambda: server.requests)
                result = await delivery.test("ops")
                assert result is not None
                assert result.reason is None
                assert await delivery.test("nobody") is None

    server = Server()
    asyncio.run(play(server))
    _, headers, _ = server.requests[0]
    assert headers["x-team"] == "storage"
    timestamp_s = int(headers["ebbline-timestamp"])
    assert abs(timestamp_s - time.time()) < 60
    assert headers["ebbline-signature"] == signature(b"s3cret", timestamp_s, server.raw[0])
    assert server.bodies[1]["event"] == "test"


def test_a_storm_is_one_digest_and_what_was_over_before_is_nothing(tmp_path: Path) -> None:
    async def play(server: Server) -> None:
        async with serving(server.peer()) as address:
            site = Site(tmp_path, f"http://{address}/")
            site.delivery.submit(alerts(notice(99)))
            async with site.running() as delivery:
                delivery.submit(alerts(*(notice(number) for number in range(153))))
                await until(lambda: site.status("webhook_url").waiting == 0)
                delivery.submit(alerts())
                await until(lambda: len(server.requests) == 2)

    server = Server()
    asyncio.run(play(server))
    opened, ended = server.bodies
    assert (opened["event"], opened["digest"]["number"], len(opened["digest"]["first"])) == ("digest", 153, 10)
    assert ended["digest"]["counts"] == [{"event": "closed", "severity": "critical", "slug": "offline", "number": 153}]


ALERTMANAGER = '[receivers.am]\nkind = "alertmanager"\nurl = "http://{address}"\nresend_s = 5\n'


def test_alertmanager_gets_alerts_again_while_they_are_open_and_their_end(tmp_path: Path) -> None:
    async def play(server: Server) -> None:
        async with serving(server.peer()) as address:
            site = Site(tmp_path)
            site.file.write_text(ALERTMANAGER.format(address=address))
            await site.delivery.load()
            task = site.delivery._tasks["am"]
            task.config = ReceiverConfig("am", task.config.kind, task.config.urls, resend_s=1)
            async with site.running() as delivery:
                delivery.submit(alerts(notice()))
                await until(lambda: len(server.requests) >= 3)
                delivery.submit(alerts(notice(severity="notice")))
                await until(lambda: any(len(body) == 2 for body in server.bodies))
                delivery.submit(alerts())
                await until(lambda: len(server.bodies[-1]) == 1 and "endsAt" in server.bodies[-1][0])

    server = Server()
    asyncio.run(play(server))
    assert {path for path, _, _ in server.requests} == {"/api/v2/alerts"}
    assert all("endsAt" not in alert for body in server.bodies[:3] for alert in body)
    assert {alert["labels"]["alertname"] for body in server.bodies for alert in body} == {"offline"}
    former, now = next(body for body in server.bodies if len(body) == 2)
    assert (former["labels"]["severity"], "endsAt" in former) == ("critical", True)
    assert (now["labels"]["severity"], "endsAt" in now) == ("notice", False)
    assert server.bodies[-1][0]["labels"]["severity"] == "notice"


def test_a_receiver_that_hangs_or_is_dead_holds_up_neither_the_observer_nor_others(tmp_path: Path) -> None:
    async def play(good: Server, hanging: Server) -> Site:
        async with serving(good.peer()) as address, serving(hanging.peer()) as other:
            site = Site(tmp_path, f"http://{address}/")
            site.file.write_text(
                f'[receivers.hanging]\nkind = "webhook"\nurl = "http://{other}/"\n'
                '[receivers.dead]\nkind = "webhook"\nurl = "http://127.0.0.1:9/"\n'
            )
            async with site.running() as delivery:
                began_s = time.monotonic()
                for number in range(1_000):
                    delivery.submit(alerts(notice(number)))
                took_s = time.monotonic() - began_s
                await until(lambda: site.status("webhook_url").waiting == 0)
                await until(lambda: site.status("dead").last_error)
                assert took_s < 2.0
        return site

    good, hanging = Server(), Server(hangs=True)
    site = asyncio.run(play(good, hanging))
    assert ("opened", "t-999") in good.events_and_objects
    dead = site.status("dead")
    assert (dead.waiting, dead.delivered, dead.failing_since_ms is None) == (1, 0, False), "only the newest state waits"
    assert site.status("hanging").waiting == 1


def test_a_mistake_in_the_file_leaves_the_former_rules_and_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def play(server: Server) -> None:
        async with serving(server.peer()) as address:
            site = Site(tmp_path)
            site.file.write_text(f'[receivers.a]\nkind = "webhook"\nurl = "http://{address}/"\n')
            async with site.running() as delivery:
                site.file.write_text('[receivers.a]\nkind = "pager"\n[rules.offline]\noff = true\n')
                await until(lambda: delivery.files.mistake)
                assert "line 2: kind of receivers.a" in str(delivery.files.mistake)
                await asyncio.sleep(0.3)
                delivery.submit(alerts(notice()))
                await until(lambda: server.requests)
                assert delivery.rules.settings == ()
                site.file.write_text("[rules.offline]\noff = true\n")
                await until(lambda: delivery.rules.settings)
                assert (delivery.files.mistake, delivery.statuses) == (None, [])

    asyncio.run(play(Server()))
    assert sum("stay in force" in record.message for record in caplog.records) == 1


def test_a_backend_that_starts_with_a_mistake_goes_on_with_the_last_usable_file(tmp_path: Path) -> None:
    async def play() -> None:
        before = Site(tmp_path)
        before.file.write_text("[rules.offline]\noff = true\n")
        await before.delivery.load()
        before.file.write_text("[rules.offlin]\noff = true\n")
        after = Site(tmp_path)
        await after.delivery.load()
        assert "line 1" in str(after.delivery.files.mistake)
        assert [setting.slug for setting in after.delivery.rules.settings] == ["offline"]

    asyncio.run(play())


def test_a_file_that_is_gone_is_out_of_force_and_one_that_comes_is_read(tmp_path: Path) -> None:
    async def play() -> None:
        site = Site(tmp_path)
        async with site.running() as delivery:
            site.file.write_text("[rules.offline]\noff = true\n")
            await until(lambda: delivery.rules.settings)
            site.file.unlink()
            await until(lambda: not delivery.rules.settings)
            assert delivery.files.mistake is None

    asyncio.run(play())


def test_the_next_process_sends_nothing_again_and_the_end_of_what_the_one_before_sent(tmp_path: Path) -> None:
    async def process(server: Server, address: object, state: OpenAlerts, messages: int) -> None:
        site = Site(tmp_path, f"http://{address}/")
        async with site.running() as delivery:
            delivery.submit(state)
            await until(lambda: len(server.requests) == messages)
            await until(lambda: site.status("webhook_url").waiting == 0)

    async def play(server: Server) -> None:
        async with serving(server.peer()) as address:
            await process(server, address, alerts(notice(0), notice(1)), 2)
            await process(server, address, alerts(notice(0), notice(1)), 2)
            await process(server, address, alerts(notice(0)), 3)

    server = Server()
    asyncio.run(play(server))
    assert server.events_and_objects == [("opened", "t-0"), ("opened", "t-1"), ("closed", "t-1")]


def test_a_state_file_that_cannot_be_used_has_everything_sent_once_more(tmp_path: Path) -> None:
    async def play(server: Server) -> None:
        async with serving(server.peer()) as address:
            site = Site(tmp_path, f"http://{address}/")
            async with site.running() as delivery:
                delivery.submit(alerts(notice()))
                await until(lambda: server.requests)

    (tmp_path / "state.json").write_text('{"receivers": {"webhook_url": [{"slug": 1}]}}')
    server = Server()
    asyncio.run(play(server))
    assert server.events_and_objects == [("opened", "t-0")]


def test_apprise_sends_a_text_and_a_failure_is_a_reason_without_the_url(tmp_path: Path) -> None:
    pytest.importorskip("apprise")

    async def play(server: Server) -> ReceiverStatus:
        async with serving(server.peer()) as address:
            site = Site(tmp_path)
            site.file.write_text(
                f'[receivers.chat]\nkind = "apprise"\nurl = ["json://{address}/CANARY"]\n'
                '[[routes]]\nseverities = ["critical"]\nreceivers = ["chat"]\n'
            )
            async with site.running() as delivery:
                delivery.submit(alerts(notice(0), notice(1, severity="warning")))
                await until(lambda: site.status("chat").last_error)
                failed = site.status("chat")
                await until(lambda: site.status("chat").delivered == 1)
                await asyncio.sleep(0.2)
        return failed

    server = Server(statuses=[404])
    failed = asyncio.run(play(server))
    assert failed.last_error == "HTTP 404"
    assert "CANARY" not in repr(failed)
    titles = [body["title"] for body in server.bodies]
    assert titles == ["[critical] demo: No leader: t-0"] * 2
    assert "Do: Start broker 3." in server.bodies[1]["message"]


def test_the_heartbeat_beats_while_the_cluster_is_watched_and_stops_when_it_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(heartbeat, "START_S", 0.0)
    fresh = True

    def signs() -> WatchSigns:
        now_s = time.monotonic()
        return WatchSigns(now_s if fresh else now_s - 1_000, now_s, 0.0, 2.0)

    async def play(server: Server) -> None:
        nonlocal fresh
        async with serving(server.peer()) as address:
            signal = LifeSignal(f"http://{address}/beat", 0.05, signs)
            task = asyncio.create_task(signal.run())
            await until(lambda: len(server.requests) >= 2)
            fresh = False
            await asyncio.sleep(0.2)
            stopped = len(server.requests)
            await asyncio.sleep(0.3)
            assert len(server.requests) == stopped
            fresh = True
            await until(lambda: len(server.requests) > stopped)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert signal.sent_s is not None

    server = Server()
    asyncio.run(play(server))
    assert {path for path, _, _ in server.requests} == {"/beat"}


@pytest.mark.parametrize("url", ["hook", "ftp://host/x", "http://", "http://a\x00b"])
def test_an_address_that_is_none_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(ValueError, match="address is none"):
        check_address(url)
