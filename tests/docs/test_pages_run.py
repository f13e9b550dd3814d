"""README and docs are followed as written, block by block, in a folder with one running `ebbline up`.

A page that shows another output than the product prints fails with its line. A comment before a block says what the
block needs, or why it is not run (`tests.docs.blocks`).
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator

import pytest

from backend.control.findings.thresholds import Thresholds
from tests.docs.blocks import RUN_LANGUAGES, Block, blocks_of
from tests.docs.pages import ROOT, pages, text_of
from tests.docs.session import Session
from tests.e2e.up_process import UpProcess
from tests.effort import SOAK

BLOCKS = [block for page in pages() for block in blocks_of(page, text_of(page)) if block.runs]
SHORT = [block for block in BLOCKS if SOAK or not block.directive.soak]
BROKERS = 3


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """`make up` in a checkout, but for its ports and its browser pages."""
    if shutil.which("curl") is None:
        pytest.skip("curl is unavailable")
    folder = tmp_path_factory.mktemp("checkout")
    disk = shutil.disk_usage(folder)
    if disk.free <= (1 - Thresholds().disk_warning_share) * disk.total:
        pytest.skip("the disk of the tests is so full that each page would show it, and the pages' own do not")
    (folder / "docs").symlink_to(ROOT / "docs")
    with UpProcess(folder / ".ebbline", options=("--no-ui",), brokers=BROKERS) as up:
        ports = {19092 + n: up.base + n for n in range(BROKERS)} | {8090: up.base + 30, 8501: up.base + 31}
        ports |= {39092: up.base + 35, 39093: up.base + 36}  # the single node of docs/questions.md
        running = Session(folder, ports)
        yield running
        running.end_page()


@pytest.mark.parametrize("block", SHORT, ids=lambda block: block.name)
def test_a_block_does_what_its_page_shows(session: Session, block: Block) -> None:
    try:
        session.run(block)
    finally:
        later = [other for other in SHORT if other.page == block.page and other.line > block.line]
        if not later:
            session.end_page()


# Blocks of commands that no test follows, by page: each has its reason in the comment before it.
NOT_RUN = {
    "README.md": 2,
    "docs/attach.md": 3,
    "docs/questions.md": 2,
    "docs/remote-plugins.md": 4,
    "docs/security.md": 3,
    "docs/spark-cluster.md": 2,
}


def test_most_blocks_are_run() -> None:
    """A page on which nothing is run any more would never be out of date."""
    every = [block for page in pages() for block in blocks_of(page, text_of(page))]
    commands = [block for block in every if block.language in RUN_LANGUAGES]
    not_run = Counter(block.page for block in commands if not block.runs)
    assert not_run == NOT_RUN
    assert not_run.total() < len(commands) / 2
