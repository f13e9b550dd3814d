"""Tables of the alerts file as pydantic models: what may stand in each."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator

from backend.control.alerts.receiver_queue import DIGEST_ABOVE
from backend.control.alerts.text_source import ENV, FILE

RECEIVER_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,60}")
# Each has a task and a connection.
RECEIVERS_MAX: Final = 100
# All are tried for each finding that opens: 1,000 patterns take a millisecond.
ROUTES_MAX: Final = 1_000
URLS_MAX: Final = 20
# Alertmanager's resolve_timeout is 5 min by default: of five repetitions four may be lost.
RESEND_S: Final = 60
Text = Annotated[str, StringConstraints(min_length=1, max_length=8_192)]
Pattern = Annotated[str, StringConstraints(min_length=1, max_length=249)]
Severity = Literal["critical", "warning", "notice"]
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_OURS: Final = ("content-type", "content-length", "host")


class ReceiverTable(BaseModel):
    """Keys that every receiver has; those of one kind alone have no place in the others."""

    model_config = ConfigDict(extra="forbid", strict=True)

    kind: str
    url: Any
    secret: Any = None
    headers: dict[str, Text] = {}
    digest_above: Annotated[int, Field(ge=1, le=10_000)] | None = DIGEST_ABOVE
    resend_s: int | None = None


class WebhookTable(ReceiverTable):
    """Our own JSON, signed when there is a secret."""

    kind: Literal["webhook"]
    url: Text
    secret: Text | None = None
    resend_s: None = None

    @field_validator("secret")
    @classmethod
    def _elsewhere(cls, text: str | None) -> str | None:
        if text is not None and not text.startswith((ENV, FILE)):
            raise ValueError("it does not stand in this file: write env:NAME or file:PATH")
        return text

    @field_validator("headers")
    @classmethod
    def _usable(cls, headers: dict[str, str]) -> dict[str, str]:
        for name, value in headers.items():
            if not _HEADER_NAME.fullmatch(name) or not value.isprintable() or not value.isascii():
                raise ValueError("a header has a name of letters, digits and '-', and a value of printable ASCII")
            if name.lower() in _OURS or name.lower().startswith("ebbline-"):
                raise ValueError(f"the header {name} is set by ebbline itself")
        return headers


class AlertmanagerTable(ReceiverTable):
    """Alertmanager's API v2, at the address of its web page."""

    kind: Literal["alertmanager"]
    url: Text
    secret: None = None
    digest_above: None = None
    # At most a fifth of the shortest resolve_timeout that makes sense, or alerts end and begin again.
    resend_s: Annotated[int, Field(ge=5, le=3_600)] = RESEND_S

    @field_validator("headers")
    @classmethod
    def _same(cls, headers: dict[str, str]) -> dict[str, str]:
        return WebhookTable._usable(headers)


class AppriseTable(ReceiverTable):
    """Anything that apprise has a URL for: Slack, Teams, PagerDuty, e-mail and a hundred more."""

    kind: Literal["apprise"]
    url: Text | Annotated[list[Text], Field(min_length=1, max_length=URLS_MAX)]
    secret: None = None
    headers: Annotated[dict[str, Text], Field(max_length=0)] = {}
    resend_s: None = None


TABLES: Final[dict[str, type[ReceiverTable]]] = {
    "webhook": WebhookTable,
    "alertmanager": AlertmanagerTable,
    "apprise": AppriseTable,
}


class RouteTable(BaseModel):
    """One table of `[[routes]]`."""

    model_config = ConfigDict(extra="forbid", strict=True, populate_by_name=True)

    receivers: Annotated[list[Text], Field(min_length=1, max_length=RECEIVERS_MAX)]
    severities: list[Severity] = []
    slugs: Annotated[list[Pattern], Field(max_length=100)] = []
    topics: Annotated[list[Pattern], Field(max_length=1_000)] = []
    continues: bool = Field(default=False, alias="continue")
