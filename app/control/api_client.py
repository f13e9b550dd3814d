"""The control API as the pages use it: plan, try, execute once, revert, and the lab's races, which live in the backend
alone. All other reads of pages go to the database.

Every failure is an :class:`ControlApiError` with one sentence for people; no other exception leaves this module.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import httpx

from app.access.identity import User
from backend.store.queries.audit import OperationRow

CONNECT_TIMEOUT_S: Final = 2.0
# A plan asks every broker; an execution waits for its effect as long as the API is asked to (EXECUTE_WAIT_MS).
PLAN_TIMEOUT_S: Final = 20.0
# A part of a page is drawn with the answer.
READ_TIMEOUT_S: Final = 3.0
LAB_BOOTSTRAP: Final = "/v1/lab/bootstrap"
LAB_FAULTS: Final = "/v1/lab/faults"
EXECUTE_WAIT_MS: Final = 8_000
EXECUTE_TIMEOUT_S: Final = 30.0
SENTENCE_CHARS_MAX: Final = 500
Json = Mapping[str, Any]


@cache
def _trust() -> ssl.SSLContext:
    """The certificates that are trusted, loaded once: it takes 40 ms."""
    return httpx.create_ssl_context(trust_env=False)


class ControlApiError(Exception):
    """The message is one sentence for people."""


class ApiAway(ControlApiError):
    """No answer. ``sent``: the request may have reached the API, so its effect is not known."""

    def __init__(self, sentence: str, *, sent: bool) -> None:
        super().__init__(sentence)
        self.sent = sent


class ApiRefused(ControlApiError):
    """The API answered with a problem; nothing was changed by this call."""

    def __init__(self, sentence: str, *, status: int, slug: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.slug = slug


@dataclass(frozen=True, slots=True)
class DryRun:
    """A plan that was tried and not stored."""

    kind: str
    refused: bool
    diff: Json
    checks: list[Json]
    cli: list[str]
    estimate: Json | None


class ControlApi:
    """The API of this `ebbline up`, acting for one user."""

    def __init__(self, url: str, token_file: str, user: User) -> None:
        self._url = url
        self._token_file = token_file
        self._user = user

    def plan(self, kind: str, inputs: Json) -> OperationRow:
        """Stores a plan, which its checks may have refused. Changes nothing in the cluster. Raises ControlApiError."""
        return _plan(self._post("/v1/plans", {"kind": kind, "inputs": dict(inputs)}, PLAN_TIMEOUT_S))

    def dry_run(self, kind: str, inputs: Json) -> DryRun:
        """That plan, tried and not stored; a viewer may ask. Raises ControlApiError."""
        body = self._post("/v1/plans", {"kind": kind, "inputs": dict(inputs), "dry_run": True}, PLAN_TIMEOUT_S)
        try:
            return DryRun(**{name: body[name] for name in DryRun.__slots__})
        except KeyError as error:
            raise _not_understood() from error

    def execute(self, plan_id: int, *, key: str, confirm: str, reason: str) -> OperationRow:
        """Executes a plan; the same ``key`` again gives the same plan and does nothing. Raises ControlApiError."""
        body = {"confirm": confirm, "reason": reason, "wait_ms": EXECUTE_WAIT_MS}
        return _plan(self._post(f"/v1/plans/{plan_id}/execute", body, EXECUTE_TIMEOUT_S, {"Idempotency-Key": key}))

    def revert(self, plan_id: int) -> OperationRow:
        """A new plan that puts back what ``plan_id`` found; it is executed like any other. Raises ControlApiError."""
        return _plan(self._post(f"/v1/plans/{plan_id}/revert", {}, PLAN_TIMEOUT_S))

    def mute_finding(self, finding_id: int, minutes: int) -> None:
        """Keeps a finding silent; 0 minutes end that. Raises ControlApiError."""
        self._post(f"/v1/findings/{finding_id}/mute", {"minutes": minutes}, PLAN_TIMEOUT_S)

    def acknowledge_finding(self, finding_id: int) -> None:
        """The user looks after a finding. Raises ControlApiError."""
        self._post(f"/v1/findings/{finding_id}/acknowledge", {}, PLAN_TIMEOUT_S)

    def add_maintenance(self, window: Json) -> None:
        """Begins or plans a maintenance window. Raises ControlApiError."""
        self._post("/v1/maintenance", window, PLAN_TIMEOUT_S)

    def end_maintenance(self, window_id: int) -> None:
        """Ends a window now. Raises ControlApiError."""
        self._call("DELETE", f"/v1/maintenance/{window_id}", None, PLAN_TIMEOUT_S)

    def rule_settings(self) -> Json:
        """Thresholds and settings of the rules. Raises ControlApiError."""
        return self._call("GET", "/v1/alerts/rules", None, READ_TIMEOUT_S)

    def change_rule(
        self, slug: str, values: Mapping[str, float | str | bool | None], topics: str | None, reason: str
    ) -> None:
        """Sets names of a rule's table in the alerts file; None: the default. Raises ControlApiError."""
        body = {"values": dict(values), "topics": topics, "reason": reason}
        self._post(f"/v1/alerts/rules/{slug}", body, PLAN_TIMEOUT_S)

    def bootstrap_race(self) -> Json | None:
        """The race of the lab that is going on, else the last one; None: there was none. Raises ControlApiError."""
        return _run(self._call("GET", LAB_BOOTSTRAP, None, READ_TIMEOUT_S))

    def start_bootstrap_race(self, size_bytes: int, tiered_percent: int) -> Json | None:
        """Begins a race. Raises ControlApiError."""
        body = {"size_bytes": size_bytes, "tiered_percent": tiered_percent}
        return _run(self._post(LAB_BOOTSTRAP, body, PLAN_TIMEOUT_S))

    def cancel_bootstrap_race(self) -> Json | None:
        """Ends the race that is going on. Raises ControlApiError."""
        return _run(self._post(f"{LAB_BOOTSTRAP}/cancel", {}, PLAN_TIMEOUT_S))

    def faults(self) -> Json:
        """The lab's faults, and those that are injected now. Raises ControlApiError."""
        return _faults(self._call("GET", LAB_FAULTS, None, READ_TIMEOUT_S))

    def inject_fault(self, scenario: str, broker: int | None) -> Json:
        """Begins a scenario of the lab; as :meth:`faults` then. Raises ControlApiError."""
        return _faults(self._post(LAB_FAULTS, {"scenario": scenario, "broker": broker}, PLAN_TIMEOUT_S))

    def clear_fault(self) -> Json:
        """Mends what the lab has broken; as :meth:`faults` then. Raises ControlApiError."""
        return _faults(self._post(f"{LAB_FAULTS}/heal", {}, PLAN_TIMEOUT_S))

    def alert_rules(self) -> bytes:
        """The rules file for Prometheus. Raises ControlApiError."""
        response = self._request("GET", "/v1/alert-rules", None, PLAN_TIMEOUT_S)
        if not response.is_success:
            _checked(response)
        return response.content

    def send_control(self, plan_id: int, verb: str, body: Json) -> OperationRow:
        """Pauses, resumes, stops or limits a plan that is being carried out; the plan then. Raises ControlApiError."""
        return _plan(self._post(f"/v1/plans/{plan_id}/{verb}", dict(body), PLAN_TIMEOUT_S))

    def _post(self, path: str, body: Json, timeout_s: float, headers: Mapping[str, str] | None = None) -> Json:
        return self._call("POST", path, body, timeout_s, headers)

    def _call(
        self, method: str, path: str, body: Json | None, timeout_s: float, headers: Mapping[str, str] | None = None
    ) -> Json:
        return _checked(self._request(method, path, body, timeout_s, headers))

    def _request(
        self, method: str, path: str, body: Json | None, timeout_s: float, headers: Mapping[str, str] | None = None
    ) -> httpx.Response:
        if not self._url:
            raise ApiAway("No control API is known here: start the dashboard with `ebbline up`.", sent=False)
        timeout = httpx.Timeout(timeout_s, connect=CONNECT_TIMEOUT_S)
        try:
            # No proxy may stand between two processes of one machine.
            with httpx.Client(base_url=self._url, timeout=timeout, trust_env=False, verify=_trust()) as client:
                all_headers = _encoded({**self._identity(), **(headers or {})})
                return client.request(method, path, json=body, headers=all_headers)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
            raise ApiAway(
                "The control API does not answer; nothing was changed. Try again when it runs.", sent=False
            ) from error
        except httpx.HTTPError as error:
            text = "The control API broke off; what it did is not known yet. Try again: a plan is executed once."
            raise ApiAway(text, sent=True) from error

    def _identity(self) -> dict[str, str]:
        try:
            token = Path(self._token_file).read_text().strip()
        except OSError as error:
            reason = error.strerror or "it cannot be read"
            text = f"The dashboard's token {self._token_file!r} is not usable ({reason}); restart `ebbline up`."
            raise ApiAway(text, sent=False) from error
        who = {"X-Ebbline-Actor": self._user.name, "X-Ebbline-Role": self._user.role}
        return {"Authorization": f"Bearer {token}", **who}


def _encoded(headers: Mapping[str, str]) -> httpx.Headers:
    """HTTP headers are latin-1; a letter beyond it becomes a question mark."""
    fitting = {name: value.encode("latin-1", "replace").decode("latin-1") for name, value in headers.items()}
    return httpx.Headers(fitting, encoding="latin-1")


def _checked(response: httpx.Response) -> Json:
    """The body of a success. Raises ApiRefused for a problem, ApiAway for what is not this API's answer."""
    try:
        body = response.json()
    except ValueError as error:
        raise _not_understood() from error
    if not isinstance(body, dict):
        raise _not_understood()
    if response.is_success:
        return body
    detail = str(body.get("detail") or body.get("title") or f"status {response.status_code}")
    slug = str(body.get("type", "")).rpartition(":")[2]
    raise ApiRefused(detail[:SENTENCE_CHARS_MAX], status=response.status_code, slug=slug)


def _plan(body: Json) -> OperationRow:
    try:
        return OperationRow(**{name: body["plan"][name] for name in OperationRow.__slots__})
    except (KeyError, TypeError) as error:
        raise _not_understood() from error


def _run(body: Json) -> Json | None:
    run = body.get("run")
    if run is not None and not isinstance(run, dict):
        raise _not_understood()
    return run


def _faults(body: Json) -> Json:
    try:
        scenarios: list[Json] = body["scenarios"]
        keys = {"slug", "name", "does", "watch", "watch_page", "heals", "heals_after_s", "runbook"}
        if {"refusal", "brokers", "takes_broker", "run"} <= body.keys() and all(
            keys <= scenario.keys() for scenario in scenarios
        ):
            return body
    except (KeyError, TypeError, AttributeError) as error:
        raise _not_understood() from error
    raise _not_understood()


def _not_understood() -> ApiAway:
    text = "What answers at the control API's address is not this version's API; restart `ebbline up`."
    return ApiAway(text, sent=True)
