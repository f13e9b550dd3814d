"""The Host and Origin that reach the dashboard: loopback names with its port, and the host of its public address."""

from __future__ import annotations

import pytest

from app.access.addresses import Addresses, refusal

OWN = Addresses.of(8501)
PUBLIC = Addresses.of(8501, "https://Ops.Example.org/ebbline")


def status(addresses: Addresses, **headers: str) -> int | None:
    result = refusal([(name.encode(), value.encode("latin-1")) for name, value in headers.items()], addresses)
    return None if result is None else result.status


@pytest.mark.parametrize("host", ["127.0.0.1:8501", "localhost:8501", "LocalHost:8501", "[::1]:8501"])
def test_loopback_names_with_the_own_port_are_served(host: str) -> None:
    assert status(OWN, host=host) is None
    assert status(OWN, host=host, origin=f"http://{host}") is None


@pytest.mark.parametrize(
    "host",
    [
        "evil.example:8501",
        "127.0.0.1",
        "127.0.0.1:8502",
        "localhost.:8501",
        "127.0.0.1.evil.example:8501",
        "user@127.0.0.1:8501",
        "127.0.0.1:8501,evil.example",
        "127.0.0.1:8501 ",
        "127.0.0.1:08501",
        "0.0.0.0:8501",
        "[::]:8501",
        "é:8501",
        "",
    ],
)
def test_every_other_host_is_not_this_server(host: str) -> None:
    assert status(OWN, host=host) == 421


def test_no_host_and_two_hosts_are_not_served() -> None:
    assert status(OWN) == 421
    twice = [(b"host", b"127.0.0.1:8501"), (b"host", b"127.0.0.1:8501")]
    result = refusal(twice, OWN)
    assert result is not None
    assert result.status == 421


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example:8501",
        "http://127.0.0.1:9999",
        "http://localhost:3000",
        "https://127.0.0.1:8501",
        "http://127.0.0.1",
        "null",
        "",
        "http://127.0.0.1:8501.evil.example",
    ],
)
def test_pages_of_other_origins_may_ask_nothing(origin: str) -> None:
    assert status(OWN, host="127.0.0.1:8501", origin=origin) == 403


def test_the_public_address_is_served_beside_loopback() -> None:
    assert status(PUBLIC, host="ops.example.org", origin="https://ops.example.org") is None
    assert status(PUBLIC, host="ops.example.org:443") is None
    # A proxy that names the dashboard by its own address, as nginx does by default.
    assert status(PUBLIC, host="127.0.0.1:8501", origin="https://ops.example.org") is None
    assert status(PUBLIC, host="ops.example.org:8501") == 421
    assert status(PUBLIC, host="ops.example.org", origin="http://ops.example.org") == 403
    assert status(PUBLIC, host="evil.example", origin="https://ops.example.org") == 421
    assert PUBLIC.shown == "https://Ops.Example.org/ebbline"


def test_a_tunnel_with_another_port_and_an_address_of_ipv6() -> None:
    tunnel = Addresses.of(8501, "http://localhost:9000")
    assert status(tunnel, host="localhost:9000", origin="http://localhost:9000") is None
    assert tunnel.secure_hosts == frozenset()
    six = Addresses.of(8501, "https://[2001:db8::1]:8443")
    assert status(six, host="[2001:db8::1]:8443", origin="https://[2001:db8::1]:8443") is None
    assert six.secure_hosts == {"[2001:db8::1]:8443"}


def test_each_dashboard_of_a_machine_has_a_cookie_of_its_own() -> None:
    assert Addresses.of(8501).cookie != Addresses.of(8502).cookie
