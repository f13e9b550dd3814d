"""The reason of a store comes before the object, whose name is long."""

from __future__ import annotations

import pytest

from backend.engine.remote.storage.store_errors import reason_of

URL = "https://s3.example/bucket/tier/kafka-tiered-storage/" + "t" * 150
RETRIED = "in 2.6s, after 10 retries, max_retries: 10 "


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            f"Generic S3 error: Error performing PUT {URL} {RETRIED} - Server returned non-2xx status code: 503 X: \n",
            "Server returned non-2xx status code: 503 X",
        ),
        (
            f"The operation lacked the necessary privileges to complete for path a: Error performing PUT {URL} in 1.5ms"
            " - Server returned non-2xx status code: 403 Forbidden: <?xml?>\n<Code>SignatureDoesNotMatch</Code>",
            "Server returned non-2xx status code: 403 Forbidden (SignatureDoesNotMatch)",
        ),
        (
            f"the bucket or container does not exist: Object at location a not found: Error performing PUT {URL} in 4ms"
            ' - Server returned non-2xx status code: 404 Not Found: <?xml version="1.0"?>',
            "the bucket or container does not exist (Server returned non-2xx status code: 404 Not Found)",
        ),
        (
            f"Generic S3 error: Error performing PUT {URL} {RETRIED} - HTTP error: error sending request\n"
            "kind: Connect",
            "error sending request (no connection)",
        ),
    ],
)
def test_the_reason_comes_first(text: str, reason: str) -> None:
    assert reason_of(text) == f"{reason}: PUT {URL}"


def test_what_is_no_call_stays_as_it_is() -> None:
    assert reason_of("\n no such file \nmore") == "no such file"
    assert reason_of("") == ""


def test_a_plain_endpoint_that_is_refused_names_the_setting() -> None:
    text = "Generic S3 error: Error performing PUT http://h/b/o in 58µs - HTTP error: builder error"
    assert reason_of(text) == "an http:// endpoint needs AWS_ALLOW_HTTP=true: PUT http://h/b/o"
