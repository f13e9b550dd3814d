"""A broker that is none: what it says ends as one line, without what a terminal would obey and without our password."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from backend.control.gateway.broker_connection import BrokerConnection
from backend.control.gateway.client_security import Security
from backend.control.gateway.gateway_errors import GatewayError, NotAuthenticated
from backend.engine.common.log_context import PrintableFormatter
from backend.protocol import messages as m
from backend.settings.settings import Settings
from backend.supervisor.checks.attach import attached_cluster_id
from backend.supervisor.checks.preflight import PreflightError
from tests.control.test_gateway import METADATA, Peer, answer, broker, request_of, serving
from tests.control.test_oauth import on_a_loop

SHAKE, AUTHENTICATE = (17, 1, 1), (36, 0, 2)
TITLE: Final = "\x1b]0;pwned\x07\x1b[2J\r\n2026 ERROR forged\u202e"
USER: Final = Security(None, "SCRAM-SHA-256", "user", "pencil")


def saying(
    *responses: m.SaslAuthenticateResponse, mechanisms: Sequence[str] = ("SCRAM-SHA-256",), code: int = 0
) -> Peer:
    """A broker that answers each SaslAuthenticate with the next of these."""

    async def then(reader: Any, writer: Any) -> None:
        header, _ = await request_of(reader)
        writer.write(answer(header, m.SaslHandshakeResponse(error_code=code, mechanisms=list(mechanisms))))
        for response in responses:
            header, _ = await request_of(reader)
            writer.write(answer(header, response))
        await reader.read()

    return broker(SHAKE, AUTHENTICATE, then=then)


@pytest.mark.parametrize(
    "peer",
    [
        saying(m.SaslAuthenticateResponse(auth_bytes=b"v=\xc3\xa9")),
        saying(m.SaslAuthenticateResponse(auth_bytes=b"\xff\xfe")),
        saying(m.SaslAuthenticateResponse(auth_bytes=b"r=x,s=!!!,i=1")),
        saying(m.SaslAuthenticateResponse(error_code=58, error_message=TITLE)),
        saying(mechanisms=[TITLE], code=33),
    ],
    ids=["no-ascii", "no-text", "no-salt", "message", "mechanisms"],
)
@on_a_loop
async def test_what_it_says_while_we_sign_in_is_one_line(peer: Peer) -> None:
    async with serving(peer) as address:
        with pytest.raises(NotAuthenticated) as refusal:
            await BrokerConnection.open(address, security=USER)
    said = str(refusal.value)
    assert said.isprintable(), said
    assert "pencil" not in said


@pytest.mark.parametrize("cluster_id", ["", "\0", TITLE, "x" * 101, "a b", "é"])
@on_a_loop
async def test_a_cluster_id_that_is_none_is_not_taken(cluster_id: str, tmp_path: Path) -> None:
    async def then(reader: Any, writer: Any) -> None:
        header, _ = await request_of(reader)
        node = m.MetadataResponse.Brokers(node_id=1, host="127.0.0.1", port=1)
        writer.write(answer(header, m.MetadataResponse(cluster_id=cluster_id, controller_id=1, brokers=[node])))
        await reader.read()

    async with serving(broker(METADATA, then=then)) as address:
        settings = Settings(data_dir=tmp_path, attach=f"{address.host}:{address.port}")
        with pytest.raises(PreflightError) as refusal:
            await asyncio.to_thread(attached_cluster_id, settings)
    assert "cluster id" in str(refusal.value)
    assert str(refusal.value).isprintable()


def test_no_error_and_no_log_line_carries_control_characters() -> None:
    assert str(GatewayError(f"The broker says {TITLE}.")).isprintable()
    formatter = PrintableFormatter("%(levelname)s: %(message)s")
    record = logging.LogRecord("x", logging.ERROR, "", 0, "it said %s", (TITLE,), None)
    line = formatter.format(record)
    assert line.isprintable()
    assert "forged" in line
