"""SASL on a listener, request by request: what Kafka 4.3.1 answers to every order of them, and what it closes."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final

import pytest
from immutables import Map

from backend.engine.apis import sasl
from backend.engine.apis.api_declaration import Api
from backend.engine.config.listener_security import SaslClientSettings
from backend.engine.net import server_connection
from backend.engine.net.authentication import REAUTH_INTERVAL_MS
from backend.engine.net.peer_client import PeerClient
from backend.engine.net.peer_security import PeerSecurity
from backend.engine.ports import Ports, system_ports, tasks
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError
from backend.protocol.messages import Message
from backend.protocol.scram import MECHANISM_TYPES, ScramClient, credential, salted_password
from tests.secure_cluster import jaas
from tests.unit.engine.net.node import Node, RawClient, node, run

USERS: Final = {"username": "broker", "password": "b", "user_alice": "alice-secret", "user_bob": "bob-secret"}
ALICE: Final = b"\0alice\0alice-secret"
MECHANISMS: Final = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
SETTINGS: Final = {
    "sasl.enabled.mechanisms": ",".join(MECHANISMS),
    "connection.failed.authentication.delay.ms": "5",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas("PLAIN", **USERS),
}
LIFETIME_MS: Final = 60_000
API_VERSIONS: Final = m.ApiVersionsRequest(client_software_name="x", client_software_version="1")


def who(_services: Any, context: Any, _request: Any) -> m.HeartbeatResponse:
    return m.HeartbeatResponse(error_code=len(context.user))


def heartbeat_request(length: int) -> m.HeartbeatRequest:
    """A request that needs authentication; answered with the length of the user's name."""
    return m.HeartbeatRequest(group_id="g" * length, generation_id=1, member_id="m")


@asynccontextmanager
async def sasl_node(**changes: str) -> AsyncIterator[Node]:
    properties = SETTINGS | {name.replace("_", "."): value for name, value in changes.items()}
    async with node(*sasl.APIS, Api(12, 0, 4, who), protocol="SASL_PLAINTEXT", properties=properties) as made:
        credentials = {
            (MECHANISM_TYPES[mechanism], "alice"): credential(
                mechanism, salted_password(mechanism, "alice-secret", b"salt", 4096), b"salt", 4096
            )
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
        }
        metadata: Any = made.services.metadata
        metadata.image = replace(metadata.image, scram=Map(credentials))
        yield made


class Talk:
    """One client, request after request."""

    def __init__(self, client: RawClient) -> None:
        self.client = client
        self._next = 0

    async def ask(self, request: Message, version: int, response: type[Message]) -> Any:
        self._next += 1
        self.client.send(request, version, self._next)
        correlation_id, answer = await self.client.answer(response, version)
        assert correlation_id == self._next
        return answer

    async def handshake(self, mechanism: str = "PLAIN", version: int = 1) -> m.SaslHandshakeResponse:
        answer: m.SaslHandshakeResponse = await self.ask(
            m.SaslHandshakeRequest(mechanism=mechanism), version, m.SaslHandshakeResponse
        )
        return answer

    async def token(self, token: bytes, version: int = 2) -> m.SaslAuthenticateResponse:
        answer: m.SaslAuthenticateResponse = await self.ask(
            m.SaslAuthenticateRequest(auth_bytes=token), version, m.SaslAuthenticateResponse
        )
        return answer

    async def raw_token(self, token: bytes) -> bytes:
        self.client.send_bytes(struct.pack(">i", len(token)) + token)
        return await self.client.frame()

    async def api_versions(self) -> int:
        code: int = (await self.ask(API_VERSIONS, 3, m.ApiVersionsResponse)).error_code
        return code

    async def heartbeat(self) -> int:
        code: int = (await self.ask(heartbeat_request(1), 4, m.HeartbeatResponse)).error_code
        return code

    async def scram(self, mechanism: str, user: str, password: str) -> m.SaslAuthenticateResponse:
        """The last answer of an exchange."""
        scram = ScramClient(mechanism, user, password, "nonce")
        first = await self.token(scram.first_message)
        if first.error_code:
            return first
        last = await self.token(scram.respond(bytes(first.auth_bytes)))
        if not last.error_code:
            scram.check(bytes(last.auth_bytes))
        return last

    async def log_in(self) -> None:
        await self.handshake()
        assert (await self.token(ALICE)).error_code == 0

    async def is_closed(self) -> bool:
        return await self.client.is_closed()


def play(script: Callable[[Talk, Node], Any], **changes: str) -> None:
    async def test() -> None:
        async with sasl_node(**changes) as served:
            await script(Talk(await served.client()), served)

    run(test)


# Success


def test_api_versions_handshake_and_a_password_open_the_connection() -> None:
    async def script(talk: Talk, served: Node) -> None:
        assert await talk.api_versions() == 0
        assert await talk.handshake() == m.SaslHandshakeResponse(mechanisms=MECHANISMS)
        assert await talk.token(ALICE) == m.SaslAuthenticateResponse(session_lifetime_ms=0)
        # Handlers get the principal of the request.
        assert await talk.heartbeat() == len("alice")
        assert await talk.api_versions() == 0
        assert served.services.metrics.successful_authentications == 1
        assert served.services.metrics.failed_authentications == 0

    play(script)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_every_version_of_the_token_request(version: int) -> None:
    async def script(talk: Talk, served: Node) -> None:
        await talk.handshake()
        assert (await talk.token(ALICE, version)).error_code == 0
        assert await talk.heartbeat() == 5

    play(script)


def test_the_first_version_of_the_handshake_is_followed_by_bare_tokens() -> None:
    async def script(talk: Talk, served: Node) -> None:
        await talk.handshake(version=0)
        assert await talk.raw_token(ALICE) == b""
        assert await talk.heartbeat() == 5
        other = Talk(await served.client())
        await other.handshake(version=0)
        other.client.send_bytes(b"\0\0\0\x08\0alice\0x")
        assert await other.is_closed()

    play(script)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram_opens_the_connection_to_who_knows_the_password(mechanism: str) -> None:
    async def script(talk: Talk, served: Node) -> None:
        await talk.handshake(mechanism)
        assert (await talk.scram(mechanism, "alice", "alice-secret")).error_code == 0
        assert await talk.heartbeat() == 5

    play(script)


def test_an_unknown_version_of_api_versions_is_answered_before_authentication_too() -> None:
    async def script(talk: Talk, served: Node) -> None:
        talk.client.send_bytes(struct.pack(">ihhih", 12, 18, 99, 7, 1) + b"t\0")
        _, answer = await talk.client.answer(m.ApiVersionsResponse, 0)
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        await talk.log_in()

    play(script)


def test_larger_frames_may_come_after_success_only() -> None:
    async def script(talk: Talk, served: Node) -> None:
        await talk.log_in()
        assert (await talk.ask(heartbeat_request(30_000), 4, m.HeartbeatResponse)).error_code == 5
        other = Talk(await served.client())
        other.client.send_bytes(struct.pack(">i", 1001))
        assert await other.is_closed()
        assert served.services.metrics.malformed_frames == 1

    play(script, sasl_server_max_receive_size="1000")


# Failure


@pytest.mark.parametrize(
    ("mechanism", "token", "message"),
    [
        ("PLAIN", b"\0alice\0x", "Authentication failed: Invalid username or password"),
        ("PLAIN", b"\0nobody\0x", "Authentication failed: Invalid username or password"),
        ("PLAIN", b"\0\0x", "Authentication failed: username not specified"),
        ("PLAIN", b"\0alice\0", "Authentication failed: password not specified"),
        ("PLAIN", b"alice\0x", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        ("PLAIN", b"\0alice\0x\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        ("PLAIN", b"\0\xff\0\xff", "Authentication failed: Invalid username or password"),
        (
            "PLAIN",
            b"bob" + ALICE,
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
        (
            "SCRAM-SHA-256",
            b"n,a=bob,n=alice,r=abc",
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
        *(
            (
                "SCRAM-SHA-256",
                token,
                "Authentication failed during authentication due to invalid credentials"
                " with SASL mechanism SCRAM-SHA-256",
            )
            for token in (b"hello", b"", b"n,,n=nobody,r=abc")
        ),
    ],
)
def test_a_failed_token_is_told_in_kafkas_words_and_closes(mechanism: str, token: bytes, message: str) -> None:
    async def script(talk: Talk, served: Node) -> None:
        await talk.handshake(mechanism)
        expected = m.SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=message)
        assert await talk.token(token) == expected
        assert await talk.is_closed()
        assert served.services.metrics.failed_authentications == 1

    play(script)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_wrong_scram_password_and_an_unknown_user_are_told_the_same(mechanism: str) -> None:
    async def script(talk: Talk, served: Node) -> None:
        await talk.handshake(mechanism)
        wrong = await talk.scram(mechanism, "alice", "x")
        assert wrong.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert await talk.is_closed()
        other = Talk(await served.client())
        await other.handshake(mechanism)
        assert await other.scram(mechanism, "nobody", "x") == wrong

    play(script)


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("mechanism", ["GSSAPI", "plain", ""])
def test_a_mechanism_that_is_not_enabled_is_told_those_that_are(mechanism: str, version: int) -> None:
    async def script(talk: Talk, served: Node) -> None:
        answer = await talk.handshake(mechanism, version)
        assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert answer.mechanisms == MECHANISMS
        assert await talk.is_closed()

    play(script)


@pytest.mark.parametrize(
    "requests",
    [
        [(heartbeat_request(1), 4)],
        [(API_VERSIONS, 3), (heartbeat_request(1), 4)],
        [(API_VERSIONS, 3), (API_VERSIONS, 3)],
        [(m.SaslAuthenticateRequest(auth_bytes=ALICE), 2)],
    ],
)
def test_what_comes_out_of_order_before_the_handshake_is_closed_without_an_answer(
    requests: list[tuple[Message, int]],
) -> None:
    async def script(talk: Talk, served: Node) -> None:
        for request, version in requests[:-1]:
            await talk.ask(request, version, m.ApiVersionsResponse)
        talk.client.send(*requests[-1], 9)
        assert await talk.is_closed()

    play(script)


@pytest.mark.parametrize(
    ("request_", "version", "response"),
    [
        (heartbeat_request(1), 4, m.HeartbeatResponse),
        (API_VERSIONS, 3, m.ApiVersionsResponse),
        (m.SaslHandshakeRequest(mechanism="PLAIN"), 1, m.SaslHandshakeResponse),
    ],
)
def test_what_comes_between_handshake_and_token_is_told_illegal_sasl_state_and_closed(
    request_: Message, version: int, response: type[Message]
) -> None:
    async def script(talk: Talk, served: Node) -> None:
        await talk.handshake()
        assert (await talk.ask(request_, version, response)).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert await talk.is_closed()

    play(script)


def test_nothing_is_served_after_a_failure_however_much_is_sent_with_it() -> None:
    async def script(talk: Talk, served: Node) -> None:
        await talk.handshake()
        for number, token in enumerate((b"\0alice\0x", ALICE)):
            talk.client.send(m.SaslAuthenticateRequest(auth_bytes=token), 2, number)
        talk.client.send(heartbeat_request(1), 4, 3)
        _, answer = await talk.client.answer(m.SaslAuthenticateResponse, 2)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert await talk.is_closed()
        assert served.services.metrics.requests.keys() == set()

    play(script)


def test_the_answer_to_a_failure_waits_for_its_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    delays_ms: list[float] = []
    call_later = tasks.call_later

    def noted(delay_ms: float, callback: Callable[[], object]) -> tasks.TimerHandle:
        delays_ms.append(delay_ms)
        return call_later(delay_ms, callback)

    monkeypatch.setattr(tasks, "call_later", noted)

    async def script(talk: Talk, served: Node) -> None:
        await talk.handshake()
        delays_ms.clear()
        await talk.token(b"\0alice\0x")
        assert delays_ms == [123]

    play(script, connection_failed_authentication_delay_ms="123")


def test_who_does_not_authenticate_in_time_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_connection, "LOGIN_MS_MAX", 50)

    async def script(talk: Talk, served: Node) -> None:
        await talk.handshake()
        assert await talk.is_closed()
        assert served.services.metrics.failed_authentications == 1

    play(script)


def test_who_has_authenticated_is_not_closed_after_that_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_connection, "LOGIN_MS_MAX", 200)

    async def script(talk: Talk, served: Node) -> None:
        await talk.log_in()
        await asyncio.sleep(0.4)
        assert await talk.heartbeat() == 5

    play(script)


def test_the_log_names_neither_password_nor_token(caplog: pytest.LogCaptureFixture) -> None:
    async def script(talk: Talk, served: Node) -> None:
        await talk.handshake()
        await talk.token(b"\0alice\0my-wrong-secret")

    play(script)
    assert "authentication with PLAIN failed: wrong name or password" in caplog.text
    assert "secret" not in caplog.text


# After success


def test_without_a_lifetime_a_second_authentication_is_illegal_but_closes_nothing() -> None:
    async def script(talk: Talk, served: Node) -> None:
        await talk.log_in()
        assert await talk.handshake() == m.SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
        assert (await talk.token(ALICE)).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert await talk.heartbeat() == 5

    play(script)


class LaterPorts:
    """Ports whose clock can be set forward."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ahead_ms = 0.0
        real = system_ports

        def ports() -> Ports:
            made = real()
            clock = made.clock
            ahead = self

            class Clock:
                def monotonic_ms(self) -> float:
                    return clock.monotonic_ms() + ahead.ahead_ms

                def time_ms(self) -> int:
                    return clock.time_ms()

            return replace(made, clock=Clock())

        monkeypatch.setattr("tests.unit.engine.net.node.system_ports", ports)


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> LaterPorts:
    return LaterPorts(monkeypatch)


def limited(script: Callable[[Talk, Node], Any]) -> None:
    play(script, connections_max_reauth_ms=str(LIFETIME_MS), connections_max_idle_ms="-1")


def test_the_lifetime_is_told_and_requests_after_it_close_the_connection(later: LaterPorts) -> None:
    async def script(talk: Talk, served: Node) -> None:
        await talk.handshake()
        assert (await talk.token(ALICE)).session_lifetime_ms == LIFETIME_MS
        later.ahead_ms += LIFETIME_MS * 0.9
        assert await talk.heartbeat() == 5
        later.ahead_ms += LIFETIME_MS * 0.2
        talk.client.send(heartbeat_request(1), 4, 9)
        assert await talk.is_closed()
        assert served.services.metrics.expired_connections == 1

    limited(script)


@pytest.mark.parametrize("share", [0.5, 1.5])
def test_a_later_authentication_renews_the_lifetime_also_when_it_was_over(later: LaterPorts, share: float) -> None:
    async def script(talk: Talk, served: Node) -> None:
        await talk.log_in()
        later.ahead_ms += LIFETIME_MS * share
        await talk.log_in()
        later.ahead_ms += LIFETIME_MS * 0.9
        assert await talk.heartbeat() == 5
        assert served.services.metrics.successful_authentications == 2

    limited(script)


def test_a_token_without_a_handshake_does_not_renew_it(later: LaterPorts) -> None:
    async def script(talk: Talk, served: Node) -> None:
        await talk.log_in()
        assert (await talk.token(ALICE)).error_code == ErrorCode.ILLEGAL_SASL_STATE
        later.ahead_ms += LIFETIME_MS * 1.1
        talk.client.send(m.SaslAuthenticateRequest(auth_bytes=ALICE), 2, 9)
        assert await talk.is_closed()

    limited(script)


def test_one_may_authenticate_anew_once_a_second(later: LaterPorts) -> None:
    async def script(talk: Talk, served: Node) -> None:
        await talk.log_in()
        await talk.log_in()
        assert (await talk.handshake()).error_code == ErrorCode.ILLEGAL_SASL_STATE
        later.ahead_ms += REAUTH_INTERVAL_MS
        await talk.log_in()

    limited(script)


@pytest.mark.parametrize(
    ("token", "message"),
    [
        (b"\0alice\0x", "Authentication failed: Invalid username or password"),
        (b"\0bob\0bob-secret", "Cannot change principals during re-authentication from User.alice: User.bob"),
    ],
)
def test_a_later_authentication_that_fails_ends_the_connection(later: LaterPorts, token: bytes, message: str) -> None:
    async def script(talk: Talk, served: Node) -> None:
        await talk.log_in()
        await talk.handshake()
        assert (await talk.token(token)).error_message == message
        assert await talk.is_closed()

    limited(script)


def test_another_mechanism_later_is_closed_with_its_first_token(later: LaterPorts) -> None:
    async def script(talk: Talk, served: Node) -> None:
        await talk.log_in()
        assert (await talk.handshake("SCRAM-SHA-256")).error_code == 0
        talk.client.send(m.SaslAuthenticateRequest(auth_bytes=b"n,,n=alice,r=abc"), 2, 9)
        assert await talk.is_closed()
        other = Talk(await served.client())
        await other.log_in()
        other.client.send(m.SaslHandshakeRequest(mechanism="GSSAPI"), 1, 9)
        assert await other.is_closed()

    limited(script)


def test_another_request_during_a_later_authentication_is_told_illegal_sasl_state(later: LaterPorts) -> None:
    async def script(talk: Talk, served: Node) -> None:
        await talk.log_in()
        await talk.handshake()
        assert await talk.heartbeat() == ErrorCode.ILLEGAL_SASL_STATE
        assert await talk.is_closed()

    limited(script)


# Between nodes


@asynccontextmanager
async def peer(
    port: int, mechanism: str, password: str = "alice-secret", ports: Ports | None = None
) -> AsyncIterator[PeerClient]:
    own = system_ports()
    security = PeerSecurity(sasl=SaslClientSettings(mechanism, "alice", password))
    client = PeerClient(ports or own, "127.0.0.1", port, client_id="peer", security=security)
    try:
        yield client
    finally:
        client.close()
        own.workers.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_peer_authenticates_before_its_first_request(mechanism: str) -> None:
    async def test() -> None:
        async with sasl_node() as served, peer(served.port, mechanism) as client:
            answers = await asyncio.gather(*(client.send(heartbeat_request(1), 4, timeout_ms=5000) for _ in range(20)))
            assert {getattr(answer, "error_code", None) for answer in answers} == {5}
            assert served.services.metrics.successful_authentications == 1

    run(test)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_peer_that_is_refused_says_so_and_tries_again(mechanism: str, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with sasl_node() as served, peer(served.port, mechanism, "wrong") as client:
            for _ in range(2):
                with pytest.raises(KafkaError) as raised:
                    await client.send(heartbeat_request(1), 4, timeout_ms=5000)
                assert raised.value.code is ErrorCode.NETWORK_EXCEPTION
                assert "authentication as alice failed: Authentication failed" in raised.value.message
            assert served.services.metrics.failed_authentications == 2

    run(test)
    assert "wrong" not in caplog.text.replace("wrong name or password", "").replace("proof is wrong", "")


def test_a_peer_authenticates_anew_on_the_same_connection_before_its_time_is_over(later: LaterPorts) -> None:
    async def test() -> None:
        settings = {"connections_max_reauth_ms": str(LIFETIME_MS), "connections_max_idle_ms": "-1"}
        async with (
            sasl_node(**settings) as served,
            peer(served.port, "SCRAM-SHA-256", ports=served.services.ports) as it,
        ):
            metrics = served.services.metrics
            for round in range(1, 4):
                answers = await asyncio.gather(*(it.send(heartbeat_request(1), 4, timeout_ms=5000) for _ in range(5)))
                assert {getattr(answer, "error_code", None) for answer in answers} == {5}
                assert metrics.successful_authentications == round
                later.ahead_ms += LIFETIME_MS * 0.96
            assert metrics.open_connections == 1

    run(test)
