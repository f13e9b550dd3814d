"""A planted error in a page is found: another number, a missing line, a line too many, another exit code."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.blocks import BadBlock, Block, blocks_of, difference
from tests.docs.session import PageIsWrong, Session

SHOWN = ("PARTITION  LEADER", "orders-0   …", "…", "3 partitions.")
PRINTED = "PARTITION LEADER\norders-0  2\norders-1 3\n\n3 partitions.\n"


def test_output_is_compared_whole_but_for_what_the_page_leaves_open() -> None:
    assert difference(SHOWN, PRINTED) is None
    assert difference(SHOWN, PRINTED.replace("3 partitions", "2 partitions"))
    assert difference(SHOWN, PRINTED + "and more\n")
    assert difference(SHOWN[:-1], PRINTED) is None
    assert difference((), PRINTED)
    assert difference((), "") is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("    ebbline status\n", "fenced"),
        ("```\nebbline status\n```\n", "language"),
        ("<!-- run: sometimes -->\n```sh\ntrue\n```\n", "no directive"),
        ("<!-- run: soak -->\ntext\n```sh\ntrue\n```\n", "directly before"),
        ("```sh\ntrue\n```\n<!-- run: soak -->\n", "directly before"),
        ("```sh\ntrue\n", "never closed"),
        ("```sh\ntrue\n\n```console\n$ true\n```\n", "before another begins"),
        ("~~~console\n$ true\n~~~\n", "three backticks"),
        ("````console\n$ true\n````\n", "three backticks"),
        ("```console title\n$ true\n```\n", "three backticks"),
    ],
)
def test_a_block_that_would_silently_not_be_run_is_refused(text: str, problem: str) -> None:
    with pytest.raises(BadBlock, match=problem):
        blocks_of("page.md", text)


def only_block(text: str) -> Block:
    [block] = blocks_of("page.md", text)
    return block


@pytest.mark.parametrize(
    "text",
    [
        "```console\n$ echo 7\n8\n```\n",
        "```console\n$ echo 7\n```\n",
        "```console\n$ false\n```\n",
        "```sh\nfalse\ntrue\n```\n",
        "```sh\nno-such-command | cat\n```\n",
        "```python\nassert 1 == 2\n```\n",
        "<!-- run: exit 3 -->\n```console\n$ true\n```\n",
    ],
)
def test_a_page_that_is_out_of_date_fails_with_its_line(text: str, tmp_path: Path) -> None:
    with pytest.raises(PageIsWrong, match=r"page\.md:\d"):
        Session(tmp_path, {}).run(only_block(text))


def test_a_block_in_the_background_that_fails_makes_its_page_fail(tmp_path: Path) -> None:
    session = Session(tmp_path, {})
    session.run(only_block("<!-- run: background -->\n```sh\nno-such-command\n```\n"))
    [(_, process)] = session.background
    process.wait(30)
    with pytest.raises(PageIsWrong, match=r"page\.md:2 ended with 127"):
        session.end_page()
    assert not session.background


def test_a_block_in_the_background_ends_with_its_page(tmp_path: Path) -> None:
    session = Session(tmp_path, {})
    session.run(only_block("<!-- run: background -->\n```sh\nsleep 60\n```\n"))
    [(_, process)] = session.background
    session.end_page()
    assert process.returncode


def test_ports_are_those_of_the_run_and_files_lie_beside(tmp_path: Path) -> None:
    session = Session(tmp_path, {8090: 41090})
    session.run(only_block("<!-- run: file a.toml -->\n```toml\napi_port = 8090\n```\n"))
    session.run(only_block("```console\n$ cat a.toml; echo 127.0.0.1:8090\napi_port = 8090\n127.0.0.1:8090\n```\n"))
    assert (tmp_path / "a.toml").read_text() == "api_port = 41090\n"
