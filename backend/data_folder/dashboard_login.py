"""The dashboard's login: keys that are good for one sign-in, and the session that a sign-in gives to a browser.

A key is a random text of 256 bits. Its SHA-256 names a file below ``run/login``, which holds when the key ends; taking
the file away spends the key, so that it works once, whichever process asks. A session is a text that the browser keeps
as a cookie: its end and 128 random bits under an HMAC-SHA-256 of ``run/dashboard.secret``. Both folders and files can
be read by their owner alone. Removing the secret ends every session.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

from backend.runtime.private_files import write_private

KEY_BYTES: Final = 32
# A key that is printed at the start, which may scroll by for hours, and one that was asked for.
KEY_OF_START_S: Final = 24 * 3600
KEY_ASKED_FOR_S: Final = 15 * 60
# Starts and questions of one day; the oldest make room. A file is 12 bytes.
KEYS_MAX: Final = 100
# As long as a sign-in by OIDC lasts.
SESSION_S: Final = 30 * 24 * 3600
# Longer texts are of no browser that signed in here; they are not hashed.
SESSION_CHARS_MAX: Final = 200
LOGIN_PATH: Final = "login"


class DashboardLogin:
    """Keys and sessions of one data folder, by its folder ``run``."""

    def __init__(self, run_dir: Path) -> None:
        self._keys = run_dir / "login"
        self._secret = run_dir / "dashboard.secret"

    def new_key(self, now_s: float, lifetime_s: int) -> str:
        """A key for one sign-in until `now_s` + `lifetime_s` (seconds since the epoch). Raises OSError."""
        self._keys.mkdir(mode=0o700, exist_ok=True)
        self._forget_keys(now_s)
        key = secrets.token_urlsafe(KEY_BYTES)
        write_private(self._key_file(key), f"{int(now_s) + lifetime_s}\n")
        return key

    def spend(self, key: str, now_s: float) -> bool:
        """Whether `key` was good; it is not any more."""
        path = self._key_file(key)
        try:
            end_s = int(path.read_text())
            path.unlink()
        except (OSError, ValueError):
            return False
        return now_s < end_s

    def new_session(self, now_s: float) -> str:
        """The text that a browser keeps. Raises OSError."""
        session = f"{int(now_s) + SESSION_S}.{secrets.token_urlsafe(16)}"
        return f"{session}.{_signature(self._session_secret(), session)}"

    def is_session(self, text: str, now_s: float) -> bool:
        """Whether a browser that shows `text` has signed in, not too long ago."""
        session, _, signature = text.rpartition(".")
        if len(text) > SESSION_CHARS_MAX or not text.isascii():
            return False
        try:
            secret = self._session_secret()
        except OSError:
            return False
        if not hmac.compare_digest(signature.encode(), _signature(secret, session).encode()):
            return False
        return now_s < int(session.partition(".")[0])

    def end_sessions(self) -> None:
        """Every browser has to sign in again. Raises OSError."""
        self._secret.unlink(missing_ok=True)

    def _key_file(self, key: str) -> Path:
        return self._keys / hashlib.sha256(key.encode(errors="replace")).hexdigest()

    def _forget_keys(self, now_s: float) -> None:
        """Removes keys that have ended, and the oldest of too many."""
        ends: list[tuple[int, Path]] = []
        for path in self._keys.iterdir():
            try:
                ends.append((int(path.read_text()), path))
            except (OSError, ValueError):
                ends.append((0, path))
        ends.sort()
        for number, (end_s, path) in enumerate(ends):
            if end_s <= now_s or number <= len(ends) - KEYS_MAX:
                with suppress(OSError):
                    path.unlink()

    def _session_secret(self) -> bytes:
        """Read at each question: who removes the file ends all sessions at once."""
        try:
            secret = self._secret.read_bytes()
        except FileNotFoundError:
            secret = b""
        if len(secret) >= KEY_BYTES:
            return secret
        write_private(self._secret, secrets.token_urlsafe(KEY_BYTES))
        return self._secret.read_bytes()


PROVIDER_HINT: Final = "The sign-in is the OIDC provider's: `[auth]` in .streamlit/secrets.toml."


def login_url(address: str, key: str) -> str:
    """The link that signs a browser in, at the dashboard's address."""
    return f"{address}/{LOGIN_PATH}?key={key}"


def _signature(secret: bytes, session: str) -> str:
    return hmac.new(secret, session.encode(), hashlib.sha256).hexdigest()
