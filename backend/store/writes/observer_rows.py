"""Writes of the observer beyond those of `writes`; each runs in the caller's transaction."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection, bindparam, delete, select, tuple_, update

from backend.store import tables as t
from backend.store.storable import storable_key
from backend.store.writes.cluster_rows import save_config_values

Resource = tuple[str, str]
"""(resource type, resource) of `config_value`."""
# More than the brokers that may be away; each is two parameters of a statement.
SILENT_MAX: Final = 100


def save_settings(
    connection: Connection,
    cluster_id: str,
    changed: Sequence[Mapping[str, Any]],
    unchanged: Collection[Resource],
    of_cluster: Collection[Resource],
    at_ms: int,
) -> None:
    """Settings after a reading of some of them: `changed` rows are replaced by resource, `unchanged` ones are as fresh.

    Resources that the cluster no longer has, those not in `of_cluster`, are removed; others keep their values and age.
    """
    save_config_values(connection, cluster_id, changed)
    table = t.config_value
    same = [table.c.resource_type == bindparam("key_type"), table.c.resource == bindparam("key_resource")]
    here = table.c.cluster_id == cluster_id
    resources = connection.execute(select(table.c.resource_type, table.c.resource).where(here).distinct())
    stored = {(kind, resource) for kind, resource in resources}
    gone = stored - _stored(of_cluster)
    if gone:
        connection.execute(delete(table).where(here, *same), _keys(gone))
    current = _stored({(row["resource_type"], row["resource"]) for row in changed}.union(unchanged))
    silent = stored - gone - current
    renew = update(table).where(here).values(sampled_ms=at_ms)
    if unchanged and len(silent) <= SILENT_MAX:  # nearly always: one statement for thousands
        others = tuple_(table.c.resource_type, table.c.resource).not_in(sorted(silent))
        connection.execute(renew.where(others) if silent else renew)
    elif unchanged:
        connection.execute(renew.where(*same), _keys(unchanged))


def _stored(resources: Iterable[Resource]) -> set[Resource]:
    """As the table has them."""
    return {(kind, storable_key(resource)) for kind, resource in resources}


def _keys(resources: Iterable[Resource]) -> list[dict[str, str]]:
    return [{"key_type": kind, "key_resource": resource} for kind, resource in resources]
