"""Bearer tokens: made at the first start, kept as hashes, written to files that only their owner can read.

A token has 256 random bits, so one SHA-256 is enough to keep it: there is nothing to guess. ``run/operator.token`` is
for a person's shell, ``run/viewer.token`` for who only looks; ``run/app.token`` is the dashboard's and acts only for
the person it names.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, select

from backend.control.clock import now_ms
from backend.control.database import Database
from backend.store import tables as t
from backend.store.writes import upsert

TOKEN_BYTES: Final = 32
# A revoked token works this much longer; a request costs no database read meanwhile.
CACHE_S: Final = 5.0


class TokenRole(StrEnum):
    """What a token may do by itself. APP acts for the person whom the dashboard names."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    APP = "app"


@dataclass(frozen=True, slots=True)
class KnownToken:
    """A token as it is stored."""

    name: str
    role: TokenRole


FIRST_START: Final = (
    KnownToken("operator", TokenRole.OPERATOR),
    KnownToken("viewer", TokenRole.VIEWER),
    KnownToken("app", TokenRole.APP),
)


def hash_of(token: str) -> str:
    """What is kept of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


class Tokens:
    """The tokens of one cluster, remembered for a few seconds."""

    def __init__(self, database: Database, cluster_id: str) -> None:
        self._database = database
        self._cluster_id = cluster_id
        self._known: dict[str, KnownToken] = {}
        self._read_s = float("-inf")

    async def find(self, token: str) -> KnownToken | None:
        """The token, if it is one of ours. Raises DatabaseAway."""
        if time.monotonic() - self._read_s > CACHE_S:
            self._known = await self._database.read(self._read)
            self._read_s = time.monotonic()
        # A dictionary keyed by the hash: what a caller can vary is not what is compared.
        return self._known.get(hash_of(token))

    def _read(self, connection: Connection) -> dict[str, KnownToken]:
        table = t.api_token
        rows = connection.execute(
            select(table.c.hash, table.c.name, table.c.role).where(table.c.cluster_id == self._cluster_id)
        )
        return {row.hash: KnownToken(row.name, TokenRole(row.role)) for row in rows}

    async def prepare(self, run_dir: Path, wanted: Sequence[KnownToken] = FIRST_START) -> None:
        """Makes missing token files and stores the hashes of all. Raises OSError, DatabaseAway."""
        run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        rows = [
            {
                "cluster_id": self._cluster_id,
                "name": token.name,
                "role": token.role.value,
                "hash": hash_of(_file_token(run_dir / f"{token.name}.token")),
                "created_ms": now_ms(),
            }
            for token in wanted
        ]
        await self._database.write(lambda c: upsert(c, t.api_token, rows, keep=["created_ms"]))
        self._read_s = float("-inf")


def _file_token(path: Path) -> str:
    """The token in the file; a new one when there is no file, or an empty one."""
    try:
        found = path.read_text().strip()
    except FileNotFoundError:
        found = ""
    if found:
        path.chmod(0o600)
        return found
    token = secrets.token_urlsafe(TOKEN_BYTES)
    temporary = path.with_suffix(".tmp")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(token + "\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    return token
