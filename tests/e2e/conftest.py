"""What is left to `make soak`."""

from __future__ import annotations

from tests.effort import effort

# Three JVMs of Apache Kafka take a minute to start.
collect_ignore = effort(["test_attach.py"], [])
