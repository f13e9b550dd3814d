"""TLS under the frames: whole conversations, keys in every form, and what ends a handshake."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from pathlib import Path
from typing import Any

import pytest

from backend.engine.ports.network import Connection
from backend.engine.ports.socket_network import SocketNetwork, SocketServer
from backend.engine.ports.tls import ClientTls, KeyStore, ServerTls, TlsSettings, TlsSettingsError
from backend.engine.ports.tls_connection import TlsFailed
from tests.certificates import KEY_PASSWORD, STORE_PASSWORD, Authority, Identity

AUTHORITY = Authority()
BROKER = AUTHORITY.identity("broker")


def pem_store(identity: Identity) -> KeyStore:
    return KeyStore(setting="ssl.keystore", type="PEM", certificates=identity.certificate_pem, key=identity.key_pem)


def trusting(authority: Authority | None) -> KeyStore:
    return KeyStore(setting="ssl.truststore", type="PEM", certificates=None if authority is None else authority.pem)


def settings(key: KeyStore, trust: KeyStore | None = None, **more: Any) -> TlsSettings:
    return TlsSettings(owner="Listener SSL", key_store=key, trust_store=trust or trusting(AUTHORITY), **more)


NO_KEY = KeyStore(setting="ssl.keystore")
SERVER = settings(pem_store(BROKER))
CLIENT = settings(NO_KEY)


class Side:
    """One end, which records the bytes it receives and sends given responses."""

    def __init__(self, connection: Connection, echo: bool) -> None:
        self.connection = connection
        self.echo = echo
        self.frames: asyncio.Queue[bytes] = asyncio.Queue()
        self.closed: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()

    def on_frame(self, frame: bytearray) -> None:
        if self.echo:
            self.connection.send([len(frame).to_bytes(4, "big"), frame])
        else:
            self.frames.put_nowait(bytes(frame))

    def on_closed(self, error: BaseException | None) -> None:
        self.closed.set_result(error)


class Lab:
    """A TLS server that echoes, and clients of it."""

    def __init__(self, tls: TlsSettings) -> None:
        self.served: list[Side] = []
        self._server: SocketServer = SocketNetwork().listen("127.0.0.1", 0, self._accept, transport=ServerTls(tls))
        self._server.start()

    def _accept(self, connection: Connection) -> Side:
        self.served.append(Side(connection, echo=True))
        return self.served[-1]

    @property
    def port(self) -> int:
        return self._server.port

    async def connect(self, tls: TlsSettings, host: str = "127.0.0.1") -> Side:
        made: list[Side] = []

        def handler(connection: Connection) -> Side:
            made.append(Side(connection, echo=False))
            return made[0]

        await SocketNetwork().connect(
            host, self.port, handler, timeout_ms=10_000, transport=ClientTls(tls).transport(host)
        )
        return made[0]

    def close(self) -> None:
        for side in self.served:
            side.connection.close()
        self._server.close()


def play(tls: TlsSettings, client: TlsSettings = CLIENT, sizes: tuple[int, ...] = (5,)) -> None:
    """Sends frames of these sizes and gets them back."""

    async def run() -> None:
        lab = Lab(tls)
        side = await lab.connect(client)
        frames = [bytes([n % 251]) * size for n, size in enumerate(sizes)]
        for frame in frames:
            side.connection.send([len(frame).to_bytes(4, "big"), frame])
        assert [await side.frames.get() for _ in frames] == frames
        side.connection.close()
        # The other side sees an end without an error.
        assert await lab.served[0].closed is None
        lab.close()

    asyncio.run(asyncio.wait_for(run(), 60))


def failing(tls: TlsSettings, client: TlsSettings, host: str = "127.0.0.1") -> tuple[BaseException, Any]:
    """Returns the errors of the client and of the server after a handshake that fails."""

    async def fail(lab: Lab) -> None:
        side = await lab.connect(client, host)
        # In TLS 1.3 the server judges the client's certificate after the client is done.
        side.connection.send([b"\0\0\0\1x"])
        raise await side.closed or ConnectionResetError("closed")

    async def run() -> tuple[BaseException, Any]:
        lab = Lab(tls)
        with pytest.raises(OSError) as raised:
            await fail(lab)
        seen = await lab.served[0].closed
        lab.close()
        return raised.value, seen

    return asyncio.run(asyncio.wait_for(run(), 60))


def test_frames_of_all_sizes_go_both_ways() -> None:
    play(SERVER, sizes=(0, 1, 3, 16_383, 16_384, 16_385, 70_000, 1, 5_000_000, 2))


def test_a_thousand_small_frames_at_once() -> None:
    play(SERVER, sizes=(100,) * 1000)


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_both_versions_of_tls(version: str) -> None:
    play(settings(pem_store(BROKER), protocols=(version,)), sizes=(10, 100_000, 1))


def test_versions_without_one_in_common_fail() -> None:
    client, server = failing(
        settings(pem_store(BROKER), protocols=("TLSv1.3",)), settings(NO_KEY, protocols=("TLSv1.2",))
    )
    assert isinstance(client, TlsFailed)
    assert isinstance(server, TlsFailed)


def test_a_slow_reader_gets_everything_in_order() -> None:
    async def run() -> None:
        lab = Lab(SERVER)
        side = await lab.connect(CLIENT)
        side.connection.pause_reading()
        frames = [bytes([n]) * 1_000_000 for n in range(15)]
        for frame in frames:
            side.connection.send([len(frame).to_bytes(4, "big"), frame])
        # All of it waits on this side's pause, decrypted or not.
        while lab.served == [] or not lab.served[0].connection.output_bytes:
            await asyncio.sleep(0.01)
        side.connection.resume_reading()
        for frame in frames:
            assert await side.frames.get() == frame
        side.connection.close()
        lab.close()

    asyncio.run(asyncio.wait_for(run(), 60))


def test_what_is_queued_goes_out_before_the_end() -> None:
    async def run() -> None:
        lab = Lab(SERVER)
        side = await lab.connect(CLIENT)
        side.connection.send([b"\0\0\0\1a"])
        assert await side.frames.get() == b"a"
        frame = b"z" * 10_000_000
        lab.served[0].connection.send([len(frame).to_bytes(4, "big"), frame])
        lab.served[0].connection.close_after_flush()
        assert await side.frames.get() == frame
        assert await side.closed is None
        lab.close()

    asyncio.run(asyncio.wait_for(run(), 60))


# Keys


def test_a_key_file_with_a_password(tmp_path: Path) -> None:
    path = tmp_path / "broker.pem"
    path.write_text(BROKER.encrypted_key_pem + BROKER.certificate_pem)
    store = KeyStore(setting="ssl.keystore", type="PEM", location=str(path))
    play(settings(store, key_password=KEY_PASSWORD))
    with pytest.raises(TlsSettingsError, match=r"^Listener SSL: .*ssl\.key\.password$"):
        ServerTls(settings(store, key_password="wrong"))
    with pytest.raises(TlsSettingsError, match="cannot be used"):
        ServerTls(settings(store))


def test_pem_text_that_lost_its_line_ends() -> None:
    store = KeyStore(
        setting="ssl.keystore",
        type="PEM",
        certificates=BROKER.certificate_pem.replace("\n", " "),
        key=BROKER.key_pem.replace("\n", " "),
    )
    play(settings(store))


@pytest.mark.parametrize("type", ["PKCS12", "JKS"])
def test_pkcs12_stores_also_under_javas_default_name(tmp_path: Path, type: str) -> None:
    location = str(BROKER.write_pkcs12(tmp_path / "broker.p12"))
    store = KeyStore(setting="ssl.keystore", type=type, location=location, password=STORE_PASSWORD)
    play(
        settings(store), settings(NO_KEY, KeyStore(setting="t", type=type, location=location, password=STORE_PASSWORD))
    )
    with pytest.raises(TlsSettingsError, match="is not its password"):
        ServerTls(settings(KeyStore(setting="ssl.keystore", type=type, location=location, password="no")))


def test_a_jks_store_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "broker.jks"
    path.write_bytes(b"\xfe\xed\xfe\xed\x00\x00\x00\x02")
    with pytest.raises(TlsSettingsError) as raised:
        ServerTls(settings(KeyStore(setting="ssl.keystore", location=str(path))))
    assert "is a JKS store, which only Java reads; convert it with keytool" in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("tls", "words"),
    [
        (settings(NO_KEY), "has no certificate"),
        (
            settings(KeyStore(setting="ssl.keystore", type="PEM", location="/no/such.pem")),
            "/no/such.pem cannot be read",
        ),
        (
            settings(KeyStore(setting="ssl.keystore", type="PEM", certificates="x", key="y")),
            "ssl.keystore.key holds no PEM",
        ),
        (settings(KeyStore(setting="ssl.keystore", type="PEM", certificates="x")), "without ssl.keystore.key"),
        (settings(pem_store(BROKER), trusting(None), client_auth="required"), "trusts nobody"),
        (
            settings(KeyStore(setting="k", type="PEM", certificates=AUTHORITY.pem, key=BROKER.key_pem)),
            "key store or trust store cannot be used: KEY_VALUES_MISMATCH",
        ),
    ],
)
def test_settings_that_cannot_be_used_say_why(tls: TlsSettings, words: str) -> None:
    with pytest.raises(TlsSettingsError) as raised:
        ServerTls(tls)
    assert words in str(raised.value)
    assert str(raised.value).startswith("Listener SSL")


def test_settings_do_not_print_their_secrets() -> None:
    shown = repr(settings(pem_store(BROKER), key_password=KEY_PASSWORD))
    assert "PRIVATE KEY" not in shown
    assert KEY_PASSWORD not in shown


# Trust


def test_another_authoritys_server_is_not_trusted() -> None:
    client, server = failing(SERVER, settings(NO_KEY, trusting(Authority("other"))))
    assert isinstance(client, TlsFailed)
    assert "CERTIFICATE_VERIFY_FAILED" in str(client)
    assert isinstance(server, TlsFailed)


def test_a_certificate_for_another_host_is_refused_unless_the_check_is_off() -> None:
    elsewhere = settings(pem_store(AUTHORITY.identity("broker", hosts=("elsewhere.example",))))
    client, _ = failing(elsewhere, CLIENT)
    assert isinstance(client, TlsFailed)
    play(elsewhere, settings(NO_KEY, check_hostname=False))


def test_a_client_certificate_is_asked_for_and_checked() -> None:
    required = settings(pem_store(BROKER), client_auth="required")
    play(required, settings(pem_store(AUTHORITY.identity("client"))))
    for client in (CLIENT, settings(pem_store(Authority("other").identity("client")))):
        _, server = failing(required, client)
        assert isinstance(server, TlsFailed)
    play(settings(pem_store(BROKER), client_auth="requested"))


# Others at the door


def test_plain_text_at_a_tls_port_is_a_failed_handshake() -> None:
    async def run() -> None:
        lab = Lab(SERVER)
        reader, writer = await asyncio.open_connection("127.0.0.1", lab.port)
        writer.write(b"\0\0\0\x10\0\x12\0\x04\0\0\0\1\0\4test\0")
        # At most an alert, which no Kafka client takes for a frame.
        with contextlib.suppress(ConnectionResetError):
            assert len(await reader.read()) < 16
        assert isinstance(await lab.served[0].closed, TlsFailed)
        writer.close()
        lab.close()

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_peer_that_only_connects_is_no_failed_handshake() -> None:
    async def run() -> None:
        lab = Lab(SERVER)
        _, writer = await asyncio.open_connection("127.0.0.1", lab.port)
        writer.close()
        while not lab.served:
            await asyncio.sleep(0.01)
        assert isinstance(await lab.served[0].closed, ConnectionResetError)
        lab.close()

    asyncio.run(asyncio.wait_for(run(), 60))


def test_other_programs_can_talk_to_it() -> None:
    async def run() -> None:
        lab = Lab(SERVER)
        context = ssl.create_default_context(cadata=AUTHORITY.pem)
        reader, writer = await asyncio.open_connection("127.0.0.1", lab.port, ssl=context)
        # The first request comes together with the end of the handshake.
        writer.write(b"\0\0\0\5hello" * 3)
        assert await reader.readexactly(27) == b"\0\0\0\5hello" * 3
        writer.close()
        assert await lab.served[0].closed is None
        lab.close()

    asyncio.run(asyncio.wait_for(run(), 60))
