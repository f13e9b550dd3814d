"""`.txnindex`: the aborted transactions of a segment (`TransactionIndex`, `AbortedTxn` of Kafka).

Fixed records of 34 bytes in the order of their markers. The file exists only once a transaction was aborted in the
segment.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from struct import Struct
from typing import Final

ENTRY_BYTES: Final = 34
_VERSION: Final = 0
_ENTRY: Final = Struct(">hqqqq")


@dataclass(frozen=True, slots=True)
class AbortedTxn:
    """One aborted transaction of a producer. Offsets as Kafka stores them: `last_offset` is the ABORT marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int  # right after this transaction was completed

    def encode(self) -> bytes:
        return _ENTRY.pack(_VERSION, self.producer_id, self.first_offset, self.last_offset, self.last_stable_offset)


def decode_txn_index(data: bytes | memoryview) -> list[AbortedTxn]:
    """All entries; ValueError when the bytes cannot be a transaction index."""
    if len(data) % ENTRY_BYTES:
        raise ValueError(f"the transaction index has {len(data)} bytes, which is no multiple of {ENTRY_BYTES}")
    aborted: list[AbortedTxn] = []
    for version, producer_id, first, last, stable in _ENTRY.iter_unpack(data):
        if version != _VERSION or last < first:
            raise ValueError(f"the transaction index has an impossible entry {len(aborted)} (version {version})")
        aborted.append(AbortedTxn(producer_id, first, last, stable))
    return aborted


def search_aborted(entries: Iterable[AbortedTxn], start_offset: int, upper_bound: int) -> tuple[list[AbortedTxn], bool]:
    """Transactions that overlap `[start_offset, upper_bound)`, and whether later segments cannot add any."""
    aborted: list[AbortedTxn] = []
    for entry in entries:
        if entry.last_offset >= start_offset and entry.first_offset < upper_bound:
            aborted.append(entry)
        if entry.last_stable_offset >= upper_bound:
            return aborted, True
    return aborted, False
