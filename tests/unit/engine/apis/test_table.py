"""The table of APIs: every module's handlers can be served by the parts that a node has."""

from __future__ import annotations

import sys
from inspect import signature

import pytest

from backend.engine.apis.api_declaration import Api, ApiTable
from backend.engine.apis.services import BrokerServices, Services
from backend.engine.apis.table import MODULES, api_table

BROKER_KEYS_MIN = 50
# A part whose own type says less than the field of `Services`: ApiVersions lists keys and versions only.
WIDER = {"apis"}


def test_each_module_of_the_package_is_served() -> None:
    assert len(api_table().served("broker")) >= BROKER_KEYS_MIN
    assert {52, 53, 54} <= api_table().served("controller").keys()


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__.rpartition(".")[2])
def test_what_handlers_ask_of_a_node_is_what_a_node_has(module: object) -> None:
    of_every_node = Services.__annotations__
    for api in module.APIS:  # type: ignore[attr-defined]
        # A node may have the controller role alone.
        has = of_every_node if "controller" in api.listeners else of_every_node | BrokerServices.__annotations__
        name = next(iter(signature(api.handler).parameters.values())).annotation
        protocol = getattr(sys.modules[api.handler.__module__], name, object)
        for part, kind in getattr(protocol, "__annotations__", {}).items():
            assert part in WIDER or has[part] == kind, (api.handler, part)


def test_a_key_that_is_declared_twice_is_an_error() -> None:
    api: Api[object] = Api(18, 0, 4, lambda services, context, request: None)
    with pytest.raises(ValueError, match="declared twice"):
        ApiTable([api, api])
