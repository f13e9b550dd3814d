"""The database that a URL names, and the form in which it is shown."""

from __future__ import annotations

import pytest

from backend.store.connection.database import create_engine, describe, parse_url, sqlite_file


def options(url: str) -> dict[str, object]:
    parsed = parse_url(url)
    return dict(parsed.get_dialect()().create_connect_args(parsed)[1])


def test_several_servers_are_tried_in_turn() -> None:
    url = "postgresql://u:p%40w@one:5432,two/ebb?target_session_attrs=read-write"
    assert options(url) == {
        "host": "one,two",
        "port": "5432,5432",
        "dbname": "ebb",
        "user": "u",
        "password": "p@w",
        "target_session_attrs": "read-write",
    }
    assert describe(url) == "postgresql://u:***@one:5432,two:5432/ebb"


@pytest.mark.parametrize("url", ["postgresql://u:p@one:5432/ebb", "sqlite:////a,b/c.db", "postgresql://u@/ebb?host=a"])
def test_one_server_or_a_file_stays_as_it_is(url: str) -> None:
    assert "p@" not in describe(url)
    assert parse_url(url).database in ("ebb", "/a,b/c.db")


def test_a_server_has_no_file() -> None:
    assert sqlite_file(create_engine("postgresql://u@h/ebb")) is None
