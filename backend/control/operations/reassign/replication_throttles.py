"""Limits on replication for the time of a move (KIP-73): which settings, what they were, and how they are put back.

Two settings of each topic name the replicas, two of each broker the rate; Kafka needs both. They are set before the
first partition moves and put back, all of them, when the plan ends, to what the plan's snapshot says.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from backend.control.gateway.connection_pool import Lane
from backend.control.gateway.gateway_errors import BrokerUnavailable
from backend.control.gateway.kafka_client import Gateway
from backend.control.gateway.requests import config_requests
from backend.control.gateway.requests.config_requests import ConfigChange, ConfigResource, Entries
from backend.control.operations.reassign.partition_moves import PlannedMove
from backend.protocol.config_enums import AlterConfigOp, ConfigSource
from backend.protocol.errors import ErrorCode, KafkaError
from backend.tiering.ids import TopicPartition

LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"
RATES: Final = (LEADER_RATE, FOLLOWER_RATE)
REPLICA_LISTS: Final = (LEADER_REPLICAS, FOLLOWER_REPLICAS)
ALL: Final = "*"
# Kafka reports that the setting is there and hides its value: it can be removed, but not put back.
HIDDEN: Final = "(hidden)"

ThrottleValues = dict[str, str | None]
"""Value by name of setting; None: not set."""


class Throttles:
    """Values of the four settings by topic and by broker id; the id CLUSTER_DEFAULT is all brokers."""

    def __init__(self, topics: Mapping[str, ThrottleValues], brokers: Mapping[str, ThrottleValues]) -> None:
        self.topics = {topic: dict(values) for topic, values in topics.items()}
        self.brokers = {broker: dict(values) for broker, values in brokers.items()}

    def json(self) -> dict[str, dict[str, ThrottleValues]]:
        return {"topics": self.topics, "brokers": self.brokers}

    @staticmethod
    def of(stored: Mapping[str, Mapping[str, ThrottleValues]]) -> Throttles:
        return Throttles(stored["topics"], stored["brokers"])


def throttles_for(before: Throttles, moves: Mapping[TopicPartition, PlannedMove], bytes_per_s: int) -> Throttles:
    """Throttles that must be set while these partitions move, added to those that others have set before."""
    leaders: dict[str, list[str]] = defaultdict(list)
    followers: dict[str, list[str]] = defaultdict(list)
    brokers: set[int] = set()
    for tp, move in moves.items():
        if not move.adding:
            continue
        leaders[tp.topic] += [f"{tp.partition}:{b}" for b in move.before]
        followers[tp.topic] += [f"{tp.partition}:{b}" for b in move.adding]
        brokers |= {*move.before, *move.adding}
    topics: dict[str, ThrottleValues] = {
        topic: {
            LEADER_REPLICAS: _joined(before.topics.get(topic, {}).get(LEADER_REPLICAS), leaders[topic]),
            FOLLOWER_REPLICAS: _joined(before.topics.get(topic, {}).get(FOLLOWER_REPLICAS), followers[topic]),
        }
        for topic in leaders
    }
    rate = str(bytes_per_s)
    return Throttles(topics, {str(b): {LEADER_RATE: rate, FOLLOWER_RATE: rate} for b in sorted(brokers)})


def _joined(before: str | None, own: Iterable[str]) -> str:
    if before == ALL:
        return ALL
    return ",".join(dict.fromkeys([*(before or "").split(","), *own])).strip(",")


def changes(now: Throttles, then: Throttles, *, trust_hidden: bool = False) -> dict[ConfigResource, list[ConfigChange]]:
    """The requests that lead from one to the other; rates first, so that no list is in force without its rate.

    `trust_hidden`: a value that Kafka does not tell is taken for the wanted one, if one is wanted.
    """
    result: dict[ConfigResource, list[ConfigChange]] = {}
    for kind, have, want in (
        (config_requests.BROKER, now.brokers, then.brokers),
        (config_requests.TOPIC, now.topics, then.topics),
    ):
        for name, values in want.items():
            differing = [
                ConfigChange(setting, AlterConfigOp.DELETE if value is None else AlterConfigOp.SET, value)
                for setting, value in values.items()
                if value != HIDDEN and not _same(have.get(name, {}).get(setting), value, trust_hidden=trust_hidden)
            ]
            if differing:
                result[ConfigResource(kind, name)] = differing
    return result


def _same(now: str | None, then: str | None, *, trust_hidden: bool) -> bool:
    return now == then or (trust_hidden and now == HIDDEN and then is not None)


async def read_throttles(gateway: Gateway, topics: Iterable[str], brokers: Iterable[str]) -> Throttles:
    """Throttles set now; `brokers` are ids, among them CLUSTER_DEFAULT. A deleted topic and a broker that is away
    are left out. Raises KafkaError, GatewayError.
    """
    described = await config_requests.describe_topics(gateway, sorted(set(topics)), names=REPLICA_LISTS, lane=Lane.ACT)
    result: dict[str, ThrottleValues] = {}
    for broker in sorted(set(brokers), key=lambda broker: (len(broker), broker)):
        try:
            result[broker] = await _rates(gateway, broker)
        except BrokerUnavailable:
            if broker == config_requests.CLUSTER_DEFAULT or int(broker) in gateway.brokers:
                raise
    return Throttles(
        {
            topic: _own(entries, REPLICA_LISTS, ConfigSource.DYNAMIC_TOPIC_CONFIG)
            for topic, entries in described.items()
        },
        result,
    )


async def _rates(gateway: Gateway, broker: str) -> ThrottleValues:
    if broker == config_requests.CLUSTER_DEFAULT:
        entries = await config_requests.describe_cluster_default(gateway, lane=Lane.ACT)
        return _own(entries, RATES, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
    entries = await config_requests.describe_broker(gateway, int(broker), names=RATES, lane=Lane.ACT)
    return _own(entries, RATES, ConfigSource.DYNAMIC_BROKER_CONFIG)


def _own(entries: Entries, names: Iterable[str], source: ConfigSource) -> ThrottleValues:
    result: ThrottleValues = {}
    for name in names:
        entry = entries.get(name)
        own = entry is not None and entry.source is source
        hidden = own and entry is not None and entry.sensitive and entry.value is None
        result[name] = HIDDEN if hidden else entry.value or None if own and entry is not None else None
    return result


async def apply_throttles(
    gateway: Gateway, then: Throttles, *, trust_hidden: bool = False, force_removal: bool = False
) -> int:
    """Changes what differs; how many resources. A topic that is gone needs nothing. Raises GatewayError, KafkaError.

    `force_removal`: values that are to be absent are removed in any case, because a broker learns of a new value a
    moment later; and Kafka's refusal for one resource keeps no limit on another: it is raised at the end.
    """
    now = await read_throttles(gateway, then.topics, then.brokers)
    present = Throttles(
        {topic: values for topic, values in then.topics.items() if topic in now.topics},
        {broker: values for broker, values in then.brokers.items() if broker in now.brokers},
    )
    required = changes(now, present, trust_hidden=trust_hidden)
    removed = changes(_all_set(present), present) if force_removal else {}
    problem: KafkaError | None = None
    for resource, entries in {**removed, **required}.items():
        try:
            await config_requests.alter_configs(gateway, resource, entries)
        except KafkaError as error:
            # Where nothing is seen to be set, a refusal for good is none: there may never have been leave to set it.
            if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or (resource not in required and not error.retriable):
                continue
            if not force_removal:
                raise
            problem = problem or error
    if problem is not None:
        raise problem
    return len(required)


def _all_set(then: Throttles) -> Throttles:
    """The same, but for what is to be absent, which is set."""

    def values(throttles: ThrottleValues) -> ThrottleValues:
        return {name: "set" if value is None else value for name, value in throttles.items()}

    return Throttles(
        {topic: values(throttles) for topic, throttles in then.topics.items()},
        {broker: values(throttles) for broker, throttles in then.brokers.items()},
    )
