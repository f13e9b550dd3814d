"""Left to `make soak`: the whole matrix, which takes hours, and the disks that only root can mount."""

from __future__ import annotations

from tests.effort import effort

collect_ignore = effort(["test_embedded.py", "test_kafka.py", "test_quiet_hour.py", "test_small_disks.py"], [])
