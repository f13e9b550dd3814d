"""The brokers as child processes (`--process-per-broker`): the same nodes, settings, ports and folders.

Each is what `ebbline broker` runs, with a file of Kafka properties, so that one can be killed and come back alone.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial

from backend.data_folder.data_folder import DataFolder
from backend.engine.config import format_properties
from backend.engine.ports.program import WHOLE_CLUSTER_ENDS
from backend.settings.settings import LOOPBACK, Settings
from backend.startup.backend_entry import ONE_BROKER
from backend.startup.backend_process import cluster_layout
from backend.supervisor.children.child import ChildSpec
from backend.supervisor.children.process_health import any_broker_answers

# As the backend's: leadership is handed over, logs are closed.
STOP_TIMEOUT_S = 30.0


def broker_specs(settings: Settings, folder: DataFolder, environment: Mapping[str, str]) -> list[ChildSpec]:
    """The brokers in start order, the controller's node first. Writes their settings files; OSError when it cannot."""
    layout = cluster_layout(settings, environment)
    specs = []
    for node_id, port in layout.ports.items():
        ports = [port, *(at for voter, at in layout.controller_ports.items() if voter == node_id)]
        path = folder.run / f"broker-{node_id}.properties"
        path.write_text(format_properties(layout.properties(node_id)))
        specs.append(
            ChildSpec(
                name=f"broker-{node_id}",
                command=[sys.executable, "-m", "backend.startup.backend_entry", ONE_BROKER, str(path)],
                environment=environment,
                address=f"{LOOPBACK}:{port}",
                stop_timeout_s=STOP_TIMEOUT_S,
                all_end_signal=WHOLE_CLUSTER_ENDS,
                # A voter has a second listener, which no limit of the first one's connections closes.
                healthy=partial(any_broker_answers, ports),
                reports_liveness=True,
            )
        )
    return specs
