"""A PostgreSQL database that cannot be used is refused in one sentence, before anything is started on it."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest

from backend.store import migrate
from backend.store.connection.database import StoreError
from tests.databases import new_postgresql
from tests.migrations.postgresql import Server, new_database


@pytest.fixture
def role(postgresql_server: Server) -> Iterator[str]:
    name = f"role{uuid4().hex}"
    with psycopg.connect(postgresql_server.url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {name} LOGIN".encode())
        yield name


def run(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_an_encoding_that_cannot_hold_every_text_is_refused(postgresql_server: Server, encoding: str) -> None:
    name = f"e{uuid4().hex}"
    made = f"CREATE DATABASE {name} ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
    run(postgresql_server.url, made)
    url = postgresql_server.url.rsplit("/", 1)[0] + "/" + name
    for ask in (migrate.require_usable, migrate.upgrade, migrate.check):
        with pytest.raises(StoreError, match=f"its encoding is {encoding}, .* must be UTF8"):
            ask(url)


def test_a_right_that_is_missing_is_named_with_the_statement_that_gives_it(
    postgresql_server: Server, role: str
) -> None:
    url = new_database(postgresql_server.url, f"t{uuid4().hex}")
    run(url, "REVOKE CREATE ON SCHEMA public FROM PUBLIC")  # before PostgreSQL 15 everybody had it
    as_role = url.replace("postgres@", f"{role}@")
    with pytest.raises(StoreError, match="GRANT CREATE ON SCHEMA public TO"):
        migrate.require_usable(as_role)
    run(url, f"GRANT CREATE ON SCHEMA public TO {role}")
    run(url, f"REVOKE TEMPORARY ON DATABASE {url.rsplit('/', 1)[1]} FROM PUBLIC")
    with pytest.raises(StoreError, match="GRANT TEMPORARY ON DATABASE"):
        migrate.require_usable(as_role)
    run(url, f"GRANT TEMPORARY ON DATABASE {url.rsplit('/', 1)[1]} TO {role}", f"ALTER ROLE {role} SET search_path = x")
    with pytest.raises(StoreError, match="has no schema to make tables in"):
        migrate.require_usable(as_role)
    run(url, f"ALTER ROLE {role} RESET search_path")
    migrate.require_usable(as_role)
    migrate.upgrade(as_role)
    run(url, "ALTER TABLE segment OWNER TO postgres")
    with pytest.raises(StoreError, match="permission denied for table segment"):
        migrate.require_usable(as_role)
    run(url, f"GRANT ALL ON segment TO {role}")
    with pytest.raises(StoreError, match="does not own table segment"):
        migrate.require_usable(as_role)


def test_too_few_connections_are_told_with_the_number(postgresql_server: Server, role: str) -> None:
    url = new_postgresql(postgresql_server)
    run(postgresql_server.url, f"ALTER ROLE {role} CONNECTION LIMIT 4", f"ALTER ROLE {role} SUPERUSER")
    with pytest.raises(StoreError, match="allows 4 connections, and ebbline keeps 10 open and uses up to 45"):
        migrate.require_usable(url.replace("postgres@", f"{role}@"))
    run(postgresql_server.url, f"ALTER ROLE {role} CONNECTION LIMIT 10")
    migrate.require_usable(url.replace("postgres@", f"{role}@"))
