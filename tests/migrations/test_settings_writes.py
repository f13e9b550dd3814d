"""Settings as they are stored: those in a response have its age, others keep theirs, removed ones are deleted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, select

from backend.store import tables as t
from backend.store.connection.database import create_engine, reading, writing
from backend.store.writes.observer_rows import SILENT_MAX, Resource, save_settings
from tests.unit.store.history.test_sample_retention import row


@pytest.fixture
def engine(migrated_database: str) -> Iterator[Engine]:
    made = create_engine(migrated_database)
    with writing(made) as connection:
        connection.execute(t.cluster.insert(), [row(t.cluster, cluster_id="c")])
    yield made
    made.dispose()


def of(at_ms: int, resources: list[Resource]) -> dict[Resource, set[int]]:
    return {resource: {at_ms} for resource in resources}


def topics(count: int) -> list[Resource]:
    return [("topic", f"t-{number}") for number in range(count)]


def config_rows(resource: Resource, at_ms: int, **values: str) -> list[dict[str, Any]]:
    kind, name = resource
    return [
        row(t.config_value, cluster_id="c", resource_type=kind, resource=name, name=key, value=value, sampled_ms=at_ms)
        for key, value in values.items()
    ]


def save(engine: Engine, at_ms: int, changed: list[Resource], same: list[Resource], of_cluster: list[Resource]) -> None:
    rows = [setting for resource in changed for setting in config_rows(resource, at_ms, first=f"{at_ms}", second="s")]
    with writing(engine) as connection:
        save_settings(connection, "c", rows, set(same), set(of_cluster), at_ms)


def ages(engine: Engine) -> dict[Resource, set[int]]:
    by_resource: dict[Resource, set[int]] = {}
    with reading(engine) as connection:
        for setting in connection.execute(select(t.config_value)):
            by_resource.setdefault((setting.resource_type, setting.resource), set()).add(setting.sampled_ms)
    return by_resource


def test_a_look_that_brings_nothing_new_makes_everything_as_fresh(engine: Engine) -> None:
    all_ = topics(3)
    save(engine, 1, all_, [], all_)
    save(engine, 2, [], all_, all_)
    assert ages(engine) == of(2, all_)


@pytest.mark.parametrize("silent", [1, SILENT_MAX + 1])
def test_what_did_not_answer_keeps_its_age_whether_few_or_many(engine: Engine, silent: int) -> None:
    all_ = topics(silent + 3)
    save(engine, 1, all_, [], all_)
    quiet, changed, same = all_[:silent], all_[silent : silent + 1], all_[silent + 1 :]
    save(engine, 2, changed, same, all_)
    assert ages(engine) == of(1, quiet) | of(2, changed + same)


def test_a_look_at_a_new_topic_alone_leaves_all_others_as_they_are(engine: Engine) -> None:
    *old, new = topics(4)
    save(engine, 1, old, [], old)
    save(engine, 2, [new], [], [*old, new])
    assert ages(engine) == of(1, old) | of(2, [new])


def test_what_the_cluster_no_longer_has_is_removed(engine: Engine) -> None:
    gone, *left = topics(3)
    save(engine, 1, [gone, *left], [], [gone, *left])
    save(engine, 2, [], left, left)
    assert ages(engine) == of(2, left)
