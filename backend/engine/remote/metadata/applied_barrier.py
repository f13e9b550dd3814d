"""Read-your-writes barrier: waits until this broker has read its own records of ``__remote_log_metadata`` back."""

from __future__ import annotations

from backend.engine.ports import tasks
from backend.protocol.errors import ErrorCode, KafkaError


class AppliedWaits:
    """Waits by partition of the metadata topic, each for an offset."""

    def __init__(self) -> None:
        self._waiting: dict[int, list[tuple[int, tasks.Future[None]]]] = {}

    async def wait(self, target: int, offset: int, timeout_ms: float) -> None:
        """Returns once the position has passed `offset`. Raises TimeoutError, or the error given to :meth:`fail`."""
        applied: tasks.Future[None] = tasks.future()
        self._waiting.setdefault(target, []).append((offset, applied))
        await tasks.wait_for(applied, timeout_ms)

    def reached(self, target: int, position: int) -> None:
        """Everything below the position has been applied."""
        waiting = self._waiting.get(target)
        if not waiting:
            return
        for offset, applied in waiting:
            if offset < position and not applied.done():
                applied.set_result(None)
        self._waiting[target] = [(offset, applied) for offset, applied in waiting if not applied.done()]

    def fail(self, target: int, error: KafkaError) -> None:
        """Nothing more is read of the partition."""
        for _, applied in self._waiting.pop(target, []):
            if not applied.done():
                applied.set_exception(error)

    def close(self) -> None:
        """Lets nothing wait any longer."""
        for target in list(self._waiting):
            self.fail(target, KafkaError(ErrorCode.NETWORK_EXCEPTION, "the broker is shutting down"))
