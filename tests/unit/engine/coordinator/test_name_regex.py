"""Regular expressions over topic names agree with Python's where both have a meaning, and cost little."""

from __future__ import annotations

import re

import pytest

from backend.engine.coordinator.name_regex import PATTERN_CHARS_MAX, NameRegex, RegexError, check_regex, matching_topics
from backend.protocol.errors import ErrorCode, KafkaError

NAMES = [
    "orders",
    "Orders",
    "orders-1",
    "orders-12",
    "a.b",
    "aXb",
    "A",
    "aaa",
    "ab",
    "abab",
    "x_y",
    "foo-bar",
    "0",
    "b",
]


@pytest.mark.parametrize(
    "pattern",
    [
        "orders", "orders.*", "^orders$", r"\Aorders", r"orders-\d+", r"orders-\d", "o(rd)?ers", "(?i)orders",
        "(?i:o)rders", "a.b", r"a\.b", "[a-c.]+", "[^a]+", "[]a]+", "[a-]+", "(ab)*", "(ab){2}", "a{1,2}", "a{2,}",
        "(?:a|b)+", "a|b|", "", ".*", ".+?", r"\w+", r"\W+", r"[\d.a-b]+", r"\bfoo\b-\bbar\b", r"foo\B-bar",
        "(?P<name>a)aa", r"x\x5fy", "(a|ab)(b|ab)", "((a)|(b))*", "a?a?a?", "(?s:.)b", "(|a)+b", "x$y", "{a}", "a{,2}",
    ],
)  # fmt: skip
def test_a_whole_name_matches_as_in_python(pattern: str) -> None:
    regex, python = NameRegex(pattern), re.compile(pattern)
    assert [name for name in NAMES if regex.matches(name)] == [name for name in NAMES if python.fullmatch(name)]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        (r"\Qa.b\E", ["a.b"]),
        (r"\Qa.b", ["a.b"]),
        ("[[:alpha:]]+-[[:^digit:]]+", ["foo-bar"]),
        (r"orders\z", ["orders"]),
        ("(?<name>aa)a", ["aaa"]),
        (r"\pL+", ["orders", "Orders", "aXb", "A", "aaa", "ab", "abab", "b"]),
        (r"[\-o]rders", ["orders"]),
        (r"\s*", []),
        (r"\\Ca|ab", ["ab"]),
        (r"\Q\C\E|ab", ["ab"]),
        ("(?P<n>a)(?P<m>b)", ["ab"]),
        (r"(?P<n>a)(\(?P<n>)?b", ["ab"]),
        ("(?P<n>a)[(?P<n>b]", ["ab"]),
    ],
)
def test_what_re2_has_and_python_has_not(pattern: str, names: list[str]) -> None:
    assert [name for name in NAMES if NameRegex(pattern).matches(name)] == names


@pytest.mark.parametrize(
    "pattern",
    ["(", ")", "a)", "(a", "[a", "[z-a]", "*", "a**", "a+*", "a{2,1}", "a{1001}", r"\1", r"(a)\1", "(?=a)", "(?!a)",
     "(?<=a)", "(?<!a)", "(?>a)", "(?P=a)", "\\", r"\y", r"\p{Foo}", r"\x4", r"\xzz", "[[:what:]]", "(?i", "(?P<a+>a)",
     "(" * 501 + ")" * 500, r"\pL{19}", "(.?.?){999}(.?){999}", "a" * (PATTERN_CHARS_MAX + 1),
     "((a{50}){50}){50}", "(?P<é>a)", r"\C", r"a\Cb", "(?P<n>a)(?P<n>b)", "(?P<n>a)|(?<n>b)", r"[a\]](?P<n>a)(?P<n>b)"],
)  # fmt: skip
def test_what_re2_refuses_or_is_too_large_is_refused(pattern: str) -> None:
    with pytest.raises(RegexError):
        NameRegex(pattern)


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        (".*", ["a b", "a\tb", "été", "a/b"]),
        ("(?s:.*)", ["a b", "a\tb", "été", "a/b", "a\nb"]),
        (r"a\sb", ["a b", "a\tb", "a\nb"]),
        ("[^a]{3}", ["été"]),
        ("(?i)ÉTÉ", ["été"]),
        ("a[[:punct:]]b", ["a/b"]),
        (r"a[\t-\n]b", ["a\tb", "a\nb"]),
        (r"\W\w\W", ["été"]),
    ],
)
def test_names_of_any_characters_match_by_character_and_not_by_byte(pattern: str, names: list[str]) -> None:
    everything = ["a b", "a\tb", "été", "a/b", "a\nb"]
    regex = NameRegex(pattern)
    assert [name for name in everything if regex.matches(name)] == names


# RE2/J counts characters where RE2 counts bytes.
@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        (".{300}", ["é" * 300]),
        (".{999}", ["Ω" * 999]),
        ("[^a]{999}", ["Ω" * 999]),
        (r"\pL{9}", ["Ωé" * 4 + "b"]),
        ("a{999}b{999}c{999}", []),
    ],
)
def test_an_expression_over_any_characters_may_be_as_long_as_in_kafka(pattern: str, names: list[str]) -> None:
    everything = ["é" * 300, "Ω" * 999, "Ωé" * 4 + "b"]
    regex = NameRegex(pattern)
    assert [name for name in everything if regex.matches(name)] == names


def test_an_expression_over_topics_has_the_lower_limit() -> None:
    with pytest.raises(RegexError):
        NameRegex("a{999}b{999}c{999}", ascii_names=True)


def test_the_client_is_told_which_expression_and_why() -> None:
    with pytest.raises(KafkaError) as refused:
        check_regex("(ab")
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert refused.value.message == "SubscribedTopicRegex `(ab` is not a valid regular expression: missing closing )."


def test_an_expression_that_makes_others_backtrack_for_ever_takes_a_moment() -> None:
    # Python's own needs 2^100 steps for it; this test would not end.
    assert matching_topics("(a+)+b", ["a" * 100, "a" * 100 + "b"]) == {"a" * 100 + "b"}
    assert matching_topics("(a|a)*(a|a)*(a|a)*c", ["a" * 200]) == frozenset()


# RE2/J limits a repetition to 1,000 and has no limit of steps: Kafka takes them all.
@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        (".{1,249}", ["orders", "a-b.c"]),
        (".{250}", []),
        (".{999}", []),
        ("[^_].{0,248}", ["orders", "a-b.c"]),
        (r"\pL{2}\pL+", ["orders"]),
        (r"\p{L}+-\p{L}.c", ["a-b.c"]),
        (r"\pL{9}", []),
        ("a{999}b{999}", []),
        ("[^Ω]+", ["orders", "a-b.c"]),
        ("é|orders", ["orders"]),
        (r"[^\x{80}-\x{10FFFF}]+", ["orders", "a-b.c"]),
        (r"[a-z\x{100}]+", ["orders"]),
    ],
)
def test_an_expression_over_topics_takes_no_more_steps_than_ascii_needs(pattern: str, names: list[str]) -> None:
    check_regex(pattern)
    assert matching_topics(pattern, ["orders", "a-b.c"]) == set(names)


def test_a_stored_expression_that_cannot_be_used_matches_nothing_and_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert [matching_topics("a(", ["a"]) for _ in range(3)] == [frozenset()] * 3
    assert [record.getMessage() for record in caplog.records] == [
        "A consumer group's SubscribedTopicRegex `a(` matches no topic: missing closing )"
    ]
