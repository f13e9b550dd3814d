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

from backend.engine.ports.object_store import ObjectStore, open_object_store
from backend.engine.remote.storage.store_errors import reason_of
from backend.runtime.redact import redact_url
from backend.tiering.remote_keys import ROOT

CHECK_KEY: Final = f"{ROOT}/ebbline-store-check"
# A store that answers does so within a second; a name server or an address that swallows packets takes longer.
TIMEOUT_S: Final = 10.0
_REQUEST: Final = re.compile(r": (GET|HEAD|PUT|POST) \S+$")
# The object store's port's text of a missing bucket, around the store's own words: the sentence says it already.
_MISSING_BUCKET: Final = re.compile(r"^the bucket or container does not exist \((.*)\)$")


@dataclass(frozen=True, slots=True)
class StoreTrouble:
    """Why the store will not do, reason first. `certain`: no copy can work as it is set; otherwise it may pass."""

    sentence: str
    certain: bool = True


@dataclass(frozen=True, slots=True)
class _Meaning:
    """An answer of a store that `pattern` knows, what it means, and what to do."""

    pattern: re.Pattern[str]
    reason: str
    remedy: str
    certain: bool = True


def _meaning(pattern: str, reason: str, remedy: str, *, certain: bool = True) -> _Meaning:
    return _Meaning(re.compile(pattern, re.IGNORECASE), reason, remedy, certain)


# The first that fits. Codes are those of Amazon S3; stores that speak its protocol answer with them too.
_MEANINGS: Final = (
    _meaning(
        r"bucket or container does not exist|NoSuchBucket|ContainerNotFound",
        "The bucket or container does not exist",
        "make it, or correct EBBLINE_REMOTE_LOCATION",
    ),
    _meaning("InvalidAccessKeyId", "The store does not know the access key", "correct AWS_ACCESS_KEY_ID"),
    _meaning("SignatureDoesNotMatch", "The secret key is wrong", "correct AWS_SECRET_ACCESS_KEY"),
    _meaning("ExpiredToken|InvalidToken", "The session token is wrong or has expired", "renew AWS_SESSION_TOKEN"),
    _meaning(
        r"AuthorizationHeaderMalformed|PermanentRedirect|TemporaryRedirect|IllegalLocationConstraint|redirect without",
        "The bucket is in another region",
        "set AWS_REGION to the bucket's",
    ),
    # Without a key in the environment the client asks the cloud's machine for one.
    _meaning(
        r"performing \w+ http://169\.254\.",
        "No key is set, and this machine's cloud gives none",
        "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    ),
    _meaning("AWS_ALLOW_HTTP", "The endpoint is an http:// address", "take AWS_ALLOW_HTTP=false away"),
    _meaning(
        "builder error", "The endpoint is no address", "give AWS_ENDPOINT one that begins with https:// or http://"
    ),
    _meaning(
        "kind: Connect",
        "The endpoint cannot be reached",
        "correct AWS_ENDPOINT, or start what listens there",
        certain=False,
    ),
    _meaning(
        r"AccessDenied|lacked the necessary privileges|403",
        "The store denies access",
        "look whether the key may read, write and delete there",
        certain=False,
    ),
)
_UNKNOWN: Final = _meaning(
    "", "The store does not answer as it should", "check its address, name and key", certain=False
)


def trouble_of(text: str, location: str) -> StoreTrouble:
    """The meaning of a client's error text for the remote tier at `location`. Pure."""
    reason = reason_of(text)
    meaning = next((each for each in _MEANINGS if each.pattern.search(f"{text}\n{reason}")), _UNKNOWN)
    words = _MISSING_BUCKET.sub(r"\1", _REQUEST.sub("", reason))
    return StoreTrouble(
        f"{meaning.reason} ({words}): the remote tier at {redact_url(location)}"
        f" {'cannot be used' if meaning.certain else 'may not be usable'}; {meaning.remedy}.",
        meaning.certain,
    )


def check_store(
    location: str,
    *,
    timeout_s: float = TIMEOUT_S,
    open_store: Callable[[str], ObjectStore] = open_object_store,
) -> StoreTrouble | None:
    """Asks the store once; None when it answers as it should. Blocks for `timeout_s` at most. Writes nothing."""
    endpoint = os.environ.get("AWS_ENDPOINT") or os.environ.get("AWS_ENDPOINT_URL") or ""
    if endpoint and not endpoint.lower().startswith(("http://", "https://")):
        # The client does not refuse it: it ends its thread.
        return trouble_of(f"builder error: {endpoint}", location)
    answers: list[StoreTrouble | None] = []

    def ask() -> None:
        try:
            open_store(location).get(CHECK_KEY)
        except FileNotFoundError:
            pass
        except Exception as error:  # obstore has a dozen kinds, and the text is what tells them apart
            answers.append(trouble_of(str(error), location))
            return
        answers.append(None)

    # A daemon: a request that hangs must not hold up the end of the process.
    thread = threading.Thread(target=ask, name="store-check", daemon=True)
    thread.start()
    thread.join(timeout_s)
    if answers:
        return answers[0]
    return StoreTrouble(
        f"The store did not answer within {timeout_s:g} s: the remote tier at {redact_url(location)} may not be usable;"
        " correct AWS_ENDPOINT, or look whether a firewall stands between.",
        certain=False,
    )
