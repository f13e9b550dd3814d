"""The documentation of settings, which DescribeConfigs answers on request (KIP-569).

Kafka's settings have Kafka's text, from `documentation.tsv` (kind, name, text; Apache License 2.0); the product's own
have the line that stands beside them.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Literal

from backend.engine.config.setting_definition import Setting

SettingKind = Literal["broker", "topic", "group", "client-metrics"]


def documentation_of(kind: SettingKind, setting: Setting) -> str | None:
    """The text, None for a setting that this engine does not know."""
    return _texts().get((kind, setting.name)) or setting.doc or None


@cache
def _texts() -> dict[tuple[str, str], str]:
    texts = {}
    for line in files(__package__).joinpath("documentation.tsv").read_text(encoding="utf-8").splitlines():
        kind, name, text = line.split("\t")
        texts[kind, name] = text
    return texts
