"""A store is asked once at the start; what is wrong is said in a sentence, the reason first."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend.engine.ports.object_store import ObjectStore, open_object_store
from backend.settings.settings import Settings
from backend.supervisor.checks.preflight import PreflightError, check_remote_location
from backend.supervisor.checks.store_check import CHECK_KEY, check_store, trouble_of
from spark.remote_folder import RemoteFolder
from tests.ports import free_ports
from tests.s3_server import KEY, REGION, S3Server

LOCATION = "s3://bucket/tier"


@pytest.fixture(scope="module")
def running() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


@pytest.fixture
def server(running: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    for name in ("AWS_ALLOW_HTTP", "AWS_ENDPOINT_URL", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ENDPOINT", running.endpoint)
    monkeypatch.setenv("AWS_REGION", REGION)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEY)
    yield running
    running.refuses, running.answer = {}, ""


def said(location: str = LOCATION) -> str:
    trouble = check_store(location)
    assert trouble is not None
    return trouble.sentence


def test_a_store_that_works_is_asked_once_and_nothing_is_written(server: S3Server) -> None:
    server.requests.clear()
    assert check_store(LOCATION) is None
    assert [(method, path.split("?")[0]) for method, path in server.requests] == [("GET", f"/bucket/tier/{CHECK_KEY}")]


def test_a_plain_endpoint_needs_no_variable_in_any_process(server: S3Server) -> None:
    assert "AWS_ALLOW_HTTP" not in os.environ
    open_object_store(LOCATION).put(f"{CHECK_KEY}-written", b"x")
    assert RemoteFolder(LOCATION).partitions() == []


def test_a_bucket_that_is_not_there(server: S3Server) -> None:
    assert said("s3://nowhere/tier").startswith("The bucket or container does not exist (Server returned")


@pytest.mark.parametrize(
    ("status", "code", "begins", "names"),
    [
        (403, "InvalidAccessKeyId", "The store does not know the access key (", "AWS_ACCESS_KEY_ID"),
        (403, "SignatureDoesNotMatch", "The secret key is wrong (", "AWS_SECRET_ACCESS_KEY"),
        (400, "ExpiredToken", "The session token is wrong or has expired (", "AWS_SESSION_TOKEN"),
        (400, "AuthorizationHeaderMalformed", "The bucket is in another region (", "AWS_REGION"),
        (301, "PermanentRedirect", "The bucket is in another region (", "AWS_REGION"),
    ],
)
def test_each_refusal_says_its_reason_first_and_what_to_set(
    server: S3Server, status: int, code: str, begins: str, names: str
) -> None:
    server.refuses = {"*": status}
    server.answer = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>for this reason</Message></Error>"
    sentence = said()
    assert sentence.startswith(begins)
    assert names in sentence
    assert sentence.count("\n") == 0
    with pytest.raises(PreflightError, match=sentence[:30].replace("(", r"\(")):
        check_remote_location(Settings(remote_location=LOCATION))
    assert check_remote_location(Settings(remote_location=LOCATION), first=False) == sentence


def test_a_store_that_is_busy_or_away_is_a_warning(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.refuses = {"*": 503}
    warning = check_remote_location(Settings(remote_location=LOCATION))
    assert warning is not None
    assert warning.startswith("The store does not answer as it should (Server returned non-2xx status code: 503")
    monkeypatch.setenv("AWS_ENDPOINT", f"http://127.0.0.1:{free_ports(1)[0]}")
    warning = check_remote_location(Settings(remote_location=LOCATION))
    assert warning is not None
    assert warning.startswith("The endpoint cannot be reached (")


def test_a_denial_may_mean_no_right_to_list_and_is_a_warning(server: S3Server) -> None:
    server.refuses = {"*": 403}
    server.answer = "<?xml version='1.0'?><Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
    warning = check_remote_location(Settings(remote_location=LOCATION))
    assert warning is not None
    assert warning.startswith("The store denies access (")


def test_an_endpoint_that_is_no_address_or_is_not_allowed(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT", "localhost:9000")
    assert said().startswith("The endpoint is no address (")
    monkeypatch.setenv("AWS_ENDPOINT", server.endpoint)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "false")
    assert said().startswith("The endpoint is an http:// address (")


def test_without_a_key_that_is_said() -> None:
    text = "Generic S3 error: Error performing PUT http://169.254.169.254/latest/api/token in 1s - HTTP error: timeout"
    assert trouble_of(text, LOCATION).sentence.startswith(
        "No key is set, and this machine's cloud gives none (timeout)"
    )


def test_a_store_that_hangs_is_waited_for_a_while_and_no_secret_is_shown() -> None:
    hangs = threading.Event()

    def opened(location: str) -> ObjectStore:
        hangs.wait()
        raise OSError

    trouble = check_store("s3://key:secret@bucket/tier", timeout_s=0.05, open_store=opened)
    hangs.set()
    assert trouble is not None
    assert trouble.sentence.startswith("The store did not answer within 0.05 s: the remote tier at s3://…@bucket/tier")


def test_a_folder_is_not_asked(tmp_path: Path) -> None:
    assert check_remote_location(Settings(remote_location=str(tmp_path))) is None
    assert check_remote_location(Settings(remote_location=f"file://{tmp_path}")) is None
