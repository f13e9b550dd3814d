"""A remote tier that cannot be listed is named with the way out."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from backend.cli.remote.topic_tools import remote_objects
from backend.tiering.remote_keys import ROOT
from tests.ports import free_ports


def test_a_folder_that_cannot_be_listed_is_no_store_that_denies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "tier-403"
    folder.mkdir()
    (folder / ROOT).symlink_to(ROOT)
    with pytest.raises(typer.Exit):
        remote_objects(str(folder))
    message = capsys.readouterr().err
    assert message.startswith(f"ebbline: The remote tier in {folder} cannot be listed (")
    assert message.endswith("correct the folder or its rights, or name another place with --remote.\n")


def test_a_store_that_cannot_be_listed_may_be_another(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ALLOW_HTTP"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ENDPOINT", f"http://127.0.0.1:{free_ports(1)[0]}")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.setenv(name, "x")
    with pytest.raises(typer.Exit):
        remote_objects("s3://bucket/tier")
    message = capsys.readouterr().err
    assert message.startswith("ebbline: The endpoint cannot be reached (")
    assert message.endswith(", or name another place with --remote.\n")
