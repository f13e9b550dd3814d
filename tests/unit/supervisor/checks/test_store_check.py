"""A store is asked once at the start; what is wrong is said in a sentence, the reason first."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend.data_folder.data_folder import ClusterIdentity, DataFolder
from backend.engine.ports.object_store import ObjectStore, errors_of_a_bucket, open_object_store
from backend.settings.settings import Settings
from backend.supervisor.checks.preflight import PreflightError, check_remote_location
from backend.supervisor.checks.preparation import Refused, prepare
from backend.supervisor.checks.store_check import CHECK_KEY, check_store, diagnose_store
from spark.remote_folder import RemoteFolder, RemoteFolderError
from tests.ports import free_ports
from tests.s3_server import KEY, REGION, S3Server

LOCATION = "s3://bucket/tier"


@pytest.fixture(scope="module")
def running() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


@pytest.fixture
def server(running: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    for name in ("AWS_ALLOW_HTTP", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ENDPOINT", running.endpoint)
    monkeypatch.setenv("AWS_REGION", REGION)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEY)
    yield running
    running.refuses, running.answer = {}, ""


def refusal(location: str = LOCATION) -> str:
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
    assert refusal("s3://nowhere/tier").startswith("The bucket or container does not exist (Server returned")


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
    sentence = refusal()
    assert sentence.startswith(begins)
    assert names in sentence
    assert sentence.count("\n") == 0
    with pytest.raises(PreflightError, match=sentence[:30].replace("(", r"\(")):
        check_remote_location(Settings(remote_location=LOCATION))
    assert check_remote_location(Settings(remote_location=LOCATION), first=False) == sentence


def kept(folder: Path, location: str | None) -> Path:
    """A data folder whose last `ebbline up` ran with the remote tier at `location`."""
    (folder / "run").mkdir(exist_ok=True)
    Settings(data_dir=folder, remote_location=location or "none").keep()
    return folder


@pytest.mark.parametrize("last", [None, LOCATION, "s3://key:secret@bucket/tier"])
def test_a_new_location_with_a_certain_fault_refuses_a_later_start_too(
    server: S3Server, tmp_path: Path, last: str | None
) -> None:
    folder = kept(tmp_path, last)
    with pytest.raises(PreflightError, match="The bucket or container does not exist"):
        check_remote_location(Settings(data_dir=folder, remote_location="s3://nowhere/tier"), first=False)


@pytest.mark.parametrize("last", ["s3://nowhere/tier", "s3://key:secret@nowhere/tier"])
def test_the_kept_location_with_a_certain_fault_is_a_warning_at_a_later_start(
    server: S3Server, tmp_path: Path, last: str
) -> None:
    settings = Settings(data_dir=kept(tmp_path, last), remote_location=last)
    warning = check_remote_location(settings, first=False)
    assert warning is not None
    assert warning.startswith("The bucket or container does not exist")


def test_a_start_that_is_refused_for_its_store_keeps_the_location_before(
    server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("EBBLINE_REMOTE_LOCATION", "EBBLINE_ATTACH", "EBBLINE_DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)
    broker, controller, metrics, api = free_ports(4)
    folder = DataFolder(kept(tmp_path, LOCATION))
    folder.write_identity(ClusterIdentity(1, "AQIDBAUGBwgJCgsMDQ4PEA", "demo", 1, broker, controller, 1))
    with pytest.raises(Refused, match="The bucket or container does not exist"):
        prepare(
            Settings(
                data_dir=tmp_path,
                brokers=1,
                pipeline=False,
                ui=False,
                broker_port=broker,
                controller_port=controller,
                metrics_port=metrics,
                api_port=api,
                remote_location="s3://nowhere/tier",
            )
        )
    assert Settings(data_dir=tmp_path).remote_location == LOCATION


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
    assert refusal().startswith("The endpoint is no address (")
    monkeypatch.setenv("AWS_ENDPOINT", server.endpoint)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "false")
    assert refusal().startswith("The endpoint is an http:// address (")


def test_without_a_key_that_is_said() -> None:
    text = "Generic S3 error: Error performing PUT http://169.254.169.254/latest/api/token in 1s - HTTP error: timeout"
    assert diagnose_store(text, LOCATION).sentence.startswith(
        "No key is set, and this machine's cloud gives none (timeout)"
    )


class EmptyStore:
    """A store of another cloud that has no such object."""

    def __init__(self, location: str) -> None:
        pass

    def get(self, key: str) -> bytes:
        raise FileNotFoundError(key)


@pytest.mark.parametrize("location", ["az://container/tier", "gs://bucket/tier"])
def test_an_endpoint_of_s3_is_not_that_of_another_cloud(location: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT", "localhost:9000")
    assert check_store(location, open_store=EmptyStore) is None  # type: ignore[arg-type]


def test_the_endpoint_of_s3_alone_wins_and_may_be_plain(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", server.endpoint)
    monkeypatch.setenv("AWS_ENDPOINT", "localhost:9000")
    assert check_store(LOCATION) is None
    assert RemoteFolder(LOCATION).partitions() == []
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "localhost:9000")
    assert refusal().startswith("The endpoint is no address (AWS_ENDPOINT_URL_S3 is localhost:9000)")
    assert "give AWS_ENDPOINT_URL_S3 one" in refusal()


NO_KEY_YET = (
    "Generic S3 error: Error performing PUT http://169.254.169.254/latest/api/token in 1s"
    " - Server returned non-2xx status code: 503 Service Unavailable: ",
    "Generic S3 error: Error performing GET http://169.254.170.2/v2/credentials in 1s - HTTP error: error sending"
    " request\nkind: Connect",
    "Generic GCS error: Error performing GET http://metadata.google.internal/x in 1s - HTTP error: error sending"
    " request\nkind: Connect",
)


@pytest.mark.parametrize("text", NO_KEY_YET)
def test_a_machine_that_gives_no_key_yet_is_a_warning(text: str) -> None:
    trouble = diagnose_store(text, LOCATION)
    assert trouble.sentence.startswith("No key is set, and this machine's cloud gives none (")
    assert not trouble.certain


def test_each_cloud_has_its_own_variables() -> None:
    assert diagnose_store(NO_KEY_YET[0], "az://c/t").sentence.endswith("and AZURE_STORAGE_ACCOUNT_KEY.")
    assert diagnose_store(NO_KEY_YET[2], "gs://b/t").sentence.endswith("set GOOGLE_APPLICATION_CREDENTIALS.")


def test_a_bucket_that_was_made_a_moment_ago_is_a_warning(server: S3Server) -> None:
    server.refuses = {"*": 400}
    server.answer = "<Error><Code>TemporaryRedirect</Code><Message>Please re-send</Message></Error>"
    trouble = check_store(LOCATION)
    assert trouble is not None
    assert trouble.sentence.startswith("The bucket is new, or in another region (")
    assert not trouble.certain


@pytest.mark.parametrize("bucket", ["invalidtokens", "InvalidToken", "nosuchbucket", "403", "builder-error"])
def test_a_name_with_a_code_in_it_is_no_answer(server: S3Server, bucket: str) -> None:
    server.refuses = {"*": 503}
    server.answer = ""
    trouble = check_store(f"s3://{bucket}/tier")
    assert trouble is not None
    assert trouble.sentence.startswith("The store does not answer as it should (Server returned")
    assert not trouble.certain


def test_a_bucket_with_a_code_for_its_name_may_have_no_such_object() -> None:
    text = (
        "Object at location NoSuchBucket/x not found: Error performing GET http://h/nosuchbucket/x in 1ms - Server"
        " returned non-2xx status code: 404 Not Found: <Error><Code>NoSuchKey</Code><Key>NoSuchBucket/x</Key></Error>"
    )
    with pytest.raises(FileNotFoundError), errors_of_a_bucket():
        raise FileNotFoundError(text)


@pytest.mark.parametrize(
    ("name", "value", "begins"),
    [
        ("AWS_ENDPOINT", "http://a b/", "The endpoint is no address (AWS_ENDPOINT is http://a b/)"),
        ("AWS_ENDPOINT", "https://", "The endpoint is no address (AWS_ENDPOINT is https://)"),
        ("AWS_ENDPOINT", "", "The endpoint is no address (AWS_ENDPOINT is set and empty)"),
        ("AWS_ACCESS_KEY_ID", "key\n", "A key or the region has a character that cannot be sent"),
        ("AWS_SESSION_TOKEN", "token\r\n", "A key or the region has a character that cannot be sent"),
        ("AWS_REGION", "eu-central-1\n", "A key or the region has a character that cannot be sent"),
    ],
)
def test_what_the_client_panics_at_is_named(
    server: S3Server, monkeypatch: pytest.MonkeyPatch, name: str, value: str, begins: str
) -> None:
    monkeypatch.setenv(name, value)
    trouble = check_store(LOCATION)
    assert trouble is not None
    assert trouble.sentence.startswith(begins)
    assert name in trouble.sentence
    assert trouble.certain


@pytest.mark.parametrize(
    ("panic", "begins"),
    [
        ("called `Result::unwrap()` on an `Err` value: InvalidHeaderValue", "A key or the region has a character"),
        ("request valid: InvalidUri(InvalidUri(InvalidUriChar))", "The endpoint is no address"),
    ],
)
def test_a_panic_of_the_client_is_an_answer(panic: str, begins: str) -> None:
    class PanicException(BaseException):
        """As the client's, which cannot be imported."""

    def opened(location: str) -> ObjectStore:
        raise PanicException(panic)

    trouble = check_store("az://container/tier", open_store=opened)
    assert trouble is not None
    assert trouble.sentence.startswith(begins)
    assert trouble.certain


def test_a_panic_of_the_client_is_an_error_of_the_store(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token\n")
    store = open_object_store(LOCATION)
    for call in (lambda: store.get("a"), lambda: store.size("a"), lambda: store.list("a"), lambda: store.delete("a")):
        with pytest.raises(OSError, match="cannot make the request"):
            call()
    with pytest.raises(RemoteFolderError, match="cannot make the request"):
        RemoteFolder(LOCATION).partitions()


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
