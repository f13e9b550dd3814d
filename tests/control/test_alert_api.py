"""The API about alerts and maintenance, by a whole control plane whose cluster is away: it needs the database alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from backend.control.control_plane import ControlPlane
from backend.control.control_settings import ControlSettings
from backend.store.connection.database import writing
from backend.store.writes.finding_rows import open_findings
from tests.databases import new_sqlite

RULES = (
    '[receivers.ops]\nkind = "webhook"\nurl = "http://127.0.0.1:9/CANARY"\n[rules.disk-runway]\nwarning_share = 0.5\n'
)
Act = Callable[[ControlPlane, httpx.AsyncClient], Awaitable[None]]


@asynccontextmanager
async def plane(folder: Path, **more: Any) -> AsyncIterator[tuple[ControlPlane, httpx.AsyncClient]]:
    settings = ControlSettings(
        data_dir=folder,
        cluster_id="c1",
        bootstrap_servers="127.0.0.1:1",
        database_url=new_sqlite(folder / "ebbline.db"),
        api_port=0,
        sample_interval_ms=300,
        **more,
    )
    made = ControlPlane(settings)
    await made.start()
    try:
        token = (folder / "run" / "operator.token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{made.port}", headers=headers) as client:
            async with asyncio.timeout(20):
                while (await client.get("/v1/maintenance")).status_code != 200:
                    await asyncio.sleep(0.05)
                while not made.parts.observer.alerts.files.there and (folder / "alerts.toml").exists():
                    await asyncio.sleep(0.05)
            yield made, client
    finally:
        await made.stop()


def play(folder: Path, act: Act, **more: Any) -> None:
    async def run() -> None:
        async with plane(folder, **more) as (made, client):
            await act(made, client)

    asyncio.run(run())


def finding(**more: Any) -> dict[str, Any]:
    row = {"cluster_id": "c1", "slug": "offline", "object": "orders-0", "topic": "orders", "partition": 0,
           "broker_id": None, "severity": "critical", "sentence": "No leader", "action": "Start.", "evidence": {},
           "opened_ms": 1, "seen_ms": 1, "muted_until_ms": None}  # fmt: skip
    return row | more


def test_a_window_is_added_shown_on_findings_ended_and_audited(tmp_path: Path) -> None:
    async def act(made: ControlPlane, client: httpx.AsyncClient) -> None:
        with writing(made.parts.database.engine) as connection:
            open_findings(connection, [finding(), finding(object="logs-0", topic="logs")])
        body = {"minutes": 60, "topic": "ord*", "reason": "new disks"}
        added = await client.post("/v1/maintenance", json=body)
        assert added.status_code == 201
        window = added.json()["window"]
        assert window["ends_ms"] - window["begins_ms"] == 3_600_000
        assert added.headers["location"] == f"/v1/maintenance/{window['id']}"
        items = (await client.get("/v1/findings")).json()["items"]
        until = {item["object"]: item["maintenance_until_ms"] for item in items}
        assert until == {"orders-0": window["ends_ms"], "logs-0": None}
        assert [row["id"] for row in (await client.get("/v1/maintenance")).json()["items"]] == [window["id"]]
        path = f"/v1/maintenance/{window['id']}"
        assert [(await client.delete(path)).status_code for _ in range(2)] == [200, 409]
        assert (await client.delete("/v1/maintenance/999999")).status_code == 404
        items = (await client.get("/v1/findings")).json()["items"]
        assert {item["maintenance_until_ms"] for item in items} == {None}
        audit = (await client.get("/v1/audit")).json()["items"]
        assert [(row["action"], row["object"], row["result"]) for row in audit] == [
            ("end maintenance", "topics ord*", "verified"),
            ("add maintenance", "topics ord*", "verified"),
        ]
        assert audit[1]["reason"] == "new disks"

    play(tmp_path, act)


@pytest.mark.parametrize(
    "body",
    [
        {"minutes": 0, "reason": "x"},
        {"minutes": 60},
        {"minutes": 60, "reason": ""},
        {"minutes": 60, "reason": "x", "slug": "no-such-rule"},
        {"minutes": 60, "reason": "x", "topic": "a b"},
        {"minutes": 60, "reason": "x", "begins_ms": 1},
        {"minutes": 60, "reason": "x", "brokr": 1},
    ],
)
def test_a_window_that_cannot_be_is_refused(body: dict[str, Any], tmp_path: Path) -> None:
    async def act(_: ControlPlane, client: httpx.AsyncClient) -> None:
        assert (await client.post("/v1/maintenance", json=body)).status_code == 422
        assert (await client.get("/v1/maintenance")).json()["items"] == []

    play(tmp_path, act)


def test_receivers_rules_and_their_numbers_are_shown_without_secrets(tmp_path: Path) -> None:
    (tmp_path / "alerts.toml").write_text(RULES)

    async def act(_: ControlPlane, client: httpx.AsyncClient) -> None:
        answer = (await client.get("/v1/alerts/receivers")).json()
        assert [(row["name"], row["address"]) for row in answer["items"]] == [
            ("ops", "http://127.0.0.1:9"),
            ("webhook_url", "https://hooks.example.org"),
        ]
        assert (answer["file"], answer["mistake"]) == (str(tmp_path / "alerts.toml"), None)
        rules = (await client.get("/v1/alerts/rules")).json()
        disk = next(row for row in rules["thresholds"] if row["name"] == "warning_share")
        assert (disk["value"], disk["default"]) == (0.5, 0.85)
        test = await client.post("/v1/alerts/receivers/ops/test")
        assert (test.status_code, test.json()["taken"]) == (200, False)
        assert "no connection" in test.json()["reason"]
        assert (await client.post("/v1/alerts/receivers/nobody/test")).status_code == 404
        metrics = (await client.get("/metrics")).text
        for line in (
            'ebbline_receiver_up{receiver="ops"} 1.0',
            'ebbline_receiver_waiting{receiver="webhook_url"} 0.0',
            "ebbline_alerts_file_usable 1.0",
        ):
            assert line in metrics
        texts = [str(answer), str(rules), test.text, metrics, (await client.get("/v1/audit")).text]
        assert not [text for text in texts if "CANARY" in text]
        file = (await client.get("/v1/alert-rules")).text
        assert "https://ebbline.example.org/activity?runbook=offline" in file

    play(
        tmp_path,
        act,
        webhook_url="https://hooks.example.org/CANARY",
        public_url="https://ebbline.example.org",
    )


def test_a_mistake_in_the_file_is_shown_and_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / "alerts.toml").write_text("[rules.disk-runwy]\n")

    async def act(_: ControlPlane, client: httpx.AsyncClient) -> None:
        answer = (await client.get("/v1/alerts/receivers")).json()
        assert "line 1: there is no rule 'disk-runwy'. Is it disk-runway?" in answer["mistake"]
        assert "ebbline_alerts_file_usable 0.0" in (await client.get("/metrics")).text

    play(tmp_path, act)


def test_a_rule_is_changed_in_the_file_at_once_and_audited(tmp_path: Path) -> None:
    (tmp_path / "alerts.toml").write_text(f"# ours\n{RULES}")

    async def act(_: ControlPlane, client: httpx.AsyncClient) -> None:
        body = {"values": {"warning_share": 0.7, "severity": "critical"}, "reason": "small disks"}
        changed = await client.post("/v1/alerts/rules/disk-runway", json=body)
        assert changed.status_code == 200, changed.text
        assert "disk-runway warning_share 0.7" in shares(changed.json())
        text = (tmp_path / "alerts.toml").read_text()
        assert text.startswith("# ours\n[receivers.ops]")
        assert "CANARY" in text
        body = {"values": {"warning_share": None, "severity": None}, "reason": "as it was made"}
        changed = await client.post("/v1/alerts/rules/disk-runway", json=body)
        assert "disk-runway warning_share 0.85" in shares(changed.json())
        assert changed.json()["rules"] == []
        body = {"values": {"stuck_s": 300}, "topics": "logs-*", "reason": "batches at night"}
        changed = await client.post("/v1/alerts/rules/follower-stuck", json=body)
        assert "follower-stuck stuck_s 300 logs-*" in shares(changed.json())
        audit = (await client.get("/v1/audit")).json()["items"]
        assert [(row["action"], row["object"], row["result"]) for row in audit[:2]] == [
            ("change rule", "follower-stuck (logs-*)", "verified"),
            ("change rule", "disk-runway", "verified"),
        ]
        changed_values = [(change["before"], change["after"]) for change in audit[2]["diff"]["changes"]]
        assert changed_values == [("warning_share = 0.5", "warning_share = 0.7"), (None, "severity = critical")]
        receivers = (await client.get("/v1/alerts/receivers")).json()
        assert [row["name"] for row in receivers["items"]] == ["ops"]

    play(tmp_path, act)


def shares(answer: dict[str, Any]) -> set[str]:
    return {
        " ".join(filter(None, (row["slug"], row["name"], f"{row['value']:g}", row["topics"])))
        for row in answer["thresholds"]
    }


@pytest.mark.parametrize(
    ("slug", "values", "status", "word"),
    [
        ("disk-runway", {"warning_share": 7}, 409, "a number from 0.1 to 1"),
        ("disk-runway", {"stuck_s": 7}, 409, "is not known here"),
        ("disk-runway", {"severity": "loud"}, 409, "is critical, warning, notice"),
        ("disk-runway", {}, 422, ""),
        ("disk-runway", {"topics": "x"}, 422, ""),
        ("no-such-rule", {"for_s": 1}, 404, "There is no rule no-such-rule"),
    ],
)
def test_a_rule_that_would_be_a_mistake_is_refused_and_changes_nothing(
    slug: str, values: dict[str, Any], status: int, word: str, tmp_path: Path
) -> None:
    (tmp_path / "alerts.toml").write_text(RULES)

    async def act(_: ControlPlane, client: httpx.AsyncClient) -> None:
        refused = await client.post(f"/v1/alerts/rules/{slug}", json={"values": values, "reason": "x"})
        assert refused.status_code == status, refused.text
        assert word in refused.text
        assert (tmp_path / "alerts.toml").read_text() == RULES

    play(tmp_path, act)


def test_a_file_with_a_mistake_is_mended_by_hand_first(tmp_path: Path) -> None:
    (tmp_path / "alerts.toml").write_text("[rules.offline]\nfor_s = -1\n")

    async def act(_: ControlPlane, client: httpx.AsyncClient) -> None:
        refused = await client.post("/v1/alerts/rules/offline", json={"values": {"for_s": 1}, "reason": "x"})
        assert refused.status_code == 409
        assert "line 2" in refused.json()["detail"]

    play(tmp_path, act)
