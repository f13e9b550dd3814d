"""Kinds `topic_config` and `broker_config`: settings of a topic, of one broker or of all brokers, tiering included.

Kafka itself is asked first whether it would take the change (`validateOnly`); what it would take and an operator would
regret (copying paused, remote data deleted) is said in words before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from backend.control.gateway.connection_pool import Lane
from backend.control.gateway.kafka_client import describe_failure
from backend.control.gateway.requests import config_requests
from backend.control.gateway.requests.config_requests import ConfigChange, ConfigResource, Entries
from backend.control.gateway.requests.metadata_requests import fetch_brokers, fetch_cluster
from backend.control.operations.config import set_aside_removal as removal
from backend.control.operations.config.config_texts import dialog_texts, lines
from backend.control.operations.config.topic_config_rules import check_topic_config, deletes_remote
from backend.control.operations.lifecycle.plan_draft import (
    Change,
    CheckOutcome,
    Draft,
    JsonObject,
    PlanCheck,
    PlanVerification,
)
from backend.control.operations.operation_errors import InvalidInput
from backend.control.operations.operation_kind import OperationContext, SingleRequestKind
from backend.control.operations.reassign.reassignment_inputs import TopicNameInput
from backend.protocol.config_enums import AlterConfigOp, ConfigSource
from backend.protocol.errors import ErrorCode, KafkaError
from backend.store.queries import partitions

ConfigName = Annotated[str, StringConstraints(min_length=1, max_length=249, pattern=r"^[A-Za-z0-9._-]+$")]
ConfigValue = Annotated[str, StringConstraints(max_length=10_000)]
# Shell characters of a value are quoted as a whole; Kafka's tool takes lists in square brackets.
_QUOTE: Final = "'"


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    settings: Annotated[dict[ConfigName, ConfigValue | None], Field(min_length=1, max_length=50)]
    """Value by name; null removes it here, so that the next level counts again."""


class TopicConfigInputs(_Settings):
    """Settings of one topic."""

    topic: TopicNameInput

    @property
    def resource(self) -> ConfigResource:
        return ConfigResource(config_requests.TOPIC, self.topic)

    @property
    def source(self) -> ConfigSource:
        return ConfigSource.DYNAMIC_TOPIC_CONFIG

    @property
    def entity(self) -> str:
        return f"--entity-type topics --entity-name {self.topic}"

    @property
    def object(self) -> str:
        return self.topic


class BrokerConfigInputs(_Settings):
    """Settings of one broker, or with the scope cluster of all brokers."""

    scope: Literal["cluster", "broker"] = "cluster"
    broker_id: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None

    @model_validator(mode="after")
    def _broker_fits_scope(self) -> BrokerConfigInputs:
        if (self.scope == "broker") != (self.broker_id is not None):
            raise ValueError("give broker_id with the scope broker, and only with it")
        return self

    @property
    def resource(self) -> ConfigResource:
        return ConfigResource(
            config_requests.BROKER, config_requests.CLUSTER_DEFAULT if self.broker_id is None else str(self.broker_id)
        )

    @property
    def source(self) -> ConfigSource:
        if self.broker_id is None:
            return ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
        return ConfigSource.DYNAMIC_BROKER_CONFIG

    @property
    def entity(self) -> str:
        which = "--entity-default" if self.broker_id is None else f"--entity-name {self.broker_id}"
        return f"--entity-type brokers {which}"

    @property
    def object(self) -> str:
        return "brokers (cluster default)" if self.broker_id is None else f"broker {self.broker_id}"


ConfigInputs = TopicConfigInputs | BrokerConfigInputs


class _ConfigKind(SingleRequestKind[ConfigInputs]):
    name = ""

    async def snapshot(self, context: OperationContext, inputs: ConfigInputs) -> JsonObject:
        """Values that are set now at this level, and those in effect."""
        entries = await _describe(context, inputs)
        return {
            "set": {name: _own(entries, name, inputs.source) for name in inputs.settings},
            "hidden": sorted(name for name in inputs.settings if name in entries and entries[name].sensitive),
            "seen": {"effective": {name: entry.value for name, entry in entries.items() if not entry.sensitive}},
        }

    async def draft(self, context: OperationContext, inputs: ConfigInputs, snapshot: JsonObject) -> Draft:
        before: dict[str, str | None] = snapshot["set"]
        remote_bytes = await _remote_bytes(context, inputs)
        result = [_change(inputs, snapshot), await _accepted(context, inputs), _visible(snapshot)]
        if isinstance(inputs, TopicConfigInputs):
            result += check_topic_config(inputs.settings, snapshot["seen"]["effective"], remote_bytes)
        return Draft(
            object=inputs.object,
            changes=tuple(Change(inputs.object, name, before[name], value) for name, value in inputs.settings.items()),
            checks=_worst_first(result),
            cli=tuple(cli(inputs)),
            words=dialog_texts(context.cluster_name, inputs.object, inputs.settings, remote_bytes),
            extra={"lines": lines(inputs.settings, snapshot)},
        )

    async def apply(self, context: OperationContext, inputs: ConfigInputs, snapshot: JsonObject) -> None:
        await config_requests.alter_configs(context.gateway, inputs.resource, _entries(inputs))

    async def verify(self, context: OperationContext, inputs: ConfigInputs, snapshot: JsonObject) -> PlanVerification:
        """In effect when the level shows what was asked for; of a secret only that it is set."""
        entries = await _describe(context, inputs)
        wrong = [
            name
            for name, value in inputs.settings.items()
            if not (name in entries and entries[name].sensitive) and _own(entries, name, inputs.source) != value
        ]
        if wrong:
            return PlanVerification(False, f"Not yet in effect: {', '.join(wrong)}.")
        return PlanVerification(True, f"{inputs.object} shows it.")

    def revert_inputs(self, inputs: ConfigInputs, snapshot: JsonObject) -> Mapping[str, object] | None:
        """Remote data that was deleted does not come back."""
        if isinstance(inputs, TopicConfigInputs) and deletes_remote(inputs.settings):
            return None
        return inputs.model_dump() | {"settings": dict(snapshot["set"])}


class TopicConfigKind(_ConfigKind):
    """See `OperationKind`."""

    name = "topic_config"
    inputs = TopicConfigInputs


class BrokerConfigKind(_ConfigKind):
    """See `OperationKind`. Set-aside folders are removed by a setting; then the plan is about them."""

    name = "broker_config"
    inputs = BrokerConfigInputs

    async def draft(self, context: OperationContext, inputs: ConfigInputs, snapshot: JsonObject) -> Draft:
        """With what is removed, in the words of that."""
        draft = await super().draft(context, inputs, snapshot)
        names = removal.removed_folders(inputs.settings)
        if not isinstance(inputs, BrokerConfigInputs) or inputs.broker_id is None or not names:
            return draft
        kept = await removal.kept_by(context.gateway, inputs.broker_id)
        checks = _worst_first([*draft.checks, removal.check(names, inputs.broker_id, kept)])
        return replace(
            draft, checks=checks, words=removal.dialog_texts(context.cluster_name, inputs.broker_id, names, kept)
        )

    async def verify(self, context: OperationContext, inputs: ConfigInputs, snapshot: JsonObject) -> PlanVerification:
        """Also that what was to be removed is gone."""
        verification = await super().verify(context, inputs, snapshot)
        names = removal.removed_folders(inputs.settings)
        if not verification.done or not isinstance(inputs, BrokerConfigInputs) or inputs.broker_id is None or not names:
            return verification
        left = removal.left(names, await removal.kept_by(context.gateway, inputs.broker_id))
        return verification if left is None else PlanVerification(False, left)

    def revert_inputs(self, inputs: ConfigInputs, snapshot: JsonObject) -> Mapping[str, object] | None:
        """None for a removal: a deleted folder does not come back."""
        return None if removal.removed_folders(inputs.settings) else super().revert_inputs(inputs, snapshot)


async def _describe(context: OperationContext, inputs: ConfigInputs) -> Entries:
    await fetch_cluster(context.gateway, lane=Lane.ACT)
    if isinstance(inputs, TopicConfigInputs):
        topics = await config_requests.describe_topics(context.gateway, [inputs.topic], lane=Lane.ACT)
        if inputs.topic not in topics:
            raise InvalidInput(f"There is no topic {inputs.topic}: look at the list of partitions.")
        return topics[inputs.topic]
    if inputs.broker_id is None:
        return await config_requests.describe_cluster_default(context.gateway, lane=Lane.ACT)
    registered = {b.broker_id for b in await fetch_brokers(context.gateway)}
    if inputs.broker_id not in registered:
        names = ", ".join(map(str, sorted(registered)))
        raise InvalidInput(f"There is no broker {inputs.broker_id}; registered are {names}.")
    return await config_requests.describe_broker(context.gateway, inputs.broker_id, lane=Lane.ACT)


def _worst_first(checks: Iterable[PlanCheck]) -> tuple[PlanCheck, ...]:
    order = [CheckOutcome.REFUSED, CheckOutcome.WARNING, CheckOutcome.OK]
    return tuple(sorted(checks, key=lambda check: order.index(check.outcome)))


def _own(entries: Entries, name: str, source: ConfigSource) -> str | None:
    """The value that this level gives."""
    entry = entries.get(name)
    if entry is None:
        return None
    return entry.value if entry.source is source else entry.at(source)


def _entries(inputs: ConfigInputs) -> list[ConfigChange]:
    return [
        ConfigChange(name, AlterConfigOp.DELETE if value is None else AlterConfigOp.SET, value)
        for name, value in inputs.settings.items()
    ]


async def _accepted(context: OperationContext, inputs: ConfigInputs) -> PlanCheck:
    """Kafka's own word on it."""
    try:
        await config_requests.alter_configs(context.gateway, inputs.resource, _entries(inputs), validate_only=True)
    except KafkaError as error:
        if error.retriable or error.code is ErrorCode.NOT_CONTROLLER:
            raise
        return PlanCheck("kafka", CheckOutcome.REFUSED, f"Kafka would refuse it. {describe_failure(error)}")
    return PlanCheck("kafka", CheckOutcome.OK, "Kafka would take it.")


def _change(inputs: ConfigInputs, snapshot: JsonObject) -> PlanCheck:
    hidden = set(snapshot["hidden"])
    if any(name in hidden or snapshot["set"][name] != value for name, value in inputs.settings.items()):
        return PlanCheck("change", CheckOutcome.OK, "There is something to change.")
    return PlanCheck(
        "change", CheckOutcome.REFUSED, f"{inputs.object} has these settings already: there is nothing to change."
    )


def _visible(snapshot: JsonObject) -> PlanCheck:
    if snapshot["hidden"]:
        text = f"Kafka does not tell the value of {', '.join(snapshot['hidden'])}: a revert could only remove it."
        return PlanCheck("hidden", CheckOutcome.WARNING, text)
    return PlanCheck("hidden", CheckOutcome.OK, "Kafka tells the values of now, so they can be put back.")


async def _remote_bytes(context: OperationContext, inputs: ConfigInputs) -> int | None:
    """Bytes of the topic in the ledger; None: not a topic, or not known."""
    if not isinstance(inputs, TopicConfigInputs):
        return None
    topic = inputs.topic
    rows = await context.database.read(lambda c: partitions.partitions(c, context.cluster_id))
    sizes = [row.ledger_bytes for row in rows if row.topic == topic and row.ledger_bytes is not None]
    return sum(sizes) if sizes else None


def cli(inputs: ConfigInputs) -> list[str]:
    """The same with Kafka's own tool."""
    base = f"kafka-configs.sh --bootstrap-server $BOOTSTRAP {inputs.entity} --alter"
    added = [f"{name}={_listed(value)}" for name, value in inputs.settings.items() if value is not None]
    removed = [name for name, value in inputs.settings.items() if value is None]
    parts = [base]
    if added:
        parts.append(f"--add-config {_quoted(','.join(added))}")
    if removed:
        parts.append(f"--delete-config {','.join(removed)}")
    return [" ".join(parts)]


def _listed(value: str) -> str:
    return f"[{value}]" if "," in value else value


def _quoted(text: str) -> str:
    return text if all(c.isalnum() or c in "=._-," for c in text) else _QUOTE + text.replace("'", "'\\''") + _QUOTE
