"""Error texts of an object store's client in the order in which a person reads: reason first, object last. Pure.

obstore's first line is "Generic S3 error: Error performing PUT <URL> in <time>, after <retries> - <reason>", and the
rest is a dump of its state, in which S3's own code and words stand.
"""

from __future__ import annotations

import re
from typing import Final

_CALL: Final = re.compile(r"Error performing (\w+) (\S+) in .*? - (?:HTTP error: )?(.*)")
_BUCKET: Final = "the bucket or container does not exist"
_CODE: Final = re.compile(r"<Code>([^<]{1,80})</Code>(?:\s*<Message>([^<]{1,200})</Message>)?")
_BUILDER: Final = "builder error"
_PLAIN_HTTP: Final = "an http:// endpoint needs AWS_ALLOW_HTTP=true"


def reason_of(text: str) -> str:
    """One line of an error's text."""
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    call = _CALL.search(first)
    if call is None:
        return first
    verb, url, reason = call[1], call[2], call[3].strip().rstrip(":").split(": <?xml")[0]
    if reason.startswith(_BUILDER) and url.startswith("http://"):
        reason = _PLAIN_HTTP
    if (code := _CODE.search(text)) is not None:
        reason += f" ({code[1]}{f': {code[2]}' if code[2] else ''})"
    elif "kind: Connect" in text:
        reason += " (no connection)"
    if first.startswith(_BUCKET):
        reason = f"{_BUCKET} ({reason})"
    return f"{reason}: {verb} {url}"
