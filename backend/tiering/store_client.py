"""Peculiarities of obstore, the client of the remote tier's store: which endpoint of S3 it takes, and its panics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

S3_SCHEMES: Final = ("s3://", "s3a://")
_OF_S3_ALONE: Final = "AWS_ENDPOINT_URL_S3"
_OF_AWS: Final = ("AWS_ENDPOINT", "AWS_ENDPOINT_URL")


class ClientPanic(OSError):
    """The client gave up with a panic, which is no Exception: an address or a key that it cannot even send."""


@contextmanager
def panics_as_errors() -> Iterator[None]:
    """Raises ClientPanic for a panic of the client."""
    try:
        yield
    except BaseException as error:
        # The type can be had from a panic only.
        if type(error).__name__ == "PanicException":
            raise ClientPanic(f"the store's client cannot make the request: {error}") from error
        raise


def s3_endpoints(environment: Mapping[str, str]) -> dict[str, str]:
    """The endpoint of S3 that the environment sets, by variable: of two for all of AWS the client takes either."""
    if _OF_S3_ALONE in environment:
        return {_OF_S3_ALONE: environment[_OF_S3_ALONE]}
    return {name: environment[name] for name in _OF_AWS if name in environment}


def allows_plain_http(config: Mapping[str, str], options: Mapping[str, str], environment: Mapping[str, str]) -> bool:
    """Whether the S3 endpoint is an http:// one and nobody has said whether that is allowed: who names it has.

    `config` and `options` are the store's and the HTTP client's settings that come before the environment.
    """
    if {"allow_http", "AWS_ALLOW_HTTP"} & {*options, *environment}:
        return False
    named = {name.lower().removeprefix("aws_"): value for name, value in config.items()}
    endpoints = [value for name in ("endpoint_url_s3", "endpoint", "endpoint_url") if (value := named.get(name))]
    return any(value.lower().startswith("http://") for value in endpoints or s3_endpoints(environment).values())
