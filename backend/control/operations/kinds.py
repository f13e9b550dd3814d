"""What one kind of change must know. A further kind is a module that implements `Kind` and a line in `registry`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from pydantic import BaseModel

from backend.control.database import Database
from backend.control.gateway.client import Gateway
from backend.control.operations.plan import Draft, Json, Verification

InputsT = TypeVar("InputsT", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Site:
    """Where operations work."""

    gateway: Gateway
    database: Database
    cluster_id: str
    cluster_name: str
    embedded: bool


class Kind(Protocol[InputsT]):
    """One kind of change. `snapshot` and everything stored is JSON; the decisions are pure."""

    name: str
    inputs: type[InputsT]
    irreversible: bool
    """True: the effect cannot be taken back, and `revert_inputs` is never asked."""

    async def snapshot(self, site: Site, inputs: InputsT) -> Json:
        """The state that the plan is made for and that must still hold when it is executed. Asks the cluster.

        Raises GatewayError, KafkaError, InvalidInput.
        """
        ...

    async def draft(self, site: Site, inputs: InputsT, snapshot: Json) -> Draft:
        """Diff, checks, estimate, CLI twin. Reads the database, never changes anything."""
        ...

    async def apply(self, site: Site, inputs: InputsT, snapshot: Json) -> None:
        """Asks Kafka for the change. Returning means accepted, not done. Raises GatewayError, KafkaError."""
        ...

    async def verify(self, site: Site, inputs: InputsT, snapshot: Json) -> Verification:
        """One look at the cluster: is the change in effect everywhere? Raises GatewayError, KafkaError."""
        ...

    def revert_inputs(self, inputs: InputsT, snapshot: Json) -> Mapping[str, object]:
        """Inputs of the plan that puts back what `snapshot` holds."""
        ...
