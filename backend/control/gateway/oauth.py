"""SASL OAUTHBEARER (RFC 7628, KIP-255): where the token comes from, and the messages that carry it.

Three sources, in librdkafka's names: `sasl.oauthbearer.method=oidc` asks a token endpoint for client credentials
(KIP-768); the same with a `file://` address reads the token that another program keeps there, as Kafka's own client
does; `enable.sasl.oauthbearer.unsecure.jwt=true` makes an unsigned token, for brokers that are being developed.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import unquote, urlsplit

import httpx

from backend.control.gateway.trust import client_context

# A token of an identity provider with many groups is some kB; an answer is refused above this, a file as well.
TOKEN_BYTES_MAX: Final = 64 << 10
ENDPOINT_TIMEOUT_S: Final = 5.0
# A token is used for this share of its life, as Kafka's clients renew theirs (sasl.login.refresh.window.factor).
RENEW_AFTER: Final = 0.8
UNSECURED_LIFE_S: Final = 3_600
_SEPARATOR: Final = "\x01"
# RFC 7628: what a client says to an error, so that the server ends the exchange.
ABORT: Final = b"\x01"
_NAME: Final = re.compile(r"[A-Za-z]+")
_TOKEN: Final = re.compile(r"[\x21-\x7e]+")


class TokenError(ValueError):
    """There is no token, or it cannot be used; one sentence without its text."""


class TokenSource(Protocol):
    """Gives a token that can be used now. Raises TokenError."""

    async def token(self) -> str: ...


def token_source(properties: Mapping[str, str]) -> TokenSource:
    """From client properties. Raises TokenError."""
    if properties.get("enable.sasl.oauthbearer.unsecure.jwt", "false").lower() == "true":
        return Unsecured.read(properties.get("sasl.oauthbearer.config", ""))
    url = properties.get("sasl.oauthbearer.token.endpoint.url", "")
    parts = urlsplit(url)
    if parts.scheme == "file" and parts.path:
        return TokenFile(Path(unquote(parts.path)))
    client_id = properties.get("sasl.oauthbearer.client.id", "")
    if parts.scheme not in ("http", "https") or not parts.hostname or not client_id:
        raise TokenError(
            "OAUTHBEARER needs sasl.oauthbearer.token.endpoint.url and sasl.oauthbearer.client.id (and .client.secret),"
            " or a file:// address of a token, or enable.sasl.oauthbearer.unsecure.jwt=true."
        )
    secret, scope = properties.get("sasl.oauthbearer.client.secret", ""), properties.get("sasl.oauthbearer.scope", "")
    return ClientCredentials(url, client_id, secret, scope, properties.get("https.ca.location"))


def extensions_of(properties: Mapping[str, str]) -> dict[str, str]:
    """SASL extensions (KIP-342): `sasl.oauthbearer.extensions=name=value,…`. Raises TokenError."""
    result: dict[str, str] = {}
    for part in filter(None, properties.get("sasl.oauthbearer.extensions", "").split(",")):
        name, equals, value = part.strip().partition("=")
        if not equals or not _NAME.fullmatch(name) or name == "auth" or not value.isprintable():
            raise TokenError("sasl.oauthbearer.extensions is not name=value,name=value, with names of letters.")
        result[name] = value
    return result


def first_message(token: str, extensions: Mapping[str, str]) -> bytes:
    """First message of the client, and its last one if all is well."""
    more = "".join(f"{name}={value}{_SEPARATOR}" for name, value in extensions.items())
    return f"n,,{_SEPARATOR}auth=Bearer {token}{_SEPARATOR}{more}{_SEPARATOR}".encode()


def refusal(challenge: bytes) -> str:
    """The broker's error in words: its JSON tells a status, and may tell a scope that is missing."""
    try:
        server_error = json.loads(challenge)
        status, scope = str(server_error["status"])[:60], server_error.get("scope")
    except (ValueError, KeyError, TypeError, AttributeError):
        return "the token is not taken"
    return status if not scope else f"{status}, scope {str(scope)[:100]} is needed"


def expires_s(token: str) -> float | None:
    """`exp` of a JWT in seconds since 1970; None when the token is none, or does not tell."""
    try:
        payload = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return float(claims["exp"])
    except (IndexError, ValueError, KeyError, TypeError):
        return None


def _checked(token: str, where: str) -> str:
    if not _TOKEN.fullmatch(token):
        raise TokenError(f"{where} holds no token.")
    end_s = expires_s(token)
    if end_s is not None and end_s <= time.time():
        raise TokenError(f"The token of {where} has expired: have it renewed there.")
    return token


@dataclass(frozen=True, slots=True)
class TokenFile:
    """A file that another program renews; read each time, as a connection is opened seldom."""

    path: Path

    async def token(self) -> str:
        return await asyncio.to_thread(self._read)

    def _read(self) -> str:
        try:
            with self.path.open("rb") as file:
                text = file.read(TOKEN_BYTES_MAX).decode("ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise TokenError(f"The token file {self.path} cannot be read: {error}.") from error
        return _checked(text, str(self.path))


@dataclass(frozen=True, slots=True)
class Unsecured:
    """An unsigned JWT (RFC 7515, appendix A.5), as KIP-255's development mode takes them."""

    principal: str
    principal_claim: str = "sub"
    scope: tuple[str, ...] = ()
    life_s: int = UNSECURED_LIFE_S

    @classmethod
    def read(cls, text: str) -> Unsecured:
        """`principal=admin scope=a,b lifeSeconds=600`, separated by blanks. Raises TokenError."""
        result = dict(part.split("=", 1) for part in text.split() if "=" in part)
        unknown = set(result) - {"principal", "principalClaimName", "scope", "lifeSeconds"}
        life = result.get("lifeSeconds", str(UNSECURED_LIFE_S))
        if unknown or not result.get("principal") or not (life.isascii() and life.isdigit() and 0 < int(life) <= 10**8):
            raise TokenError(
                "sasl.oauthbearer.config is principal=NAME, and may have principalClaimName, scope and lifeSeconds."
            )
        scope = tuple(filter(None, result.get("scope", "").split(",")))
        return cls(result["principal"], result.get("principalClaimName", "sub"), scope, int(life))

    async def token(self) -> str:
        now_s = int(time.time())
        claims: dict[str, Any] = {self.principal_claim: self.principal, "iat": now_s, "exp": now_s + self.life_s}
        if self.scope:
            claims["scope"] = list(self.scope)
        return f"{_segment({'alg': 'none'})}.{_segment(claims)}."


def _segment(value: Mapping[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


class ClientCredentials:
    """OAuth 2.0 client credentials (RFC 6749, 4.4) of a token endpoint; one token for all connections. No repr."""

    def __init__(self, url: str, client_id: str, secret: str, scope: str, ca_file: str | None) -> None:
        self._url, self._client_id, self._secret, self._scope, self._ca_file = url, client_id, secret, scope, ca_file
        self._lock = asyncio.Lock()
        self._token = ""
        self._renew_s = float("-inf")

    async def token(self) -> str:
        async with self._lock:
            if time.time() >= self._renew_s:
                began_s = time.time()
                response = await self._ask()
                token = _checked(str(response.get("access_token", "")), f"the answer of {self._place}")
                self._token, self._renew_s = token, began_s + RENEW_AFTER * _life_s(response, token, began_s)
            return self._token

    @property
    def _place(self) -> str:
        return urlsplit(self._url).netloc.rpartition("@")[2]

    async def _ask(self) -> dict[str, Any]:
        form = {"grant_type": "client_credentials"} | ({"scope": self._scope} if self._scope else {})
        verify = client_context(self._ca_file) if self._ca_file else True
        try:
            async with (
                httpx.AsyncClient(verify=verify, timeout=ENDPOINT_TIMEOUT_S, trust_env=False) as client,
                client.stream("POST", self._url, data=form, auth=(self._client_id, self._secret)) as reply,
            ):
                body = b""
                async for chunk in reply.aiter_bytes():
                    body += chunk
                    if len(body) > TOKEN_BYTES_MAX:
                        raise TokenError(f"{self._place} answered more than a token.")
                status = reply.status_code
        except (httpx.HTTPError, OSError) as error:
            raise TokenError(f"{self._place} gives no token ({str(error) or type(error).__name__}).") from error
        try:
            response = json.loads(body)
        except ValueError:
            response = None
        if status != 200 or not isinstance(response, dict):
            cause = f": {str(response['error'])[:100]}" if isinstance(response, dict) and "error" in response else ""
            raise TokenError(f"{self._place} gives no token (HTTP {status}{cause}): check client id, secret and scope.")
        return response


def _life_s(response: Mapping[str, Any], token: str, now_s: float) -> float:
    """Life of a token; one without a stated end is requested again each time."""
    end_s = expires_s(token)
    if end_s is not None:
        return end_s - now_s
    try:
        return float(response.get("expires_in", 0))
    except (TypeError, ValueError):
        return 0.0
