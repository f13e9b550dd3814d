"""The interface of one kind of change. A further kind is a module that implements it and a line in `registry`.

Most changes are one request whose effect is seen at once. One that takes hours (`LongRunningKind`) is carried out in
steps; each step reads the cluster and does what is still missing, so it may be repeated after a crash at any point.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, TypeVar

from pydantic import BaseModel

from backend.control.control_database import Database
from backend.control.gateway.kafka_client import Gateway
from backend.control.operations.lifecycle.plan_draft import Draft, JsonObject, PlanVerification

InputsT = TypeVar("InputsT", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class OperationContext:
    """Where operations work. `changes_allowed` False: everything may be planned, nothing executed."""

    gateway: Gateway
    database: Database
    cluster_id: str
    cluster_name: str
    embedded: bool
    changes_allowed: bool = True


@dataclass(frozen=True, slots=True)
class ExecutionControl:
    """How a lasting plan is to go on, as people have said by now."""

    paused: bool = False
    stopping: bool = False
    throttle_bytes_per_s: int | None = None
    """The limit that replaced the one of the inputs; None: that one counts."""
    progress: JsonObject = field(default_factory=dict)
    """What the step before gave."""


@dataclass(frozen=True, slots=True)
class StepResult:
    """What one step found and did. `finished`: nothing is left to do but `clean`; `done`: the plan's aim is reached."""

    progress: JsonObject
    finished: bool
    done: bool
    sentence: str


class OperationKind(Protocol):
    """One kind of change. `snapshot` and everything stored is JSON; the decisions are pure."""

    name: str
    inputs: type[BaseModel]
    exclusive: ClassVar[bool]
    """Two plans of this kind are never executed at the same time."""

    async def resolve_inputs(self, context: OperationContext, inputs: Any) -> Any:
        """The inputs with every wish ("drain broker 3") made exact, so that the plan means the same tomorrow.

        Raises GatewayError, KafkaError, InvalidInput.
        """
        ...

    async def snapshot(self, context: OperationContext, inputs: Any) -> JsonObject:
        """The state that the plan is made for and that must still hold when it is executed. Asks the cluster.

        What stands under "seen" may change meanwhile; checks are made anew with it before the execution.
        Raises GatewayError, KafkaError, InvalidInput.
        """
        ...

    async def draft(self, context: OperationContext, inputs: Any, snapshot: JsonObject) -> Draft:
        """Diff, checks, estimate, CLI twin. May ask the database and the cluster, never changes anything."""
        ...

    async def verify(self, context: OperationContext, inputs: Any, snapshot: JsonObject) -> PlanVerification:
        """One look at the cluster: is the change in effect everywhere? Raises GatewayError, KafkaError."""
        ...

    def revert_inputs(self, inputs: Any, snapshot: JsonObject) -> Mapping[str, object] | None:
        """Inputs of the plan that puts back what `snapshot` holds; None: what was done cannot be taken back."""
        ...


class SingleRequestKind(OperationKind, Protocol):
    """A kind whose change is one request."""

    async def apply(self, context: OperationContext, inputs: Any, snapshot: JsonObject) -> None:
        """Asks Kafka for the change. Returning means accepted, not done. Raises GatewayError, KafkaError."""
        ...


class LongRunningKind(OperationKind, Protocol):
    """A kind that is carried out in steps."""

    async def step(
        self, context: OperationContext, inputs: Any, snapshot: JsonObject, control: ExecutionControl
    ) -> StepResult:
        """Looks at the cluster and asks for what is missing, at most one batch. Repeating it does no harm.

        Raises GatewayError, and KafkaError when Kafka refuses the whole.
        """
        ...

    async def clean(self, context: OperationContext, inputs: Any, snapshot: JsonObject) -> str:
        """Removes what was only needed on the way, such as throttles; what stays and why, "" when nothing does.

        Raises GatewayError, KafkaError.
        """
        ...


class SingleRequest:
    """What kinds share whose inputs are exact already and whose change is one request."""

    exclusive: ClassVar[bool] = False

    async def resolve_inputs(self, context: OperationContext, inputs: Any) -> Any:
        """As they are."""
        del context
        return inputs
