"""The alerts file: what it means, and for each mistake one sentence with its line and without a value."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from backend.control.alerts.alerts_file import AlertsFileError, parse_alerts, read_alerts
from backend.control.alerts.receiver_config import ReceiverKind
from backend.control.alerts.toml_lines import line_of
from backend.control.findings.holds import HOLDS
from backend.control.findings.thresholds import THRESHOLDS

CANARY = "CANARY7SECRET"
PAGE = Path(__file__).parents[4] / "docs" / "alerts.md"
WHOLE = """
[receivers.ops]
kind = "webhook"
url = "https://hooks.example.org/x"
secret = "env:HOOK_SECRET"
headers = { "X-Team" = "storage", Authorization = "file:token" }
digest_above = 5

[receivers.am]
kind = "alertmanager"
url = "http://127.0.0.1:9093/"

[[routes]]
severities = ["critical"]
receivers = ["ops"]
continue = true

[[routes]]
slugs = ["copy-*"]
topics = ["logs-*"]
receivers = ["am"]

[rules.copy-slow]
for_s = 60
severity = "notice"

[[rules.follower-stuck]]
topics = "logs-*"
stuck_s = 300

[[rules.follower-stuck]]
stuck_s = 45

[rules."disk-runway"]
warning_share = 0.8

[rules.set-aside]
off = true
"""


def parse(text: str, folder: Path, **variables: str) -> object:
    return parse_alerts(folder / "alerts.toml", text, variables)


def test_everything_that_can_stand_in_it(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("Bearer abc\n")
    config = parse_alerts(tmp_path / "alerts.toml", WHOLE, {"HOOK_SECRET": "s3cret"})
    ops, am = config.receivers["ops"], config.receivers["am"]
    assert (ops.kind, ops.secret, ops.digest_above) == (ReceiverKind.WEBHOOK, b"s3cret", 5)
    assert ops.headers == {"X-Team": "storage", "Authorization": "Bearer abc"}
    assert (am.kind, am.resend_s, am.policy.digest_above) == (ReceiverKind.ALERTMANAGER, 60, None)
    assert [route.continues for route in config.routing.routes] == [True, False]
    assert config.routing.everything == frozenset()
    assert config.rules.thresholds("logs-eu").stuck_s == 300
    assert config.rules.thresholds("orders").stuck_s == 45
    assert config.rules.thresholds(None).disk_warning_share == 0.8
    assert config.files == (tmp_path / "alerts.toml", tmp_path / "token")
    assert "s3cret" not in repr(config)


def test_without_routes_each_receiver_gets_everything(tmp_path: Path) -> None:
    config = parse_alerts(tmp_path / "a.toml", '[receivers.a]\nkind = "webhook"\nurl = "http://h/"\n', {})
    assert config.routing.everything == {"a"}


RECEIVER = '[receivers.a]\nkind = "webhook"\nurl = "http://h/"\n'
MISTAKES = {
    "syntax": ("a = \n", "line 1"),
    "top": (f'{RECEIVER}[reciever.b]\n', "line 4: reciever is no table"),
    "kind": ('[receivers.a]\nkind = "pager"\n', "line 2: kind of receivers.a is webhook, alertmanager or apprise"),
    "no kind": ('\n[receivers.a]\nurl = "x"\n', "line 2: kind of receivers.a"),
    "no url": ('[receivers.a]\nkind = "webhook"\n', "line 1: receivers.a has no url"),
    "bad url": (f'[receivers.a]\nkind = "webhook"\nurl = "ftp://{CANARY}"\n', "line 3: url of receivers.a"),
    "unknown key": (f'{RECEIVER}sekret = "{CANARY}"\n', "line 4: receivers.a.sekret is not known here"),
    "inline secret": (f'{RECEIVER}secret = "{CANARY}"\n', "line 4: receivers.a.secret: it does not stand in this file"),
    "unset variable": (f'{RECEIVER}secret = "env:{CANARY}"\n', "line 4: receivers.a.secret names a variable"),
    "no file": (f'{RECEIVER}secret = "file:{CANARY}"\n', "line 4: receivers.a.secret names a file"),
    "our header": (f'{RECEIVER}headers = {{ "Ebbline-Delivery" = "{CANARY}" }}\n', "line 4: receivers.a.headers"),
    "digest": (f'{RECEIVER}digest_above = 0\n', "line 4: receivers.a.digest_above"),
    "name": ('[receivers."a b"]\nkind = "webhook"\n', "line 1: a receiver's name"),
    "reserved": ('[receivers.webhook_url]\nkind = "webhook"\n', "line 1: a receiver's name"),
    "route": (f'{RECEIVER}\n[[routes]]\nreceivers = ["b"]\n', "line 6: a route names a receiver that is none"),
    "second route": (
        f'{RECEIVER}[[routes]]\nreceivers = ["a"]\n[[routes]]\nreceivers = ["a"]\nslugs = ["copi-*"]\n',
        "line 8: a pattern of slugs fits no rule",
    ),
    "severity": (f'{RECEIVER}[[routes]]\nreceivers = ["a"]\nseverities = ["bad"]\n', "line 6: routes.1.severities"),
    "rule": ('[rules.copy-slwo]\noff = true\n', "line 1: there is no rule 'copy-slwo'. Is it copy-slow?"),
    "threshold": ('[rules.copy-slow]\nwarning_share = 1\n', "line 2: rules.copy-slow.warning_share is not known here"),
    "range": ('[rules.disk-runway]\nwarning_share = 80\n', "line 2: rules.disk-runway.warning_share is a number"),
    "no topic": ('[[rules.disk-runway]]\ntopics = "x"\nwarning_share = 0.5\n', "line 3: rules.disk-runway.1.warning_"),
    "off": ('[rules.disk-runway]\noff = "yes"\n', "line 2: rules.disk-runway.off is true or false"),
    "hold": ('[rules.disk-runway]\nfor_s = -1\n', "line 2: rules.disk-runway.for_s is a number from 0 to 86400"),
    "rule severity": ('[rules.disk-runway]\nseverity = "bad"\n', "line 2: rules.disk-runway.severity is critical"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_sentence_with_its_line(name: str, tmp_path: Path) -> None:
    text, reason = MISTAKES[name]
    with pytest.raises(AlertsFileError) as refusal:
        parse(text, tmp_path)
    sentence = str(refusal.value)
    assert sentence.startswith("The alerts file alerts.toml is not usable: "), sentence
    assert reason in sentence
    assert CANARY not in sentence
    assert len(sentence.splitlines()) == 1
    assert "pydantic" not in sentence


def test_a_file_that_is_none_or_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AlertsFileError, match="cannot be read"):
        read_alerts(tmp_path / CANARY, {})
    path = tmp_path / "alerts.toml"
    path.write_bytes(b"a = 1\nb = '\xff'\n")
    with pytest.raises(AlertsFileError, match="line 2 is no UTF-8"):
        read_alerts(path, {})


def test_the_example_of_the_page_is_usable(tmp_path: Path) -> None:
    pytest.importorskip("apprise")
    (block,) = re.findall(r"^```toml\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "pagerduty.url").write_text("pagerduty://A1B2C3D4E5@a1b2c3d4e5f6g7h8i9j0")
    variables = {"HOOK_SECRET": "s", "CHAT_URL": "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/general"}
    config = parse_alerts(tmp_path / "alerts.toml", block, variables)
    assert set(config.receivers) == {"ops", "alertmanager", "oncall", "chat"}
    assert len(config.routing.routes) == len(config.rules.settings) == 3


def test_the_page_lists_every_threshold_with_its_default_and_reason() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \| `(\w+)` \| (.+?) \| (.+) \|$", PAGE.read_text(), re.MULTILINE)
    assert rows == [(e.slug, e.name, f"{e.default:g} {e.unit}", e.reason) for e in THRESHOLDS]


def test_the_page_lists_every_hold_with_its_default_and_reason() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \| ([^`|]+) \| ([\d.]+) s \| (.+) \|$", PAGE.read_text(), re.MULTILINE)
    assert rows == [(h.slug, h.case or "any other", f"{h.for_ms / 1000:g}", h.reason) for h in HOLDS]


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("a", "x"), 3),
        (("a", "list", 1), 4),
        (("a", "text"), 8),
        (("b", 0, "y"), 14),
        (("b", 1, "y"), 16),
        (("b", 1, "c", "z"), 18),
        (("b", 1, "c", "unknown"), 17),
        (("d e", "f"), 20),
        (("g",), None),
    ],
)
def test_the_line_of_a_key(path: tuple[str | int, ...], line: int | None) -> None:
    text = '''# [a] is below
[a]
x = 1 # [[b]]
list = [
  "[b]", # }
  2,
]
text = """
[b]
x = 2 \\""" still
"""
one = '[b]'
[[b]]
y = 1
[[b]]
y = 2
[b.c]
z = 3
["d e"]
"f" = 4
'''
    assert line_of(text, path) == line
