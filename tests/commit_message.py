"""The rules for a commit's message, as a hook of git: ``python -m tests.commit_message FILE``.

`.pre-commit-config.yaml` runs it on the message before the commit is made. Commits that are made already are not asked.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

SUBJECT_CHARS_MAX: Final = 72
# With `git commit --verbose` git adds the change below this line.
_SCISSORS: Final = re.compile(r"^# -+ >8 -+$.*", re.MULTILINE | re.DOTALL)
# Git wrote the first two; the others are melted into the commit that they name.
_WITHOUT_RULES: Final = ("Merge ", 'Revert "', "fixup! ", "squash! ", "amend! ")
_TRAILER: Final = re.compile(r"[\w-]+-by: ")


def problems(text: str) -> list[str]:
    """A sentence for each rule that the message breaks. `text` may have git's comments, as in the editor."""
    lines = [line.rstrip() for line in _SCISSORS.sub("", text).splitlines() if not line.startswith("#")]
    while lines and not lines[0]:
        del lines[0]
    if not lines:
        return []  # git itself refuses a message without text
    subject, *rest = lines
    if subject.startswith(_WITHOUT_RULES):
        return []
    broken = []
    if len(subject) > SUBJECT_CHARS_MAX:
        broken.append(f"The subject has {len(subject)} characters: use at most {SUBJECT_CHARS_MAX}.")
    if rest and rest[0]:
        broken.append("The second line belongs to the subject: leave it empty.")
    if not any(line and not _TRAILER.match(line) for line in rest):
        broken.append("The message has no body: say why below an empty line.")
    return broken


def main(path: str) -> int:
    """Returns 1 and prints the rules that the file's message breaks, or 0."""
    broken = problems(Path(path).read_text(encoding="utf-8", errors="replace"))
    print("".join(f"{problem}\n" for problem in broken), end="", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
