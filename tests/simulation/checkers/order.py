"""The offsets of every replica are in order: log end >= last stable offset >= local start >= log start, and of a leader
last stable offset >= remote end >= remote start; nothing that was never stable is in the remote tier.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.simulation.checkers.checker import Checker, Seen


class OffsetsInOrder(Checker):
    def step(self, replicas: Sequence[Seen]) -> None:
        for node, topic, history, replica in replicas:
            log = replica.log
            start, local_start, end = log._log_start_offset, log.local_log_start_offset, log.log_end_offset
            stable = log.last_stable_offset
            # A follower that was built from the remote tier has yet to fetch the end of a transaction that its producer
            # snapshot has open; it cannot be in sync, nor lead, before.
            low = stable if replica.is_leader else log._high_watermark
            if not (start <= local_start <= low and start <= stable <= log._high_watermark <= end):
                raise self.violated(f"broker {node}: {log.describe()}, last stable offset {stable}")
            if replica.is_leader and stable > history.stable_end:
                history.stable_end = stable
            if replica.is_leader and start > history.log_start:
                history.log_start = start
            # A new leader learns of its predecessor's last stable offset by and by; the partition has had it.
            if log._highest_remote_offset >= history.stable_end and not topic.unclean:
                raise self.violated(
                    f"broker {node}: {log.describe()}, but records were stable up to {history.stable_end} only"
                )

    def look(self) -> None:
        for _, _, _, replica in self.replicas():
            replica.log.check()
