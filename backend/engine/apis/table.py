"""Every API a node serves: key → versions and handler. ``net`` dispatches by it and ApiVersions answers from it."""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType
from typing import Final

from backend.engine.apis import (
    acls,
    allocate_producer_ids,
    alter_configs,
    alter_partition,
    alter_replica_log_dirs,
    api_versions,
    assign_replicas_to_dirs,
    broker_heartbeat,
    broker_registration,
    client_quotas,
    consumer_groups,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_log_dirs,
    describe_quorum,
    describe_topic_partitions,
    elect_leaders,
    fetch_snapshot,
    find_coordinator,
    groups_admin,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    offset_for_leader_epoch,
    quorum_votes,
    raft_voters,
    reassignments,
    sasl,
    scram_credentials,
    sync_group,
    transactions,
    transactions_admin,
    txn_offset_commit,
    update_features,
    write_txn_markers,
)
from backend.engine.apis.api_declaration import Api, ListenerKind
from backend.engine.apis.fetch import fetch, metadata_log_fetch
from backend.engine.apis.produce import produce

# One line per module; each defines APIS: tuple[Api, ...].
MODULES: Final[tuple[ModuleType, ...]] = (
    acls,
    allocate_producer_ids,
    alter_configs,
    alter_partition,
    alter_replica_log_dirs,
    api_versions,
    assign_replicas_to_dirs,
    broker_heartbeat,
    broker_registration,
    client_quotas,
    consumer_groups,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_log_dirs,
    describe_quorum,
    describe_topic_partitions,
    elect_leaders,
    fetch,
    fetch_snapshot,
    find_coordinator,
    groups_admin,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_offsets,
    metadata,
    metadata_log_fetch,
    offset_commit,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    quorum_votes,
    raft_voters,
    reassignments,
    sasl,
    scram_credentials,
    sync_group,
    transactions,
    transactions_admin,
    txn_offset_commit,
    update_features,
    write_txn_markers,
)


class ApiTable:
    """APIs by listener kind and key."""

    __slots__ = ("_by_kind",)

    def __init__(self, apis: Iterable[Api]) -> None:
        self._by_kind: dict[ListenerKind, dict[int, Api]] = {"broker": {}, "controller": {}}
        for api in sorted(apis, key=lambda one: one.key):
            for kind in api.listeners:
                if api.key in self._by_kind[kind]:
                    raise ValueError(f"API key {api.key} is declared twice for {kind} listeners")
                self._by_kind[kind][api.key] = api

    def served(self, kind: ListenerKind) -> dict[int, Api]:
        """Key → API of one kind of listener, in ascending order of keys."""
        return self._by_kind[kind]


def api_table(modules: Iterable[ModuleType] = MODULES) -> ApiTable:
    """The table of everything the modules declare."""
    return ApiTable(api for module in modules for api in module.APIS)
