"""The table of causes as docs/findings.md shows it: `python -m tests.docs.cause_table` prints it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from backend.control.findings.catalogue import SLUGS
from backend.control.findings.causes import CLUSTER_AWAY, CLUSTER_FACTS, EXPLANATIONS, Explanation, Link
from backend.control.findings.finding_context import NOT_ALLOWED, READING_ENDS, THROTTLED

LINKED: Final[Mapping[Link, str]] = {
    Link.CLUSTER: "all, where the cause names no broker",
    Link.BROKER: "of the same broker, or that wait for it",
    Link.TOPIC: "of the same topic",
    Link.PARTITION: "of the same partition",
}
LIMITED: Final[Mapping[str, str]] = {
    NOT_ALLOWED: "a pipeline that may not read",
    THROTTLED: "followers that a throttle holds back",
}
CAUSE_LIMITED: Final[Mapping[str, str]] = {
    READING_ENDS: "where brokers stop at a record of the remote log's metadata",
}


def lines() -> list[str]:
    """Rows of the table in its order; the first that fits counts."""
    return ["| cause | explains | which of them |", "|---|---|---|", *map(_line, EXPLANATIONS)]


def _line(row: Explanation) -> str:
    slugs = ", ".join(f"`{slug}`" for slug in sorted(row.consequences))
    if row.cause == CLUSTER_AWAY:
        assert row.consequences == CLUSTER_FACTS
        slugs = f"all but {', '.join(f'`{slug}`' for slug in sorted(SLUGS.keys() - set(CLUSTER_FACTS)))}"
    limits = ["kept as seen last, since a right is missing"] if row.unseen_only else []
    limits += [CAUSE_LIMITED[row.cause_rule]] if row.cause_rule is not None else []
    limits += [LIMITED[rule] for rule in sorted(row.rules or ())]
    return f"| `{row.cause}` | {slugs} | {'; '.join([LINKED[row.link], *limits])} |"


if __name__ == "__main__":
    print("\n".join(lines()))
