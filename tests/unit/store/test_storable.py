"""Texts as both databases can store them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from backend.store.storable import KEY_CHARS_MAX, storable, storable_json, storable_key

STRANGE = ["\0", "a\0b", "\ud800", "\ude00x", "é\0", "x" * 40_000, "\U0001f388" * 40_000, "\0" * 501]


@pytest.mark.parametrize("text", ["", "orders-3", "é", "🎈", "␀", "\n\t\x1b\x7f", "C:\\u0000"])
def test_what_can_be_stored_stays_as_it_is(text: str) -> None:
    assert storable(text) == storable_key(text) == text
    assert json.loads(storable_json({text: [text]})) == {text: [text]}


@pytest.mark.parametrize("text", STRANGE)
def test_what_cannot_is_stored_as_what_reads_alike(text: str) -> None:
    for stored in (storable(text), storable_key(text), *json.loads(storable_json([text, {text: text}]))[1].items()):
        for part in stored if isinstance(stored, tuple) else [stored]:
            assert "\0" not in part
            part.encode()
            assert storable(part) == part
    key = storable_key(text)
    assert len(key) <= KEY_CHARS_MAX
    # As often as it comes through: from the observer to a finding to its row.
    assert storable_key(key) == key


def test_long_keys_stay_apart() -> None:
    keys = {storable_key("x" * 600 + end) for end in "abc"}
    assert len(keys) == 3


@pytest.mark.parametrize("value", [None, 1, 1.5, True, [], {}, {"a": (1, 2)}, [None, {"b": None}]])
def test_other_json_is_left_alone(value: Any) -> None:
    assert storable_json(value) == json.dumps(value)
    assert json.loads(storable_json(["\0", value])) == ["␀", json.loads(json.dumps(value))]
