"""The demo's topics: a tiered one, a compacted one, one whose copying is paused, one whose copying waits. Pure."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

MIB: Final = 1 << 20
RECORD_BYTES: Final = 500
CUSTOMERS: Final = 400
CITIES: Final = ("Bergen", "Brest", "Cuxhaven", "Emden", "Esbjerg", "Husum", "Ostend", "Saint-Malo", "Whitby")


class RecordKind(Enum):
    ORDER = "order"
    CUSTOMER = "customer"
    INVOICE = "invoice"
    PAYMENT = "payment"


@dataclass(frozen=True, slots=True, eq=False)
class DemoTopic:
    """A topic and its traffic. A new one begins with ``history_bytes``, so that every page has something at once.

    ``paused_config`` is set ``pause_after_s`` after the topic was made, None: never.
    """

    name: str
    records: RecordKind
    partitions: int
    config: Mapping[str, str]
    history_bytes: int
    bytes_per_s: int
    paused_config: Mapping[str, str] | None = None
    pause_after_s: float = 0.0

    def made(self, chosen: Mapping[str, str]) -> bool:
        """Whether the demo made the topic of this name that has these settings itself.

        The size of its segments is a thousandth of what users take, and nobody changes it: other settings of the demo's
        topics are there to be changed.
        """
        return chosen.get("segment.bytes") == self.config["segment.bytes"]

    def awaits_pause(self, chosen: Mapping[str, str]) -> bool:
        """Whether a topic that has these settings itself was never paused. A pause taken back leaves some."""
        return bool(self.paused_config) and not any(
            name in chosen for name in self.paused_config or () if name not in self.config
        )


# Remote 3 x 32 MiB + local 3 replicas x 3 partitions x (3 + 1 active + 1 pending) MiB = 141 MiB.
ORDERS: Final = DemoTopic(
    name="demo.orders",
    records=RecordKind.ORDER,
    partitions=3,
    config={
        "remote.storage.enable": "true",
        "segment.bytes": str(MIB),
        "local.retention.bytes": str(3 * MIB),
        "retention.bytes": str(32 * MIB),
    },
    history_bytes=24 * MIB,
    bytes_per_s=100_000,
)
# The newest profile of each customer: 400 x 500 bytes stay, and at most some segments that the cleaner has yet to read.
CUSTOMER_PROFILES: Final = DemoTopic(
    name="demo.customers",
    records=RecordKind.CUSTOMER,
    partitions=1,
    config={"cleanup.policy": "compact", "segment.bytes": str(MIB), "min.cleanable.dirty.ratio": "0.2"},
    history_bytes=2 * MIB,
    bytes_per_s=4_000,
)
# Remote and local together at most 3 replicas x 12 MiB and as much in the store. Copies of the history take seconds; a
# minute later they are paused, as before a migration of the store. Kafka then wants local retention to be retention.
INVOICES: Final = DemoTopic(
    name="demo.invoices",
    records=RecordKind.INVOICE,
    partitions=1,
    config={
        "remote.storage.enable": "true",
        "segment.bytes": str(MIB),
        "local.retention.bytes": str(2 * MIB),
        "retention.bytes": str(12 * MIB),
    },
    history_bytes=6 * MIB,
    bytes_per_s=3_000,
    paused_config={"remote.log.copy.disable": "true", "local.retention.bytes": "-2", "local.retention.ms": "-2"},
    pause_after_s=60.0,
)
# As large as that of invoices. A transaction that its producer forgets holds copying now and then (`payments`).
PAYMENTS: Final = DemoTopic(
    name="demo.payments",
    records=RecordKind.PAYMENT,
    partitions=1,
    config={
        "remote.storage.enable": "true",
        "segment.bytes": str(MIB),
        "local.retention.bytes": str(3 * MIB),
        "retention.bytes": str(12 * MIB),
    },
    history_bytes=4 * MIB,
    bytes_per_s=15_000,
)
TOPICS: Final = (ORDERS, CUSTOMER_PROFILES, INVOICES, PAYMENTS)


def record(kind: RecordKind, number: int, now_ms: int) -> tuple[bytes, bytes]:
    """Record ``number`` as (key, JSON value) of about :data:`RECORD_BYTES` bytes, the same at each call."""
    rng = random.Random(number)
    customer = rng.randrange(CUSTOMERS)
    if kind is RecordKind.CUSTOMER:
        key = f"customer-{customer}"
        value: dict[str, object] = {"customer": key, "city": rng.choice(CITIES), "changed_ms": now_ms}
    else:
        key = str(number)
        items = [{"sku": f"SKU-{rng.randrange(10_000):05d}", "quantity": rng.randrange(1, 9)} for _ in range(6)]
        value = {
            f"{kind.value}_id": number,
            "made_ms": now_ms,
            "customer": f"customer-{customer}",
            "city": rng.choice(CITIES),
            "items": items,
            "total_cents": rng.randrange(500, 250_000),
        }
    text = json.dumps(value)
    note = "." * max(0, RECORD_BYTES - len(text) - 12)
    return key.encode(), f'{text[:-1]}, "note": "{note}"}}'.encode()
