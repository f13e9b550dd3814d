"""The API for other machines: TLS, a token for everything but the probes, and no start without a certificate."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import httpx
import pytest
from pydantic import ValidationError

from backend.control.control_settings import ControlSettings
from backend.control.http.api_server import ApiServer, ApiServerError
from tests.certificates import Authority
from tests.control.site import ControlSite
from tests.engine_cluster import CLUSTER_ID
from tests.ports import free_ports


def test_other_machines_come_by_tls_with_a_token_and_a_viewer_may_only_look(tmp_path: Path) -> None:
    authority = Authority()
    pem = authority.identity("api").write_pem(tmp_path / "api.pem")
    (port,) = free_ports(1)
    outside = {"api_listen": f"127.0.0.1:{port}", "api_tls_certificate": pem, "api_tls_key": pem}
    with ControlSite(tmp_path, brokers=1, plane=outside) as site:
        trust = ssl.create_default_context(cadata=authority.pem)
        token = {"Authorization": f"Bearer {site.token('viewer')}", "Host": "elsewhere.example"}
        with httpx.Client(base_url=f"https://127.0.0.1:{port}", verify=trust) as client:
            assert client.get("/healthz", headers={"Host": "elsewhere.example"}).status_code == 200
            assert {client.get(path).status_code for path in ("/metrics", "/openapi.json", "/v1/cluster")} == {401}
            assert {client.get(path, headers=token).status_code for path in ("/metrics", "/v1/cluster")} == {200}
            body = {"kind": "toggle_bootstrap", "inputs": {"enable": True}}
            assert client.post("/v1/plans", headers=token, json=body).status_code == 403
            assert client.post("/v1/plans", headers=token, json=body | {"dry_run": True}).status_code == 200
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=10)
        # Headers that a proxy would set are not trusted: they cannot make a call without TLS one with it.
        forged = {"Host": "evil.example", "X-Forwarded-Proto": "https"}
        assert site.operator.get("/healthz", headers=forged).status_code == 421


@pytest.mark.parametrize(
    "given",
    [
        {"api_listen": "0.0.0.0:8443"},
        {"api_listen": "0.0.0.0:8443", "api_tls_certificate": "/c.pem"},
        {"api_listen": "everywhere", "api_tls_certificate": "/c.pem", "api_tls_key": "/k.pem"},
        {"api_host": "0.0.0.0"},
    ],
)
def test_an_address_for_other_machines_without_a_certificate_is_refused(tmp_path: Path, given: dict[str, str]) -> None:
    base = {"data_dir": tmp_path, "cluster_id": CLUSTER_ID, "bootstrap_servers": "h:1", "database_url": "sqlite://"}
    assert ControlSettings(**base).api_listen is None  # type: ignore[arg-type]  # pydantic checks them
    with pytest.raises(ValidationError, match=r"TLS|not host:port"):
        ControlSettings(**base | given)  # type: ignore[arg-type]  # pydantic checks them


def test_a_certificate_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "broken.pem"
    broken.write_text("no certificate")
    server = ApiServer(None, "127.0.0.1", 0, (broken, broken))  # type: ignore[arg-type]  # it is never called
    with pytest.raises(ApiServerError, match=r"broken\.pem"):
        asyncio.run(server.start())
