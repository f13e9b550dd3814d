"""The examples of the OpenAPI document: each body has one, and it fits."""

from __future__ import annotations

import pytest

from backend.control.http.endpoints import ENDPOINTS
from backend.control.http.openapi import document
from backend.control.http.schemas import SteerBody
from backend.control.operations.registry import KINDS

SCHEMAS = document(ENDPOINTS, "0")["components"]["schemas"]
BODIES = {e.body_model for e in ENDPOINTS if e.body_model not in (None, SteerBody)}


@pytest.mark.parametrize("model", sorted(BODIES, key=lambda m: m.__name__), ids=lambda m: m.__name__)
def test_every_body_has_an_example_that_fits(model: type) -> None:
    for example in SCHEMAS[model.__name__]["examples"]:
        body = model.model_validate(example)  # type: ignore[attr-defined]  # pydantic's
        if "inputs" in example:
            assert KINDS[body.kind].inputs.model_validate(body.inputs)


def test_a_problem_has_an_example() -> None:
    assert SCHEMAS["ProblemAnswer"]["examples"][0]["status"] == 404
