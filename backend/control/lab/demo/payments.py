"""The demo's forgotten transaction: now and then a producer leaves one open, and copying of its topic waits for it."""

from __future__ import annotations

import logging
import threading
import time
from typing import Final

from confluent_kafka import KafkaException, Producer

from backend.control.lab.demo.topics import PAYMENTS, record

TRANSACTIONAL_ID: Final = "demo-payments"
# After the history of all topics is copied; then often enough for a visitor who comes later.
BEGINS_AFTER_S: Final = 120.0
EVERY_S: Final = 1_200.0
# PAYMENTS seals a segment every 70 s. So copying has something to wait for, and the finding is open for a minute.
OPEN_S: Final = 180.0
# The coordinator ends it by itself when the demo ends before it does.
TIMEOUT_MS: Final = 300_000
ANSWER_S: Final = 30.0
# A stop waits for the abort; the backend gives all of it 10 s.
ABORT_S: Final = 3.0
_log = logging.getLogger(__name__)


class PaymentTransactions:
    """Works on a separate thread: calls of a transactional producer wait for the coordinator."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="demo-payments", daemon=True)

    def start(self) -> None:
        """Begins; once."""
        if self._thread.ident is None:
            self._thread.start()

    def stop(self) -> None:
        """Aborts what is open; waits for it."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=2 * ABORT_S)

    def _run(self) -> None:
        pause_s = BEGINS_AFTER_S
        while not self._stop.wait(pause_s):
            pause_s = EVERY_S
            try:
                self._forget_one()
            except KafkaException as error:
                _log.warning("The demo's transaction: %s; the next one comes in %.0f s", error.args[0].str(), pause_s)

    def _forget_one(self) -> None:
        """Opens a transaction, forgets it for OPEN_S, and commits it; a stop aborts it. Raises KafkaException."""
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap_servers,
                "client.id": TRANSACTIONAL_ID,
                "transactional.id": TRANSACTIONAL_ID,
                "transaction.timeout.ms": TIMEOUT_MS,
                "log_level": 0,
            }
        )
        producer.init_transactions(ANSWER_S)
        producer.begin_transaction()
        now_ms = time.time_ns() // 1_000_000
        key, value = record(PAYMENTS.records, now_ms, now_ms)
        producer.produce(PAYMENTS.name, value=value, key=key)
        producer.flush(ANSWER_S)
        if self._stop.wait(OPEN_S):
            producer.abort_transaction(ABORT_S)
        else:
            producer.commit_transaction(ANSWER_S)
