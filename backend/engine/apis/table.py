"""The table of every API that a node serves. ``net`` dispatches by it and ApiVersions answers from it.

A module of this package that declares ``APIS`` is served: a new API is one new file.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pkgutil import walk_packages
from types import ModuleType
from typing import Final

from backend.engine import apis
from backend.engine.apis.api_declaration import ApiTable
from backend.engine.apis.services import Services


def _api_modules() -> Iterator[ModuleType]:
    for info in walk_packages(apis.__path__, f"{apis.__name__}."):
        module = import_module(info.name)
        if hasattr(module, "APIS"):
            yield module


# Imported with this module, so that the start of a node need not wait for it.
MODULES: Final = tuple(_api_modules())


def api_table() -> ApiTable[Services]:
    """The table of everything the modules declare."""
    return ApiTable(api for module in MODULES for api in module.APIS)
