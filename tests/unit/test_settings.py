"""What settings of `ebbline up` take, and how they refuse."""

from __future__ import annotations

import pytest

from backend.settings import Settings, check_public_url


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("https://ebbline.example.org", "https://ebbline.example.org"),
        ("https://example.org/ops/", "https://example.org/ops"),
        ("http://localhost:9000", "http://localhost:9000"),
        ("http://[::1]:9000/", "http://[::1]:9000"),
    ],
)
def test_a_public_address_is_one_that_a_browser_can_keep_a_session_with(url: str, kept: str) -> None:
    assert check_public_url(url) == kept
    assert Settings(public_url=url).dashboard_url == kept


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.org",
        "ftp://example.org",
        "https://",
        "https://user:secret@example.org",
        "https://example.org:0",
        "https://example.org:99999",
        "https://example.org:x",
        "https://example.org/?a=b",
        "https://example.org/#a",
        "https://exa mple.org/\n",
        "http://example.org",
        "https://[::1",
    ],
)
def test_what_is_no_such_address_is_refused(url: str) -> None:
    with pytest.raises(ValueError):
        check_public_url(url)
