"""The wheel has every file that a user needs: the product's packages as git has them, settings and runbooks."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from backend import __version__

pytestmark = pytest.mark.outside  # git lists the tree

ROOT = Path(__file__).parents[2]
PACKAGES = ("app/", "backend/", "migrations/", "spark/")
# For those who change the product; they have its repository.
OF_DEVELOPERS = ("backend/ARCHITECTURE.md", "backend/decisions/")
# Places in the wheel of files that stand outside of the packages.
MOVED = {".streamlit/config.toml": "app/.streamlit/config.toml", "docs/runbooks/": "app/docs/runbooks/"}


def in_git() -> list[str]:
    """Files that git keeps, or would with the next `git add`."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no git tree to compare with: {error}")
    return [path for path in listed.splitlines() if (ROOT / path).exists()]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    (built,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path_factory.mktemp("wheel")), versions=["standard"])
    return Path(built)


def test_the_wheel_has_the_files_of_the_tree_and_no_others(wheel: Path) -> None:
    listed = in_git()
    expected = {path for path in listed if path.startswith(PACKAGES) and not path.startswith(OF_DEVELOPERS)}
    for place, moved in MOVED.items():
        expected |= {path.replace(place, moved, 1) for path in listed if path.startswith(place)}
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == expected


def test_the_wheel_has_the_command_and_the_version(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        folder = f"ebbline-{__version__}.dist-info"
        assert "ebbline = backend.cli.entry:main" in archive.read(f"{folder}/entry_points.txt").decode()
        assert f"\nVersion: {__version__}\n" in archive.read(f"{folder}/METADATA").decode()
        assert archive.read(f"{folder}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()
