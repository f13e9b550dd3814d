"""Authentication of a call: from a bearer token to an actor; limits and errors for unknown tokens."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Final

from starlette.requests import Request

from backend.control.http.api_tokens import ApiTokens, KnownToken, TokenRole, hash_of
from backend.control.http.call import Access, ApiEndpoint
from backend.control.http.problems import Problem
from backend.control.http.product_metrics import ProductMetrics
from backend.control.http.token_guesses import TokenGuesses
from backend.control.operations.audit_entries import Actor, ActorRole
from backend.control.wall_clock import now_ms

PROBES: Final = frozenset({"/healthz", "/readyz"})
ACTOR_CHARS_MAX: Final = 100
NOBODY: Final = Actor("nobody", ActorRole.VIEWER)


class Authenticator:
    """Finds the actor of a call. `guesses` limits calls with unknown tokens, `metrics` counts them."""

    def __init__(self, tokens: ApiTokens, guesses: TokenGuesses, metrics: ProductMetrics) -> None:
        self._tokens = tokens
        self._guesses = guesses
        self._metrics = metrics

    async def actor_of(self, endpoint: ApiEndpoint, request: Request) -> Actor:
        """The caller of an endpoint; NOBODY where none is needed. Raises Problem as `authenticate` does."""
        return NOBODY if _is_open(endpoint, request) else await self.authenticate(request)

    async def authenticate(self, request: Request) -> Actor:
        """The actor. Raises Problem 401 for no or a wrong token, 400 for an impossible person."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise _unauthenticated("Give a token: Authorization: Bearer …; the operator's is in run/operator.token.")
        address = request.client.host if request.client is not None else ""
        token_row = await self._look_up(token.strip(), address)
        if token_row.expires_ms is not None and token_row.expires_ms <= now_ms():
            end = datetime.fromtimestamp(token_row.expires_ms / 1000, UTC)
            raise _unauthenticated(
                f"The token {token_row.name} expired at {end:%Y-%m-%d %H:%M:%S} UTC: "
                f"have one made with `ebbline token add`."
            )
        return _actor(token_row, request)

    async def _look_up(self, token: str, address: str) -> KnownToken:
        """The token. Raises Problem 401 for an unknown one, 429 when its address has tried too many."""
        hashed = hash_of(token)
        wait_s = self._guesses.wait_s(hashed, address, time.monotonic())
        if wait_s:
            self._metrics.count_unknown_token(looked_up=False)
            retry = {"Retry-After": str(max(1, round(wait_s)))}
            text = "Too many tokens that are not known came from this address; wait a moment."
            raise Problem(429, "too-many-requests", text, headers=retry)
        token_row = await self._tokens.find(hashed)
        if token_row is None:
            self._guesses.unknown(hashed, address)
            self._metrics.count_unknown_token(looked_up=True)
            raise _unauthenticated("This token is not known to this cluster, or was withdrawn.")
        self._guesses.known(hashed, address)
        return token_row


def _is_open(endpoint: ApiEndpoint, request: Request) -> bool:
    """From other machines only the two probes are open: metrics contain names of topics."""
    return endpoint.access is Access.OPEN and (request.url.scheme != "https" or endpoint.path in PROBES)


def _actor(token_row: KnownToken, request: Request) -> Actor:
    if token_row.role is not TokenRole.APP:
        return Actor(token_row.name, ActorRole(token_row.role.value))
    name, role = request.headers.get("x-ebbline-actor"), request.headers.get("x-ebbline-role")
    if name is None and role is None:
        return Actor(token_row.name, ActorRole.VIEWER)  # the dashboard for nobody: it may look
    if not name or len(name) > ACTOR_CHARS_MAX or not name.isprintable():
        raise Problem(400, "bad-actor", "X-Ebbline-Actor names a person with 1 to 100 printable characters.")
    if role not in tuple(ActorRole):
        raise Problem(400, "bad-actor", "X-Ebbline-Role is viewer or operator.")
    return Actor(name, ActorRole(role))


def _unauthenticated(text: str) -> Problem:
    return Problem(401, "unauthenticated", text, headers={"WWW-Authenticate": 'Bearer realm="ebbline"'})
