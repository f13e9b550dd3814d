"""Error texts of an object store's client in the order in which a person reads: reason first, object last. Pure.

obstore's first line is "Generic S3 error: Error performing PUT <URL> in <time>, after <retries> - <reason>", and the
rest is a dump of its state, in which S3's own code and words stand.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_CALL: Final = re.compile(r"Error performing (\w+) (\S+) in .*? - (?:HTTP error: )?(.*)")
_BUCKET: Final = "the bucket or container does not exist"
_CODE: Final = re.compile(r"<Code>([^<]{1,80})</Code>(?:\s*<Message>([^<]{1,200})</Message>)?")
_BUILDER: Final = "builder error"
_PLAIN_HTTP: Final = "an http:// endpoint needs AWS_ALLOW_HTTP=true"
NO_CONNECTION: Final = "no connection"


@dataclass(frozen=True, slots=True)
class ClientError:
    """The parts of an error's text. `reason` has no address; `detail` is the store's code and words, or empty."""

    reason: str
    detail: str = ""
    code: str = ""
    verb: str = ""
    url: str = ""

    @property
    def in_full(self) -> str:
        """The reason and what the store says."""
        return self.reason + (f" ({self.detail})" if self.detail else "")


def parse_error(text: str) -> ClientError:
    """The parts of an error's text; of one that is no failed call, the first line is the reason."""
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    call = _CALL.search(first)
    if call is None:
        return ClientError(first)
    verb, url, reason = call[1], call[2], call[3].strip().rstrip(":").split(": <?xml")[0]
    if reason.startswith(_BUILDER) and url.startswith("http://"):
        reason = _PLAIN_HTTP
    detail, code = "", ""
    if (match := _CODE.search(text)) is not None:
        code = match[1].strip()
        detail = f"{match[1]}{f': {match[2]}' if match[2] else ''}"
    elif "kind: Connect" in text:
        detail = NO_CONNECTION
    if first.startswith(_BUCKET):
        reason, detail = _BUCKET, reason + (f" ({detail})" if detail else "")
    return ClientError(reason, detail, code, verb, url)


def reason_of(text: str) -> str:
    """One line of an error's text."""
    error = parse_error(text)
    return error.in_full + (f": {error.verb} {error.url}" if error.verb else "")
