"""Settings of the control plane: ``EBBLINE_*`` of the environment, as the supervisor hands them to its children."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from backend.control.alerts.webhook import check_address
from backend.control.gateway.client import parse_bootstrap
from backend.control.observer.broker_numbers import check_template


class ControlSettings(BaseSettings):
    """What one control plane watches and where it listens."""

    model_config = SettingsConfigDict(env_prefix="EBBLINE_", extra="ignore")

    data_dir: Path
    cluster_id: str = Field(min_length=1, max_length=100)
    cluster_name: str = Field(default="demo", min_length=1, max_length=100)
    cluster_kind: Literal["embedded", "attached"] = "embedded"
    bootstrap_servers: str
    database_url: str
    api_host: str = "127.0.0.1"
    api_port: int = Field(default=8090, ge=0, le=65535)  # 0: any free port
    sample_interval_ms: int = Field(default=2000, ge=200, le=600_000)
    client_properties: Path | None = None
    broker_metrics: str | None = None  # address of each broker's Prometheus text, with {host} or {id}
    webhook_url: str | None = None
    allow_changes: bool = True  # False: plans are made and none is executed

    @field_validator("bootstrap_servers")
    @classmethod
    def _addresses(cls, text: str) -> str:
        parse_bootstrap(text)
        return text

    @field_validator("broker_metrics")
    @classmethod
    def _template(cls, text: str | None) -> str | None:
        return None if text is None else check_template(text)

    @field_validator("webhook_url")
    @classmethod
    def _webhook(cls, text: str | None) -> str | None:
        return None if text is None else check_address(text)

    @field_validator("api_host")
    @classmethod
    def _loopback(cls, host: str) -> str:
        if host == "localhost":
            return "127.0.0.1"
        try:
            loopback = ipaddress.ip_address(host).is_loopback
        except ValueError:
            loopback = False
        if not loopback:
            raise ValueError(
                f"the API listens on loopback addresses only, not on {host!r}: it has no TLS yet; use 127.0.0.1"
            )
        return host

    @property
    def run_dir(self) -> Path:
        """Holds the token files; only its owner may enter."""
        return self.data_dir / "run"
