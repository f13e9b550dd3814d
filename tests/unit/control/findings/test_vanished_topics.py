"""Topics that vanish: one is a change, many at once are an accident or a smaller view."""

from __future__ import annotations

from dataclasses import replace

from backend.control.findings.thresholds import DEFAULTS
from backend.control.findings.vanished_topics import REMEMBERED_MS, TopicMemory, VanishedTopics

TOGETHER_MS = round(DEFAULTS.gone_together_s * 1000)


def topics(first: int, end: int) -> dict[str, int]:
    return {f"t{number:02}": 3 for number in range(first, end)}


def test_a_few_deleted_topics_are_no_accident() -> None:
    memory = TopicMemory().next(topics(0, 30), 0).next(topics(9, 30), 1_000)
    assert memory.vanished is None
    assert memory.next(topics(9, 30), 1_000 + TOGETHER_MS).lost == {}


SMALL = {"a": 50, "b": 50, "c": 50, "d": 50, "e": 10, "f": 10, "g": 5, "h": 5, "i": 5}


def test_most_of_a_small_cluster_is_a_loss() -> None:
    gone = TopicMemory().next(SMALL, 0).next({"i": 5}, 1).vanished
    assert gone is not None
    assert (gone.topics, gone.partitions) == (8, 230)
    all_of_three = TopicMemory().next(topics(0, 3), 0).next({}, 1).vanished
    assert all_of_three is not None
    assert all_of_three.topics == 3


def test_one_or_two_that_hold_little_of_a_small_cluster_are_no_loss() -> None:
    assert TopicMemory().next(topics(0, 3), 0).next(topics(1, 3), 1).vanished is None
    assert TopicMemory().next({"big": 90, "a": 5, "b": 5}, 0).next({"a": 5, "b": 5}, 1).vanished is None, "one topic"
    assert TopicMemory().next(topics(0, 4), 0).next(topics(2, 4), 1).vanished is None, "half is not most"


def test_two_topics_with_most_of_the_partitions_are_a_loss() -> None:
    rest = {name: partitions for name, partitions in SMALL.items() if name not in "abc"}
    assert TopicMemory().next(SMALL, 0).next(rest, 1).vanished is not None
    limits = replace(DEFAULTS, gone_most_share=0.9)
    assert TopicMemory().next(SMALL, 0, limits).next(rest, 1, limits).vanished is None


def test_many_that_go_one_after_the_other_within_a_minute_are_one_loss() -> None:
    memory = TopicMemory().next(topics(0, 70), 0)
    for number in range(1, 61):
        memory = memory.next(topics(number, 70), number * 500)
    assert memory.vanished == VanishedTopics(500, 60, 180, tuple(f"t{number:02}" for number in range(10)))
    assert memory.next(topics(60, 70), TOGETHER_MS * 2).vanished is not None, "it is not over after a minute"
    assert memory.next(topics(60, 70), 30_000 + REMEMBERED_MS).vanished is None


def test_of_a_large_cluster_ten_are_no_tenth() -> None:
    assert TopicMemory().next(topics(0, 300), 0).next(topics(20, 300), 1).vanished is None
    assert TopicMemory().next(topics(0, 300), 0).next(topics(31, 300), 1).vanished is not None


def test_how_many_are_an_accident_is_a_setting() -> None:
    before, after = topics(0, 30), topics(5, 30)
    assert TopicMemory().next(before, 0).next(after, 1).vanished is None
    limits = replace(DEFAULTS, gone_topics=5.0)
    assert TopicMemory().next(before, 0, limits).next(after, 1, limits).vanished is not None
    limits = replace(DEFAULTS, gone_topics=5.0, gone_share=0.5)
    assert TopicMemory().next(before, 0, limits).next(after, 1, limits).vanished is None


def test_topics_that_come_back_were_not_lost() -> None:
    memory = TopicMemory().next(topics(0, 30), 0).next({}, 1_000)
    assert memory.vanished is not None
    assert memory.next(topics(0, 30), 2_000).vanished is None


def test_a_look_that_finds_all_as_before_makes_no_new_memory() -> None:
    memory = TopicMemory().next(topics(0, 30), 0)
    assert memory.next(topics(0, 30), 1_000) is memory
