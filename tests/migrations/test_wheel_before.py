"""The wheel of tag v0.1.0 runs while the database is upgraded to the schema of all pre revisions. Only in `make soak`,
where the repository has its history."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from sqlalchemy import select

from backend.store import migrate
from backend.store import tables as t
from backend.store.connection.database import create_engine, reading
from backend.tiering.segment_state import SegmentState
from tests.migrations import release_before
from tests.migrations.test_release_before import RELEASED_SCHEMA
from tests.spark.records import captured, final_states, raw

REPOSITORY = Path(__file__).parents[2]
TAG = "v0.1.0"
# The last commit with the schema of 0.1.0, for a clone that came without tags.
RELEASE = "52ab52b"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the wheel of the tag installs."""
    folder = tmp_path_factory.mktemp("wheel")
    tree, made, installed = folder / "tree", folder / "made", folder / "installed"
    tree.mkdir()
    tagged = subprocess.run(
        ["git", "rev-parse", "-q", "--verify", TAG], cwd=REPOSITORY, capture_output=True, check=False
    )
    released = TAG if tagged.returncode == 0 else RELEASE
    archive = subprocess.run(["git", "archive", released], cwd=REPOSITORY, capture_output=True, check=True)
    subprocess.run(["tar", "-x", "-C", str(tree)], input=archive.stdout, check=True)
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(made)]
    subprocess.run(build, cwd=tree, check=True, capture_output=True)
    (file,) = made.glob("*.whl")
    zipfile.ZipFile(file).extractall(installed)
    return installed


def test_the_wheel_of_the_release_before_stores_and_reads_on_while_the_schema_moves_on(
    wheel: Path, empty_database: str, tmp_path: Path
) -> None:
    migrate.upgrade(empty_database, RELEASED_SCHEMA)
    lines = captured("metadata-records.jsonl")
    file = tmp_path / "records.jsonl"
    records = ([record[0], record[1], record[2], (record[4] or b"").hex()] for record in raw(lines))
    file.write_text("".join(json.dumps(fields) + "\n" for fields in records))
    # A script's own folder is on its path, which has nothing of ours that the wheel has.
    command = [sys.executable, release_before.__file__, empty_database, str(file)]
    environment = os.environ | {"PYTHONPATH": str(wheel)}
    with subprocess.Popen(
        command, env=environment, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline().strip() == str(wheel)
        migrate.upgrade(empty_database, migrate.last_pre(RELEASED_SCHEMA))
        said, _ = process.communicate("go on\n", timeout=120)
    assert process.returncode == 0
    states = final_states(lines)
    assert int(said) == list(states.values()).count(int(SegmentState.COPY_SEGMENT_FINISHED))
    engine = create_engine(empty_database)
    with reading(engine) as connection:
        rows = connection.execute(select(t.segment.c.segment_id, t.segment.c.state)).all()
    engine.dispose()
    assert {row.segment_id: row.state for row in rows} == states
