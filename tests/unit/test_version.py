"""The product has one version, in `backend/__init__.py`; everything that shows it reads it there."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from typer.testing import CliRunner

from backend import __version__
from backend.cli.main import app
from backend.engine.apis.api_versions import _SOFTWARE

ROOT = Path(__file__).parents[2]


def test_the_build_reads_the_version_from_the_code() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert settings["project"]["dynamic"] == ["version"]
    assert settings["tool"]["hatch"]["version"] == {"path": "backend/__init__.py"}


def test_no_other_file_has_a_version_of_the_product() -> None:
    written = re.compile(r"""version\w*(?:: \w+)? = ["']\d+\.\d+\.\d+""", re.IGNORECASE)
    sources = [path for top in ("app", "backend", "migrations", "spark") for path in (ROOT / top).rglob("*.py")]
    having = [path for path in (ROOT / "pyproject.toml", *sources) if written.search(path.read_text())]
    assert having == [ROOT / "backend" / "__init__.py"]


def test_the_command_shows_it_and_brokers_take_it() -> None:
    assert CliRunner().invoke(app, ["--version"]).output == f"ebbline {__version__}\n"
    assert _SOFTWARE.fullmatch(__version__), "ApiVersions would be refused (KIP-511)"
