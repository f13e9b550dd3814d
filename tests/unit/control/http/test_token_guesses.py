"""The number of unknown tokens that one address may try, and the audit's record of them."""

from __future__ import annotations

import pytest

from backend.control.http.token_guesses import ADDRESSES_MAX, BURST, RATE_PER_S, TokenGuesses, network_of


def guess(guesses: TokenGuesses, number: int, address: str, now_s: float) -> bool:
    """Tries a token that is none; whether it was looked up."""
    if guesses.wait_s(f"hash-{number}", address, now_s):
        return False
    guesses.unknown(f"hash-{number}", address)
    return True


def test_an_address_tries_so_many_at_once_and_then_one_a_second() -> None:
    guesses = TokenGuesses()
    assert sum(guess(guesses, number, "10.0.0.5", 0.0) for number in range(1_000)) == BURST
    assert guesses.wait_s("hash-x", "10.0.0.5", 0.0) == pytest.approx(1 / RATE_PER_S)
    later = sum(guess(guesses, number, "10.0.0.5", 1.0 + (number - 1_000) / 100) for number in range(1_000, 2_000))
    assert later == pytest.approx(RATE_PER_S * 11, abs=1)
    assert guess(guesses, 5_000, "10.0.0.6", 0.0)


def test_tokens_that_are_known_are_served_beside_an_attack_from_the_same_address() -> None:
    guesses = TokenGuesses()
    assert guesses.wait_s("good", "127.0.0.1", 0.0) == 0
    guesses.known("good", "127.0.0.1")
    for number in range(100):
        guess(guesses, number, "127.0.0.1", 0.0)
    assert all(guesses.wait_s("good", "127.0.0.1", 0.0) == 0 for _ in range(1_000))


def test_known_tokens_use_up_no_tries() -> None:
    guesses = TokenGuesses()
    for number in range(1_000):
        assert guesses.wait_s(f"good-{number}", "127.0.0.1", 0.0) == 0
        guesses.known(f"good-{number}", "127.0.0.1")
    assert guesses.take_summary() is None


def test_the_audit_is_told_once_of_all_and_names_who_tried_most() -> None:
    guesses = TokenGuesses()
    for number in range(30):
        guess(guesses, number, "10.0.0.5", 0.0)
    guess(guesses, 99, "10.0.0.6", 0.0)
    result = guesses.take_summary()
    assert result == "21 calls with a token that is not known: 20 from 10.0.0.5, 1 from 10.0.0.6; 10 more had to wait."
    assert guesses.take_summary() is None


def test_what_is_remembered_is_bounded() -> None:
    guesses = TokenGuesses()
    for number in range(3 * ADDRESSES_MAX):
        guess(guesses, number, f"10.{number // 65536}.{number // 256 % 256}.{number % 256}", 0.0)
    assert len(guesses._left) <= ADDRESSES_MAX
    assert len(guesses._seen) <= ADDRESSES_MAX
    result = guesses.take_summary()
    assert result is not None
    assert len(result) < 250
    assert f"and {ADDRESSES_MAX - 5} more addresses" in result


@pytest.mark.parametrize(
    ("address", "network"),
    [("10.0.0.5", "10.0.0.5"), ("2001:db8::1", "2001:db8::/64"), ("2001:db8::2:1", "2001:db8::/64"), ("", "")],
)
def test_a_network_of_ipv6_is_one_address(address: str, network: str) -> None:
    assert network_of(address) == network
