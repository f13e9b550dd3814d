"""DescribeClientQuotas (48) and AlterClientQuotas (49), versions 0-1 (KIP-546).

Any broker describes from its metadata; the controller alters. Rules and words of ClientQuotasImage.describe.
Kafka: `KafkaApis.handleDescribeClientQuotasRequest`, `ControllerApis.handleAlterClientQuotas`.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from functools import partial
from typing import Final, Protocol

from backend.engine.apis.api_declaration import BROKER, CONTROLLER, Api, RequestContext
from backend.engine.apis.support.forwarding import carried_out, caught_up, forward
from backend.engine.common.controller_channel import ControllerChannel
from backend.engine.controller.commands.client_quota_control import CLIENT_ID, IP, TYPES, USER, alter_client_quotas
from backend.engine.controller.image.metadata_image import MetadataImage, QuotaEntity
from backend.engine.controller.image.replay import quota_entity
from backend.engine.controller.metadata.metadata_cache import MetadataCache
from backend.engine.controller.quorum_controller import Controller
from backend.engine.ports import Ports
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError

DESCRIBE_KEY: Final = 48
ALTER_KEY: Final = 49
# Match types of DescribeClientQuotas.
EXACT: Final = 0
DEFAULT: Final = 1
SPECIFIED: Final = 2

_Entry = m.DescribeClientQuotasResponse.Entries


class ClientQuotasServices(Protocol):
    """The parts of the node that these functions use."""

    node_id: int
    ports: Ports
    metadata: MetadataCache
    controller_channel: ControllerChannel
    controller: Controller | None


def describe_client_quotas(
    services: ClientQuotasServices, context: RequestContext, request: m.DescribeClientQuotasRequest
) -> m.DescribeClientQuotasResponse:
    """Entities that the filter fits, with their own values."""
    exact, any_name = parse_filter(request)
    image = services.metadata.image
    return m.DescribeClientQuotasResponse(
        error_message=None,
        entries=[
            _Entry(
                entity=[_Entry.Entity(entity_type=kind, entity_name=name) for kind, name in entity],
                values=[_Entry.Values(key=key, value=value) for key, value in sorted(values.items())],
            )
            for entity, values in image.client_quotas.items()
            if fits(entity, exact, any_name, strict=request.strict)
        ],
    )


def parse_filter(request: m.DescribeClientQuotasRequest) -> tuple[dict[str, str | None], set[str]]:
    """Types with the name they must have, and types that must be there. KafkaError for a filter that makes no sense."""
    exact: dict[str, str | None] = {}
    any_name: set[str] = set()
    for part in request.components:
        kind = part.entity_type
        if not kind:
            raise _refused("Invalid empty entity type.")
        if kind in exact or kind in any_name:
            raise _refused(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in TYPES:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        if part.match_type == EXACT:
            if part.match is None:
                raise _refused("Request specified MATCH_TYPE_EXACT, but set match string to null.")
            exact[kind] = part.match
        elif part.match_type in (DEFAULT, SPECIFIED):
            if part.match is not None:
                name = "DEFAULT" if part.match_type == DEFAULT else "SPECIFIED"
                raise _refused(f"Request specified MATCH_TYPE_{name}, but also specified a match string.")
            if part.match_type == DEFAULT:
                exact[kind] = None
            else:
                any_name.add(kind)
        else:
            raise _refused(f"Unknown match type {part.match_type}")
    named = {*exact, *any_name}
    if IP in named and named & {USER, CLIENT_ID}:
        raise _refused(
            "Invalid entity filter component combination. IP filter component should not be used with user or"
            " clientId filter component."
        )
    return exact, any_name


def fits(entity: QuotaEntity, exact: Mapping[str, str | None], any_name: Set[str], *, strict: bool) -> bool:
    """Whether an entity has all the parts asked for; `strict`: and no others."""
    parts = dict(entity)
    if strict and len(parts) != len(exact) + len(any_name):
        return False
    return all(kind in parts and parts[kind] == name for kind, name in exact.items()) and any_name <= parts.keys()


def _refused(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


def describe_on_error(
    request: m.DescribeClientQuotasRequest, version: int, code: int, message: str
) -> m.DescribeClientQuotasResponse:
    """No entries at all, as in Kafka's answer with an error."""
    return m.DescribeClientQuotasResponse(error_code=code, error_message=message, entries=None)


async def alter_on_broker(
    services: ClientQuotasServices, context: RequestContext, request: m.AlterClientQuotasRequest
) -> m.AlterClientQuotasResponse:
    """The controller's answer; then this broker knows the new values."""
    response = await forward(services, context, request, m.AlterClientQuotasResponse)
    if not request.validate_only:
        await caught_up(services, partial(_shows, request, response))
    return response


def _shows(request: m.AlterClientQuotasRequest, response: m.AlterClientQuotasResponse, image: MetadataImage) -> bool:
    for entry, result in zip(request.entries, response.entries, strict=False):
        if result.error_code:
            continue
        entity = quota_entity((part.entity_type, part.entity_name) for part in entry.entity)
        values: Mapping[str, float] = image.client_quotas.get(entity, {})
        if any(values.get(op.key) != (None if op.remove else op.value) for op in entry.ops):
            return False
    return True


async def alter_on_controller(
    services: ClientQuotasServices, context: RequestContext, request: m.AlterClientQuotasRequest
) -> m.AlterClientQuotasResponse:
    """See `controller.commands.client_quota_control`."""
    return await carried_out(
        services, "alter client quotas", partial(alter_client_quotas, request=request), by_worker=True
    )


def alter_on_error(
    request: m.AlterClientQuotasRequest, version: int, code: int, message: str
) -> m.AlterClientQuotasResponse:
    """Every entity with the error."""
    entry = m.AlterClientQuotasResponse.Entries
    return m.AlterClientQuotasResponse(
        entries=[
            entry(
                error_code=code,
                error_message=message,
                entity=[entry.Entity(entity_type=e.entity_type, entity_name=e.entity_name) for e in requested.entity],
            )
            for requested in request.entries
        ]
    )


APIS: Final = (
    Api(DESCRIBE_KEY, 0, 1, describe_client_quotas, BROKER, on_error=describe_on_error),
    Api(ALTER_KEY, 0, 1, alter_on_broker, BROKER, on_error=alter_on_error),
    Api(ALTER_KEY, 0, 1, alter_on_controller, CONTROLLER, on_error=alter_on_error),
)
