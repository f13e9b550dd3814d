"""The API against inputs made from its own OpenAPI document (schemathesis): no 5xx, answers as documented, and a call
that is refused has changed nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from confluent_kafka.admin import ConfigResource
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from backend.control.http.call import ApiEndpoint
from backend.control.http.endpoints import ENDPOINTS
from backend.control.http.guard import RateLimit
from tests.control.site import ControlSite
from tests.effort import effort

# A stream that goes on for minutes is no answer to wait for: tests/control/test_plans.py reads it.
STREAMS = {"plan events"}
# A race that fits would be run, what the lab can break be broken, and findings would send nothing for days.
AS_VIEWER = {"start bootstrap race", "break", "add maintenance", "change rule"}
FUZZED = [endpoint for endpoint in ENDPOINTS if endpoint.name not in STREAMS]
# How the endpoint is called; wrongly only where it takes something.
CASES = [(endpoint, GenerationMode.POSITIVE) for endpoint in FUZZED] + [
    (endpoint, GenerationMode.NEGATIVE)
    for endpoint in FUZZED
    if endpoint.path_model or endpoint.query_model or endpoint.body_model
]
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
HARMLESS = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]


@pytest.fixture(scope="module")
def schema(site: ControlSite) -> Iterator[Any]:
    # Other tests are for the limit of calls a second; here it would answer nearly every call.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RateLimit, "take", lambda *_: 0.0)
        yield schemathesis.openapi.from_dict(site.operator.get("/openapi.json").json())


def stored(site: ControlSite) -> Any:
    """The rows that a call could have changed in the database; a finding changes by itself, too."""
    columns = ("id", "acknowledged_by", "muted_until_ms")
    findings = site.get("/v1/findings?state=all&limit=1000")["items"]
    return site.get("/v1/plans?limit=1000"), [
        {name: row[name] for name in columns} for row in findings if row[columns[1]] or row[columns[2]]
    ]


def in_the_cluster(site: ControlSite) -> Any:
    """The state that a plan could have changed in the cluster."""
    resource = ConfigResource(ConfigResource.Type.BROKER, "1")
    settings_ = site.admin.describe_configs([resource])[resource].result(30)
    topics = site.admin.list_topics(timeout=30).topics
    replicas = {(name, p): part.replicas for name, topic in topics.items() for p, part in topic.partitions.items()}
    return {name: entry.value for name, entry in settings_.items()}, replicas


@pytest.fixture(scope="module", autouse=True)
def unchanged(site: ControlSite) -> Iterator[None]:
    """Nothing that is made up here is confirmed, so the cluster is at the end as it was."""
    before = in_the_cluster(site)
    yield
    assert in_the_cluster(site) == before


# The generator uses `random`, which is its own affair.
@pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisDeprecationWarning")
@pytest.mark.parametrize(("endpoint", "mode"), CASES, ids=lambda parameter: parameter.name.lower())
def test_what_is_sent_is_answered_as_documented_and_a_refusal_changes_nothing(
    site: ControlSite, schema: Any, endpoint: ApiEndpoint, mode: GenerationMode
) -> None:
    operation = schema[endpoint.path][endpoint.method]
    token = site.token("operator") if endpoint.name not in AS_VIEWER else site.token("app")

    @settings(max_examples=effort(2, 150), deadline=None, database=None, suppress_health_check=HARMLESS)
    @given(case=operation.as_strategy(generation_mode=mode))
    def every(case: Any) -> None:
        before = stored(site) if endpoint.method != "GET" else None
        answer = case.call(base_url=str(site.operator.base_url), headers={"Authorization": f"Bearer {token}"})
        case.validate_response(answer, checks=CHECKS)
        if before is not None and answer.status_code >= 400:
            assert stored(site) == before

    every()
