"""AlterClientQuotas: which entities and values stand, in Kafka's words, and what they come to in the image."""

from __future__ import annotations

from functools import partial

import pytest

from backend.engine.controller.commands.client_quota_control import alter_client_quotas
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode
from tests.unit.engine.controller.clusters import Play

_Entry = m.AlterClientQuotasRequest.Entries


def entry(*parts: tuple[str, str | None], **values: float | None) -> _Entry:
    """Values of an entity; None removes."""
    return _Entry(
        entity=[_Entry.Entity(entity_type=kind, entity_name=name) for kind, name in parts],
        ops=[_Entry.Ops(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()],
    )


def alter(play: Play, *entries: _Entry, validate_only: bool = False) -> list[tuple[int, str | None]]:
    request = m.AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)
    response = play.do(partial(alter_client_quotas, request=request))
    return [(entry.error_code, entry.error_message) for entry in response.entries]


def test_values_are_set_and_removed_by_entity_whatever_the_order_of_its_parts() -> None:
    play = Play()
    user_client = (("client-id", "app"), ("user", None))
    assert alter(play, entry(*reversed(user_client), producer_byte_rate=10.0, request_percentage=0.5)) == [(0, None)]
    assert dict(play.image.client_quotas[user_client]) == {"producer_byte_rate": 10.0, "request_percentage": 0.5}
    alter(play, entry(*user_client, producer_byte_rate=None))
    assert dict(play.image.client_quotas[user_client]) == {"request_percentage": 0.5}
    alter(play, entry(*user_client, request_percentage=None, consumer_byte_rate=None))
    assert not play.image.client_quotas


def test_a_value_that_stays_writes_no_record() -> None:
    play = Play()
    alter(play, entry(("user", "a"), producer_byte_rate=10.0))
    alter(play, entry(("user", "a"), producer_byte_rate=10.0))
    assert play.last == ()


def test_validating_only_changes_nothing() -> None:
    play = Play()
    assert alter(play, entry(("user", "a"), producer_byte_rate=10.0), validate_only=True) == [(0, None)]
    assert not play.image.client_quotas


@pytest.mark.parametrize(
    ("refused", "words"),
    [
        (entry(producer_byte_rate=1.0), "Invalid empty client quota entity"),
        (entry(("group", "a"), producer_byte_rate=1.0), "Unhandled client quota entity type: group"),
        (entry(("user", ""), producer_byte_rate=1.0), "Empty user not supported"),
        (entry(("user", "a"), ("user", "b")), "Invalid client quota entity, duplicate entity entry user"),
        (
            entry(("ip", "127.0.0.1"), ("user", "a"), connection_creation_rate=1.0),
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId",
        ),
        (entry(("ip", "no.such host"), connection_creation_rate=1.0), "no.such host is not a valid IP or resolvable"),
        (entry(("ip", None), producer_byte_rate=1.0), "Invalid configuration key producer_byte_rate"),
        (entry(("user", "a"), bytes=1.0), "Invalid configuration key bytes"),
        (entry(("user", "a"), producer_byte_rate=-1.0), "Quota producer_byte_rate must be greater than 0"),
        (entry(("user", "a"), request_percentage=float("nan")), "Quota request_percentage must be greater than 0"),
        (entry(("user", "a"), consumer_byte_rate=1.5), "consumer_byte_rate cannot be a fractional value."),
        (
            entry(("ip", None), connection_creation_rate=2.0**31),
            "Proposed value for connection_creation_rate is too large for an INT.",
        ),
    ],
)
def test_what_cannot_stand_is_refused_in_kafkas_words(refused: _Entry, words: str) -> None:
    play = Play()
    ((code, message),) = alter(play, refused)
    assert code == ErrorCode.INVALID_REQUEST
    assert message is not None
    assert message.startswith(words)
    assert not play.image.client_quotas


def test_one_refused_value_leaves_the_entity_as_it_was_and_others_go_on() -> None:
    play = Play()
    bad = entry(("user", "a"), producer_byte_rate=10.0, consumer_byte_rate=-1.0)
    good = entry(("client-id", "b"), producer_byte_rate=10.0)
    assert [code for code, _ in alter(play, bad, good)] == [ErrorCode.INVALID_REQUEST, 0]
    assert set(play.image.client_quotas) == {(("client-id", "b"),)}


def test_an_entity_counts_once_in_a_request() -> None:
    play = Play()
    first = entry(("user", "a"), producer_byte_rate=10.0)
    again = entry(("user", "a"), consumer_byte_rate=5.0)
    assert [code for code, _ in alter(play, first, again)] == [0, ErrorCode.INVALID_REQUEST]
    assert dict(play.image.client_quotas[("user", "a"),]) == {"producer_byte_rate": 10.0}
