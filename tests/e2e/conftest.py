"""What is left to `make soak`."""

from __future__ import annotations

from tests.effort import effort

# Three JVMs of Apache Kafka take a minute to start; so does a move or a race that a browser waits for.
collect_ignore = effort(["test_attach.py", "test_journeys.py"], [])
