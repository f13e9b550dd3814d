"""DescribeClientQuotas: which entities a filter finds."""

from __future__ import annotations

from dataclasses import replace

import pytest
from immutables import Map

from backend.engine.controller.image.metadata_image import MetadataImage, QuotaEntity
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode
from tests.unit.engine.apis.admin_node import AdminNode, image_with, registered

EXACT, DEFAULT, SPECIFIED = 0, 1, 2
ALICE: QuotaEntity = (("user", "alice"),)
ALICE_APP: QuotaEntity = (("client-id", "app"), ("user", "alice"))
ANY_USER: QuotaEntity = (("user", None),)
ADDRESS: QuotaEntity = (("ip", "10.0.0.1"),)


def image() -> MetadataImage:
    quotas = {entity: Map({"producer_byte_rate": 1.0}) for entity in (ALICE, ALICE_APP, ANY_USER, ADDRESS)}
    return replace(image_with(registered(1)), client_quotas=Map(quotas))


def describe(*parts: tuple[str, int, str | None], strict: bool = False) -> m.DescribeClientQuotasResponse:
    component = m.DescribeClientQuotasRequest.Components
    request = m.DescribeClientQuotasRequest(
        components=[component(entity_type=kind, match_type=how, match=name) for kind, how, name in parts], strict=strict
    )
    response = AdminNode(image()).answer(request, 1)
    assert isinstance(response, m.DescribeClientQuotasResponse)
    return response


def entities(response: m.DescribeClientQuotasResponse) -> set[QuotaEntity]:
    return {
        tuple((entity.entity_type, entity.entity_name) for entity in entry.entity) for entry in response.entries or ()
    }


def test_no_filter_finds_all() -> None:
    assert entities(describe()) == {ALICE, ALICE_APP, ANY_USER, ADDRESS}


def test_a_name_is_found_with_and_without_further_parts() -> None:
    assert entities(describe(("user", EXACT, "alice"))) == {ALICE, ALICE_APP}
    assert entities(describe(("user", EXACT, "alice"), strict=True)) == {ALICE}


def test_the_default_entity_is_not_any_entity() -> None:
    assert entities(describe(("user", DEFAULT, None))) == {ANY_USER}
    assert entities(describe(("user", SPECIFIED, None), strict=True)) == {ALICE, ANY_USER}


@pytest.mark.parametrize(
    ("part", "code"),
    [
        (("", EXACT, "a"), ErrorCode.INVALID_REQUEST),
        (("group", EXACT, "a"), ErrorCode.UNSUPPORTED_VERSION),
        (("user", EXACT, None), ErrorCode.INVALID_REQUEST),
        (("user", DEFAULT, "a"), ErrorCode.INVALID_REQUEST),
        (("user", 7, None), ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_filter_that_makes_no_sense_is_refused(part: tuple[str, int, str | None], code: ErrorCode) -> None:
    response = describe(part)
    assert response.error_code == code
    assert response.entries is None


def test_addresses_do_not_go_with_users() -> None:
    assert describe(("ip", SPECIFIED, None), ("user", SPECIFIED, None)).error_code == ErrorCode.INVALID_REQUEST


def test_resources_with_configs_are_listed_by_kind() -> None:
    node = AdminNode(image_with(registered(1), registered(2, fenced=True)))
    listed = node.answer(m.ListConfigResourcesRequest(), 1).config_resources
    assert [(resource.resource_type, resource.resource_name) for resource in listed] == [(8, "1"), (4, "1")]
    assert node.answer(m.ListConfigResourcesRequest(), 0).config_resources == []
    refused = node.answer(m.ListConfigResourcesRequest(resource_types=[99]), 1)
    assert refused.error_code == ErrorCode.UNSUPPORTED_VERSION
