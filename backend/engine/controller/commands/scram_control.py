"""AlterUserScramCredentials → UserScramCredentialRecord, RemoveUserScramCredentialRecord (KIP-554, KIP-900).

Facts of Kafka's `ScramControlManager`. The client sends the salted password, never the password.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from backend.engine.controller.commands.command import ControllerResult, checked_result
from backend.engine.controller.image.metadata_image import MetadataImage
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError
from backend.protocol.messages import Message
from backend.protocol.scram import ITERATIONS_MAX, ITERATIONS_MIN, MECHANISM_TYPES, credential

MECHANISM_NAMES: Final = {type: name for name, type in MECHANISM_TYPES.items()}


def alter_user_scram_credentials(
    image: MetadataImage, request: m.AlterUserScramCredentialsRequest
) -> ControllerResult[m.AlterUserScramCredentialsResponse]:
    """Each user on its own. One that is named twice gets no change at all, whichever the mechanisms."""
    kept: dict[str, Message] = {}
    refused: dict[str, KafkaError] = {}
    for user, made in (*_deletions(image, request), *_upsertions(request)):
        if user in refused:
            continue
        if user in kept:
            refused[user] = KafkaError(
                ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
            )
        elif isinstance(made, KafkaError):
            refused[user] = made
        else:
            kept[user] = made
    result = m.AlterUserScramCredentialsResponse.Results
    accepted = [result(user=user, error_message=None) for user in kept if user not in refused]
    accepted += [
        result(user=user, error_code=error.code, error_message=error.message) for user, error in refused.items()
    ]
    written = [record for user, record in kept.items() if user not in refused]
    return checked_result(written, m.AlterUserScramCredentialsResponse(results=accepted))


def _deletions(
    image: MetadataImage, request: m.AlterUserScramCredentialsRequest
) -> Iterator[tuple[str, Message | KafkaError]]:
    for deletion in request.deletions:
        error = _refusal(deletion.name, deletion.mechanism)
        if error is None and (deletion.mechanism, deletion.name) not in image.scram:
            error = KafkaError(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
        yield (
            deletion.name,
            error or m.RemoveUserScramCredentialRecord(name=deletion.name, mechanism=deletion.mechanism),
        )


def _upsertions(request: m.AlterUserScramCredentialsRequest) -> Iterator[tuple[str, Message | KafkaError]]:
    for upsertion in request.upsertions:
        error = _refusal(upsertion.name, upsertion.mechanism) or _bad_iterations(upsertion.iterations)
        yield upsertion.name, error or _record(upsertion)


def _refusal(name: str, mechanism: int) -> KafkaError | None:
    if not name:
        return KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if mechanism not in MECHANISM_NAMES:
        return KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    return None


def _bad_iterations(iterations: int) -> KafkaError | None:
    if iterations > ITERATIONS_MAX:
        return KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    if iterations < ITERATIONS_MIN:
        return KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    return None


def _record(upsertion: m.AlterUserScramCredentialsRequest.Upsertions) -> m.UserScramCredentialRecord:
    made = credential(
        MECHANISM_NAMES[upsertion.mechanism],
        bytes(upsertion.salted_password),
        bytes(upsertion.salt),
        upsertion.iterations,
    )
    return m.UserScramCredentialRecord(
        name=upsertion.name,
        mechanism=upsertion.mechanism,
        salt=made.salt,
        stored_key=made.stored_key,
        server_key=made.server_key,
        iterations=made.iterations,
    )
