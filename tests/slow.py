"""The slow files: those that `make test` leaves to `make test-slow`, each with the form that `make test` keeps.

A file whose tests take more than half a minute of one worker stands here, unless nothing else tries its subject; all of
them together take most of the time of all tests. `pytest FILE` runs a file wherever it stands.

CI runs `make test`, then the half of them that its commit's id chooses (`make test-slow HALF=1`): with both it would be
longer than half an hour.
"""

from __future__ import annotations

from typing import Final

SLOW: Final = "slow"
HALVES: Final = ("slow_half_1", "slow_half_2")

# By file, in the order of their time on one of three workers (seconds, November 2026).
KEPT: Final[dict[str, str]] = {
    "tests/control/test_findings.py": "tests/unit/control/findings",  # 253
    "tests/spark/test_pipeline.py": "tests/spark/test_source.py",  # 228
    "tests/control/test_s3_in_trouble.py": "tests/interop/test_tiering_basic.py",  # 221
    "tests/control/test_database_away.py": "tests/unit/control/observer",  # 206
    "tests/ui/test_browser.py": "tests/e2e/test_login.py",  # 194
    "tests/spark/test_pipeline_process.py": "tests/spark/test_heartbeat.py",  # 191
    "tests/cluster/test_lost_voter_disk.py": "tests/cluster/test_lost_disk_in_one_process.py",  # 169
    "tests/e2e/test_dashboard.py": "tests/ui/test_overview.py",  # 152
    "tests/interop/test_java_admin.py": "tests/interop/test_admin_clients.py",  # 136
    "tests/e2e/test_up_refuses.py": "tests/unit/startup",  # 116
    "tests/cluster/test_damaged_logs.py": "tests/unit/engine/log",  # 114
    "tests/e2e/test_provider.py": "tests/control/test_oauth.py",  # 103
    "tests/ui/test_changes.py": "tests/ui/test_config.py",  # 94
    "tests/e2e/test_trouble_up.py": "tests/e2e/test_file_modes.py",  # 85
    "tests/docs/test_pages_run.py": "tests/docs/test_blocks.py",  # 84
    "tests/scenarios/test_transaction_table_as_kafka.py": "tests/scenarios/test_transactions_as_kafka.py",  # 81
    "tests/cluster/test_most_expensive_requests.py": "tests/cluster/test_costly_requests.py",  # 77
    "tests/e2e/test_postgresql_away.py": "tests/control/test_database_lost.py",  # 72
    "tests/migrations/test_revisions.py": "tests/migrations/test_migrate.py",  # 71
    "tests/cluster/test_exactly_once.py": "tests/interop/test_transactions.py",  # 69
    "tests/cluster/test_lost_disks.py": "tests/cluster/test_lost_disk_in_one_process.py",  # 68
    "tests/control/test_plans.py": "tests/control/test_plans_of_settings.py",  # 67
    "tests/control/test_trouble.py": "tests/control/test_bad_input.py",  # 60
    "tests/cluster/test_quorum_in_one_process.py": "tests/simulation/test_quorum.py",  # 59
    "tests/interop/test_java_tools.py": "tests/interop/test_clients_basic.py",  # 59
    "tests/ui/test_live_page.py": "tests/ui/test_frame.py",  # 60
    "tests/ui/test_access.py": "tests/control/test_access.py",  # 58
    "tests/e2e/test_quorum_recover.py": "tests/control/test_cli_quorum.py",  # 55
    "tests/interop/test_exactly_once_clients.py": "tests/interop/test_transactions.py",  # 53
    "tests/interop/test_consumer_protocol.py": "tests/interop/test_groups.py",  # 53
    "tests/cluster/test_broker_processes.py": "tests/cluster/test_quorum.py",  # 50
    "tests/scenarios/test_eligible_leaders_as_kafka.py": "tests/scenarios/test_bootstrap_as_kafka.py",  # 50
    "tests/simulation/test_checkers.py": "tests/simulation/test_determinism.py",  # 49
    "tests/interop/test_real_kafka.py": "tests/interop/test_security_java.py",  # 45
    "tests/e2e/test_stopped_together.py": "tests/cluster/test_stopped_together.py",  # 45
    "tests/control/test_postgresql_kinds.py": "tests/migrations/test_page_plans_postgresql.py",  # 43
    "tests/spark/test_rebuild_and_verify.py": "tests/spark/test_rebuild.py",  # 42
    "tests/properties/protocol/test_against_other_libraries.py": "tests/unit/protocol",  # 42
    "tests/control/test_crash_loop.py": "tests/unit/control/findings/test_broker_absences.py",  # 41
    "tests/control/test_lab_faults.py": "tests/control/test_lab.py",  # 35
    "tests/simulation/test_combined_nodes.py": "tests/simulation/test_quorum.py",  # 30
}


def half_of(file: str) -> str:
    """The marker of the half that a slow file is in: every second one, so that both take about as long."""
    return HALVES[list(KEPT).index(file) % len(HALVES)]
