"""The interface of one kind of change. A further kind is a module that implements it and a line in `registry`.

Most changes are one request whose effect is seen at once. One that takes hours (`LongRunningKind`) is carried out in
steps; each step reads the cluster and does what is still missing, so it may be repeated after a crash at any point.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel

from backend.control.control_database import Database
from backend.control.gateway.kafka_client import Gateway
from backend.control.operations.lifecycle.plan_draft import Draft, JsonObject, PlanVerification

InputsT = TypeVar("InputsT", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class OperationContext:
    """Cluster, database and rights of the operations. `changes_allowed` False: plans are made, none is executed."""

    gateway: Gateway
    database: Database
    cluster_id: str
    cluster_name: str
    embedded: bool
    changes_allowed: bool = True


@dataclass(frozen=True, slots=True)
class ExecutionControl:
    """Commands that people have given to a long-running plan by now."""

    paused: bool = False
    stopping: bool = False
    throttle_bytes_per_s: int | None = None
    """The limit that replaced the one of the inputs; None: that one counts."""
    progress: JsonObject = field(default_factory=dict)
    """What the step before gave."""


@dataclass(frozen=True, slots=True)
class StepResult:
    """Result of one step. `finished`: nothing is left to do but `clean`; `done`: the plan's aim is reached."""

    progress: JsonObject
    finished: bool
    done: bool
    sentence: str


class OperationKind(ABC, Generic[InputsT]):
    """One kind of change, with its type of inputs. `snapshot` and everything stored is JSON; the decisions are pure.

    A kind is a `SingleRequestKind` or a `LongRunningKind`.
    """

    name: str
    inputs: type[InputsT]
    exclusive: ClassVar[bool] = False
    """Two plans of this kind are never executed at the same time."""

    async def resolve_inputs(self, context: OperationContext, inputs: InputsT) -> InputsT:
        """The inputs with every request ("drain broker 3") made exact, so that the plan means the same tomorrow.

        Unchanged here, for kinds whose inputs are exact already. Raises GatewayError, KafkaError, InvalidInput.
        """
        del context
        return inputs

    @abstractmethod
    async def snapshot(self, context: OperationContext, inputs: InputsT) -> JsonObject:
        """The state that the plan is made for and that must still hold when it is executed. Asks the cluster.

        Values under "seen" may change meanwhile; checks are made again with them before the execution.
        Raises GatewayError, KafkaError, InvalidInput.
        """

    @abstractmethod
    async def draft(self, context: OperationContext, inputs: InputsT, snapshot: JsonObject) -> Draft:
        """Diff, checks, estimate, CLI twin. May ask the database and the cluster, never changes anything."""

    @abstractmethod
    async def verify(self, context: OperationContext, inputs: InputsT, snapshot: JsonObject) -> PlanVerification:
        """One read of the cluster: is the change in effect everywhere? Raises GatewayError, KafkaError."""

    @abstractmethod
    def revert_inputs(self, inputs: InputsT, snapshot: JsonObject) -> Mapping[str, object] | None:
        """Inputs of the plan that restores what `snapshot` holds; None: the change cannot be taken back."""


class SingleRequestKind(OperationKind[InputsT]):
    """A kind whose change is one request."""

    @abstractmethod
    async def apply(self, context: OperationContext, inputs: InputsT, snapshot: JsonObject) -> None:
        """Asks Kafka for the change. Returning means accepted, not done. Raises GatewayError, KafkaError."""


class LongRunningKind(OperationKind[InputsT]):
    """A kind that is carried out in steps."""

    @abstractmethod
    async def step(
        self, context: OperationContext, inputs: InputsT, snapshot: JsonObject, control: ExecutionControl
    ) -> StepResult:
        """Reads the cluster and asks for what is missing, at most one batch. Repeating it does no harm.

        Raises GatewayError, and KafkaError when Kafka refuses the whole.
        """

    @abstractmethod
    async def clean(self, context: OperationContext, inputs: InputsT, snapshot: JsonObject) -> str:
        """Removes what only served the move, such as throttles; returns what stays and why, "" for nothing.

        Raises GatewayError, KafkaError.
        """


AnyKind = SingleRequestKind[Any] | LongRunningKind[Any]
"""A kind in the registry; its inputs are parsed by its own `inputs`."""
