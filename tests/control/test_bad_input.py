"""Invalid input is answered as problem+json with one sentence, and changes nothing."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import ValidationError
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from backend.control.control_plane import ControlError, ControlPlane
from backend.control.control_settings import ControlSettings
from backend.control.http.endpoints import ENDPOINTS
from backend.control.http.guard import BODY_BYTES_MAX, RateLimit, RequestGuard
from backend.control.operations.reassign.reassignment_inputs import PARTITIONS_MAX
from tests.control.site import ControlSite

PLANS = "/v1/plans"
PLAN = {"kind": "toggle_bootstrap", "inputs": {"enable": True}}


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/v1/nothing", None, 404),
        ("GET", "/", None, 404),
        ("DELETE", "/v1/plans", None, 405),
        ("POST", "/v1/cluster", None, 405),
        ("GET", "/v1/partitions/no-such-topic/0", None, 404),
        ("GET", "/v1/partitions/__ebbline_events/99", None, 404),
        ("GET", "/v1/partitions/__ebbline_events/minus", None, 422),
        ("GET", "/v1/partitions/__ebbline_events/-1", None, 422),
        ("GET", "/v1/partitions/__ebbline_events/99999999999", None, 422),
        ("GET", "/v1/partitions/sp%20ace/0", None, 422),
        ("GET", "/v1/partitions?limit=0", None, 422),
        ("GET", "/v1/partitions?limit=1&limit=2", None, 422),
        ("GET", "/v1/partitions?surprise=1", None, 422),
        ("GET", "/v1/brokers?surprise=1", None, 422),
        ("GET", "/v1/config?resource_type=group", None, 422),
        ("GET", "/v1/audit?before_id=abc", None, 422),
        ("GET", "/v1/plans/999999", None, 404),
        ("GET", "/v1/plans/99999999999999999999", None, 422),
        ("GET", "/v1/plans/0", None, 422),
        ("GET", "/v1/findings?state=ajar", None, 422),
        ("GET", "/v1/findings?severity=awful", None, 422),
        ("GET", "/v1/findings?limit=0", None, 422),
        ("GET", "/v1/findings?limit=1001", None, 422),
        ("GET", "/v1/findings?before_id=0", None, 422),
        ("GET", "/v1/findings?topic=sp%20ace", None, 422),
        ("GET", "/v1/findings?muted=perhaps", None, 422),
        ("GET", "/v1/findings?cause=broker-away", None, 422),
        ("GET", "/v1/findings?cause=no-such-rule:broker%203", None, 422),
        ("GET", "/v1/findings?cause=:broker%203", None, 422),
        ("GET", "/v1/findings?cause=broker-away:", None, 422),
        ("GET", "/v1/findings?cause=broker-away:%00", None, 422),
        ("GET", f"/v1/findings?cause=broker-away:{'b' * 301}", None, 422),
        ("GET", "/v1/findings/999999", None, 404),
        ("GET", "/v1/findings/0", None, 422),
        ("GET", "/v1/findings/copy-hung", None, 422),
        ("GET", "/v1/findings/99999999999999999999", None, 422),
        ("POST", "/v1/findings/999999/acknowledge", {}, 404),
        ("POST", "/v1/findings/999999/acknowledge", {"surprise": 1}, 422),
        ("POST", "/v1/findings/999999/mute", {"minutes": 5}, 404),
        ("POST", "/v1/findings/999999/mute", {}, 422),
        ("POST", "/v1/findings/999999/mute", {"minutes": -1}, 422),
        ("POST", "/v1/findings/999999/mute", {"minutes": 43_201}, 422),
        ("POST", "/v1/findings/999999/mute", {"minutes": 5, "reason": "r" * 501}, 422),
        ("POST", PLANS, {}, 422),
        ("POST", PLANS, {"kind": "destroy", "inputs": {}}, 422),
        ("POST", PLANS, {"kind": "toggle_bootstrap", "inputs": {}}, 422),
        ("POST", PLANS, {"kind": "toggle_bootstrap", "inputs": {"enable": "on"}}, 422),
        ("POST", PLANS, {"kind": "toggle_bootstrap", "inputs": {"enable": True, "broker_id": 1}}, 422),
        (
            "POST",
            PLANS,
            PLAN | {"inputs": {"scope": "broker", "broker_id": 77, "enable": True}},
            422,
        ),
        ("POST", PLANS, {"kind": "toggle_bootstrap", "inputs": [True]}, 422),
        ("POST", PLANS, [1, 2], 422),
        ("POST", PLANS, PLAN | {"reason": "r" * 501}, 422),
        ("POST", PLANS, PLAN | {"surprise": True}, 422),
        ("POST", f"{PLANS}/999999/execute", {"confirm": "demo", "reason": "r"}, 400),
        ("POST", f"{PLANS}/999999/revert", {}, 404),
    ],
)
def test_what_does_not_fit_is_a_problem_and_changes_nothing(
    site: ControlSite, method: str, path: str, body: Any, status: int
) -> None:
    before = site.get("/v1/plans?limit=1000")
    answer = site.operator.request(method, path, json=body)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["status"] == status
    assert problem["detail"].endswith((".", "…"))
    assert "Traceback" not in answer.text
    assert site.get("/v1/plans?limit=1000") == before


@pytest.mark.parametrize(
    ("content", "content_type", "status"),
    [
        (b"{not json", "application/json", 422),
        (b"\xff\xfe\x00", "application/json", 422),
        (b"kind=toggle_bootstrap", "application/x-www-form-urlencoded", 415),
        (b"[" * 100_000, "application/json", 422),
        (b'{"kind": "' + b"k" * BODY_BYTES_MAX + b'"}', "application/json", 413),
    ],
)
def test_bodies_that_are_no_json_or_too_large_are_refused(
    site: ControlSite, content: bytes, content_type: str, status: int
) -> None:
    answer = site.operator.post(PLANS, content=content, headers={"Content-Type": content_type})
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")


def test_the_largest_reassignment_fits_into_a_body(site: ControlSite) -> None:
    """It is a plan's inputs that are looked at, not the size."""
    topic = "a-topic-with-a-name-as-long-as-some-teams-like-it"
    parts = [{"topic": topic, "partition": p, "replicas": [1, 2, 3]} for p in range(PARTITIONS_MAX)]
    answer = site.operator.post(PLANS, json={"kind": "reassign", "inputs": {"assignments": parts}})
    assert (answer.status_code, answer.json()["detail"]) == (
        422,
        f"There is no partition {topic}-0: look at the topic's partitions.",
    )


def test_a_body_without_a_length_is_counted_as_it_comes(site: ControlSite) -> None:
    def chunks() -> Any:
        yield b'{"kind": "'
        for _ in range(BODY_BYTES_MAX // 10_000 + 1):
            yield b"k" * 10_000
        yield b'"}'

    answer = site.operator.post(PLANS, content=chunks(), headers={"Content-Type": "application/json"})
    assert answer.status_code == 413


def test_a_page_of_another_host_is_refused(site: ControlSite) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", site.plane.port, timeout=10)
    connection.request("GET", "/metrics", headers={"Host": "evil.example"})
    answer = connection.getresponse()
    assert answer.status == 421
    assert json.loads(answer.read())["type"] == "urn:ebbline:problem:wrong-host"
    connection.close()


def test_a_fault_of_ours_is_a_problem_without_a_traceback(site: ControlSite, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object) -> None:
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr(site.plane.parts.operations, "recent", broken)
    answer = site.operator.get("/v1/plans")
    assert (answer.status_code, answer.headers["content-type"]) == (500, "application/problem+json")
    assert "secret" not in answer.text


def test_too_many_calls_are_told_to_wait() -> None:
    limit = RateLimit(rate_per_s=10, burst=5)
    assert [limit.take("a", 0.0) for _ in range(5)] == [0.0] * 5
    assert limit.take("a", 0.0) == pytest.approx(0.1)
    assert limit.take("b", 0.0) == 0.0
    assert limit.take("a", 0.1) == 0.0


def test_callers_that_are_invented_do_not_fill_the_memory() -> None:
    limit = RateLimit()
    for number in range(5_000):
        limit.take(f"caller-{number}", 0.0)
    assert len(limit._buckets) == 1_000


def test_the_limit_reaches_the_caller_as_429_and_spares_the_probes() -> None:
    async def answers(scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse("here")(scope, receive, send)

    async def ask(paths: list[str]) -> list[int]:
        transport = httpx.ASGITransport(RequestGuard(answers, limit=RateLimit(rate_per_s=0.001, burst=3)))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost:1") as client:
            return [(await client.get(path)).status_code for path in paths]

    assert asyncio.run(ask(["/v1/brokers"] * 4 + ["/healthz"])) == [200, 200, 200, 429, 200]


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.7", "::", "example.org"])
def test_an_address_that_others_can_reach_is_refused(tmp_path: Path, host: str) -> None:
    with pytest.raises(ValidationError, match="loopback"):
        settings(tmp_path, api_host=host)


@pytest.mark.parametrize("servers", ["", "nohost", "h:0", "h:port", "h:70000"])
def test_bootstrap_servers_that_are_none_are_refused(tmp_path: Path, servers: str) -> None:
    with pytest.raises(ValidationError, match="host:port"):
        settings(tmp_path, bootstrap_servers=servers)


def settings(folder: Path, **changes: Any) -> ControlSettings:
    values: dict[str, Any] = {
        "data_dir": folder,
        "cluster_id": "c",
        "bootstrap_servers": "127.0.0.1:1",
        "database_url": f"sqlite:///{folder / 'x.db'}",
        "api_port": 0,
    }
    return ControlSettings(**(values | changes))


def test_a_start_with_a_taken_port_is_one_sentence(site: ControlSite, tmp_path: Path) -> None:
    taken = ControlPlane(settings(tmp_path, database_url=site.database_url, api_port=site.plane.port))
    with pytest.raises(ControlError, match="cannot listen"):
        site.cluster.call(taken.start())
    site.cluster.call(taken.stop())


def test_the_documentation_lists_every_endpoint_and_resolves(site: ControlSite) -> None:
    document = site.operator.get("/openapi.json").json()
    text = json.dumps(document)
    for name in _references(document):
        assert name in document["components"]["schemas"], name
    documented = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert documented == {(endpoint.method, endpoint.path) for endpoint in ENDPOINTS}
    assert '"$defs"' not in text


def _references(value: Any) -> set[str]:
    if isinstance(value, dict):
        own = {value["$ref"].rpartition("/")[2]} if isinstance(value.get("$ref"), str) else set()
        return own.union(*(_references(part) for part in value.values())) if value else own
    if isinstance(value, list):
        return set().union(*(_references(part) for part in value)) if value else set()
    return set()


def test_metrics_of_all_brokers_stand_under_one_name_once(site: ControlSite) -> None:
    text = site.client(None).get("/metrics").text
    types = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(types) == len(set(types))
    assert "ebbline_cluster_up 1.0" in text
    assert {f'broker="{n}"' for n in (1, 2, 3)} <= set(re.findall(r'broker="[0-9]+"', text))
