"""OAUTHBEARER: the three sources of a token, the exchange with a broker, and the end of a session."""

from __future__ import annotations

import asyncio
import base64
import functools
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from backend.control.gateway.broker_connection import BrokerConnection
from backend.control.gateway.client_security import Security, SecurityError, security_of
from backend.control.gateway.connection_pool import ConnectionPool, Lane
from backend.control.gateway.gateway_errors import NotAuthenticated
from backend.control.gateway.oauth import TokenError, expires_s, extensions_of, refusal, token_source
from backend.protocol import messages as m
from tests.control.test_gateway import Peer, answer, broker, request_of, serving

UNSECURED = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "OAUTHBEARER",
    "enable.sasl.oauthbearer.unsecure.jwt": "true",
    "sasl.oauthbearer.config": "principal=ada scope=read,write lifeSeconds=600",
    "sasl.oauthbearer.extensions": "traceId=123",
}
SHAKE, AUTHENTICATE = (17, 1, 1), (36, 0, 2)


def on_a_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*given: Any, **named: Any) -> None:
        async def whole() -> None:
            await test(*given, **named)

        asyncio.run(whole())

    return run


def jwt(lives_s: float) -> str:
    claims = json.dumps({"sub": "ada", "exp": time.time() + lives_s}).encode()
    return f"e30.{base64.urlsafe_b64encode(claims).decode().rstrip('=')}.c2ln"


def taking(said: list[bytes], challenge: bytes = b"", session_ms: int = 0) -> Peer:
    """A broker that takes OAUTHBEARER, or says `challenge` first."""

    async def then(reader: Any, writer: Any) -> None:
        header, request = await request_of(reader)
        assert isinstance(request, m.SaslHandshakeRequest)
        assert request.mechanism == "OAUTHBEARER"
        writer.write(answer(header, m.SaslHandshakeResponse(mechanisms=["OAUTHBEARER"])))
        while True:
            header, request = await request_of(reader)
            assert isinstance(request, m.SaslAuthenticateRequest)
            said.append(bytes(request.auth_bytes))
            response = m.SaslAuthenticateResponse(auth_bytes=challenge, session_lifetime_ms=session_ms)
            if len(said) > 1 and challenge:
                response = m.SaslAuthenticateResponse(error_code=58, error_message="invalid_token")
            writer.write(answer(header, response))

    return broker(SHAKE, AUTHENTICATE, then=then)


@on_a_loop
async def test_an_unsecured_token_and_extensions_are_sent_as_rfc_7628_says() -> None:
    said: list[bytes] = []
    async with serving(taking(said)) as address:
        connection = await BrokerConnection.open(address, security=security_of(UNSECURED))
        await connection.close()
    (first,) = said
    head, bearer, extension, *end = first.split(b"\x01")
    assert (head, extension, end) == (b"n,,", b"traceId=123", [b"", b""])
    token = bearer.decode().removeprefix("auth=Bearer ")
    header, payload, signature = token.split(".")
    claims = json.loads(base64.urlsafe_b64decode(payload + "=="))
    assert json.loads(base64.urlsafe_b64decode(header + "==")) == {"alg": "none"}
    assert (claims["sub"], claims["scope"], claims["exp"] - claims["iat"], signature) == (
        "ada",
        ["read", "write"],
        600,
        "",
    )


@on_a_loop
async def test_a_broker_that_refuses_the_token_is_answered_and_its_cause_is_told() -> None:
    said: list[bytes] = []
    challenge = json.dumps({"status": "invalid_token", "scope": "kafka"}).encode()
    async with serving(taking(said, challenge)) as address:
        with pytest.raises(NotAuthenticated, match="refuses our token: invalid_token, scope kafka is needed"):
            await BrokerConnection.open(address, security=security_of(UNSECURED))
    assert said[1:] == [b"\x01"]


@on_a_loop
async def test_a_session_near_its_end_gives_way_to_a_new_connection() -> None:
    said: list[bytes] = []
    async with serving(taking(said, session_ms=1)) as address:
        pool = ConnectionPool(security=security_of(UNSECURED))
        first = await pool.get(address, Lane.ACT)
        await asyncio.sleep(0.01)
        assert await pool.get(address, Lane.ACT) is not first
        await pool.close()
    assert len(said) == 2


@on_a_loop
async def test_a_token_file_is_read_anew_and_an_expired_token_is_not_sent(tmp_path: Path) -> None:
    file = tmp_path / "token file"
    source = token_source({"sasl.oauthbearer.token.endpoint.url": file.as_uri()})
    with pytest.raises(TokenError, match="cannot be read"):
        await source.token()
    for lives_s in (60, 120):
        expected = jwt(lives_s)
        file.write_text(expected + "\n")
        assert await source.token() == expected
    file.write_text(jwt(-1))
    with pytest.raises(TokenError, match="has expired"):
        await source.token()
    said: list[bytes] = []
    async with serving(taking(said)) as address:
        with pytest.raises(NotAuthenticated, match="has expired"):
            await BrokerConnection.open(address, security=Security(None, "OAUTHBEARER", tokens=source))
    assert said == []


def endpoint(requests: list[str], status: str, body: Callable[[], bytes]) -> Callable[[Any, Any], Awaitable[None]]:
    async def peer(reader: Any, writer: Any) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next(int(line.split(":")[1]) for line in head.splitlines() if line.lower().startswith("content-le"))
        requests.append(head + (await reader.readexactly(length)).decode())
        content = body()
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(content)}\r\nConnection: close\r\n\r\n".encode())
        writer.write(content)
        await writer.drain()

    return peer


@on_a_loop
async def test_client_credentials_are_asked_for_once_until_the_token_is_old() -> None:
    requested: list[str] = []
    lives_s = 600.0
    body = lambda: json.dumps({"access_token": jwt(lives_s), "token_type": "Bearer"}).encode()  # noqa: E731
    async with serving(endpoint(requested, "200 OK", body)) as address:
        source = token_source(
            {
                "sasl.oauthbearer.token.endpoint.url": f"http://{address}/token",
                "sasl.oauthbearer.client.id": "ebbline",
                "sasl.oauthbearer.client.secret": "hush",
                "sasl.oauthbearer.scope": "kafka",
            }
        )
        assert len({*await asyncio.gather(source.token(), source.token())}) == 1
        (request,) = requested
        assert base64.b64encode(b"ebbline:hush").decode() in request
        assert request.endswith("grant_type=client_credentials&scope=kafka")


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        ("401 Unauthorized", b'{"error": "invalid_client"}', "HTTP 401: invalid_client"),
        ("200 OK", b"<html>", "HTTP 200"),
        ("200 OK", b"{}", "holds no token"),
        ("200 OK", b"x" * 70_000, "more than a token"),
    ],
)
@on_a_loop
async def test_an_endpoint_without_a_token_is_told_in_one_sentence(status: str, body: bytes, why: str) -> None:
    async with serving(endpoint([], status, lambda: body)) as address:
        url = {"sasl.oauthbearer.token.endpoint.url": f"http://{address}/t", "sasl.oauthbearer.client.id": "e"}
        with pytest.raises(TokenError, match=why):
            await token_source(url).token()


@pytest.mark.parametrize(
    "change",
    [
        {"enable.sasl.oauthbearer.unsecure.jwt": "false"},
        {"sasl.oauthbearer.config": "scope=read"},
        {"sasl.oauthbearer.config": "principal=a lifeSeconds=-1"},
        {"sasl.oauthbearer.extensions": "auth=x"},
        {"sasl.oauthbearer.extensions": "novalue"},
    ],
)
def test_properties_of_no_token_are_refused(change: dict[str, str]) -> None:
    with pytest.raises(SecurityError, match="oauthbearer"):
        security_of(UNSECURED | change)


def test_what_a_token_and_a_challenge_do_not_tell_is_not_invented() -> None:
    assert expires_s("opaque") is None
    assert expires_s("a.%%%.c") is None
    assert refusal(b"\xff") == refusal(b"[]") == "the token is not taken"
    assert extensions_of({}) == {}
