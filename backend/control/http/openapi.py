"""`/openapi.json`, made from the table of endpoints and the pydantic models."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, TypeAdapter

from backend.control.http.api_models import ProblemAnswer
from backend.control.http.call import Access, ApiEndpoint
from backend.control.http.problems import MEDIA_TYPE

_REF: Final = "#/components/schemas/{model}"
# One by name of each model, as an embedded cluster answered; each fits its model, which a test checks.
ANSWER_EXAMPLES: Final = Path(__file__).with_name("answer_examples.json")
JsonObject = dict[str, Any]


def document(endpoints: Iterable[ApiEndpoint], version: str) -> JsonObject:
    """The whole API as OpenAPI 3.1."""
    schemas: JsonObject = {}
    paths: JsonObject = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, schemas)
    for model, example in json.loads(ANSWER_EXAMPLES.read_bytes()).items():
        schemas[model]["examples"] = [example]
    return {
        "openapi": "3.1.0",
        "info": {"title": "ebbline control API", "version": version},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(endpoint: ApiEndpoint, schemas: JsonObject) -> JsonObject:
    result: JsonObject = {
        "operationId": endpoint.name.replace(" ", "_"),
        "summary": endpoint.summary,
        "description": (endpoint.handler.__doc__ or "").strip(),
        "parameters": [*_parameters(endpoint, schemas)],
        "responses": _responses(endpoint, schemas),
        "security": [] if endpoint.access is Access.OPEN else [{"token": []}],
        "x-role": endpoint.access.value,
    }
    if endpoint.body_model is not None:
        schema = _schema(endpoint.body_model, schemas)
        result["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return result


def _responses(endpoint: ApiEndpoint, schemas: JsonObject) -> JsonObject:
    success = {
        "description": "Success",
        "content": {endpoint.media_type: {"schema": _schema(endpoint.response_type, schemas)}},
    }
    result: JsonObject = {str(endpoint.status): success}
    result |= {str(status): success for status in endpoint.other_successes}
    statuses = {413, 421, 429, 500, *endpoint.problems}
    if endpoint.access is not Access.OPEN:
        statuses |= {400, 401, 503}
    if endpoint.access is Access.OPERATOR:
        statuses.add(403)
    if endpoint.body_model is not None:
        statuses.add(415)
    statuses.add(422)
    problem = _schema(ProblemAnswer, schemas)
    for status in sorted(statuses):
        result.setdefault(str(status), {"description": "Problem", "content": {MEDIA_TYPE: {"schema": problem}}})
    return result


def _parameters(endpoint: ApiEndpoint, schemas: JsonObject) -> Iterable[JsonObject]:
    for place, model in (("path", endpoint.path_model), ("query", endpoint.query_model)):
        if model is None:
            continue
        schema = model.model_json_schema(ref_template=_REF)
        schemas.update(schema.pop("$defs", {}))
        required = set(schema.get("required", ()))
        for name, property_ in schema.get("properties", {}).items():
            yield {"name": name, "in": place, "required": place == "path" or name in required, "schema": property_}
    for name in endpoint.header_names:
        yield {"name": name, "in": "header", "required": True, "schema": {"type": "string", "maxLength": 128}}
    for name in endpoint.optional_header_names:
        yield {"name": name, "in": "header", "required": False, "schema": {"type": "string", "maxLength": 128}}


def _schema(kind: Any, schemas: JsonObject) -> JsonObject:
    """A reference to the model, whose definition goes to the components."""
    schema = TypeAdapter(kind).json_schema(ref_template=_REF)
    schemas.update(schema.pop("$defs", {}))
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        schemas[kind.__name__] = schema
        return {"$ref": _REF.format(model=kind.__name__)}
    return schema
