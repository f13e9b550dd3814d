"""Parts of settings that stay hidden in messages."""

from __future__ import annotations

import pytest

from backend.runtime.redact import redact, redact_url


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("s3://bucket/prefix", "s3://bucket/prefix"),
        ("s3://KEY:SECRET@bucket/prefix", "s3://…@bucket/prefix"),
        ("postgresql://u:p@ss@host:5432/db?sslpassword=x", "postgresql://…@host:5432/db?…"),
        ("https://u:p/a@host/x#frag", "https://…@host/x?…"),
        ("u:pw@one:9092,two:9092", "…@one:9092,two:9092"),
        ("/var/lib/tier", "/var/lib/tier"),
    ],
)
def test_users_passwords_and_queries_are_hidden(text: str, shown: str) -> None:
    assert redact_url(text) == shown


def test_another_s_message_is_shown_without_what_it_repeats() -> None:
    assert redact("cannot open s3://k:s@b/", "s3://k:s@b/") == "cannot open s3://…@b/"
    assert redact("cannot open it", "") == "cannot open it"
