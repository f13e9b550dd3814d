"""A session that PostgreSQL gave and that cannot be set up is closed at once: nobody else would close it."""

import time
from dataclasses import replace

import psycopg
import pytest
import sqlalchemy

from backend.store.connection import postgresql
from backend.store.connection.limits import SERVING, Wait
from tests.migrations.postgresql import Server

# A limit that the server refuses when the session is set up.
REFUSED = replace(SERVING, writing=Wait(lock_ms=5_000, statement_ms=-5))


def test_a_session_that_cannot_be_set_up_is_closed(postgresql_server: Server) -> None:
    url = sqlalchemy.make_url(postgresql_server.url).set(drivername="postgresql+psycopg")
    engine = sqlalchemy.create_engine(url, connect_args=postgresql.connect_arguments("refused"))
    postgresql.listen(engine, REFUSED)
    with pytest.raises(sqlalchemy.exc.DBAPIError, match="-5") as refusal:
        engine.connect()
    # The error holds the frames that hold the connection: only its `close` can have ended the session by now.
    assert refusal.tb is not None
    with psycopg.connect(postgresql_server.url) as connection:
        query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'ebbline refused'"
        deadline = time.monotonic() + 30
        while connection.execute(query).fetchone() != (0,):
            assert time.monotonic() < deadline
