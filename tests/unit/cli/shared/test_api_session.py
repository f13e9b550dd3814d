"""The API's address, the identity, and the result of each failure: one sentence and an exit code."""

from __future__ import annotations

import socket
from pathlib import Path

import httpx
import pytest

from backend.cli.shared import api_session
from backend.cli.shared.api_session import ApiAccess, ApiError, ApiSession, Exit, find_api_access
from tests.ports import free_ports


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("EBBLINE_API_URL", "EBBLINE_TOKEN_FILE", "EBBLINE_DATA_DIR", "EBBLINE_API_PORT"):
        monkeypatch.delenv(name, raising=False)


def data_folder(path: Path, token: str = "secret") -> Path:
    (path / "run").mkdir(parents=True)
    (path / "run" / "operator.token").write_text(token + "\n")
    return path


def test_without_options_it_is_this_machines_api_with_the_operators_token(tmp_path: Path) -> None:
    data = data_folder(tmp_path / "data")
    assert find_api_access(None, None, data) == ApiAccess("http://127.0.0.1:8090", "secret")
    (data / "ebbline.toml").write_text("api_port = 8123\n")
    assert find_api_access(None, None, data).url == "http://127.0.0.1:8123"


def test_options_win_over_the_environment_and_that_over_the_data_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = data_folder(tmp_path / "data")
    for name in ("environment", "option"):
        (tmp_path / name).write_text(name)
    monkeypatch.setenv("EBBLINE_API_URL", "http://127.0.0.1:1/")
    monkeypatch.setenv("EBBLINE_TOKEN_FILE", str(tmp_path / "environment"))
    assert find_api_access(None, None, data) == ApiAccess("http://127.0.0.1:1", "environment")
    assert find_api_access("https://h:2", tmp_path / "option", data) == ApiAccess("https://h:2", "option")


@pytest.mark.parametrize(
    ("api", "token", "code", "says"),
    [
        ("ftp://h", "t", Exit.USAGE, "no address"),
        ("127.0.0.1:8090", "t", Exit.USAGE, "no address"),
        ("http://[::bad", "t", Exit.USAGE, "no address"),
        ("http://h:x", "t", Exit.USAGE, "no address"),
        (None, None, Exit.NOT_ALLOWED, "cannot be read"),
        (None, "", Exit.NOT_ALLOWED, "holds no token"),
        (None, "two\nlines", Exit.NOT_ALLOWED, "holds no token"),
        (None, "tökén", Exit.NOT_ALLOWED, "holds no token"),
    ],
)
def test_a_place_that_cannot_be_is_one_sentence(
    tmp_path: Path, api: str | None, token: str | None, code: Exit, says: str
) -> None:
    data = tmp_path / "none" if token is None else data_folder(tmp_path / "data", token)
    with pytest.raises(ApiError, match=says) as caught:
        find_api_access(api, None, data)
    assert caught.value.code is code
    assert "\n" not in str(caught.value)


def answering(status: int, **content: object) -> ApiSession:
    """The API behind a transport that gives this answer."""
    return ApiSession(
        ApiAccess("http://127.0.0.1:1", "secret"),
        transport=httpx.MockTransport(lambda _: httpx.Response(status, **content)),  # type: ignore[arg-type]  # passed on
    )


@pytest.mark.parametrize(
    ("status", "slug", "code"),
    [
        (401, "unauthenticated", Exit.NOT_ALLOWED),
        (403, "not-allowed", Exit.NOT_ALLOWED),
        (404, "not-found", Exit.NOT_FOUND),
        (409, "conflict", Exit.REFUSED),
        (422, "invalid-input", Exit.USAGE),
        (422, "not-confirmed", Exit.REFUSED),
        (429, "too-many-requests", Exit.AWAY),
        (500, "internal", Exit.AWAY),
        (503, "unavailable", Exit.AWAY),
    ],
)
def test_a_problem_of_the_api_has_its_sentence_and_an_exit_code(status: int, slug: str, code: Exit) -> None:
    body = {"type": f"urn:ebbline:problem:{slug}", "detail": "What happened.\nWhat to do."}
    with answering(status, json=body) as api, pytest.raises(ApiError) as caught:
        api.get("/v1/cluster")
    assert (str(caught.value), caught.value.code) == ("What happened. What to do.", code)


@pytest.mark.parametrize("content", [{"text": "<html>"}, {"json": []}, {"content": b"\xff"}])
@pytest.mark.parametrize("status", [200, 404, 502])
def test_what_is_no_ebbline_api_is_said_to_be_none(status: int, content: dict[str, object]) -> None:
    with answering(status, **content) as api, pytest.raises(ApiError, match="no ebbline API") as caught:
        api.get("/v1/cluster")
    assert caught.value.code is Exit.AWAY


def test_an_api_that_nobody_serves_is_one_sentence() -> None:
    (port,) = free_ports(1)
    with (
        ApiSession(ApiAccess(f"http://127.0.0.1:{port}", "secret")) as api,
        pytest.raises(ApiError, match="cannot be reached") as caught,
    ):
        api.get("/v1/cluster")
    assert caught.value.code is Exit.AWAY
    assert "secret" not in str(caught.value)


def test_a_backend_that_hangs_is_told_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system accepts connections for a process that is stopped; a plan may take longer than a read."""
    monkeypatch.setattr(api_session, "READ_TIMEOUT_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as hung:
        access = ApiAccess(f"http://127.0.0.1:{hung.getsockname()[1]}", "secret")
        with (
            ApiSession(access) as session,
            pytest.raises(ApiError, match="in time: its backend hangs") as raised,
        ):
            session.get("/v1/cluster")
    assert raised.value.code is Exit.AWAY
