"""The transactions that a cleaning passes by (`CleanedTransactionMetadata` of Kafka).

Nothing past the last stable offset is cleaned, so the fate of every transaction is known when its first batch is met:
it is among the aborted ones or it was committed.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass

from backend.engine.log.segments.transaction_index import AbortedTxn
from backend.protocol.record_batches.control_records import ControlType
from backend.protocol.record_batches.record_batch import BatchHeader


@dataclass(slots=True)
class _Aborted:
    txn: AbortedTxn
    has_batches: bool = False


class CleanedTransactions:
    """Feed it every batch in the order of the log, and the aborted transactions of a range before its batches."""

    def __init__(self) -> None:
        self._ahead: list[tuple[int, int, AbortedTxn]] = []
        self._aborted: dict[int, _Aborted] = {}
        self._committed: set[int] = set()

    def add_aborted(self, transactions: Iterable[AbortedTxn]) -> None:
        """Transactions of the range that is read next; the same one twice does no harm."""
        for txn in transactions:
            heapq.heappush(self._ahead, (txn.first_offset, txn.last_offset, txn))

    def is_aborted(self, batch: BatchHeader) -> bool:
        """Takes in a data batch; whether it belongs to an aborted transaction, and may go at once."""
        self._reach(batch.last_offset)
        if not batch.is_transactional:
            return False
        aborted = self._aborted.get(batch.producer_id)
        if aborted is None:
            self._committed.add(batch.producer_id)
            return False
        aborted.has_batches = True
        return True

    def end(self, batch: BatchHeader, kind: int | None) -> tuple[bool, AbortedTxn | None]:
        """Takes in a control batch of a kind (None: emptied by an earlier cleaning).

        Whether none of its transaction's batches are left, so that it may go in time; and the transaction to note in
        the cleaned transaction index, when aborted batches are still there.
        """
        self._reach(batch.last_offset)
        if kind is None:
            return True, None
        if kind == ControlType.ABORT:
            aborted = self._aborted.pop(batch.producer_id, None)
            if aborted is not None and aborted.has_batches:
                return False, aborted.txn
            return True, None
        if kind == ControlType.COMMIT:
            left = batch.producer_id in self._committed
            self._committed.discard(batch.producer_id)
            return not left, None
        return False, None

    def _reach(self, offset: int) -> None:
        while self._ahead and self._ahead[0][0] <= offset:
            txn = heapq.heappop(self._ahead)[2]
            self._aborted.setdefault(txn.producer_id, _Aborted(txn))
