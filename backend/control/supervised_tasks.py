"""Long-running tasks of the control plane: kept alive, never silent about their end."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final

PAUSE_FIRST_S: Final = 1.0
PAUSE_MAX_S: Final = 30.0
# A task that ran this long was healthy: its next failure starts with the first pause again.
HEALTHY_AFTER_S: Final = 60.0
_log = logging.getLogger(__name__)


async def keep_running(name: str, run: Callable[[], Awaitable[None]]) -> None:
    """Runs `run` again when it ends by an error, with growing pauses; ends when it is cancelled or `run` returns."""
    pause_s = PAUSE_FIRST_S
    while True:
        began_s = time.monotonic()
        try:
            await run()
            return
        except Exception:  # a task starts again after a fault of any kind
            if (task := asyncio.current_task()) is not None and task.cancelling():
                _log.exception("The task %s of the control plane failed as it was stopped", name)
                return  # its cancellation is not asked for twice: a stop would wait for ever
            _log.exception("The task %s of the control plane failed and starts again in %.0f s", name, pause_s)
        if time.monotonic() - began_s >= HEALTHY_AFTER_S:
            pause_s = PAUSE_FIRST_S
        await asyncio.sleep(pause_s)
        pause_s = min(PAUSE_MAX_S, pause_s * 2)
