"""The roles that may call each endpoint of the table, and the rights of the two tokens of the first start."""

from __future__ import annotations

import json
import re
import stat
from collections import Counter
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from backend.cli.local.audited import account
from backend.cli.main import app
from backend.control.http import api_tokens
from backend.control.http.call import Access, ApiEndpoint
from backend.control.http.endpoints import ENDPOINTS
from backend.data_folder.data_folder import FORMAT_VERSION, ClusterIdentity
from backend.store.connection.database import create_engine, writing
from tests.control.site import CLUSTER_NAME, ControlSite
from tests.engine_cluster import CLUSTER_ID

ROLES = ("nobody", "stranger", "app", "viewer", "operator")
# The status codes with which the lab refuses, without any effect.
NOTHING_DONE = {"start bootstrap race": (422,), "cancel bootstrap race": (409,), "break": (422,), "heal": (409,)}
WRITES = [e for e in ENDPOINTS if e.method != "GET"]


def caller(site: ControlSite, role: str) -> httpx.Client:
    match role:
        case "nobody":
            return site.client(None)
        case "stranger":
            return site.client("x" * 43)
        case "app":
            return site.client(site.token("app"))  # the dashboard, for nobody
        case _:
            return site.person(f"a-{role}", role)


def call(client: httpx.Client, endpoint: ApiEndpoint) -> httpx.Response:
    """A call with harmless arguments: there is no plan and no finding of this number, and no race of one byte."""
    path = endpoint.path.format(
        topic="__ebbline_events",
        partition=0,
        plan_id=999_999,
        finding_id=999_999,
        window_id=999_999,
        receiver="nobody",
        slug="no-such-rule",
    )
    bodies: dict[str, Any] = {
        "create plan": {"kind": "toggle_bootstrap", "inputs": {"enable": None}},
        "execute plan": {"confirm": "demo", "reason": "a test"},
        "revert plan": {},
        "limit plan": {"throttle_bytes_per_s": 1_000_000},
        "acknowledge finding": {},
        "mute finding": {"minutes": 5},
        "add maintenance": {"minutes": 1, "slug": "elr-off", "reason": "a test"},
        "change rule": {"values": {"for_s": 1}, "reason": "a test"},
        "start bootstrap race": {"size_bytes": 1},
        "break": {"scenario": "no such scenario"},
    }
    headers = dict.fromkeys(endpoint.header_names, "a-key")
    return client.request(endpoint.method, path, json=bodies.get(endpoint.name), headers=headers)


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda e: e.name)
def test_every_endpoint_lets_in_whom_it_says(site: ControlSite, endpoint: ApiEndpoint, role: str) -> None:
    status = call(caller(site, role), endpoint).status_code
    if endpoint.access is Access.OPEN:
        assert status == 200
    elif role in ("nobody", "stranger"):
        assert status == 401
    elif endpoint.method != "GET" and role != "operator":
        assert status == 403
    else:
        assert status in (200, 201, 404, *NOTHING_DONE.get(endpoint.name, ()))


@pytest.mark.parametrize("endpoint", WRITES, ids=lambda e: e.name)
def test_what_a_viewer_tries_to_change_is_refused_and_audited(site: ControlSite, endpoint: ApiEndpoint) -> None:
    before = site.get("/v1/plans?limit=1000")["items"]
    answer = call(site.person("eve", "viewer"), endpoint)
    assert (answer.status_code, answer.headers["content-type"]) == (403, "application/problem+json")
    last = site.get("/v1/audit?limit=1")["items"][0]
    assert (last["actor"], last["role"], last["result"]) == ("eve", "viewer", "refused")
    assert site.get("/v1/plans?limit=1000")["items"] == before


def test_the_tokens_of_the_first_start_can_be_read_by_their_owner_only(site: ControlSite) -> None:
    for name in ("operator", "app"):
        path = site.folder / "run" / f"{name}.token"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert len(site.token(name)) >= 43
    assert site.token("operator") != site.token("app")


def test_no_token_stands_in_the_database(site: ControlSite) -> None:
    files = [path for path in site.folder.rglob("*") if path.is_file() and "ebbline.db" in str(path)]
    assert files
    content = b"".join(path.read_bytes() for path in files)
    for name in ("operator", "app"):
        assert site.token(name).encode() not in content


def test_the_audit_names_the_person_whom_the_dashboard_acts_for(site: ControlSite) -> None:
    person = site.person("Ada Lovelace", "operator")
    plan = person.post("/v1/plans", json={"kind": "toggle_bootstrap", "inputs": {"enable": True}}).json()["plan"]
    assert (plan["author"], plan["role"]) == ("Ada Lovelace", "operator")
    site.execute(plan["id"], confirm="wrong", client=person)
    assert site.get("/v1/audit?limit=1")["items"][0]["actor"] == "Ada Lovelace"


def test_only_the_dashboard_may_act_for_others(site: ControlSite) -> None:
    client = site.client(site.token("operator"), **{"X-Ebbline-Actor": "somebody", "X-Ebbline-Role": "viewer"})
    answer = client.post("/v1/plans", json={"kind": "toggle_bootstrap", "inputs": {"enable": True}})
    assert answer.json()["plan"]["author"] == "operator"


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Ebbline-Actor": "eve", "X-Ebbline-Role": "root"},
        {"X-Ebbline-Actor": "eve"},
        {"X-Ebbline-Role": "operator"},
        {"X-Ebbline-Actor": "e" * 101, "X-Ebbline-Role": "operator"},
        {"X-Ebbline-Actor": "a\tb", "X-Ebbline-Role": "operator"},
    ],
)
def test_a_person_that_cannot_be_is_refused(site: ControlSite, headers: dict[str, str]) -> None:
    answer = site.client(site.token("app"), **headers).get("/v1/cluster")
    assert (answer.status_code, answer.json()["type"]) == (400, "urn:ebbline:problem:bad-actor")


def test_tokens_survive_a_restart_and_a_lost_file_is_made_again(site: ControlSite) -> None:
    before = site.token("app")
    lost = site.token("operator")
    site.stop_plane()
    (site.folder / "run" / "operator.token").unlink()
    site.start_plane()
    assert site.token("app") == before
    assert site.client(before).get("/v1/cluster").status_code == 200
    assert site.token("operator") != lost
    assert site.client(lost).get("/v1/cluster").status_code == 401


def token_command(site: ControlSite, *words: str) -> tuple[int, str]:
    """Exit code and what `ebbline token` says of this site's tokens."""
    identity = ClusterIdentity(FORMAT_VERSION, CLUSTER_ID, CLUSTER_NAME, 3, 1, 2)
    (site.folder / "cluster.json").write_text(json.dumps({n: getattr(identity, n) for n in identity.__slots__}))
    place = ["--data", str(site.folder), "--database-url", site.database_url]
    ended = CliRunner().invoke(app, ["token", *words, *place])
    assert not ended.exception or isinstance(ended.exception, SystemExit), ended.exception
    return ended.exit_code, ended.output.strip()


def test_a_token_with_a_name_and_a_role_is_made_used_and_withdrawn(
    site: ControlSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_tokens, "CACHE_S", -1.0)
    code, text = token_command(site, "add", "grafana", "--days", "1")
    assert code == 0
    client = site.client(text)
    assert client.get("/v1/cluster").status_code == 200
    assert client.post("/v1/plans/1/execute", json={}, headers={"Idempotency-Key": "x"}).status_code == 403
    assert site.get("/v1/audit?limit=1")["items"][0]["actor"] == "grafana"
    for name in ("grafana", "operator"):
        assert token_command(site, "add", name)[0] == 2
    (made,) = (token for token in json.loads(token_command(site, "ls", "--json")[1]) if token["name"] == "grafana")
    assert (made["role"], made["expires_ms"] is None) == ("viewer", False)
    assert "grafana" in token_command(site, "ls")[1]
    assert token_command(site, "withdraw", "grafana") == (0, "The token grafana is withdrawn.")
    withdrawn, *_, added = [entry for entry in site.get("/v1/audit?limit=10")["items"] if "token" in entry["action"]]
    assert [(entry["action"], entry["object"], entry["role"]) for entry in (added, withdrawn)] == [
        ("add token", "grafana", "operator"),
        ("withdraw token", "grafana", "operator"),
    ]
    assert added["actor"] == withdrawn["actor"] == f"{account()} on the command line"
    assert added["detail"] == "viewer, for 1 day"
    assert text not in json.dumps(added)
    assert client.get("/v1/cluster").status_code == 401
    assert [token_command(site, "withdraw", name)[0] for name in ("grafana", "app")] == [2, 2]


def test_a_token_that_has_expired_is_told_so_and_changes_nothing(
    site: ControlSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_tokens, "CACHE_S", -1.0)
    engine = create_engine(site.database_url)
    with writing(engine) as connection:
        token = api_tokens.KnownToken("leaver", api_tokens.TokenRole.OPERATOR, expires_ms=1_700_000_000_000)
        client = site.client(api_tokens.add_token(connection, CLUSTER_ID, token))
    engine.dispose()
    before = site.get("/v1/plans?limit=1000")
    answer = client.post("/v1/plans", json={"kind": "toggle_bootstrap", "inputs": {"enable": True}})
    assert (answer.status_code, answer.headers["content-type"]) == (401, "application/problem+json")
    assert answer.json()["detail"].startswith("The token leaver expired at 2023-11-14 22:13:20 UTC: ")
    assert site.get("/v1/plans?limit=1000") == before
    assert token_command(site, "withdraw", "leaver")[0] == 0


def test_invented_tokens_are_slowed_down_counted_and_audited_once(site: ControlSite) -> None:
    ours = site.client(site.token("operator"))
    assert ours.get("/v1/cluster").status_code == 200
    answers = [site.client(f"invented-{number:030}").get("/v1/cluster") for number in range(60)]
    statuses = Counter(answer.status_code for answer in answers)
    assert set(statuses) == {401, 429}
    assert statuses[429] >= 20
    slowed = next(answer for answer in answers if answer.status_code == 429)
    assert int(slowed.headers["retry-after"]) >= 1
    # A client with a valid token is served beside that, from the same address.
    assert ours.get("/v1/cluster").status_code == 200
    counted = site.client(None).get("/metrics").text
    assert re.search(r'ebbline_http_authentication_failures_total\{reason="slowed"\} [1-9]', counted)
    before = len(site.get("/v1/audit?limit=1000")["items"])
    site.cluster.call(site.plane._audit_guesses())
    rows = site.get("/v1/audit?limit=1000")["items"]
    assert len(rows) == before + 1
    assert (rows[0]["actor"], rows[0]["action"], rows[0]["result"]) == ("nobody", "authenticate", "refused")
    assert "from 127.0.0.1" in rows[0]["detail"]
    assert "invented" not in json.dumps(rows[0])


@pytest.mark.parametrize(
    "body",
    [
        '{"kind":"toggle_bootstrap","inputs":{"enable":true},"dry_run":true,"dry_run":false}',
        '{"kind":"toggle_bootstrap","inputs":{"enable":true,"enable":false},"dry_run":true}',
        '{"kind":"toggle_bootstrap","inputs":{"enable":true},"dry_run":true,"dry_\\u0072un":true}',
    ],
)
def test_a_body_that_names_something_twice_is_refused(site: ControlSite, body: str) -> None:
    before = site.get("/v1/plans?limit=1000")["items"]
    answer = site.operator.post("/v1/plans", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422
    assert "more than once" in answer.json()["detail"]
    assert site.get("/v1/plans?limit=1000")["items"] == before


def test_a_slash_too_many_leads_nowhere(site: ControlSite) -> None:
    answer = site.operator.get("/v1/plans/1/")
    assert (answer.status_code, answer.headers.get("location")) == (404, None)
