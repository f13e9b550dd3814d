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
from backend.control.gateway.kafka_client import sentence
from backend.control.gateway.requests import config_requests
from backend.control.gateway.requests.config_requests import AlterOp, ConfigChange, ConfigSource, Entries, Resource
from backend.control.gateway.requests.metadata_requests import fetch_brokers, fetch_cluster
from backend.control.operations.config import set_aside_removal as removal
from backend.control.operations.config.config_texts import lines, words
from backend.control.operations.config.topic_config_rules import deletes_remote, rules
from backend.control.operations.lifecycle.plan_draft import Change, Check, Draft, Json, Outcome, Verification
from backend.control.operations.operation_errors import InvalidInput
from backend.control.operations.operation_kind import OneRequest, Site
from backend.control.operations.reassign.reassignment_inputs import Topic
from backend.protocol.errors import ErrorCode, KafkaError
from backend.store.queries import partitions

Name = Annotated[str, StringConstraints(min_length=1, max_length=249, pattern=r"^[A-Za-z0-9._-]+$")]
Value = Annotated[str, StringConstraints(max_length=10_000)]
# Shell characters of a value are quoted as a whole; Kafka's tool takes lists in square brackets.
_QUOTE: Final = "'"


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    settings: Annotated[dict[Name, Value | None], Field(min_length=1, max_length=50)]
    """Value by name; null removes it here, so that the next level counts again."""


class TopicInputs(_Settings):
    """Settings of one topic."""

    topic: Topic

    @property
    def resource(self) -> Resource:
        return Resource(config_requests.TOPIC, self.topic)

    @property
    def source(self) -> ConfigSource:
        return ConfigSource.DYNAMIC_TOPIC_CONFIG

    @property
    def entity(self) -> str:
        return f"--entity-type topics --entity-name {self.topic}"

    @property
    def object(self) -> str:
        return self.topic


class BrokerInputs(_Settings):
    """Settings of one broker, or with the scope cluster of all brokers."""

    scope: Literal["cluster", "broker"] = "cluster"
    broker_id: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None

    @model_validator(mode="after")
    def _broker_fits_scope(self) -> BrokerInputs:
        if (self.scope == "broker") != (self.broker_id is not None):
            raise ValueError("give broker_id with the scope broker, and only with it")
        return self

    @property
    def resource(self) -> Resource:
        return Resource(
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


Inputs = TopicInputs | BrokerInputs


class _ConfigKind(OneRequest):
    name = ""

    async def snapshot(self, site: Site, inputs: Inputs) -> Json:
        """What is set now at this level, and what is in effect."""
        entries = await _describe(site, inputs)
        return {
            "set": {name: _own(entries, name, inputs.source) for name in inputs.settings},
            "hidden": sorted(name for name in inputs.settings if name in entries and entries[name].sensitive),
            "seen": {"effective": {name: entry.value for name, entry in entries.items() if not entry.sensitive}},
        }

    async def draft(self, site: Site, inputs: Inputs, snapshot: Json) -> Draft:
        before: dict[str, str | None] = snapshot["set"]
        remote_bytes = await _remote_bytes(site, inputs)
        found = [_change(inputs, snapshot), await _accepted(site, inputs), _visible(snapshot)]
        if isinstance(inputs, TopicInputs):
            found += rules(inputs.settings, snapshot["seen"]["effective"], remote_bytes)
        return Draft(
            object=inputs.object,
            changes=tuple(Change(inputs.object, name, before[name], value) for name, value in inputs.settings.items()),
            checks=_worst_first(found),
            cli=tuple(cli(inputs)),
            words=words(site.cluster_name, inputs.object, inputs.settings, remote_bytes),
            extra={"lines": lines(inputs.settings, snapshot)},
        )

    async def apply(self, site: Site, inputs: Inputs, snapshot: Json) -> None:
        await config_requests.alter_configs(site.gateway, inputs.resource, _entries(inputs))

    async def verify(self, site: Site, inputs: Inputs, snapshot: Json) -> Verification:
        """In effect when the level shows what was asked for; a secret's value is not told, only that it is set."""
        entries = await _describe(site, inputs)
        wrong = [
            name
            for name, value in inputs.settings.items()
            if not (name in entries and entries[name].sensitive) and _own(entries, name, inputs.source) != value
        ]
        if wrong:
            return Verification(False, f"Not yet in effect: {', '.join(wrong)}.")
        return Verification(True, f"{inputs.object} shows it.")

    def revert_inputs(self, inputs: Inputs, snapshot: Json) -> Mapping[str, object] | None:
        """Remote data that was deleted does not come back."""
        if isinstance(inputs, TopicInputs) and deletes_remote(inputs.settings):
            return None
        return inputs.model_dump() | {"settings": dict(snapshot["set"])}


class TopicConfig(_ConfigKind):
    """See `kinds.Kind`."""

    name = "topic_config"
    inputs: type[BaseModel] = TopicInputs


class BrokerConfig(_ConfigKind):
    """See `kinds.Kind`. Set-aside folders are removed by a setting; then the plan is about them."""

    name = "broker_config"
    inputs: type[BaseModel] = BrokerInputs

    async def draft(self, site: Site, inputs: Inputs, snapshot: Json) -> Draft:
        """With what is removed, in the words of that."""
        found = await super().draft(site, inputs, snapshot)
        names = removal.named(inputs.settings)
        if not isinstance(inputs, BrokerInputs) or inputs.broker_id is None or not names:
            return found
        kept = await removal.kept_by(site.gateway, inputs.broker_id)
        checks = _worst_first([*found.checks, removal.check(names, inputs.broker_id, kept)])
        return replace(found, checks=checks, words=removal.words(site.cluster_name, inputs.broker_id, names, kept))

    async def verify(self, site: Site, inputs: Inputs, snapshot: Json) -> Verification:
        """Also that what was to be removed is gone."""
        found = await super().verify(site, inputs, snapshot)
        names = removal.named(inputs.settings)
        if not found.done or not isinstance(inputs, BrokerInputs) or inputs.broker_id is None or not names:
            return found
        left = removal.left(names, await removal.kept_by(site.gateway, inputs.broker_id))
        return found if left is None else Verification(False, left)

    def revert_inputs(self, inputs: Inputs, snapshot: Json) -> Mapping[str, object] | None:
        """None for a removal: a deleted folder does not come back."""
        return None if removal.named(inputs.settings) else super().revert_inputs(inputs, snapshot)


async def _describe(site: Site, inputs: Inputs) -> Entries:
    await fetch_cluster(site.gateway, lane=Lane.ACT)
    if isinstance(inputs, TopicInputs):
        found = await config_requests.describe_topics(site.gateway, [inputs.topic], lane=Lane.ACT)
        if inputs.topic not in found:
            raise InvalidInput(f"There is no topic {inputs.topic}: look at the list of partitions.")
        return found[inputs.topic]
    if inputs.broker_id is None:
        return await config_requests.describe_cluster_default(site.gateway, lane=Lane.ACT)
    registered = {b.broker_id for b in await fetch_brokers(site.gateway)}
    if inputs.broker_id not in registered:
        known = ", ".join(map(str, sorted(registered)))
        raise InvalidInput(f"There is no broker {inputs.broker_id}; registered are {known}.")
    return await config_requests.describe_broker(site.gateway, inputs.broker_id, lane=Lane.ACT)


def _worst_first(checks: Iterable[Check]) -> tuple[Check, ...]:
    order = [Outcome.REFUSED, Outcome.WARNING, Outcome.OK]
    return tuple(sorted(checks, key=lambda check: order.index(check.outcome)))


def _own(entries: Entries, name: str, source: ConfigSource) -> str | None:
    """The value that this level gives."""
    entry = entries.get(name)
    if entry is None:
        return None
    return entry.value if entry.source is source else entry.at(source)


def _entries(inputs: Inputs) -> list[ConfigChange]:
    return [
        ConfigChange(name, AlterOp.DELETE if value is None else AlterOp.SET, value)
        for name, value in inputs.settings.items()
    ]


async def _accepted(site: Site, inputs: Inputs) -> Check:
    """Kafka's own word on it."""
    try:
        await config_requests.alter_configs(site.gateway, inputs.resource, _entries(inputs), validate_only=True)
    except KafkaError as error:
        if error.retriable or error.code is ErrorCode.NOT_CONTROLLER:
            raise
        return Check("kafka", Outcome.REFUSED, f"Kafka would refuse it. {sentence(error)}")
    return Check("kafka", Outcome.OK, "Kafka would take it.")


def _change(inputs: Inputs, snapshot: Json) -> Check:
    hidden = set(snapshot["hidden"])
    if any(name in hidden or snapshot["set"][name] != value for name, value in inputs.settings.items()):
        return Check("change", Outcome.OK, "There is something to change.")
    return Check("change", Outcome.REFUSED, f"{inputs.object} has these settings already: there is nothing to change.")


def _visible(snapshot: Json) -> Check:
    if snapshot["hidden"]:
        text = f"Kafka does not tell the value of {', '.join(snapshot['hidden'])}: a revert could only remove it."
        return Check("hidden", Outcome.WARNING, text)
    return Check("hidden", Outcome.OK, "Kafka tells the values of now, so they can be put back.")


async def _remote_bytes(site: Site, inputs: Inputs) -> int | None:
    """What the ledger holds of the topic; None: not a topic, or not known."""
    if not isinstance(inputs, TopicInputs):
        return None
    topic = inputs.topic
    rows = await site.database.read(lambda c: partitions.partitions(c, site.cluster_id))
    sizes = [row.ledger_bytes for row in rows if row.topic == topic and row.ledger_bytes is not None]
    return sum(sizes) if sizes else None


def cli(inputs: Inputs) -> list[str]:
    """The same with Kafka's own tool."""
    base = f"kafka-config_requests.sh --bootstrap-server $BOOTSTRAP {inputs.entity} --alter"
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
