"""The text of ``sasl.jaas.config``: one login module with its options, as Java's JAAS reads it (KIP-85)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from backend.engine.config.setting_definition import ConfigError

PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
USER_PREFIX: Final = "user_"

_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_OPTION: Final = r"([^\s=;\"]+)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|([^\s;\"]+))"
_MODULE: Final = re.compile(rf"\s*([\w.$]+)\s+(\w+)((?:\s+{_OPTION})*)\s*;\s*", re.DOTALL)
_OPTIONS: Final = re.compile(_OPTION, re.DOTALL)


@dataclass(frozen=True, slots=True)
class LoginModule:
    """A login module. Its options hold passwords."""

    name: str
    options: dict[str, str] = field(repr=False)

    @property
    def users(self) -> dict[str, str]:
        """PlainLoginModule's ``user_<name>`` options: name → password."""
        return {
            name.removeprefix(USER_PREFIX): value
            for name, value in self.options.items()
            if name.startswith(USER_PREFIX)
        }


def parse_jaas(setting: str, text: str) -> LoginModule:
    """The module of a setting's text. ConfigError, which shows nothing of the text: it holds passwords."""
    match = _MODULE.fullmatch(text)
    if match is None or match[2].lower() not in _FLAGS:
        raise ConfigError(
            f'{setting} is not of the form MODULE required username="..." password="...";, with one module'
        )
    options = {
        name: re.sub(r"\\(.)", r"\1", quoted) if bare == "" else bare
        for name, quoted, bare in _OPTIONS.findall(match[3])
    }
    return LoginModule(match[1], options)
