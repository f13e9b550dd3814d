"""DescribeUserScramCredentials (50) and AlterUserScramCredentials (51), version 0 (KIP-554).

Described from this broker's metadata (`ScramImage.describe`), altered by the controller. Neither ever shows a key.
Kafka: `KafkaApis.handleDescribeUserScramCredentialsRequest`, `ControllerApis.handleAlterUserScramCredentials`.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Final, Protocol

from backend.engine.apis.api_declaration import BROKER, CONTROLLER, Api, RequestContext
from backend.engine.apis.support.forwarding import carried_out, caught_up, forward, image_of
from backend.engine.common.controller_channel import ControllerChannel
from backend.engine.controller.commands.scram_control import alter_user_scram_credentials
from backend.engine.controller.image.metadata_image import MetadataImage
from backend.engine.controller.metadata.metadata_cache import MetadataCache
from backend.engine.controller.quorum_controller import Controller
from backend.engine.ports import Ports
from backend.engine.ports.time_slices import Steps
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode
from backend.protocol.scram import MECHANISM_TYPES

DESCRIBE_KEY: Final = 50
ALTER_KEY: Final = 51


class ScramCredentialsServices(Protocol):
    """The parts of the node that these functions use."""

    node_id: int
    ports: Ports
    metadata: MetadataCache
    controller_channel: ControllerChannel
    controller: Controller | None


def describe(
    services: ScramCredentialsServices, context: RequestContext, request: m.DescribeUserScramCredentialsRequest
) -> Steps[m.DescribeUserScramCredentialsResponse]:
    """Mechanisms and iterations of the users asked for, or of all."""
    image = image_of(services, context)
    user_counts = Counter(user_name.name for user_name in request.users or ()) or Counter(
        {user for _, user in image.scram}
    )
    response = m.DescribeUserScramCredentialsResponse()
    for user, times in user_counts.items():
        response.results.append(_described(image, user, times))
        yield
    return response


def _described(image: MetadataImage, user: str, times: int) -> m.DescribeUserScramCredentialsResponse.Results:
    result = m.DescribeUserScramCredentialsResponse.Results
    if times > 1:
        return result(
            user=user,
            error_code=ErrorCode.DUPLICATE_RESOURCE,
            error_message=f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}",
        )
    infos = [
        result.CredentialInfos(mechanism=mechanism, iterations=stored.iterations)
        for mechanism in MECHANISM_TYPES.values()
        if (stored := image.scram.get((mechanism, user))) is not None
    ]
    if not infos:
        return result(
            user=user,
            error_code=ErrorCode.RESOURCE_NOT_FOUND,
            error_message=f"Attempt to describe a user credential that does not exist: {user}",
        )
    return result(user=user, credential_infos=infos)


def describe_on_error(
    request: m.DescribeUserScramCredentialsRequest, version: int, code: int, message: str
) -> m.DescribeUserScramCredentialsResponse:
    """The error as a whole."""
    return m.DescribeUserScramCredentialsResponse(error_code=code, error_message=message)


async def alter_on_broker(
    services: ScramCredentialsServices, context: RequestContext, request: m.AlterUserScramCredentialsRequest
) -> m.AlterUserScramCredentialsResponse:
    """The controller's answer, once this broker lets the users in (or out)."""
    before = services.metadata.image.scram
    response = await forward(services, context, request, m.AlterUserScramCredentialsResponse)
    changed = {change.user for change in response.results if not change.error_code}
    there = {(change.mechanism, change.name) for change in request.upsertions if change.name in changed}
    deleted = {(change.mechanism, change.name) for change in request.deletions if change.name in changed}
    await caught_up(
        services,
        lambda image: (
            all(key in image.scram and image.scram[key] is not before.get(key) for key in there)
            and all(key not in image.scram for key in deleted)
        ),
    )
    return response


async def alter_on_controller(
    services: ScramCredentialsServices, context: RequestContext, request: m.AlterUserScramCredentialsRequest
) -> m.AlterUserScramCredentialsResponse:
    """See `controller.commands.scram_control`."""
    command = partial(alter_user_scram_credentials, request=request)
    return await carried_out(services, "alter SCRAM credentials", command, by_worker=True)


def alter_on_error(
    request: m.AlterUserScramCredentialsRequest, version: int, code: int, message: str
) -> m.AlterUserScramCredentialsResponse:
    """Every user with the error."""
    response = m.AlterUserScramCredentialsResponse
    users = dict.fromkeys(
        [*(change.name for change in request.deletions), *(change.name for change in request.upsertions)]
    )
    return response(results=[response.Results(user=user, error_code=code, error_message=message) for user in users])


APIS: Final = (
    Api(DESCRIBE_KEY, 0, 0, describe, BROKER, on_error=describe_on_error),
    Api(ALTER_KEY, 0, 0, alter_on_broker, BROKER, on_error=alter_on_error),
    Api(ALTER_KEY, 0, 0, alter_on_controller, CONTROLLER, on_error=alter_on_error),
)
