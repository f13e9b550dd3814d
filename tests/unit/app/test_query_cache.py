"""The query cache of the dashboard: results are read once per version, and kept while the database is away."""

from __future__ import annotations

import pytest

from app.access.identity import user_of
from app.query_cache import AGE_MS_MAX, CachedResult, QueryCache, SlidingMs


def test_a_question_is_asked_once_per_version_and_again_when_its_answer_is_old() -> None:
    query_cache, calls = QueryCache(), []

    def ask() -> int:
        calls.append(1)
        return len(calls)

    assert [query_cache.get("q", 7, 0, ask), query_cache.get("q", 7, AGE_MS_MAX, ask)] == [1, 1]
    assert query_cache.get("q", 8, AGE_MS_MAX, ask) == 2
    assert query_cache.get("q", 8, 2 * AGE_MS_MAX + 1, ask) == 3


def test_a_question_that_fails_keeps_its_last_answer() -> None:
    query_cache = QueryCache()
    query_cache.keep("q", CachedResult("old", 1, 0))

    def fail() -> str:
        raise OSError

    with pytest.raises(OSError):
        query_cache.get("q", 2, 1, fail)
    assert query_cache.last("q") == CachedResult("old", 1, 0)


def test_the_answer_unused_for_longest_goes_first() -> None:
    query_cache = QueryCache(entries_max=2)
    for question in ("a", "b"):
        query_cache.keep(question, CachedResult(question, 1, 0))
    query_cache.last("a")
    query_cache.keep("c", CachedResult("c", 1, 0))
    assert query_cache.last("b") is None
    assert query_cache.last("a") is not None


@pytest.mark.parametrize(
    ("claims", "label", "may_write"),
    [
        ({}, "local operator", True),
        ({"email": "test@example.com"}, "local operator", True),
        ({"is_logged_in": False}, "not signed in · viewer", False),
        ({"is_logged_in": True, "email": "v@example.com"}, "v@example.com · viewer", False),
        ({"is_logged_in": True, "name": "Olga", "role": "operator"}, "Olga · operator", True),
        ({"is_logged_in": True, "sub": "7", "role": "admin"}, "7 · viewer", False),
    ],
)
def test_only_the_operators_claim_or_no_sign_in_at_all_may_write(
    claims: dict[str, object], label: str, may_write: bool
) -> None:
    user = user_of(claims)
    assert (user.label, user.may_write) == (label, may_write)
    assert user.must_sign_in == (claims.get("is_logged_in") is False)


def test_a_time_that_slides_moves_in_steps_and_says_how_far_before_now_it_is() -> None:
    assert [SlidingMs.of(now_ms, 400, step_ms=100).at_ms for now_ms in (1_000, 1_099, 1_100)] == [600, 600, 700]
    assert SlidingMs.of(1_000, 400, step_ms=100).before_ms == 400
