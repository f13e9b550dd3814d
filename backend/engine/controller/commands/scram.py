"""AlterUserScramCredentials → UserScramCredentialRecord, RemoveUserScramCredentialRecord (KIP-554, KIP-900).

Facts of Kafka's `ScramControlManager`. The client sends the salted password, never the password.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from backend.engine.common.scram import ITERATIONS_MAX, ITERATIONS_MIN, MECHANISM_TYPES, credential
from backend.engine.controller.commands.outcome import Outcome, outcome
from backend.engine.controller.image import MetadataImage
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError
from backend.protocol.messages import Message

MECHANISM_NAMES: Final = {type: name for name, type in MECHANISM_TYPES.items()}


def alter_user_scram_credentials(
    image: MetadataImage, request: m.AlterUserScramCredentialsRequest
) -> Outcome[m.AlterUserScramCredentialsResponse]:
    """Each user on its own: all of its changes or none."""
    wanted = Counter((one.name, one.mechanism) for one in request.deletions)
    wanted.update((one.name, one.mechanism) for one in request.upsertions)
    records: dict[str, list[Message]] = {}
    refused: dict[str, KafkaError] = {}
    for user, made in _changes(image, request, wanted):
        kept = records.setdefault(user, [])
        if isinstance(made, KafkaError):
            refused.setdefault(user, made)
        else:
            kept.append(made)
    response = m.AlterUserScramCredentialsResponse()
    for user in records:
        error = refused.get(user)
        answer = response.Results(user=user, error_message=None)
        if error is not None:
            answer.error_code, answer.error_message = error.code, error.message
        response.results.append(answer)
    written = [record for user, kept in records.items() if user not in refused for record in kept]
    return outcome(written, response)


def _changes(
    image: MetadataImage, request: m.AlterUserScramCredentialsRequest, wanted: Counter[tuple[str, int]]
) -> Iterable[tuple[str, Message | KafkaError]]:
    for deletion in request.deletions:
        key = (deletion.mechanism, deletion.name)
        error = _refusal(deletion.name, deletion.mechanism, wanted)
        if error is None and key not in image.scram:
            error = KafkaError(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
        yield (
            deletion.name,
            error or m.RemoveUserScramCredentialRecord(name=deletion.name, mechanism=deletion.mechanism),
        )
    for upsertion in request.upsertions:
        error = _refusal(upsertion.name, upsertion.mechanism, wanted) or _bad_iterations(upsertion.iterations)
        yield upsertion.name, error or _record(upsertion)


def _refusal(name: str, mechanism: int, wanted: Counter[tuple[str, int]]) -> KafkaError | None:
    if not name:
        return KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if mechanism not in MECHANISM_NAMES:
        return KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if wanted[name, mechanism] > 1:
        return KafkaError(ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")
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
