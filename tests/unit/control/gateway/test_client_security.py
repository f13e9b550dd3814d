"""Client properties, and SCRAM against the example of its standard."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from backend.control.gateway.client_security import (
    Security,
    SecurityError,
    plain_message,
    read_security,
    scram_client,
    security_of,
)
from backend.control.gateway.trust import handshake_error
from backend.protocol.scram import ScramError

SASL = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "p"}


def test_scram_answers_as_rfc_7677_says() -> None:
    scram = scram_client(Security(None, "SCRAM-SHA-256", "user", "pencil"), nonce="rOprNGfwEbeRWgbNEkqO")
    assert scram.first_message == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    server = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    assert scram.respond(server).endswith(b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    scram.check(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
    with pytest.raises(ScramError):
        scram.check(b"v=AAAATRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@pytest.mark.parametrize(
    ("server", "why"),
    [
        (b"r=other,s=AAAA,i=4096", "another client's"),
        (b"r=mine,s=AAAA,i=4096", "another client's"),
        (b"r=mine1,s=AAAA,i=1", "asks for 1 SCRAM iterations"),
        (b"r=mine1,s=AAAA,i=4095", "4096 are the least"),
        (b"r=mine1,s=AAAA,i=65537", "65536 are the most"),
        (b"r=mine1,s=AAAA,i=99999999", "are the most"),
        (b"r=mine1,s=AAAA,i=99999999999999999999", "RFC 5802"),
        (b"r=mine1,s=AAAA,i=-1", "RFC 5802"),
        (b"r=mine1,s=AAAA,i=4096.0", "RFC 5802"),
        ("r=mine1,s=AAAA,i=٤٠٩٦".encode(), "RFC 5802"),
        (b"r=mine1,s=AAAA", "RFC 5802"),
        (b"r=mine1,i=4096", "RFC 5802"),
        (b"r=mine1,s=,i=4096", "RFC 5802"),
        (b"r=mine1,s=!!!,i=4096", "RFC 5802"),
        (b"r=mine1,s=A,i=4096", "RFC 5802"),
        (b"r=mine1,s=AAA,i=4096", "RFC 5802"),
        (b"m=must,r=mine1,s=AAAA,i=4096", "RFC 5802"),
        (b"r=mine1\xe9,s=AAAA,i=4096", "RFC 5802"),
        (b"e=other-error", "RFC 5802"),
        (b"", "RFC 5802"),
        (b"," * 60_000, "RFC 5802"),
    ],
)
def test_a_broker_that_does_not_keep_to_scram_is_not_trusted(server: bytes, why: str) -> None:
    scram = scram_client(Security(None, "SCRAM-SHA-256", "user", "pencil"), nonce="mine")
    with pytest.raises(ScramError, match=why):
        scram.respond(server)


@pytest.mark.parametrize(
    ("server", "why"),
    [
        (b"v=\xc3\xa9", "did not prove"),
        (b"\xff", "did not prove"),
        (b"", "did not prove"),
        (b"v=", "did not prove"),
        (b"e=invalid-proof", "the error invalid-proof"),
        (b"e=\x1b]0;pwned\x07", "did not prove"),
    ],
)
def test_a_broker_that_does_not_know_the_password_is_not_trusted(server: bytes, why: str) -> None:
    scram = scram_client(Security(None, "SCRAM-SHA-512", "user", "pencil"), nonce="mine")
    with pytest.raises(ScramError, match="did not prove"):
        scram.check(b"v=")  # before the proof was asked for
    scram.respond(b"r=mine1,s=AAAA,i=4096,x=extension")
    with pytest.raises(ScramError, match=why):
        scram.check(server)


def test_a_file_of_properties_is_read(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("# who we are\n" + "".join(f"{name} = {value}\n" for name, value in SASL.items()))
    result = read_security(file)
    assert (result.tls, result.mechanism, plain_message(result)) == (None, "PLAIN", b"\0u\0p")
    assert "p" not in repr(result).split("object")[-1].split("at")[0]
    assert security_of({}) == Security()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"security.protocol": "KERBEROS"}, "security.protocol"),
        ({"sasl.mechanism": "GSSAPI"}, "sasl.mechanism"),
        ({"sasl.password": None}, "sasl.password"),
        ({"sasl.jaas.config": "…"}, "sasl.jaas.config"),
        (
            {"security.protocol": "SSL", "ssl.ca.location": "/no/such/file"},
            "ssl.ca.location /no/such/file .* No such file",
        ),
        (
            {"security.protocol": "SSL", "ssl.certificate.location": "/no/cert", "ssl.key.location": "/no/key"},
            "ssl.certificate.location /no/cert with ssl.key.location /no/key",
        ),
    ],
)
def test_properties_that_cannot_be_used_are_named(change: dict[str, str | None], named: str) -> None:
    given = {name: value for name, value in (SASL | change).items() if value is not None}
    with pytest.raises(SecurityError, match=named):
        security_of(given)


def test_rules_of_rfc_5280_that_other_clients_do_not_ask_for_are_not_asked_for() -> None:
    tls = security_of({"security.protocol": "SSL"}).tls
    assert tls is not None
    assert tls.verify_mode == ssl.CERT_REQUIRED
    assert tls.check_hostname
    assert not tls.verify_flags & ssl.VERIFY_X509_STRICT


def test_a_failed_handshake_is_told_with_what_is_wrong_with_the_certificate() -> None:
    refused = ssl.SSLCertVerificationError(1, "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed")
    refused.reason, refused.verify_message = "CERTIFICATE_VERIFY_FAILED", "Missing Authority Key Identifier"
    assert handshake_error(refused) == "CERTIFICATE_VERIFY_FAILED: Missing Authority Key Identifier"
    other = ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number")
    other.reason = "WRONG_VERSION_NUMBER"
    assert handshake_error(other) == "WRONG_VERSION_NUMBER"
