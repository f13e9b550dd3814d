"""Rate limit of calls with unknown tokens, by address; one audit row a minute sums them up.

A token has 256 random bits, so a guess does not succeed; but the attempts must be cheap to refuse and visible.
"""

from __future__ import annotations

import ipaddress
from collections import Counter, OrderedDict
from typing import Final

# A script with a few old tokens is no attack; from then on one new token a second.
BURST: Final = 20.0
RATE_PER_S: Final = 1.0
# Addresses, and hashes of tokens, that are remembered: some 200 bytes each.
ADDRESSES_MAX: Final = 1_000
TOKENS_MAX: Final = 1_000
AUDIT_INTERVAL_S: Final = 60.0
_ADDRESSES_NAMED: Final = 5
# One customer of a provider has at least such a network, with all of its addresses.
_IPV6_PREFIX: Final = 64


class TokenGuesses:
    """The calls with unknown tokens of one control plane. Times are of a monotonic clock."""

    def __init__(self) -> None:
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        # Tokens that were looked up before: they are no new guess.
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._refused: Counter[str] = Counter()
        self._slowed = 0

    def wait_s(self, token_hash: str, address: str, now_s: float) -> float:
        """0 when the token may be looked up, else after how many seconds; a token that was looked up before always may.

        Takes one of the address's tries, which `known` gives back.
        """
        if token_hash in self._seen:
            return 0.0
        network = network_of(address)
        left, at_s = self._left.pop(network, (BURST, now_s))
        left = min(BURST, left + (now_s - at_s) * RATE_PER_S)
        allowed = left >= 1.0
        self._left[network] = (left - 1.0 if allowed else left, now_s)
        if len(self._left) > ADDRESSES_MAX:
            self._left.popitem(last=False)
        if allowed:
            return 0.0
        self._slowed += 1
        return (1.0 - left) / RATE_PER_S

    def known(self, token_hash: str, address: str) -> None:
        """The look-up found the token."""
        if token_hash not in self._seen:
            network = network_of(address)
            left, at_s = self._left.get(network, (BURST, 0.0))
            self._left[network] = (min(BURST, left + 1.0), at_s)
        self._remember(token_hash)

    def unknown(self, token_hash: str, address: str) -> None:
        """The look-up found none."""
        self._remember(token_hash)
        network = network_of(address)
        if network in self._refused or len(self._refused) < ADDRESSES_MAX:
            self._refused[network] += 1

    def _remember(self, token_hash: str) -> None:
        self._seen[token_hash] = None
        self._seen.move_to_end(token_hash)
        if len(self._seen) > TOKENS_MAX:
            self._seen.popitem(last=False)

    def take_summary(self) -> str | None:
        """The audit's sentence about the calls since the last one; None: there were none."""
        if not self._refused and not self._slowed:
            return None
        most = self._refused.most_common(_ADDRESSES_NAMED)
        named = [f"{count} from {network}" for network, count in most]
        more = len(self._refused) - len(most)
        text = f"{self._refused.total()} calls with a token that is not known: {', '.join(named) or 'none'}"
        text += f" and {more} more addresses" if more else ""
        text += f"; {self._slowed} more had to wait" if self._slowed else ""
        self._refused.clear()
        self._slowed = 0
        return f"{text}."


def network_of(address: str) -> str:
    """The IPv4 address, or the IPv6 network of 64 bits; what is neither, as it is."""
    try:
        result = ipaddress.ip_address(address)
    except ValueError:
        return address[:60]
    if result.version == 4:
        return str(result)
    return str(ipaddress.ip_network((int(result), _IPV6_PREFIX), strict=False))
