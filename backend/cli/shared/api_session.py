"""The control API as the commands use it, and where it is: every failure is one sentence and an exit code."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:
    import httpx

# httpx is imported where it is used: `ebbline up`, which has no use for it at first, would wait for it.
CONNECT_TIMEOUT_S: Final = 5.0
# Reads ask no broker, and the database for 3 s where it does not answer; 20,000 partitions take 2 s. A person who
# reads of a backend that hangs, or a cron job, does not wait for long.
READ_TIMEOUT_S: Final = 10.0
# A plan asks every broker; an execution waits up to 10 s for its effect.
ANSWER_TIMEOUT_S: Final = 40.0
SENTENCE_CHARS_MAX: Final = 500
PAGE: Final = 1_000  # of the API's lists
Json = dict[str, Any]


class Exit(IntEnum):
    """The exit codes of commands; documented in docs/cli.md."""

    OK = 0
    ATTENTION = 1  # the answer is there, and it is bad news
    USAGE = 2  # the command line cannot be used
    AWAY = 3  # the API does not answer, or not in its own words
    NOT_ALLOWED = 4  # no token, a wrong one, or not the role it takes
    NOT_FOUND = 5  # there is no such thing
    REFUSED = 6  # the API, or a check of the plan, refuses; nothing was changed
    FAILED = 7  # a change was begun and did not verify


class ApiError(Exception):
    """One sentence for people, and how the command ends."""

    def __init__(self, sentence: str, code: Exit) -> None:
        super().__init__(sentence)
        self.code = code


@dataclass(frozen=True, slots=True)
class ApiAccess:
    """Where the API is, and who asks."""

    url: str
    token: str


def find_api_access(api: str | None, token_file: Path | None, data: Path) -> ApiAccess:
    """Options, else EBBLINE_API_URL and EBBLINE_TOKEN_FILE, else what `ebbline up` uses with that data folder.

    Raises ApiError.
    """
    url = api or os.environ.get("EBBLINE_API_URL") or _local_url(data)
    if not _is_address(url):
        raise ApiError(f"{url!r} is no address of an API: give one like http://127.0.0.1:8090 with --api.", Exit.USAGE)
    named = os.environ.get("EBBLINE_TOKEN_FILE")
    path = token_file or (Path(named) if named else data / "run" / "operator.token")
    try:
        token = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        cause = getattr(error, "strerror", None) or "it is no text"
        hint = "start `ebbline up`, or name the file with --token-file or its data folder with --data"
        raise ApiError(f"The token file {path} cannot be read ({cause}): {hint}.", Exit.NOT_ALLOWED) from error
    if not token or not token.isascii() or not token.isprintable():
        raise ApiError(f"The token file {path} holds no token: name another with --token-file.", Exit.NOT_ALLOWED)
    return ApiAccess(url.rstrip("/"), token)


def _is_address(url: str) -> bool:
    import httpx

    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        return False
    return parsed.scheme in ("http", "https") and bool(parsed.host)


def _local_url(data: Path) -> str:
    """Where the folder's `ebbline up` listens; a setting that cannot be used is `up`'s to report."""
    import tomllib

    from pydantic import ValidationError

    from backend.cli.shared.beside_up import read_beside_up
    from backend.settings.kept_settings import KeptSettingsError

    try:
        return read_beside_up(data_dir=data).api_url
    except (ValidationError, KeptSettingsError, tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        text = f"The settings of {data} cannot be used, so the API's address is not known: give it with --api."
        if isinstance(error, KeptSettingsError):  # one sentence, as the others are not
            text = f"{text} {error}"
        raise ApiError(text, Exit.USAGE) from error


class ApiSession:
    """Calls of one command; a context manager."""

    def __init__(self, access: ApiAccess, *, transport: httpx.BaseTransport | None = None) -> None:
        import httpx

        self.url = access.url
        timeout = httpx.Timeout(ANSWER_TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
        headers = {"Authorization": f"Bearer {access.token}"}
        # The API is on this machine or named outright: no proxy of the environment may see the token.
        self._client = httpx.Client(
            base_url=access.url, headers=headers, timeout=timeout, trust_env=False, transport=transport
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def get(self, path: str, **query: object) -> Json:
        """The answer. None in the query is left out. Raises ApiError."""
        given = {name: _text(value) for name, value in query.items() if value is not None}
        import httpx

        timeout = httpx.Timeout(READ_TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
        return self._call("GET", path, params=given, timeout=timeout)

    def post(self, path: str, body: Mapping[str, object], headers: Mapping[str, str] | None = None) -> Json:
        """The answer. Raises ApiError."""
        return self._call("POST", path, json=dict(body), headers=dict(headers or {}))

    def delete(self, path: str) -> Json:
        """The answer. Raises ApiError."""
        return self._call("DELETE", path)

    def _call(self, method: str, path: str, **more: Any) -> Json:
        import httpx

        try:
            response = self._client.request(method, path, **more)
        except httpx.TimeoutException as error:
            text = f"The API at {self.url} did not answer in time: its backend hangs, or is very busy."
            text += " `ebbline up` restarts one that hangs for a minute; logs/backend.log of its folder may say why."
            raise ApiError(text, Exit.AWAY) from error
        except httpx.HTTPError as error:
            text = f"The API at {self.url} cannot be reached ({_cause(error)}): is `ebbline up` running there?"
            raise ApiError(text, Exit.AWAY) from error
        try:
            body = response.json()
        except ValueError:
            body = None
        if not isinstance(body, dict):
            text = f"What answers at {self.url} is no ebbline API (HTTP {response.status_code}): check --api."
            raise ApiError(text, Exit.AWAY)
        if response.is_success:
            return body
        raise problem(response.status_code, body)


def problem(status: int, body: Json) -> ApiError:
    """A refusal of the API as an error of the command."""
    sentence = " ".join(str(body.get("detail") or f"The API refused it (HTTP {status}).").split())
    codes = {401: Exit.NOT_ALLOWED, 403: Exit.NOT_ALLOWED, 404: Exit.NOT_FOUND, 422: Exit.USAGE}
    code = codes.get(status, Exit.AWAY if status >= 500 or status == 429 else Exit.REFUSED)
    if status == 422 and body.get("type") == "urn:ebbline:problem:not-confirmed":
        code = Exit.REFUSED
    return ApiError(sentence[:SENTENCE_CHARS_MAX], code)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _cause(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
