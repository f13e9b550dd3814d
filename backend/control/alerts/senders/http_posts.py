"""POST of JSON to a receiver; every end is a `SendResult`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import httpx

from backend.control.alerts.senders.send_result import TAKEN, SendOutcome, SendResult

# A receiver that takes longer is slow; its queue waits, nobody else does.
TIMEOUT_S: Final = 10.0
# These say that it is the message that is wrong. Any other refusal (no such address, no right, too many) may be mended
# at the receiver or in the file, and the newest state is sent then.
OF_THE_MESSAGE: Final = frozenset({400, 413, 415, 422})
REASON_CHARS_MAX: Final = 200


class HttpPosts:
    """One client, made when it is first needed. Belongs to one event loop."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self._url = url
        self._headers = dict(headers)
        self._client: httpx.AsyncClient | None = None

    async def post(self, body: bytes, headers: Mapping[str, str]) -> SendResult:
        """Never raises."""
        if self._client is None:
            self._client = httpx.AsyncClient(timeout=TIMEOUT_S)
        sent = {**self._headers, **headers, "Content-Type": "application/json"}
        try:
            response = await self._client.post(self._url, content=body, headers=sent)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            return SendResult(SendOutcome.AGAIN, f"no connection ({type(error).__name__})")
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            # The request may have gone out: an answer that is late or cut says nothing about it.
            return SendResult(SendOutcome.AGAIN, f"no answer ({type(error).__name__})", in_doubt=True)
        if response.is_success:
            return TAKEN
        outcome = SendOutcome.REFUSED if response.status_code in OF_THE_MESSAGE else SendOutcome.AGAIN
        return SendResult(outcome, f"HTTP {response.status_code} {response.reason_phrase}"[:REASON_CHARS_MAX].strip())

    async def close(self) -> None:
        """Closes the client."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()
