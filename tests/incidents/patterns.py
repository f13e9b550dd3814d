"""Patterns and words of expectations: `a|b` is one or the other, `{name}` a fact of the timeline."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from tests.incidents.expectations import Allowed, Expected, Incident
from tests.incidents.timeline import Key, SeenFinding

_WARNING = re.compile(r"\b(not|no|never|nothing|none|lose|loses|lost|without|instead of)\b", re.IGNORECASE)


def filled(text: str, names: Mapping[str, str]) -> str:
    """The text with its facts; one that no step gave stays as it is, and fits nothing."""
    return re.sub(r"\{(\w+)\}", lambda match: names.get(match[1], match[0]), text)


def fits(pattern: str, text: str, names: Mapping[str, str]) -> bool:
    """Whether one of the alternatives, a pattern of fnmatch, is the whole text."""
    return any(fnmatchcase(text, alternative) for alternative in filled(pattern, names).split("|"))


def lacking(words: Iterable[str], text: str, names: Mapping[str, str]) -> list[str]:
    """Words of which no alternative stands in the text, whatever its capitals and the kind of its blanks."""
    return [word for word in words if not stands(word, text, names)]


def stands(word: str, text: str, names: Mapping[str, str]) -> bool:
    """Whether one of the alternatives stands in the text; a number only as a whole number."""
    flat = _flat(text)
    return any(_stands(_flat(alternative), flat) for alternative in filled(word, names).split("|"))


def advises(word: str, action: str, names: Mapping[str, str]) -> bool:
    """Whether a part of the action has the word and is no warning, such as `an unclean election may lose records`."""
    parts = re.split(r"[.;:](?:\s|$)", f"{action} ")
    return any(stands(word, f"{part}.", names) and not _WARNING.search(part) for part in parts)


def _stands(word: str, text: str) -> bool:
    if not word[:1].isdigit():
        return word in text
    return re.search(rf"(?<![\d.,]){re.escape(word)}(?![\d]|[.,]\d)", text) is not None


def _flat(text: str) -> str:
    return " ".join(text.lower().split())


def saying(finding: SeenFinding) -> str:
    """All that a finding says but for its action."""
    return f"{finding.sentence} {finding.why}"


def is_expected(expected: Expected, pattern: str, finding: SeenFinding, names: Mapping[str, str]) -> bool:
    """Whether the finding is the one of this expectation, and stands by itself or under the right cause."""
    if not (fits(expected.slug, finding.slug, names) and fits(pattern, finding.object, names)):
        return False
    if not expected.under:
        return finding.cause is None
    return finding.cause is not None and fits(expected.under, finding.cause[0], names)


def allowances(incident: Incident, key: Key, names: Mapping[str, str]) -> list[Allowed]:
    """The allowances of an incident that speak of this finding."""
    slug, object_ = key
    return [
        allowed
        for allowed in incident.allowed
        if fits(allowed.slug, slug, names) and any(fits(pattern, object_, names) for pattern in allowed.objects)
    ]
