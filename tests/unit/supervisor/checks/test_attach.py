"""Refusals to watch a cluster, before anything of it is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.settings.settings import Settings
from backend.supervisor.checks.attach import attached_cluster_id
from backend.supervisor.checks.preflight import PreflightError


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("no.such.setting=1", 'No such configuration property: "no.such.setting"'),
        ("socket.timeout.ms=soon", "socket.timeout.ms"),
    ],
)
def test_properties_that_the_pipeline_cannot_use_refuse_the_start(tmp_path: Path, line: str, named: str) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"{line}\n")
    settings = Settings(attach="127.0.0.1:1", client_properties=file)
    with pytest.raises(PreflightError) as refusal:
        attached_cluster_id(settings)
    assert str(file) in str(refusal.value)
    assert named in str(refusal.value)
