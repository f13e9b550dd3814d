"""A login key works once and until its end; a session is this folder's, whole, and ends with its secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.data_folder.dashboard_login import KEYS_MAX, SESSION_S, DashboardLogin, login_url

NOW_S = 1_000_000.0


@pytest.fixture
def login(tmp_path: Path) -> DashboardLogin:
    return DashboardLogin(tmp_path)


def test_a_key_works_once(login: DashboardLogin) -> None:
    key = login.new_key(NOW_S, 60)
    assert login.spend(key, NOW_S + 1)
    assert not login.spend(key, NOW_S + 1)


def test_a_key_ends_and_is_spent_by_trying(login: DashboardLogin) -> None:
    key = login.new_key(NOW_S, 60)
    assert not login.spend(key, NOW_S + 60)
    assert not login.spend(key, NOW_S)


@pytest.mark.parametrize("key", ["", "x", "../dashboard.secret", "\udcff", "é" * 5000])
def test_what_is_no_key_is_not_taken_and_touches_nothing(login: DashboardLogin, tmp_path: Path, key: str) -> None:
    session = login.new_session(NOW_S)
    assert not login.spend(key, NOW_S)
    assert login.is_session(session, NOW_S)


def test_keys_are_few_and_the_oldest_make_room(login: DashboardLogin, tmp_path: Path) -> None:
    keys = [login.new_key(NOW_S + number, 3600) for number in range(KEYS_MAX + 5)]
    assert len(list((tmp_path / "login").iterdir())) == KEYS_MAX
    assert not login.spend(keys[0], NOW_S)
    assert login.spend(keys[-1], NOW_S)
    login.new_key(NOW_S + 10_000, 60)
    assert len(list((tmp_path / "login").iterdir())) == 1


def test_only_the_owner_can_read_them(login: DashboardLogin, tmp_path: Path) -> None:
    login.new_key(NOW_S, 60)
    login.new_session(NOW_S)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.rglob("*") if path.is_file()} == {0o600}
    assert (tmp_path / "login").stat().st_mode & 0o777 == 0o700


def test_no_file_holds_a_key(login: DashboardLogin, tmp_path: Path) -> None:
    key = login.new_key(NOW_S, 60)
    assert not any(key in path.name or key in path.read_text() for path in tmp_path.rglob("*") if path.is_file())


def test_a_session_is_taken_until_its_end_by_every_process_of_the_folder(login: DashboardLogin, tmp_path: Path) -> None:
    session = login.new_session(NOW_S)
    assert DashboardLogin(tmp_path).is_session(session, NOW_S + SESSION_S - 1)
    assert not login.is_session(session, NOW_S + SESSION_S)


def test_a_session_of_another_folder_or_with_another_end_is_not_taken(login: DashboardLogin, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    session = login.new_session(NOW_S)
    end, rest = session.split(".", 1)
    assert not DashboardLogin(other).is_session(session, NOW_S)
    assert not login.is_session(f"{int(end) + 1}.{rest}", NOW_S)
    for text in ("", ".", "..", "a.b.c", session + "0", session[:-1], "é" * 30, "1" * 10_000):
        assert not login.is_session(text, NOW_S)


def test_all_sessions_end_at_once(login: DashboardLogin) -> None:
    session = login.new_session(NOW_S)
    login.end_sessions()
    assert not login.is_session(session, NOW_S)
    assert login.is_session(login.new_session(NOW_S), NOW_S)


def test_a_secret_that_was_cut_is_made_again(login: DashboardLogin, tmp_path: Path) -> None:
    (tmp_path / "dashboard.secret").write_text("short")
    assert login.is_session(login.new_session(NOW_S), NOW_S)
    assert len((tmp_path / "dashboard.secret").read_text()) > 40


def test_the_link_holds_the_key(login: DashboardLogin) -> None:
    assert login_url("https://example.org/ops", "k") == "https://example.org/ops/login?key=k"
