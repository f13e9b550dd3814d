"""Settings of the control plane: ``EBBLINE_*`` of the environment, as the supervisor hands them to its children."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from backend.control.alerts.addresses import check_address
from backend.control.gateway.kafka_client import parse_bootstrap
from backend.control.observer.watches.broker_numbers import check_template


class ControlSettings(BaseSettings):
    """The cluster that one control plane watches, and the addresses it listens on."""

    model_config = SettingsConfigDict(
        env_prefix="EBBLINE_", extra="ignore", hide_input_in_errors=True, env_ignore_empty=True
    )

    data_dir: Path
    cluster_id: str = Field(min_length=1, max_length=100)
    cluster_name: str = Field(default="demo", min_length=1, max_length=100)
    cluster_kind: Literal["embedded", "attached"] = "embedded"
    bootstrap_servers: str
    database_url: str
    api_host: str = "127.0.0.1"
    api_port: int = Field(default=8090, ge=0, le=65535)  # 0: any free port
    # A second address for other machines, with TLS only; certificate and key are PEM files.
    api_listen: str | None = None
    api_tls_certificate: Path | None = None
    api_tls_key: Path | None = None
    sample_interval_ms: int = Field(default=2000, ge=200, le=600_000)
    sample_days: int = Field(default=7, ge=1, le=3_650)  # how long samples and broker events stay
    client_properties: Path | None = None
    broker_metrics: str | None = None  # address of each broker's Prometheus text, with {host} or {id}
    webhook_url: str | None = None
    alerts_file: Path | None = None  # None: alerts.toml in the data folder, when it is there
    heartbeat_url: str | None = None
    heartbeat_interval_s: int = Field(default=60, ge=10, le=3_600)
    public_url: str | None = None  # the dashboard as browsers find it, for links in messages
    allow_changes: bool = True  # False: plans are made and none is executed
    pipeline: bool = False  # whether `ebbline up` runs the pipeline beside it

    @field_validator("bootstrap_servers")
    @classmethod
    def _addresses(cls, text: str) -> str:
        parse_bootstrap(text)
        return text

    @field_validator("broker_metrics")
    @classmethod
    def _template(cls, text: str | None) -> str | None:
        return None if text is None else check_template(text)

    @field_validator("webhook_url", "heartbeat_url")
    @classmethod
    def _address(cls, text: str | None) -> str | None:
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
                f"the API without TLS listens on loopback addresses only, not on {host!r}: use 127.0.0.1, and for other"
                " machines EBBLINE_API_LISTEN=HOST:PORT with a certificate"
            )
        return host

    @model_validator(mode="after")
    def _outside(self) -> Self:
        if self.api_listen is not None:
            check_listen(self.api_listen, self.api_tls_certificate, self.api_tls_key)
        return self

    @property
    def run_dir(self) -> Path:
        """Holds the token files; only its owner may enter."""
        return self.data_dir / "run"


def check_listen(listen: str, certificate: Path | None, key: Path | None) -> None:
    """Raises ValueError unless `listen` is one HOST:PORT and there is what TLS takes."""
    try:
        (_,) = parse_bootstrap(listen)
    except ValueError as error:
        raise ValueError("EBBLINE_API_LISTEN is not host:port, such as 0.0.0.0:8443") from error
    if certificate is None or key is None:
        raise ValueError(
            "the API does not listen on EBBLINE_API_LISTEN without TLS: give EBBLINE_API_TLS_CERTIFICATE and"
            " EBBLINE_API_TLS_KEY, two PEM files"
        )
