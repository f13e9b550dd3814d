"""The limit of each client, the clients that share it, and the throttle after too much use."""

from __future__ import annotations

from dataclasses import replace

import pytest
from immutables import Map

from backend.engine.apis.quotas.client_quota_manager import ClientQuotaManager, LimitByEntity, SharedLimit, limit_for
from backend.engine.controller.image.metadata_image import EMPTY_IMAGE, MetadataImage, QuotaEntity

NOW_MS = 5_000_000.0


def entity(user: str | None = "-", client_id: str | None = "-") -> QuotaEntity:
    """Parts that are given; None is the default entity."""
    parts: list[tuple[str, str | None]] = []
    if client_id != "-":
        parts.append(("client-id", client_id))
    if user != "-":
        parts.append(("user", user))
    return tuple(parts)


# From the most specific to the least, with who shares each for user u and client c.
PRECEDENCE = [
    (entity("u", "c"), ("u", "c")),
    (entity("u", None), ("u", "c")),
    (entity("u"), ("u", "")),
    (entity(None, "c"), ("u", "c")),
    (entity(None, None), ("u", "c")),
    (entity(None), ("u", "")),
    (entity(client_id="c"), ("", "c")),
    (entity(client_id=None), ("", "c")),
]


@pytest.mark.parametrize("at", range(len(PRECEDENCE)))
def test_the_most_specific_limit_counts(at: int) -> None:
    limits: LimitByEntity = {
        quota_entity: float(index) for index, (quota_entity, _) in enumerate(PRECEDENCE) if index >= at
    }
    assert limit_for(limits, "u", "c") == SharedLimit(float(at), *PRECEDENCE[at][1])


def test_a_client_that_no_limit_names_has_none() -> None:
    assert limit_for({entity("other"): 1.0, entity(client_id="x"): 1.0}, "u", "c") is None


def test_a_client_without_an_id_is_under_default_limits_only() -> None:
    assert limit_for({entity(client_id=None): 7.0}, "u", "") == SharedLimit(7.0, "", "")


def image(**values: float) -> MetadataImage:
    """Default user's values."""
    return replace(EMPTY_IMAGE, client_quotas=Map({entity(None): Map(values)}))


def test_bytes_over_the_limit_cost_time_and_are_shared_by_a_users_clients() -> None:
    quotas, limits = ClientQuotaManager(), image(producer_byte_rate=100.0)
    assert quotas.record_bytes(limits, "producer_byte_rate", "u", "a", 1000, NOW_MS) == 0
    assert quotas.record_bytes(limits, "producer_byte_rate", "u", "b", 1000, NOW_MS) == 10_000
    assert quotas.record_bytes(limits, "producer_byte_rate", "other", "a", 1000, NOW_MS) == 0
    assert quotas.throttle_times("producer_byte_rate") == [
        ({"user": "u", "client_id": ""}, 10_000.0),
        ({"user": "other", "client_id": ""}, 0.0),
    ]


def test_a_changed_limit_counts_at_once() -> None:
    quotas = ClientQuotaManager()
    quotas.record_bytes(image(producer_byte_rate=100.0), "producer_byte_rate", "u", "a", 2000, NOW_MS)
    assert quotas.record_bytes(image(producer_byte_rate=1000.0), "producer_byte_rate", "u", "a", 0, NOW_MS) == 0
    assert quotas.record_bytes(EMPTY_IMAGE, "producer_byte_rate", "u", "a", 10**9, NOW_MS) == 0


def test_one_answer_alone_never_goes_over_the_limit() -> None:
    quotas, limits = ClientQuotaManager(), image(consumer_byte_rate=100.0)
    most = quotas.fetch_bytes_max(limits, "u", "a")
    assert most == 1000
    assert quotas.record_bytes(limits, "consumer_byte_rate", "u", "a", most, NOW_MS) == 0
    assert quotas.fetch_bytes_max(EMPTY_IMAGE, "u", "a") is None


def test_time_on_the_loop_is_counted_in_per_cent_and_costs_one_window_at_most() -> None:
    quotas, limits = ClientQuotaManager(), image(request_percentage=1.0)
    # 100 ms in ten seconds are one per cent.
    assert quotas.record_time(limits, "u", "a", 100.0, NOW_MS) == 0
    assert quotas.record_time(limits, "u", "a", 1000.0, NOW_MS) == 1000


def test_mutations_overdraw_the_bucket_once_and_are_refused_then() -> None:
    quotas, limits = ClientQuotaManager(), image(controller_mutation_rate=1.0)
    assert quotas.record_mutations(limits, "u", "a", 20, NOW_MS, strict=True) == 0
    assert quotas.record_mutations(limits, "u", "a", 1, NOW_MS, strict=True) == 9000
    # A refused request took nothing.
    assert quotas.record_mutations(limits, "u", "a", 1, NOW_MS + 8000, strict=True) == 1000
    assert quotas.record_mutations(limits, "u", "a", 1, NOW_MS + 9000, strict=True) == 0


def test_a_client_of_an_older_version_goes_on_and_waits_afterwards() -> None:
    quotas, limits = ClientQuotaManager(), image(controller_mutation_rate=1.0)
    assert quotas.record_mutations(limits, "u", "a", 20, NOW_MS, strict=False) == 9000
    assert quotas.record_mutations(limits, "u", "a", 1, NOW_MS, strict=False) == 10_000


def test_an_address_may_make_so_many_connections_and_no_more() -> None:
    own: QuotaEntity = (("ip", "10.0.0.1"),)
    every: QuotaEntity = (("ip", None),)
    rate = "connection_creation_rate"
    limits = replace(EMPTY_IMAGE, client_quotas=Map({own: Map({rate: 1.0}), every: Map({rate: 0.1})}))
    quotas = ClientQuotaManager()
    assert [quotas.connected(limits, "10.0.0.1", NOW_MS) for _ in range(11)] == [0] * 10 + [1000]
    assert [quotas.connected(limits, "10.0.0.2", NOW_MS) for _ in range(2)] == [0, 1000]
    assert quotas.connected(EMPTY_IMAGE, "10.0.0.1", NOW_MS) == 0
