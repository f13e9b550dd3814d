"""The values that settings of `ebbline up` accept, and the errors for others."""

from __future__ import annotations

import pytest

from backend.settings.settings import Settings, check_public_url, misspelt


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


def test_a_variable_that_is_nearly_a_setting_is_told_and_no_other() -> None:
    read = [f"EBBLINE_{name.upper()}" for name in Settings.model_fields]
    others = [
        "EBBLINE_TEST_TIERING",
        "EBBLINE_PIPELINE_TASKS",
        "EBBLINE_TOKEN_FILE",
        "EBBLINE_TEAM",
        "HOME",
        "EBBLINE_",
    ]
    assert misspelt([*read, *others]) == []
    assert misspelt(["EBBLINE_WEBHOK_URL", "EBBLINE_BROKER"]) == [
        "EBBLINE_BROKER is no setting and is not read. Is it EBBLINE_BROKERS?",
        "EBBLINE_WEBHOK_URL is no setting and is not read. Is it EBBLINE_WEBHOOK_URL?",
    ]
