"""Fields of a dataclass that are settings: type, default, limits, scope and documentation as metadata."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from backend.engine.config.setting_definition import UpdateMode
from backend.protocol.config_enums import ConfigType


def _setting(
    type: ConfigType, default: Any, *, dynamic: bool | UpdateMode = False, doc: str = "", **limits: Any
) -> Any:
    scope = dynamic if isinstance(dynamic, UpdateMode) else UpdateMode.CLUSTER_WIDE if dynamic else UpdateMode.READ_ONLY
    return field(default=default, metadata={"type": type, "scope": scope, "doc": doc, **limits})


def bool_field(default: bool, *, dynamic: bool = False, doc: str = "") -> Any:
    return _setting(ConfigType.BOOLEAN, default, dynamic=dynamic, doc=doc)


def int_field(
    default: int | None, *, least: float | None = None, dynamic: bool = False, doc: str = "", **more: Any
) -> Any:
    return _setting(ConfigType.INT, default, dynamic=dynamic, doc=doc, minimum=least, **more)


def short_field(default: int, *, least: float | None = None, doc: str = "", **more: Any) -> Any:
    return _setting(ConfigType.SHORT, default, doc=doc, minimum=least, **more)


def long_field(default: int | None, *, least: float | None = None, dynamic: bool = False, doc: str = "") -> Any:
    return _setting(ConfigType.LONG, default, dynamic=dynamic, doc=doc, minimum=least)


def double_field(
    default: float, *, least: float | None = None, dynamic: bool = False, doc: str = "", **more: Any
) -> Any:
    return _setting(ConfigType.DOUBLE, default, dynamic=dynamic, doc=doc, minimum=least, **more)


def text_field(default: str | None, *, dynamic: bool | UpdateMode = False, doc: str = "", **more: Any) -> Any:
    return _setting(ConfigType.STRING, default, dynamic=dynamic, doc=doc, **more)


def list_field(
    default: tuple[str, ...] | None, *, dynamic: bool | UpdateMode = False, doc: str = "", **more: Any
) -> Any:
    return _setting(ConfigType.LIST, default, dynamic=dynamic, doc=doc, **more)


def password_field(*, dynamic: UpdateMode = UpdateMode.READ_ONLY, doc: str = "") -> Any:
    return field(default=None, repr=False, metadata={"type": ConfigType.PASSWORD, "scope": dynamic, "doc": doc})
