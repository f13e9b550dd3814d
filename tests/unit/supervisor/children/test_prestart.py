"""A backend that waits for its start signal runs after it, and leaves nothing if the signal never comes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from backend.supervisor.children.prestart import PrestartedBackend, prestarted_backend


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.outside
def test_a_backend_that_was_not_told_to_begin_is_gone_at_the_end() -> None:
    with prestarted_backend() as prestarted:
        assert prestarted is not None
        pid = prestarted._process.pid
        assert alive(pid)
    assert not alive(pid)


@pytest.mark.outside
def test_what_it_is_told_becomes_its_environment(tmp_path: Path) -> None:
    prestarted = PrestartedBackend()
    # The setting is refused, and the refusal names what came over the pipe.
    process = prestarted.begin({"EBBLINE_DATA_DIR": str(tmp_path), "EBBLINE_BROKERS": "told-77"})
    assert process is not None
    output, _ = process.communicate(timeout=120)
    assert process.returncode != 0
    assert b"told-77" in output
    process.liveness.close()


@pytest.mark.outside
def test_one_that_has_ended_does_not_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    prestarted = PrestartedBackend()
    prestarted._process.wait(60)
    assert prestarted.begin({}) is None
    prestarted.drop()
