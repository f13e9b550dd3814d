"""Kind `toggle_bootstrap`: where new, empty followers start (KIP-1023), for all brokers or for one, without a restart.

The setting counts on the broker that gets the new replica. It is read at each decision: a change is in effect at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, model_validator

from backend.control.gateway.connection_pool import Lane
from backend.control.gateway.gateway_errors import GatewayError
from backend.control.gateway.kafka_client import describe_failure
from backend.control.gateway.requests import config_requests
from backend.control.gateway.requests.config_requests import ConfigChange, ConfigResource
from backend.control.gateway.requests.metadata_requests import fetch_brokers, fetch_cluster
from backend.control.operations.config import toggle_texts
from backend.control.operations.config.config_precedence import SOURCE_NAMES, effective, values_by_source, with_change
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
from backend.control.wall_clock import now_ms
from backend.protocol.config_enums import AlterConfigOp, ConfigSource
from backend.protocol.errors import KafkaError
from backend.store.queries import operations

SETTING: Final = "follower.fetch.last.tiered.offset.enable"
COMPAT_SETTING: Final = "follower.fetch.tiered.compat"
_log = logging.getLogger(__name__)


class ToggleInputs(BaseModel):
    """`enable` null removes the value at this level, so that the next level counts again."""

    model_config = ConfigDict(extra="forbid", strict=True)

    scope: Literal["cluster", "broker"] = "cluster"
    broker_id: int | None = None
    enable: bool | None

    @model_validator(mode="after")
    def _broker_fits_scope(self) -> ToggleInputs:
        if (self.scope == "broker") != (self.broker_id is not None):
            raise ValueError("give broker_id with the scope broker, and only with it")
        return self

    @property
    def value(self) -> str | None:
        return None if self.enable is None else str(self.enable).lower()

    @property
    def level(self) -> ConfigSource:
        if self.scope == "broker":
            return ConfigSource.DYNAMIC_BROKER_CONFIG
        return ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG

    @property
    def resource(self) -> ConfigResource:
        return ConfigResource(
            config_requests.BROKER, config_requests.CLUSTER_DEFAULT if self.broker_id is None else str(self.broker_id)
        )

    @property
    def object(self) -> str:
        return "brokers (cluster default)" if self.broker_id is None else f"broker {self.broker_id}"


class ToggleBootstrap(SingleRequestKind[ToggleInputs]):
    """See `OperationKind`."""

    name = "toggle_bootstrap"
    inputs = ToggleInputs

    async def snapshot(self, context: OperationContext, inputs: ToggleInputs) -> JsonObject:
        """Every level of the setting on every registered broker, and what is set for all of them."""
        await fetch_cluster(context.gateway, lane=Lane.ACT)
        registered = await fetch_brokers(context.gateway)
        if inputs.broker_id is not None and inputs.broker_id not in {b.broker_id for b in registered}:
            names = ", ".join(str(b.broker_id) for b in registered)
            raise InvalidInput(f"There is no broker {inputs.broker_id}; registered are {names}.")
        settings = await asyncio.gather(*(_read_broker_settings(context, broker.broker_id) for broker in registered))
        default = (await config_requests.describe_cluster_default(context.gateway, lane=Lane.ACT)).get(SETTING)
        return {
            "cluster_default": None if default is None else default.value,
            "brokers": {
                str(broker.broker_id): broker_settings
                for broker, broker_settings in zip(registered, settings, strict=True)
            },
        }

    async def draft(self, context: OperationContext, inputs: ToggleInputs, snapshot: JsonObject) -> Draft:
        estimate = await _read_estimate(context, kafka_rules=not context.embedded or _compat(snapshot))
        matrix = effective_matrix(inputs, snapshot)
        before = level_now(inputs, snapshot)
        return Draft(
            object=inputs.object,
            changes=(Change(inputs.object, SETTING, before, inputs.value),),
            checks=tuple(checks(inputs, snapshot, matrix, estimate)),
            cli=(cli(inputs),),
            words=toggle_texts.dialog_texts(context.cluster_name, inputs.enable, inputs.broker_id, matrix, estimate),
            estimate=estimate,
            extra={"matrix": matrix, "lines": diff_lines(inputs, before, matrix)},
        )

    async def apply(self, context: OperationContext, inputs: ToggleInputs, snapshot: JsonObject) -> None:
        op = AlterConfigOp.DELETE if inputs.value is None else AlterConfigOp.SET
        await config_requests.alter_configs(context.gateway, inputs.resource, [ConfigChange(SETTING, op, inputs.value)])

    async def verify(self, context: OperationContext, inputs: ToggleInputs, snapshot: JsonObject) -> PlanVerification:
        """In effect when every broker that answers shows the levels that the plan foresees."""
        foreseen = {row["broker_id"]: row["after"] for row in effective_matrix(inputs, snapshot)}
        settings = dict(
            zip(
                foreseen,
                await asyncio.gather(*(_read_broker_settings(context, broker_id) for broker_id in foreseen)),
                strict=True,
            )
        )
        shown = {broker_id: broker_settings.get("levels") for broker_id, broker_settings in settings.items()}
        result = {str(b): None if by_source is None else effective(by_source).value for b, by_source in shown.items()}
        silent = [b for b, by_source in shown.items() if by_source is None]
        wrong = [
            b
            for b, by_source in shown.items()
            if by_source is not None
            and (effective(by_source).value != foreseen[b] or not _level_is(inputs, b, by_source))
        ]
        if wrong:
            return PlanVerification(False, f"Not yet in effect on broker {_ids(wrong)}.", {"effective": result})
        if silent:
            note = f"Broker {_ids(silent)} did not answer; all others show it."
            return PlanVerification(len(silent) < len(shown), note, {"effective": result, "silent": silent})
        return PlanVerification(True, "Every broker shows it.", {"effective": result})

    def revert_inputs(self, inputs: ToggleInputs, snapshot: JsonObject) -> Mapping[str, object]:
        before = level_now(inputs, snapshot)
        return {
            "scope": inputs.scope,
            "broker_id": inputs.broker_id,
            "enable": None if before is None else before == "true",
        }


async def _read_broker_settings(context: OperationContext, broker_id: int) -> JsonObject:
    try:
        entries = await config_requests.describe_broker(
            context.gateway, broker_id, names=[SETTING, COMPAT_SETTING], lane=Lane.ACT
        )
    except (GatewayError, KafkaError) as error:
        _log.info("Broker %d does not tell its settings: %s", broker_id, describe_failure(error))
        return {"levels": None, "problem": "unreachable"}
    entry = entries.get(SETTING)
    if entry is None:
        return {"levels": None, "problem": "unsupported"}
    compat = entries.get(COMPAT_SETTING)
    return {"levels": values_by_source(entry)} | ({} if compat is None else {"compat": compat.value})


async def _read_estimate(context: OperationContext, *, kafka_rules: bool) -> JsonObject:
    """One new replica for every tiered partition, with the age of the samples that this rests on."""
    return await context.database.read(
        lambda c: operations.bootstrap_estimate(c, context.cluster_id, kafka_rules=kafka_rules, now_ms=now_ms())
    )


def _compat(snapshot: JsonObject) -> bool:
    return any(broker_settings.get("compat") == "kafka" for broker_settings in snapshot["brokers"].values())


def level_now(inputs: ToggleInputs, snapshot: JsonObject) -> str | None:
    """The present value at the level that the plan changes."""
    if inputs.broker_id is None:
        value: str | None = snapshot["cluster_default"]
        return value
    by_source = snapshot["brokers"][str(inputs.broker_id)].get("levels") or {}
    result: str | None = by_source.get(inputs.level.name)
    return result


def _level_is(inputs: ToggleInputs, broker_id: int, by_source: Mapping[str, str | None]) -> bool:
    concerned = inputs.broker_id is None or inputs.broker_id == broker_id
    return not concerned or by_source.get(inputs.level.name) == inputs.value


def effective_matrix(inputs: ToggleInputs, snapshot: JsonObject) -> list[JsonObject]:
    """One row per broker: every level, and the value in effect before and after. `before` None: not known."""
    rows = []
    for key, broker_settings in sorted(snapshot["brokers"].items(), key=lambda item: int(item[0])):
        broker_id, by_source = int(key), broker_settings.get("levels")
        row: dict[str, Any] = {"broker_id": broker_id, "levels": by_source, "problem": broker_settings.get("problem")}
        if by_source is None:
            rows.append(row | {"before": None, "before_source": None, "after": None, "after_source": None})
            continue
        concerned = inputs.broker_id is None or inputs.broker_id == broker_id
        then = with_change(by_source, inputs.level, inputs.value) if concerned else by_source
        before, after = effective(by_source), effective(then)
        rows.append(
            row
            | {
                "before": before.value,
                "before_source": before.source.name,
                "after": after.value,
                "after_source": after.source.name,
            }
        )
    return rows


def checks(
    inputs: ToggleInputs, snapshot: JsonObject, matrix: list[JsonObject], estimate: JsonObject
) -> list[PlanCheck]:
    """Checks of the change, worst first; a plan without refusals can be confirmed."""
    result = [_check_support(inputs, matrix), _check_reach(inputs, matrix), _check_change(inputs, snapshot)]
    own = [
        row["broker_id"]
        for row in matrix
        if inputs.broker_id is None and row["after_source"] == ConfigSource.DYNAMIC_BROKER_CONFIG.name
    ]
    if own:
        text = f"Broker {_ids(own)} keeps its own value, which wins over the cluster default."
        result.append(PlanCheck("own-values", CheckOutcome.WARNING, text))
    turns_on = any(row["after"] == "true" for row in matrix)
    blocked = estimate.get("blocked", 0)
    if turns_on and blocked:
        text = (
            f"{blocked} tiered partitions could not take a new replica while it is on: see which, and why, "
            "under the estimate."
        )
        result.append(PlanCheck("blocked-partitions", CheckOutcome.WARNING, text))
    if estimate.get("stale"):
        result.append(
            PlanCheck("estimate-age", CheckOutcome.WARNING, "The estimate rests on old samples; look at their age.")
        )
    order = [CheckOutcome.REFUSED, CheckOutcome.WARNING, CheckOutcome.OK]
    return sorted(result, key=lambda check: order.index(check.outcome))


def _check_support(inputs: ToggleInputs, matrix: list[JsonObject]) -> PlanCheck:
    old = [row["broker_id"] for row in matrix if row["problem"] == "unsupported"]
    concerned = [b for b in old if inputs.broker_id in (None, b)]
    if concerned and (inputs.broker_id is not None or len(old) == len(matrix)):
        return PlanCheck(
            "support", CheckOutcome.REFUSED, f"Broker {_ids(concerned)} does not have {SETTING}: needs Kafka 4.3."
        )
    if concerned:
        text = f"Broker {_ids(concerned)} does not have {SETTING} and ignores it: needs Kafka 4.3."
        return PlanCheck("support", CheckOutcome.WARNING, text)
    return PlanCheck("support", CheckOutcome.OK, f"Every broker concerned has {SETTING}.")


def _check_reach(inputs: ToggleInputs, matrix: list[JsonObject]) -> PlanCheck:
    silent = [row["broker_id"] for row in matrix if row["problem"] == "unreachable"]
    if inputs.broker_id is not None and inputs.broker_id in silent:
        text = f"Broker {inputs.broker_id} does not answer; only it can change its own value. Start it first."
        return PlanCheck("reach", CheckOutcome.REFUSED, text)
    if silent:
        text = f"Broker {_ids(silent)} does not answer; it takes the change when it is back, unverified."
        return PlanCheck("reach", CheckOutcome.WARNING, text)
    return PlanCheck("reach", CheckOutcome.OK, "Every broker answers.")


def _check_change(inputs: ToggleInputs, snapshot: JsonObject) -> PlanCheck:
    before = level_now(inputs, snapshot)
    if before == inputs.value:
        text = f"{SETTING} is {before or 'not set'} for {inputs.object} already: there is nothing to change."
        return PlanCheck("change", CheckOutcome.REFUSED, text)
    return PlanCheck(
        "change",
        CheckOutcome.OK,
        f"There is something to change: {before or 'not set'} becomes {inputs.value or 'not set'}.",
    )


def diff_lines(inputs: ToggleInputs, before: str | None, matrix: list[JsonObject]) -> list[str]:
    """The two lines of the dialog."""
    row = next((r for r in matrix if inputs.broker_id in (None, r["broker_id"]) and r["before_source"]), None)
    now = f"{before} ({SOURCE_NAMES[inputs.level]})" if before is not None else "not set"
    if before is None and row is not None:
        now = f"{row['before']} ({SOURCE_NAMES[ConfigSource[row['before_source']]]})"
    then = f"{inputs.value} ({SOURCE_NAMES[inputs.level]}, no restart)"
    if inputs.value is None:
        below = (
            "not set"
            if row is None
            else f"{row['after']} ({SOURCE_NAMES[ConfigSource[row['after_source']]]}, no restart)"
        )
        then = below
    return [f"− {SETTING} = {now}", f"+ {SETTING} = {then}"]


def cli(inputs: ToggleInputs) -> str:
    """The same change with Kafka's own tool."""
    entity = "--entity-default" if inputs.broker_id is None else f"--entity-name {inputs.broker_id}"
    change = f"--delete-config {SETTING}" if inputs.value is None else f"--add-config {SETTING}={inputs.value}"
    return f"kafka-configs.sh --bootstrap-server $BOOTSTRAP --entity-type brokers {entity} --alter {change}"


def _ids(broker_ids: list[int]) -> str:
    return ", ".join(str(b) for b in broker_ids)
