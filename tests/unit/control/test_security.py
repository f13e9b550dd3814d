"""Client properties, and SCRAM against the example of its standard."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.control.gateway.security import Scram, Security, SecurityError, plain_message, read_security, security_of

SASL = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "p"}


def test_scram_answers_as_rfc_7677_says() -> None:
    scram = Scram(Security(None, "SCRAM-SHA-256", "user", "pencil"), nonce="rOprNGfwEbeRWgbNEkqO")
    assert scram.first == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    server = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    assert scram.final(server).endswith(b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    scram.check(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
    with pytest.raises(SecurityError):
        scram.check(b"v=AAAATRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@pytest.mark.parametrize("server", [b"r=other,s=AAAA,i=4096", b"r=mine,s=AAAA,i=99999999", b"r=mine,s=AAAA"])
def test_a_broker_that_does_not_keep_to_scram_is_not_trusted(server: bytes) -> None:
    scram = Scram(Security(None, "SCRAM-SHA-256", "user", "pencil"), nonce="mine")
    with pytest.raises(SecurityError):
        scram.final(server)


def test_a_file_of_properties_is_read(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("# who we are\n" + "".join(f"{name} = {value}\n" for name, value in SASL.items()))
    found = read_security(file)
    assert (found.tls, found.mechanism, plain_message(found)) == (None, "PLAIN", b"\0u\0p")
    assert "p" not in repr(found).split("object")[-1].split("at")[0]
    assert security_of({}) == Security()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"security.protocol": "KERBEROS"}, "security.protocol"),
        ({"sasl.mechanism": "GSSAPI"}, "sasl.mechanism"),
        ({"sasl.password": None}, "sasl.password"),
        ({"sasl.jaas.config": "…"}, "sasl.jaas.config"),
        ({"security.protocol": "SSL", "ssl.ca.location": "/no/such/file"}, "certificates"),
    ],
)
def test_properties_that_cannot_be_used_are_named(change: dict[str, str | None], named: str) -> None:
    given = {name: value for name, value in (SASL | change).items() if value is not None}
    with pytest.raises(SecurityError, match=named):
        security_of(given)
