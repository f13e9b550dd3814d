"""One small request to the store of the remote tier before anything starts, and what its answer means in a sentence.

The request reads an object that need not exist: "no such object" shows that address, bucket, region and key are right.
A key that may not list is refused there in the same words as one that may do nothing (S3 hides whether an object
exists), so a mere denial is a warning; the first copy tells.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from backend.engine.ports.object_store import ObjectStore, open_object_store
from backend.engine.remote.storage.store_errors import NO_CONNECTION, ClientError, parse_error
from backend.runtime.redact import printable, redact_url
from backend.tiering.remote_keys import ROOT
from backend.tiering.store_client import S3_SCHEMES, s3_endpoints

CHECK_KEY: Final = f"{ROOT}/ebbline-store-check"
# A store that answers does so within a second; a name server or an address that swallows packets takes longer.
TIMEOUT_S: Final = 10.0
# Addresses in a text may have any word in them: the name of a bucket is its owner's.
_ADDRESS: Final = re.compile(r"\S*://\S*")
# Hosts that give the key of a machine's or container's role: AWS, ECS, EKS and Azure; Google.
_KEY_GIVERS: Final = re.compile(r"169\.254\.[0-9.]+|fd00:ec2::[0-9a-f:]+|metadata\.google\.internal|metadata")
# Variables of S3 that the client puts into headers; it panics at a character that no header may have.
_IN_HEADERS: Final = ("AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION")


@dataclass(frozen=True, slots=True)
class StoreDiagnosis:
    """Why the store will not do, reason first. `certain`: no copy can work as it is set; otherwise it may pass."""

    sentence: str
    certain: bool = True


@dataclass(frozen=True, slots=True)
class _Meaning:
    """Meaning of a store's answer, and the remedy. It is recognised by the store's code or by the client's words."""

    reason: str
    remedy: str
    codes: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    certain: bool = True

    def fits(self, code: str, text: str) -> bool:
        return code in self.codes or (self.pattern is not None and self.pattern.search(text) is not None)


# `{endpoint}` and `{keys}` in remedies: the variables of the location's cloud.
_NO_KEY: Final = _Meaning("No key is set, and this machine's cloud gives none", "set {keys}", certain=False)
_NO_ADDRESS: Final = "The endpoint is no address"
_GIVE_ADDRESS: Final = "give {endpoint} one that begins with https:// or http://"
# The first that fits. Codes are those of Amazon S3; stores that speak its protocol answer with them too.
_MEANINGS: Final = (
    _Meaning(
        "The bucket or container does not exist",
        "make it, or correct EBBLINE_REMOTE_LOCATION",
        codes=("NoSuchBucket", "ContainerNotFound"),
        pattern=re.compile("^the bucket or container does not exist"),
    ),
    _Meaning("The store does not know the access key", "correct AWS_ACCESS_KEY_ID", codes=("InvalidAccessKeyId",)),
    _Meaning("The secret key is wrong", "correct AWS_SECRET_ACCESS_KEY", codes=("SignatureDoesNotMatch",)),
    _Meaning(
        "The session token is wrong or has expired",
        "renew AWS_SESSION_TOKEN",
        codes=("ExpiredToken", "InvalidToken"),
    ),
    # The answer for a bucket that was made minutes ago: its name is not known everywhere yet.
    _Meaning(
        "The bucket is new, or in another region",
        "wait some minutes, or set AWS_REGION to the bucket's",
        codes=("TemporaryRedirect",),
        certain=False,
    ),
    _Meaning(
        "The bucket is in another region",
        "set AWS_REGION to the bucket's",
        codes=("AuthorizationHeaderMalformed", "PermanentRedirect", "IllegalLocationConstraintException"),
        pattern=re.compile("redirect without", re.IGNORECASE),
    ),
    _Meaning(
        "The endpoint is an http:// address", "take AWS_ALLOW_HTTP=false away", pattern=re.compile("AWS_ALLOW_HTTP")
    ),
    _Meaning(_NO_ADDRESS, _GIVE_ADDRESS, pattern=re.compile("builder error|InvalidUri|RelativeUrlWithoutBase")),
    _Meaning(
        "A key or the region has a character that cannot be sent",
        "look for a line end in {keys}",
        pattern=re.compile("InvalidHeaderValue"),
    ),
    _Meaning(
        "The endpoint cannot be reached",
        "correct {endpoint}, or start what listens there",
        pattern=re.compile(rf"\({NO_CONNECTION}\)$"),
        certain=False,
    ),
    _Meaning(
        "The store denies access",
        "look whether the key may read, write and delete there",
        codes=("AccessDenied",),
        pattern=re.compile(r"lacked the necessary privileges|lacked valid authentication|status code: 40[13]\b"),
        certain=False,
    ),
)
_UNKNOWN: Final = _Meaning("The store does not answer as it should", "check its address, name and key", certain=False)


def diagnose_store(text: str, location: str) -> StoreDiagnosis:
    """The meaning of a client's error text for the remote tier at `location`."""
    error = parse_error(text)
    reason = _ADDRESS.sub("", error.in_full if not error.code else error.reason)
    meaning = next((meaning for meaning in _MEANINGS if meaning.fits(error.code, reason)), _UNKNOWN)
    if _asks_for_key(error):
        # Without a key in the environment the client asks the cloud's machine for one, which may have it in a moment.
        meaning = _NO_KEY
    return _diagnosis(meaning, _cause(error), location)


def _asks_for_key(error: ClientError) -> bool:
    try:
        host = urlsplit(error.url).hostname or ""
    except ValueError:
        return False
    return _KEY_GIVERS.fullmatch(host) is not None


def _cause(error: ClientError) -> str:
    """The client's own words; of a bucket that is not there, what the store says, as the sentence says the rest."""
    return error.detail if error.reason.startswith("the bucket or container") and error.detail else error.in_full


def _diagnosis(meaning: _Meaning, cause: str, location: str) -> StoreDiagnosis:
    usable = "cannot be used" if meaning.certain else "may not be usable"
    return StoreDiagnosis(
        f"{meaning.reason} ({cause}): the remote tier at {redact_url(location)} {usable};"
        f" {_remedy(meaning.remedy, location)}.",
        meaning.certain,
    )


def _remedy(remedy: str, location: str) -> str:
    scheme = location.partition("://")[0]
    if f"{scheme}://" in S3_SCHEMES:
        endpoint, keys = (
            next(iter(s3_endpoints(os.environ)), "AWS_ENDPOINT"),
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        )
    elif scheme in ("az", "azure", "adl", "abfs", "abfss"):
        endpoint, keys = "AZURE_STORAGE_ENDPOINT", "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY"
    elif scheme == "gs":
        endpoint, keys = "the store's address", "GOOGLE_APPLICATION_CREDENTIALS"
    else:
        endpoint, keys = "the store's address", "the store's key"
    return remedy.format(endpoint=endpoint, keys=keys)


def _unsendable(location: str) -> StoreDiagnosis | None:
    """The diagnosis of a variable at which the client would panic."""
    if not location.startswith(S3_SCHEMES):
        return None
    for name, endpoint in s3_endpoints(os.environ).items():
        if not _is_address(endpoint):
            shown = printable(redact_url(endpoint))
            cause = f"{name} is {shown}" if endpoint else f"{name} is set and empty"
            return _diagnosis(_Meaning(_NO_ADDRESS, _GIVE_ADDRESS), cause, location)
    for name in _IN_HEADERS:
        if any(ord(character) < 0x20 or ord(character) == 0x7F for character in os.environ.get(name, "")):
            meaning = _Meaning("A key or the region has a character that cannot be sent", f"correct {name}")
            return _diagnosis(meaning, f"a line end or the like in {name}", location)
    return None


def _is_address(endpoint: str) -> bool:
    try:
        parts = urlsplit(endpoint)
    except ValueError:
        return False
    return (
        parts.scheme in ("http", "https")
        and bool(parts.hostname)
        and endpoint.isprintable()
        and not any(character.isspace() for character in endpoint)
    )


def check_store(
    location: str,
    *,
    timeout_s: float = TIMEOUT_S,
    open_store: Callable[[str], ObjectStore] = open_object_store,
) -> StoreDiagnosis | None:
    """Asks the store once; None when it answers as it should. Blocks for `timeout_s` at most. Writes nothing."""
    if (diagnosis := _unsendable(location)) is not None:
        return diagnosis
    diagnoses: list[StoreDiagnosis | None] = []

    def ask() -> None:
        try:
            open_store(location).get(CHECK_KEY)
        except FileNotFoundError:
            pass
        except BaseException as error:  # obstore has a dozen kinds, and the text is what tells them apart
            diagnoses.append(diagnose_store(str(error) or type(error).__name__, location))
            return
        diagnoses.append(None)

    # A daemon: a request that hangs must not hold up the end of the process.
    thread = threading.Thread(target=ask, name="store-check", daemon=True)
    thread.start()
    thread.join(timeout_s)
    if diagnoses:
        return diagnoses[0]
    return StoreDiagnosis(
        f"The store did not answer within {timeout_s:g} s: the remote tier at {redact_url(location)} may not be usable;"
        f" {_remedy('correct {endpoint}, or look whether a firewall stands between', location)}.",
        certain=False,
    )
