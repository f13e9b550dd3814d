"""The rules of the API: all of them, and the whole table of causes."""

from __future__ import annotations

from backend.control.findings.catalogue import SLUGS
from backend.control.findings.causes import EXPLANATIONS, Link
from backend.control.http.rule_catalogue import rule_answers


def test_every_rule_is_listed_with_its_title() -> None:
    assert {rule.slug: rule.title for rule in rule_answers()} == dict(SLUGS)


def test_the_whole_table_of_causes_is_listed() -> None:
    listed = {rule.slug: rule.explains for rule in rule_answers()}
    assert sum(map(len, listed.values())) == len(EXPLANATIONS)
    for row in EXPLANATIONS:
        rules = None if row.rules is None else sorted(row.rules)
        rows = [
            (each.link, tuple(each.slugs), each.unseen_only, each.evidence_rules, each.cause_rule)
            for each in listed[row.cause]
        ]
        assert (row.link, row.consequences, row.unseen_only, rules, row.cause_rule) in rows
    (of_offline,) = listed["offline"]
    assert (of_offline.link, of_offline.slugs) == (Link.PARTITION, ["follower-stuck", "move-stalled"])
    assert listed["elr-off"] == []
