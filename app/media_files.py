"""Files that a page has made for the browser, such as a table as CSV, stay until it has had time to fetch them.

Streamlit makes such a file when its button is pressed, sends the browser its address, and removes it at the end of the
second run of any page after that: no session counts as its user. Pages with live parts run many times in a few seconds;
where the browser or the machine is slow, the file would be gone before it is asked for (404). The same with the button
itself: each run makes another one, and a press of the former one, still on the screen, would be answered "not found".
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from streamlit.runtime import Runtime
from streamlit.runtime.media_file_manager import MediaFileManager
from streamlit.runtime.media_file_storage import MediaFileKind
from streamlit.runtime.memory_media_file_storage import MemoryMediaFileStorage

# The browser asks within milliseconds; this is for a busy machine and for a slow line.
KEEP_S: Final = 60.0
# Of all files that only wait to be fetched; the largest, a table of 10,000 partitions, has some 2 MB.
KEEP_BYTES_MAX: Final = 64_000_000
# A button that was drawn again is off the screen by then. Live parts are drawn every 5 s and by each click, so two or
# three generations of a button's table are kept, of up to 2 MB each.
KEEP_BUTTON_S: Final = 5.0


class KeptDownloads(MemoryMediaFileStorage):
    """Streamlit's storage in memory, but downloads stay `KEEP_S` after Streamlit has released them.

    Older ones are removed with the next file that is made or released, and so is what exceeds `KEEP_BYTES_MAX`, the one
    that was released first before the others.
    """

    def __init__(self, media_endpoint: str, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(media_endpoint)
        self._clock = clock
        # File ids and when they were released, in that order; calls come under the lock of Streamlit's manager.
        self._released: dict[str, float] = {}

    def load_and_get_id(
        self, path_or_data: str | bytes, mimetype: str, kind: MediaFileKind, filename: str | None = None
    ) -> str:
        """As Streamlit's; a released file that is made again is in use again."""
        file_id = super().load_and_get_id(path_or_data, mimetype, kind, filename)
        self._released.pop(file_id, None)
        self._remove_old()
        return file_id

    def delete_file(self, file_id: str) -> None:
        """Releases a file."""
        file = self._files_by_id.get(file_id)
        if file is None or file.kind is not MediaFileKind.DOWNLOADABLE:
            super().delete_file(file_id)
        else:
            self._released.setdefault(file_id, self._clock())
        self._remove_old()

    def _remove_old(self) -> None:
        kept_bytes = sum(self._files_by_id[released_id].content_size for released_id in self._released)
        for file_id, since_s in list(self._released.items()):
            if since_s + KEEP_S > self._clock() and kept_bytes <= KEEP_BYTES_MAX:
                return
            kept_bytes -= self._files_by_id[file_id].content_size
            del self._released[file_id]
            super().delete_file(file_id)


class KeptButtons(MediaFileManager):
    """Streamlit's manager, but a download button that was drawn again can be pressed for `KEEP_BUTTON_S` more."""

    def __init__(self, storage: KeptDownloads, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(storage)
        self._clock = clock
        # Ids of buttons that no page has any more, and since when.
        self._replaced: dict[str, float] = {}

    def _remove_orphaned_deferred_callables(self) -> None:
        shown = {button_id for files in self._files_by_session_and_coord.values() for button_id in files.values()}
        orphans = self._deferred_callables.keys() - shown
        now_s = self._clock()
        self._replaced = {button_id: self._replaced.get(button_id, now_s) for button_id in orphans}
        for file_id, since_s in self._replaced.items():
            if since_s + KEEP_BUTTON_S <= now_s:
                self._drop_deferred_id(file_id)


def keep_downloads(runtime: Runtime) -> Runtime:
    """The same runtime with such files and buttons, before it serves anything: Streamlit has no setting for it."""
    endpoint: str = runtime.media_file_mgr._storage._media_endpoint  # type: ignore[attr-defined]
    runtime._media_file_mgr = KeptButtons(KeptDownloads(endpoint))
    return runtime
