"""The examples of the OpenAPI document: each body has one, and it fits."""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from backend.control.http.endpoints import ENDPOINTS
from backend.control.http.openapi import document
from backend.control.http.schemas import SteerBody
from backend.control.operations.registry import KINDS

SCHEMAS = document(ENDPOINTS, "0")["components"]["schemas"]
BODIES: set[type[BaseModel]] = {
    e.body_model for e in ENDPOINTS if e.body_model is not None and e.body_model is not SteerBody
}


@pytest.mark.parametrize("model", sorted(BODIES, key=repr), ids=repr)
def test_every_body_has_an_example_that_fits(model: type[BaseModel]) -> None:
    for example in SCHEMAS[model.__name__]["examples"]:
        assert model.model_validate(example)
        if "inputs" in example:
            assert KINDS[example["kind"]].inputs.model_validate(example["inputs"])


def test_a_problem_has_an_example() -> None:
    assert SCHEMAS["ProblemAnswer"]["examples"][0]["status"] == 404
