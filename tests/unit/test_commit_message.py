"""The hook for commit messages: a short subject, an empty line, and a body that says why."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.commit_message import SUBJECT_CHARS_MAX, main, problems

ROOT = Path(__file__).parents[2]
SUBJECT = "é" * SUBJECT_CHARS_MAX
COMMENTS = "# Please enter the commit message.\n# ------------------------ >8 ------------------------\ndiff --git\n"


@pytest.mark.parametrize(
    "text",
    [
        f"{SUBJECT}\n\nIt was wrong.\n",
        f"\n# a comment\n{SUBJECT}\n\nIt was wrong.\n{COMMENTS}",
        f"fixup! {SUBJECT}\n",
        f'Revert "{SUBJECT}"\n',
        "Merge branch 'main'\n",
        "",
    ],
)
def test_a_message_within_the_rules_is_taken(text: str) -> None:
    assert problems(text) == []


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        (f"{SUBJECT}é\n\nIt was wrong.\n", ["The subject has 73 characters: use at most 72."]),
        (f"{SUBJECT}\nIt was wrong.\n", ["The second line belongs to the subject: leave it empty."]),
        (f"{SUBJECT}\n", ["The message has no body: say why below an empty line."]),
        (f"{SUBJECT}\n\n{COMMENTS}", ["The message has no body: say why below an empty line."]),
        (f"{SUBJECT}\n\nSigned-off-by: A <a@b>\n", ["The message has no body: say why below an empty line."]),
    ],
)
def test_a_broken_rule_is_one_sentence(text: str, sentences: list[str]) -> None:
    assert problems(text) == sentences


def test_pre_commit_runs_it_on_messages_alone() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    # Both kinds are set up by `pre-commit install`; hooks that name no stage are for files.
    assert config["default_install_hook_types"] == ["pre-commit", "commit-msg"]
    assert config["default_stages"] == ["pre-commit"]
    hooks = [hook for repository in config["repos"] for hook in repository["hooks"]]
    [hook] = [hook for hook in hooks if "stages" in hook]
    assert (hook["stages"], hook["entry"]) == (["commit-msg"], f".venv/bin/python -m {main.__module__}")


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [("\n\nIt was wrong.\n", 0, ""), ("\n", 1, "The message has no body: say why below an empty line.\n")],
)
def test_a_broken_rule_refuses_the_commit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], body: str, status: int, said: str
) -> None:
    message = tmp_path / "COMMIT_EDITMSG"
    message.write_text(SUBJECT + body)
    assert main(str(message)) == status
    assert capsys.readouterr().err == said
