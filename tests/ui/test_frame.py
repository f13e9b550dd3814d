"""The frame of every page: head row, roles, sign-in, links, and what it says when it cannot show anything."""

from __future__ import annotations

from typing import Any

import pytest
from streamlit.runtime.secrets import secrets_singleton

from app.components.shared.page import RANGE_LABELS
from tests.ui.conftest import Database, open_page, text_of, viewer


def test_head_row_names_page_age_brokers_cluster_and_person(healthy: Database) -> None:
    page = open_page()
    assert not page.exception
    shown = text_of(page)
    assert "Overview 412 tiered partitions in 7 topics" in shown
    assert "● Live · " in shown
    assert "✓ 6/6 brokers · metadata +" in shown
    assert page.selectbox(key="cluster").options == ["prod-eu"]
    assert page.button_group(key="range").value == "1h"


@pytest.mark.parametrize("name", list(RANGE_LABELS))
def test_range_comes_from_the_link(healthy: Database, name: str) -> None:
    page = open_page(range=name)
    assert not page.exception
    assert page.button_group(key="range").value == name
    assert f"cluster, last {RANGE_LABELS[name]}" in text_of(page)


@pytest.mark.parametrize(("key", "value"), [("range", "9y"), ("tz", "moon")])
def test_an_unknown_value_in_the_link_falls_back_to_the_default(healthy: Database, key: str, value: str) -> None:
    link: dict[str, Any] = {key: value}
    page = open_page(**link)
    assert not page.exception
    assert page.button_group(key="range").value == "1h"
    assert "412 tiered partitions in 7 topics" in text_of(page)
    if key != "tz":
        assert value in page.toast[0].value


def test_a_link_of_another_cluster_shows_nothing_of_this_one(healthy: Database) -> None:
    page = open_page("partition", cluster="elsewhere", tp="orders-7")
    assert not page.exception
    shown = text_of(page)
    assert "There is no cluster 'elsewhere' here." in shown
    assert "led by broker" not in shown
    page.button(key="open-own-cluster").click().run()
    assert not page.exception
    assert page.selectbox(key="cluster").options == ["prod-eu"]


def test_viewer_sees_the_page_and_that_it_is_read_only(healthy: Database) -> None:
    page = open_page(user=viewer())
    assert not page.exception
    assert any("vera@example.com" in note.value for note in page.markdown)
    assert any("Read-only: ask for the operator role." in note.value for note in page.markdown)


def test_where_a_sign_in_is_set_up_nothing_is_shown_without_it(healthy: Database) -> None:
    page = open_page(user={"is_logged_in": False})
    assert not page.exception
    assert "Sign in to see the cluster." in text_of(page)
    assert "412" not in text_of(page)
    assert "Sign in" in [button.label for button in page.button]


def test_a_sign_in_that_is_not_set_up_whole_says_what_is_missing(
    healthy: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets_singleton, "_secrets", {"auth": {"redirect_uri": "http://127.0.0.1:1/oauth2callback"}})
    page = open_page(user={"is_logged_in": False})
    next(button for button in page.button if button.label == "Sign in").click().run()
    assert not page.exception
    assert 'missing the "cookie_secret" key' in text_of(page).replace("&quot;", '"')
    assert "docs/security.md" in text_of(page)


def test_a_shortcut_switches_the_page_and_keeps_the_chosen_range(healthy: Database) -> None:
    page = open_page(range="6h")
    page.button(key="shortcut-partitions").click().run()
    assert not page.exception
    assert "Furthest behind" not in text_of(page)
    assert page.button_group(key="range").value == "6h"
    page.button(key="shortcut-overview").click().run()
    assert not page.exception
    assert "cluster, last 6 hours" in text_of(page)
