"""A receiver's values: none with a secret is shown anywhere."""

from __future__ import annotations

import pytest

from backend.control.alerts.receiver_config import ReceiverConfig, ReceiverKind
from backend.control.alerts.receiver_task import shown_address


@pytest.mark.parametrize(
    ("kind", "urls", "shown"),
    [
        (ReceiverKind.WEBHOOK, ("https://u:KEY@hooks.example.org:8443/KEY?k=KEY",), "https://hooks.example.org:8443"),
        (ReceiverKind.WEBHOOK, ("http://[::1]:9/KEY",), "http://::1:9"),
        (ReceiverKind.ALERTMANAGER, ("http://127.0.0.1:9093/am",), "http://127.0.0.1:9093"),
        (ReceiverKind.APPRISE, ("slack://KEY/KEY", "mailtos://u:KEY[@h", "slack://KEY"), "mailtos://…, slack://…"),
    ],
)
def test_the_address_is_shown_without_what_may_be_a_key(kind: ReceiverKind, urls: tuple[str, ...], shown: str) -> None:
    config = ReceiverConfig("a", kind, urls, b"KEY", {"Authorization": "KEY"})
    assert shown_address(config) == shown
    assert "KEY" not in repr(config)


@pytest.mark.parametrize("value", ["a\nb", "schlüssel", "\x1b[1m"])
def test_a_header_that_no_server_takes_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match="printable ASCII"):
        ReceiverConfig("a", ReceiverKind.WEBHOOK, ("http://h/",), headers={"X": value}).check()
