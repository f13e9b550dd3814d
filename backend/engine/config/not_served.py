"""Broker settings of Kafka 4.3.1 that this engine does not have, from `not_served.tsv` (scope in Kafka, name).

Such a name is no plug-in's, whose settings are nobody's business: a start that finds one in the broker's file says so,
and no client may set one while brokers run. Those that would change what is let in are refused (`security`).
"""

from __future__ import annotations

from importlib.resources import files
from typing import Final


def _of_scope(scope: str) -> frozenset[str]:
    lines = files(__package__).joinpath("not_served.tsv").read_text(encoding="utf-8").splitlines()
    return frozenset(name for its_scope, _, name in (line.partition("\t") for line in lines) if its_scope == scope)


# Whether Kafka lets them be changed while a broker runs.
READ_ONLY: Final = _of_scope("read-only")
DYNAMIC: Final = _of_scope("dynamic")
