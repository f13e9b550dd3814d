"""AlterClientQuotas (KIP-546) → ClientQuotaRecord; rules and words of ClientQuotaControlManager."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Final

from backend.engine.controller.commands.command import ControllerResult, checked_result
from backend.engine.controller.image.metadata_image import MetadataImage, QuotaEntity
from backend.engine.controller.image.replay import quota_entity
from backend.protocol import messages as m
from backend.protocol.config_enums import ConfigType
from backend.protocol.errors import ErrorCode, KafkaError

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
TYPES: Final = (USER, CLIENT_ID, IP)

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

_USER_KEYS: Final = {
    PRODUCER_BYTE_RATE: ConfigType.LONG,
    CONSUMER_BYTE_RATE: ConfigType.LONG,
    REQUEST_PERCENTAGE: ConfigType.DOUBLE,
    CONTROLLER_MUTATION_RATE: ConfigType.DOUBLE,
}
_IP_KEYS: Final = {CONNECTION_CREATION_RATE: ConfigType.INT}
_LARGEST: Final = {ConfigType.INT: float(2**31 - 1), ConfigType.LONG: float(2**63 - 1)}
# A double that was an integer once may be off by this much.
_FRACTION_MAX: Final = 1e-6

_Entry = m.AlterClientQuotasRequest.Entries


def alter_client_quotas(
    image: MetadataImage, request: m.AlterClientQuotasRequest
) -> ControllerResult[m.AlterClientQuotasResponse]:
    """Each entity on its own: all of its values or none."""
    records: list[m.ClientQuotaRecord] = []
    response = m.AlterClientQuotasResponse()
    seen: set[QuotaEntity] = set()
    for entry in request.entries:
        result = m.AlterClientQuotasResponse.Entries(
            error_message=None,
            entity=[
                m.AlterClientQuotasResponse.Entries.Entity(entity_type=part.entity_type, entity_name=part.entity_name)
                for part in entry.entity
            ],
        )
        response.entries.append(result)
        try:
            entity = check_entity(entry)
            if entity in seen:
                raise _refused(f"Ignoring duplicate entity {shown(entity)}")
            seen.add(entity)
            records += _alter(image, entity, entry)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
    return checked_result([] if request.validate_only else records, response)


def check_entity(entry: _Entry) -> QuotaEntity:
    """The entity in its one form; KafkaError when there is no such kind of entity."""
    if not entry.entity:
        raise _refused("Invalid empty client quota entity")
    types: set[str] = set()
    for part in entry.entity:
        if part.entity_type in types:
            raise _refused(f"Invalid client quota entity, duplicate entity entry {part.entity_type}")
        if part.entity_type not in TYPES:
            raise _refused(f"Unhandled client quota entity type: {part.entity_type}")
        if part.entity_name == "":
            raise _refused(f"Empty {part.entity_type} not supported")
        types.add(part.entity_type)
    if IP in types:
        if len(types) > 1:
            raise _refused("Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId")
        _check_ip(entry.entity[0].entity_name)
    return quota_entity((part.entity_type, part.entity_name) for part in entry.entity)


def _check_ip(name: str | None) -> None:
    """Kafka takes names that resolve, too; the controller asks no name server (a quota is for one address)."""
    if name is None or name == "localhost":
        return
    try:
        ip_address(name)
    except ValueError:
        raise _refused(f"{name} is not a valid IP or resolvable host.") from None


def _alter(image: MetadataImage, entity: QuotaEntity, entry: _Entry) -> list[m.ClientQuotaRecord]:
    current: Mapping[str, float] = image.client_quotas.get(entity, {})
    keys = _IP_KEYS if entity[0][0] == IP else _USER_KEYS
    records: list[m.ClientQuotaRecord] = []
    seen: set[str] = set()
    for op in entry.ops:
        if op.key in seen:
            raise _refused(f"Duplicate quota key {op.key} not updating quota for this entity {shown(entity)}")
        seen.add(op.key)
        if op.remove:
            if op.key in current:
                records.append(_record(entity, op.key, 0.0, remove=True))
            continue
        _check_value(keys, op.key, op.value)
        if current.get(op.key) != op.value:
            records.append(_record(entity, op.key, op.value, remove=False))
    return records


def _check_value(keys: dict[str, ConfigType], key: str, value: float) -> None:
    type = keys.get(key)
    if type is None:
        raise _refused(f"Invalid configuration key {key}")
    # Not `value <= 0`: that would let NaN pass.
    if not value > 0:
        raise _refused(f"Quota {key} must be greater than 0")
    largest = _LARGEST.get(type)
    if largest is None:
        return
    if value > largest:
        raise _refused(
            f"Proposed value for {key} is too large for {'an' if type is ConfigType.INT else 'a'} {type.name}."
        )
    if value % 1.0 > _FRACTION_MAX:
        raise _refused(f"{key} cannot be a fractional value.")


def _record(entity: QuotaEntity, key: str, value: float, *, remove: bool) -> m.ClientQuotaRecord:
    parts = [m.ClientQuotaRecord.Entity(entity_type=kind, entity_name=name) for kind, name in entity]
    return m.ClientQuotaRecord(entity=parts, key=key, value=value, remove=remove)


def shown(entity: QuotaEntity) -> str:
    """The entity in the form of Kafka's ClientQuotaEntity.toString."""
    parts = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in entity)
    return f"ClientQuotaEntity(entries={{{parts}}})"


def _refused(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
