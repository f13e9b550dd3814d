"""Settings of every test run."""

from __future__ import annotations

import logging

# Both clients tell every connection and rebalance; a failing test shows what the brokers logged instead.
for noisy in ("aiokafka", "kafka"):
    logging.getLogger(noisy).setLevel(logging.WARNING)
