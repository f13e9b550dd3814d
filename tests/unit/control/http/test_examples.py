"""The examples of the OpenAPI document: each body and each answer has one, and it fits."""

from __future__ import annotations

import json
from typing import get_args

import pytest
from pydantic import BaseModel, TypeAdapter

from backend.control.http.endpoints import ENDPOINTS
from backend.control.http.openapi import document
from backend.control.operations.registry import KINDS

SCHEMAS = document(ENDPOINTS, "0")["components"]["schemas"]
BODIES: set[type[BaseModel]] = {e.body_model for e in ENDPOINTS if e.body_model is not None}
ANSWERS: set[type[BaseModel]] = {
    model
    for endpoint in ENDPOINTS
    for model in get_args(endpoint.response_type) or (endpoint.response_type,)
    if isinstance(model, type) and issubclass(model, BaseModel)
}


@pytest.mark.parametrize("model", sorted(BODIES, key=repr), ids=repr)
def test_every_body_has_an_example_that_fits(model: type[BaseModel]) -> None:
    for example in SCHEMAS[model.__name__]["examples"]:
        assert model.model_validate(example)
        if "inputs" in example:
            assert KINDS[example["kind"]].inputs.model_validate(example["inputs"])


@pytest.mark.parametrize("model", sorted(ANSWERS, key=repr), ids=repr)
def test_every_answer_has_an_example_that_fits(model: type[BaseModel]) -> None:
    (example,) = SCHEMAS[model.__name__]["examples"]
    answer = TypeAdapter(model).validate_python(example)
    assert json.loads(TypeAdapter(model).dump_json(answer)) == example, "it has every field, and no other"


def test_a_problem_has_an_example() -> None:
    assert SCHEMAS["ProblemAnswer"]["examples"][0]["status"] == 404
