"""The webhook: its messages, their repetition after a failure, and the messages that are given up."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from backend.control.alerts import webhook
from backend.control.alerts.notices import Notice, NoticeEvent
from backend.control.alerts.webhook import Webhook, check_address
from tests.control.test_gateway import Peer, serving


def notice(number: int) -> Notice:
    return Notice(
        NoticeEvent.OPENED, number, "offline", f"t-{number}", "critical", "No leader", "Start.", {}, "t", 0, None
    )


def receiver(statuses: list[int], bodies: list[dict[str, Any]], ids: list[str]) -> Peer:
    """Answers with these statuses in turn, then 200."""

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            fields = {n.lower(): v for n, _, v in (line.partition(": ") for line in head.splitlines())}
            bodies.append(json.loads(await reader.readexactly(int(fields["content-length"]))))
            ids.append(fields["ebbline-delivery"])
            writer.write(f"HTTP/1.1 {statuses.pop(0) if statuses else 200} X\r\nContent-Length: 0\r\n\r\n".encode())
            await writer.drain()

    return peer


async def _delivered(statuses: list[int], numbers: range) -> tuple[Webhook, list[dict[str, Any]], list[str]]:
    bodies: list[dict[str, Any]] = []
    ids: list[str] = []
    async with serving(receiver(statuses, bodies, ids)) as address:
        sink = Webhook(f"http://{address}/hook", "id", "demo")
        running = asyncio.create_task(sink.run())
        sink.submit(notice(number) for number in numbers)
        async with asyncio.timeout(30):
            while sink.waiting:
                await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    return sink, bodies, ids


def test_findings_arrive_in_order_and_again_under_the_same_number_after_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(webhook, "RETRY_FIRST_S", 0.01)
    sink, bodies, ids = asyncio.run(_delivered([503, 429], range(2)))
    assert [body["finding"]["object"] for body in bodies] == ["t-0", "t-0", "t-0", "t-1"]
    assert (len(set(ids[:3])), len(set(ids))) == (1, 2)
    assert (sink.delivered, sink.lost) == (2, 0)
    first = bodies[0]
    assert (first["version"], first["event"], first["cluster_name"]) == (1, "opened", "demo")
    assert first["finding"]["runbook"] == "docs/runbooks/offline.md"


def test_what_the_receiver_refuses_for_good_is_lost_and_the_next_one_told() -> None:
    sink, bodies, _ = asyncio.run(_delivered([400], range(2)))
    assert [body["finding"]["object"] for body in bodies] == ["t-0", "t-1"]
    assert (sink.delivered, sink.lost) == (1, 1)


def test_of_too_many_the_oldest_are_lost_and_without_an_address_nothing_waits() -> None:
    sink = Webhook("http://127.0.0.1:9/", "id", "demo")
    sink.submit(notice(number) for number in range(webhook.WAITING_MAX + 5))
    assert (sink.waiting, sink.lost) == (webhook.WAITING_MAX, 5)
    silent = Webhook(None, "id", "demo")
    silent.submit([notice(1)])
    assert silent.waiting == 0


@pytest.mark.parametrize("url", ["hook", "ftp://host/x", "http://", "http://a\x00b"])
def test_an_address_that_is_none_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(ValueError, match="address is none"):
        check_address(url)
