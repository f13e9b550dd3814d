"""Bearer tokens: made at the first start, kept as hashes, written to files that only their owner can read.

A token has 256 random bits, so one SHA-256 is enough to keep it: there is nothing to guess. ``run/operator.token`` is
for a person's shell, ``run/viewer.token`` for who only looks; ``run/app.token`` is the dashboard's and acts only for
the person it names. More are made by `ebbline token add`, which have a name, one role and an end.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, delete, insert, select

from backend.control.control_database import Database, DatabaseAway
from backend.control.wall_clock import now_ms
from backend.runtime.private_files import write_private
from backend.store import tables as t
from backend.store.writes.cluster_rows import upsert

TOKEN_BYTES: Final = 32
# A revoked token works this much longer; a request costs no database read meanwhile.
CACHE_S: Final = 5.0
# All of them are read at once and kept: 300 bytes each.
TOKENS_MAX: Final = 1_000


class TokenRole(StrEnum):
    """Role of a token by itself. APP acts for the person whom the dashboard names."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    APP = "app"


@dataclass(frozen=True, slots=True)
class KnownToken:
    """A token as it is stored. `expires_ms`: from then on it is not taken; None: never."""

    name: str
    role: TokenRole
    expires_ms: int | None = None


FIRST_START: Final = (
    KnownToken("operator", TokenRole.OPERATOR),
    KnownToken("viewer", TokenRole.VIEWER),
    KnownToken("app", TokenRole.APP),
)


def hash_of(token: str) -> str:
    """The stored form of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


def tokens_by_hash(connection: Connection, cluster_id: str) -> dict[str, KnownToken]:
    """All tokens of a cluster, by name."""
    table = t.api_token
    rows = connection.execute(
        select(table.c.hash, table.c.name, table.c.role, table.c.expires_ms)
        .where(table.c.cluster_id == cluster_id)
        .order_by(table.c.name)
    )
    return {row.hash: KnownToken(row.name, TokenRole(row.role), row.expires_ms) for row in rows}


def add_token(connection: Connection, cluster_id: str, token: KnownToken) -> str:
    """Stores a new token and gives its text, which nobody can ask for again. Raises ValueError for a name in use."""
    names = {stored.name for stored in tokens_by_hash(connection, cluster_id).values()} | {
        stored.name for stored in FIRST_START
    }
    if token.name in names:
        raise ValueError(f"There is a token {token.name} already: withdraw it first, or choose another name.")
    if len(names) >= TOKENS_MAX:
        raise ValueError(f"There are {TOKENS_MAX} tokens already: withdraw one first.")
    text = secrets.token_urlsafe(TOKEN_BYTES)
    row = {"name": token.name, "role": token.role.value, "hash": hash_of(text), "expires_ms": token.expires_ms}
    connection.execute(insert(t.api_token).values(cluster_id=cluster_id, created_ms=now_ms(), **row))
    return text


def withdraw_token(connection: Connection, cluster_id: str, name: str) -> bool:
    """Whether there was such a token. Tokens of the first start come back with the next one."""
    table = t.api_token
    result = connection.execute(delete(table).where(table.c.cluster_id == cluster_id, table.c.name == name))
    return result.rowcount > 0


class ApiTokens:
    """The tokens of one cluster, remembered for a few seconds."""

    def __init__(self, database: Database, cluster_id: str) -> None:
        self._database = database
        self._cluster_id = cluster_id
        self._by_hash: dict[str, KnownToken] = {}
        self._of_files: list[dict[str, Any]] = []
        self._read_s = float("-inf")

    async def find(self, token_hash: str) -> KnownToken | None:
        """The token with this hash (`hash_of`), if it is one of ours.

        While the database is away, as it was read last, and before that those of the files alone. Raises DatabaseAway
        for one that is not among them.
        """
        if time.monotonic() - self._read_s > CACHE_S:
            try:
                self._by_hash = await self._database.read(self._read)
                self._read_s = time.monotonic()
            except DatabaseAway:
                if token_hash not in self._by_hash:
                    raise
        # A dictionary keyed by the hash: what a caller can vary is not what is compared.
        return self._by_hash.get(token_hash)

    def _read(self, connection: Connection) -> dict[str, KnownToken]:
        return tokens_by_hash(connection, self._cluster_id)

    def make_files(self, run_dir: Path, tokens: Sequence[KnownToken] = FIRST_START) -> None:
        """Makes missing token files; from now on all of them are known. Raises OSError."""
        run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._of_files = [
            {
                "cluster_id": self._cluster_id,
                "name": token.name,
                "role": token.role.value,
                "hash": hash_of(_file_token(run_dir / f"{token.name}.token")),
                "created_ms": now_ms(),
            }
            for token in tokens
        ]
        self._by_hash = {row["hash"]: token for row, token in zip(self._of_files, tokens, strict=True)} | self._by_hash

    def store(self, connection: Connection) -> None:
        """Stores the hashes of those in the files."""
        upsert(connection, t.api_token, self._of_files, keep=["created_ms"])
        self._read_s = float("-inf")


def _file_token(path: Path) -> str:
    """The token in the file; a new one when there is no file, or an empty one."""
    try:
        result = path.read_text().strip()
    except FileNotFoundError:
        result = ""
    if result:
        path.chmod(0o600)
        return result
    token = secrets.token_urlsafe(TOKEN_BYTES)
    write_private(path, token + "\n")
    return token
