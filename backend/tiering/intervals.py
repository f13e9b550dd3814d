"""Time slices of an interval, so that a plain index finds the intervals of a moment.

The relational interval tree (Kriegel, Pötke, Seidl: "Managing Intervals Efficiently in Object-Relational Databases",
VLDB 2000). Think of all milliseconds as a binary tree in which a number divisible by 2^k stands k levels above the odd
ones. An interval is filed under the highest number it holds (`fork_node`). A moment lies only in intervals filed under
its own ancestors (`ancestors`), 43 numbers at most: of an ancestor at or before it, those that end later; of an
ancestor after it, those that began by then.

Times are epoch milliseconds, intervals half-open, and both are brought into [1, MOMENT_MAX].
"""

from __future__ import annotations

from typing import Final

BITS: Final = 43
MOMENT_MAX: Final = (1 << BITS) - 1  # the year 2248; a broker's clock may say anything
OPEN_NODE: Final = 0
"""Where intervals without an end are filed: no interval with an end has this node."""


def moment(at_ms: int) -> int:
    """``at_ms``, or the nearest time that can be filed."""
    return min(max(at_ms, 1), MOMENT_MAX)


def fork_node(from_ms: int, to_ms: int) -> int:
    """The number with the most trailing zero bits in [from_ms, to_ms); of an empty interval ``from_ms``.

    Both must be moments, ``to_ms`` not before ``from_ms``.
    """
    last = to_ms - 1
    if last < from_ms:
        return from_ms
    level = ((from_ms - 1) ^ last).bit_length() - 1
    return last >> level << level


def ancestors(at_ms: int) -> tuple[list[int], list[int]]:
    """The nodes that may hold intervals with the moment ``at_ms``: those up to it, and those after it."""
    before: list[int] = []
    after: list[int] = []
    lowest = (at_ms & -at_ms).bit_length() - 1
    for level in range(lowest, BITS):
        node = (at_ms >> (level + 1) << (level + 1)) | (1 << level)
        (before if node <= at_ms else after).append(node)
    return before, after
