"""SCRAM: the exchange of RFC 7677, section 3, byte for byte, and everything that must not be accepted."""

from __future__ import annotations

import base64

import pytest

from backend.protocol.scram import (
    ClientFirst,
    ScramClient,
    ScramCredential,
    ScramError,
    ScramServer,
    credential,
    salted_password,
)

# RFC 7677, section 3.
PASSWORD = "pencil"
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
CLIENT_NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
CLIENT_FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def scram_credential(mechanism: str, password: str = PASSWORD, iterations: int = 4096) -> ScramCredential:
    return credential(mechanism, salted_password(mechanism, password, SALT, iterations), SALT, iterations)


def server(mechanism: str = "SCRAM-SHA-256", first: bytes = CLIENT_FIRST) -> ScramServer:
    return ScramServer(mechanism, ClientFirst.parse(first), scram_credential(mechanism), SERVER_NONCE)


def test_the_exchange_of_rfc_7677_is_reproduced_byte_for_byte() -> None:
    client = ScramClient("SCRAM-SHA-256", "user", PASSWORD, CLIENT_NONCE)
    assert client.first_message == CLIENT_FIRST
    served = server()
    assert served.first_message == SERVER_FIRST
    assert client.respond(SERVER_FIRST) == CLIENT_FINAL
    assert served.finish(CLIENT_FINAL) == SERVER_FINAL
    client.check(SERVER_FINAL)


def test_the_salted_password_is_the_function_hi_of_rfc_5802() -> None:
    # Hi() is PBKDF2 with HMAC; the vector of RFC 7914, section 11, for PBKDF2-HMAC-SHA-256 with one block.
    expected = "55ac046e56e3089fec1691c22544b605f94185216dde0465e68b9d57c20dacbc"
    assert salted_password("SCRAM-SHA-256", "passwd", b"salt", 1).hex() == expected


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("username", ["user", "a,b=c", "=2C", "größe"])
def test_both_ends_agree(mechanism: str, username: str) -> None:
    client = ScramClient(mechanism, username, PASSWORD, "abc")
    first = ClientFirst.parse(client.first_message)
    assert first.username == username
    served = ScramServer(mechanism, first, scram_credential(mechanism), "def")
    client.check(served.finish(client.respond(served.first_message)))


def test_a_wrong_password_is_refused() -> None:
    client = ScramClient("SCRAM-SHA-256", "user", "pencils", CLIENT_NONCE)
    served = server()
    with pytest.raises(ScramError, match="proof is wrong"):
        served.finish(client.respond(served.first_message))


@pytest.mark.parametrize(
    ("final", "reason"),
    [
        (CLIENT_FINAL.replace(b"k0,p", b"k1,p"), "another nonce"),
        (CLIENT_FINAL.replace(b"biws", b"eSws"), "another channel binding"),
        (CLIENT_FINAL.replace(b"p=dH", b"p=dG"), "proof is wrong"),
        (CLIENT_FINAL.replace(b"dHzb", b""), "another length"),
        (CLIENT_FINAL.replace(b"dHzb", b"dH"), "no base64"),
        (b"", "form of RFC 5802"),
        (b"\xff", "no UTF-8"),
    ],
)
def test_a_changed_final_message_is_refused(final: bytes, reason: str) -> None:
    with pytest.raises(ScramError, match=reason):
        server().finish(final)


@pytest.mark.parametrize("message", [b"", b"n,,", b"y,,n=user,r=abc", b"n,,n=us=er,r=abc", b"n,,n=user,r=", b"\xff"])
def test_what_is_no_first_message_is_refused(message: bytes) -> None:
    with pytest.raises(ScramError):
        ClientFirst.parse(message)


def test_an_authorization_id_and_extensions_are_read() -> None:
    first = ClientFirst.parse(b"n,a=other,n=user,r=abc,x=1")
    assert (first.authorization_id, first.username, first.gs2_header) == ("other", "user", "n,a=other,")


@pytest.mark.parametrize(
    ("server_first", "reason"),
    [
        (SERVER_FIRST.replace(b"r=rO", b"r=xO"), "another client's"),
        (SERVER_FIRST.replace(SERVER_NONCE.encode(), b""), "another client's"),
        (SERVER_FIRST.replace(b"4096", b"4095"), "iterations"),
        (SERVER_FIRST.replace(b"4096", b"99999999"), "iterations"),
        (b"e=other-error", "RFC 5802"),
    ],
)
def test_a_client_does_not_answer_a_server_it_cannot_trust(server_first: bytes, reason: str) -> None:
    with pytest.raises(ScramError, match=reason):
        ScramClient("SCRAM-SHA-256", "user", PASSWORD, CLIENT_NONCE).respond(server_first)


def test_a_client_finds_out_a_server_that_does_not_know_the_credential() -> None:
    client = ScramClient("SCRAM-SHA-256", "user", PASSWORD, CLIENT_NONCE)
    with pytest.raises(ScramError, match="did not prove"):
        client.check(SERVER_FINAL)
    client.respond(SERVER_FIRST)
    with pytest.raises(ScramError, match="did not prove"):
        client.check(SERVER_FINAL.replace(b"6rri", b"7rri"))


def test_a_weak_credential_is_not_used() -> None:
    with pytest.raises(ScramError, match="less than 4096"):
        ScramServer(
            "SCRAM-SHA-256", ClientFirst.parse(CLIENT_FIRST), scram_credential("SCRAM-SHA-256", iterations=100), "n"
        )


def test_a_credential_does_not_print_its_keys() -> None:
    assert repr(scram_credential("SCRAM-SHA-256")) == "ScramCredential(iterations=4096)"
