"""Names in README and docs exist: commands with their options, variables, keys, calls of the API, pages and files."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from typer.main import get_command

from backend.cli.main import app
from backend.control.findings.catalogue import SLUGS
from backend.control.http.endpoints import ENDPOINTS
from backend.settings.settings import _OTHER_VARIABLES, Settings
from tests.docs import cause_table
from tests.docs.pages import ROOT, pages, text_of

EBBLINE: Any = get_command(app)
# Of sessions in PostgreSQL: no commands.
APPLICATION_NAMES = ("ebbline backend", "ebbline dashboard")
CODE = re.compile(r"`([^`\n]+)`")
VARIABLE = re.compile(r"EBBLINE_[A-Z_]*[A-Z]")
# Variables that tests, benchmarks and CI read; CONTRIBUTING and comments have them.
OF_TESTS = re.compile(r"EBBLINE_(TEST|CI|SOAK|BENCH)")
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
REPOSITORY_PATH = re.compile(r"`((?:app|backend|docs|migrations|spark|tests)/[\w./*-]*[\w*])(?:::\w+)?`")
PIPELINE = {name for name in VARIABLE.findall((ROOT / "spark/settings.py").read_text()) if "_PIPELINE_" in name}
VARIABLES = {f"EBBLINE_{name.upper()}" for name in {*Settings.model_fields, *_OTHER_VARIABLES}} | PIPELINE


def command_lines(text: str) -> list[str]:
    """Commands that begin with `ebbline` in code, inline or at the start of a line of a block."""
    inline = [code for code in CODE.findall(text) if code.startswith("ebbline ")]
    blocks = re.findall(r"^(?:\$ )?(ebbline [a-z].*)$", text, re.MULTILINE)
    return inline + blocks


def problems_of(line: str) -> list[str]:
    """Commands and options of a command line that do not exist. Words after a `|` are checked one by one."""
    if line in APPLICATION_NAMES:
        return []
    command: Any = EBBLINE
    for word in line.replace("[", " ").split()[1:]:
        if not hasattr(command, "commands") or not re.fullmatch(r"[a-z][a-z-]*", word):
            break
        if word not in command.commands:
            return [f"{line!r}: there is no command {word!r}"]
        command = command.commands[word]
    if hasattr(command, "commands"):
        return []
    options = {name for parameter in command.params for name in parameter.opts}
    written = re.findall(r"(?<![\w-])--[a-z][a-z-]*", line)
    return [f"{line!r}: there is no option {name}" for name in written if name not in {*options, "--help"}]


@pytest.mark.parametrize("page", pages())
def test_commands_options_and_variables_of_a_page_exist(page: str) -> None:
    text = text_of(page)
    unknown = [problem for line in command_lines(text) for problem in problems_of(line)]
    variables = {name for name in VARIABLE.findall(text) if not OF_TESTS.match(name)} - {"EBBLINE_NAME"}
    assert (unknown, variables - VARIABLES) == ([], set())


@pytest.mark.parametrize("page", pages())
def test_links_of_a_page_lead_somewhere(page: str) -> None:
    here = (ROOT / page).parent
    targets = [target for target in LINK.findall(text_of(page)) if "://" not in target]
    assert [target for target in targets if not (here / target).exists()] == []


@pytest.mark.parametrize("page", [*pages(), "CONTRIBUTING.md", "SECURITY.md"])
def test_paths_of_the_repository_on_a_page_exist(page: str) -> None:
    paths = [path for path in REPOSITORY_PATH.findall(text_of(page)) if "NAME" not in path]
    assert [path for path in paths if not list(ROOT.glob(path)) and not list(ROOT.glob(f"{path}.py"))] == []


def test_calls_of_the_api_on_pages_exist() -> None:
    paths = [re.sub(r"\{[^}]*\}", "X", path) for path in (endpoint.path for endpoint in ENDPOINTS)]
    written = {
        call.rstrip("/.").replace("/N", "/X")
        for page in pages()
        for call in re.findall(r"/v1/[A-Za-z0-9/_-]+", text_of(page))
    }
    assert sorted(call for call in written if re.sub(r"/\d+", "/X", call) not in paths) == []


def test_the_page_of_findings_lists_each_with_its_title_and_runbook() -> None:
    listed = re.findall(
        r"^\| \[([\w-]+)\]\(runbooks/([\w-]+)\.md\) \| (.+) \|$", text_of("docs/findings.md"), re.MULTILINE
    )
    assert [(slug, slug, title) for slug, title in sorted(SLUGS.items())] == listed


def test_the_page_of_findings_lists_what_explains_what() -> None:
    section = text_of("docs/findings.md").partition("## Causes, and what they explain")[2]
    assert [line for line in section.splitlines() if line.startswith("|")] == cause_table.lines()


def rows(page: str) -> dict[str, list[str]]:
    """Cells of each table row whose first cell is one name in code."""
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in text_of(page).splitlines()]
    return {row[0].strip("`"): row[1:] for row in cells if len(row) > 2 and re.fullmatch(r"`\w+`", row[0])}


def test_every_setting_is_on_its_page_with_its_flag_and_default() -> None:
    shown = rows("docs/settings.md")
    flags = {name for parameter in EBBLINE.commands["up"].params for name in parameter.opts if name != "--help"}
    for name, field in Settings.model_fields.items():
        flag, default, *_ = shown[name]
        assert flag == "" or flag.strip("`") in flags
        assert default.strip("`") == _text(field.default), name
    assert {row[0].strip("`") for name, row in shown.items() if name in Settings.model_fields and row[0]} == flags
    assert {name for name in shown if name.startswith("EBBLINE_PIPELINE_")} == PIPELINE
    assert {name for name in VARIABLES if name not in text_of("docs/settings.md")} <= {
        f"EBBLINE_{name.upper()}" for name in Settings.model_fields
    }


def _text(default: Any) -> str:
    if default is None:
        return "none"
    return json.dumps(default) if isinstance(default, bool) else str(default)


def test_a_planted_error_is_found() -> None:
    assert problems_of("ebbline statu") == ["'ebbline statu': there is no command 'statu'"]
    assert problems_of("ebbline status --jsn") == ["'ebbline status --jsn': there is no option --jsn"]
    assert problems_of("ebbline plan swap-leaders orders --between 1 2") == []
