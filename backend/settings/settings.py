"""Settings of `ebbline up` and its child processes: flag > environment > ``ebbline.toml`` > kept by `up` > default."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from backend.settings import kept_settings
from backend.settings.kept_settings import KeptSettings, KeptSettingsError

BROKERS_MAX: Final = 9
# A majority of three is left when one is lost.
VOTERS: Final = 3
NONE: Final = "none"
LOOPBACK: Final = "127.0.0.1"
LOOPBACK_HOSTS: Final = (LOOPBACK, "localhost", "::1")


class Settings(BaseSettings):
    """The settings of one `ebbline up`. Every field is ``EBBLINE_<FIELD>`` in the environment."""

    # A value may be a secret, also one that was given to the wrong setting: no message shows it. A variable that is
    # empty is none, as in files of container tools.
    model_config = SettingsConfigDict(
        env_prefix="EBBLINE_", extra="forbid", hide_input_in_errors=True, env_ignore_empty=True
    )

    data_dir: Path = Path(".ebbline")
    database_url: str | None = None
    brokers: int = Field(default=3, ge=1, le=BROKERS_MAX)
    # Of the brokers, the first so many also keep the cluster's metadata; fixed when the folder is made. See `voters`.
    controllers: int | None = Field(default=None, ge=1, le=3)
    cluster_name: str = Field(default="demo", min_length=1, max_length=100, pattern=r"^[A-Za-z0-9._-]+$")
    process_per_broker: bool = False
    demo: bool = True
    ui: bool = True
    pipeline: bool = True
    # Node n listens on broker_port + n - 1, and so on (architecture: 19092, 19192, 19292).
    broker_port: int = Field(default=19092, ge=1, le=65000)
    controller_port: int = Field(default=19192, ge=1, le=65000)
    metrics_port: int = Field(default=19292, ge=1, le=65000)
    api_port: int = Field(default=8090, ge=1, le=65535)
    api_listen: str | None = None  # HOST:PORT for other machines, with TLS only
    api_tls_certificate: Path | None = None
    api_tls_key: Path | None = None
    app_port: int = Field(default=8501, ge=1, le=65535)
    # Where browsers find the dashboard when something stands in front of it: a proxy, or a tunnel with another port.
    public_url: str | None = None
    sample_interval_ms: int = Field(default=2000, ge=200, le=600_000)
    sample_days: int = Field(default=7, ge=1, le=3_650)  # how long samples and broker events stay
    # host:port,… of an Apache Kafka cluster that is watched in place of an embedded one.
    attach: str | None = None
    client_properties: Path | None = None
    broker_metrics: str | None = None  # Prometheus text of each of its brokers, with {host} or {id}
    # The webhook that gets what opens and closes; it may hold a key, so it has no flag.
    webhook_url: str | None = None
    alerts_file: Path | None = None  # receivers, routes and thresholds; default: <data>/alerts.toml, when it is there
    # Of a dead man's switch: asked as long as the cluster is watched. It may hold a key, too.
    heartbeat_url: str | None = None
    heartbeat_interval_s: int = Field(default=60, ge=10, le=3_600)
    allow_changes: bool = False  # of an attached cluster; the embedded one is ours
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    # obstore location of the remote tier (a folder or s3://bucket/prefix); default: <data>/remote.
    remote_location: str | None = None

    @field_validator("public_url", "remote_location", mode="before")
    @classmethod
    def _none(cls, value: object) -> object:
        """The word `none` is the way back to no value from one that the folder keeps: an empty variable is not read."""
        return None if value == NONE else value

    @field_validator("controllers")
    @classmethod
    def _odd(cls, controllers: int | None) -> int | None:
        if controllers == 2:
            raise ValueError("two voters stand still when one is lost: use 1 or 3")
        return controllers

    # Settings that the control plane checks once more; it is imported only for what is set, as that takes long.
    @field_validator("webhook_url", "heartbeat_url")
    @classmethod
    def _address(cls, url: str | None, field: ValidationInfo) -> str | None:
        from backend.control.alerts.addresses import check_address

        return None if url is None else check_address(url, f"the {str(field.field_name).removesuffix('_url')}")

    @field_validator("broker_metrics")
    @classmethod
    def _template(cls, template: str | None) -> str | None:
        from backend.control.observer.watches.broker_numbers import check_template

        return None if template is None else check_template(template)

    @field_validator("attach")
    @classmethod
    def _addresses(cls, text: str | None) -> str | None:
        from backend.control.gateway.kafka_client import parse_bootstrap

        if text is not None:
            parse_bootstrap(text)
        return text

    @model_validator(mode="after")
    def _outside(self) -> Self:
        if self.api_listen is not None:
            from backend.control.control_settings import check_listen

            check_listen(self.api_listen, self.api_tls_certificate, self.api_tls_key)
        elif self.api_tls_certificate is not None or self.api_tls_key is not None:
            raise ValueError(
                "EBBLINE_API_TLS_CERTIFICATE and EBBLINE_API_TLS_KEY are for EBBLINE_API_LISTEN: set it too"
            )
        return self

    @model_validator(mode="after")
    def _of_attached(self) -> Self:
        if self.attach is None and (self.client_properties or self.broker_metrics):
            raise ValueError(
                "EBBLINE_CLIENT_PROPERTIES and EBBLINE_BROKER_METRICS are about an attached cluster: set EBBLINE_ATTACH"
                " too, or none of them"
            )
        return self

    @field_validator("public_url")
    @classmethod
    def _public(cls, url: str | None) -> str | None:
        return None if url is None else check_public_url(url)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        folder = _data_dir(init_settings(), env_settings())
        next_start = cls.read_kept(folder).next_start
        kept = {name: value for name, value in next_start.items() if name in kept_settings.KEPT}
        return (
            init_settings,
            env_settings,
            TomlConfigSettingsSource(settings_cls, folder / "ebbline.toml"),
            InitSettingsSource(settings_cls, kept),
        )

    @classmethod
    def read_kept(cls, folder: Path) -> KeptSettings:
        """Settings that the last `up` of a data folder kept. Raises KeptSettingsError, also for an unusable value."""
        kept = kept_settings.read_kept(folder)
        for values in (kept.next_start, kept.running or {}):
            for name, value in values.items():
                try:
                    cls._checked(name, value)
                except ValidationError as error:
                    raise KeptSettingsError(
                        f"{describe_invalid(error, f'in {kept_settings.FILE} of the data folder')} Correct it, or"
                        " delete its line."
                    ) from error
        return kept

    @classmethod
    def _checked(cls, name: str, value: object) -> object:
        """The value as it is in force once it is checked. Raises ValidationError."""
        # Client properties may stand alone here: their cluster is another line's.
        settings = cls.model_construct(attach=f"{LOOPBACK}:9092")
        cls.__pydantic_validator__.validate_assignment(settings, name, value)
        return getattr(settings, name)

    @classmethod
    def read_variables(cls) -> dict[str, Any]:
        """Settings that the environment names, as `up` reads them: in any case of letters, and no empty one."""
        return EnvSettingsSource(cls)()

    @classmethod
    def beside_up(cls, **given: Any) -> Self:
        """As the last `up` of the data folder runs, but for what is `given` or stands in the environment.

        Raises ValidationError and KeptSettingsError.
        """
        variables = cls.read_variables()
        kept = cls.read_kept(_data_dir(given, variables))
        return cls(**kept.for_commands({*given, *variables}), **given)

    def keep(self) -> None:
        """Keeps in the data folder where this `up` runs (`kept_settings`). Raises OSError."""
        without = {name: field.default for name, field in type(self).model_fields.items()}
        toml = TomlConfigSettingsSource(type(self), self.data_dir / "ebbline.toml")()
        for name in toml.keys() & {*kept_settings.KEPT, *kept_settings.OF_ATTACHED}:
            # A value that is not usable is not in force: a flag or a variable overrules it.
            with suppress(ValidationError):
                without[name] = self._checked(name, toml[name])
        kept_settings.keep(self.data_dir, self.model_dump(), without)

    @property
    def voters(self) -> int:
        """Controllers of a new folder: as many as were asked for, or so many that one may be lost."""
        return self.controllers or (VOTERS if self.brokers >= VOTERS else 1)

    @property
    def database(self) -> str:
        """The database URL in force; by default SQLite in the data folder."""
        return self.database_url or f"sqlite:///{self.database_file}"

    @property
    def database_file(self) -> Path:
        """The SQLite file that is used unless a URL is set."""
        return self.data_dir.absolute() / "ebbline.db"

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` of every broker's client listener."""
        if self.attach is not None:
            return self.attach
        return ",".join(f"{LOOPBACK}:{self.broker_port + n}" for n in range(self.brokers))

    @property
    def api_url(self) -> str:
        return f"http://{LOOPBACK}:{self.api_port}"

    @property
    def app_url(self) -> str:
        return f"http://{LOOPBACK}:{self.app_port}"

    @property
    def dashboard_url(self) -> str:
        """Where a person opens the dashboard."""
        return self.public_url or self.app_url


def _data_dir(given: Mapping[str, Any], variables: Mapping[str, Any]) -> Path:
    """The data folder, which only a flag or the environment can move: ``ebbline.toml`` lies in it."""
    return Path(str(given.get("data_dir") or variables.get("data_dir") or ".ebbline"))


def check_public_url(url: str) -> str:
    """An address without a slash at its end. Raises ValueError for one that no browser can keep a session with.

    Over plain HTTP only a loopback name will do: what signs a browser in would cross the network for all to read.
    """
    try:
        parts = urlsplit(url)
        port_fits = parts.port is None or parts.port > 0
    except ValueError:
        parts, port_fits = None, False
    if (
        parts is None
        or not port_fits
        or parts.scheme not in ("http", "https")
        or not parts.hostname
        or not url.isascii()
        or not url.isprintable()
        or "@" in parts.netloc
        or parts.query
        or parts.fragment
    ):
        raise ValueError("it is no address of a dashboard: give one like https://ebbline.example.org")
    if parts.scheme == "http" and parts.hostname not in LOOPBACK_HOSTS:
        raise ValueError("without TLS only this machine may be named: give an address that begins with https://")
    return url.rstrip("/")


# Other variables of ours that may stand in an environment: of the supervisor, of single commands, or of tests.
_OTHER_VARIABLES: Final = frozenset(
    {"CLUSTER_ID", "CLUSTER_KIND", "BOOTSTRAP_SERVERS", "API_HOST", "API_URL", "API_TOKEN_FILE", "TOKEN_FILE"}
)
_NAMED_ELSEWHERE: Final = ("PIPELINE_", "TEST_")
_ALIKE: Final = 0.8


def misspelt(names: Iterable[str]) -> list[str]:
    """A sentence for each EBBLINE_* that is nearly a setting: it is not read, and its owner thinks that it is."""
    expected = _OTHER_VARIABLES | {name.upper() for name in Settings.model_fields}
    variables = {name.removeprefix("EBBLINE_") for name in names if name.startswith("EBBLINE_")}
    sentences = []
    for name in sorted(variables - expected):
        alike = difflib.get_close_matches(name, expected, 1, _ALIKE)
        if alike and not name.startswith(_NAMED_ELSEWHERE):
            sentences.append(f"EBBLINE_{name} is no setting and is not read. Is it EBBLINE_{alike[0]}?")
    return sentences


# Longer numbers may be secrets, too.
_SHOWN_DIGITS_MAX: Final = 7


def describe_invalid(error: ValidationError, place: str | None = None) -> str:
    """One sentence: which setting is not usable, and why. Shows no value but a short number.

    `place` says where the setting stands; None: its variable is named.
    """
    first: dict[str, Any] = dict(error.errors()[0])
    cause = _cause(first)
    if not first["loc"]:
        return f"The settings are not usable: {cause}."
    name = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return f"The setting {name} is not usable: {cause}."
    given = str(first["input"])
    shown = f" (given: {given})" if given.lstrip("-").isdigit() and len(given) <= _SHOWN_DIGITS_MAX else ""
    return f"The setting {name} {place or f'(EBBLINE_{name.upper()})'} is not usable: {cause}{shown}."


def _cause(details: Mapping[str, Any]) -> str:
    """Why a value does not fit, in words; the types are pydantic's."""
    kind, context = str(details["type"]), details.get("ctx", {})
    match kind.partition("_")[0]:
        case "value":
            return str(context["error"]).rstrip(".")
        case "extra":
            return "there is no such setting"
        case "bool":
            return "it is true or false"
        case "int":
            return "it takes a whole number"
        case "literal":
            return f"it is {context['expected']}".replace("'", "")
        case "less" | "greater":
            return f"it takes a number {_limits(str(details['loc'][0]))}"
    if kind == "string_pattern_mismatch":
        return "it takes letters, digits, '.', '_' and '-'"
    return "its length does not fit" if kind.startswith("string_too") else "its value does not fit"


def _limits(name: str) -> str:
    limits: dict[str, object] = {}
    field = Settings.model_fields.get(name)
    for rule in () if field is None else field.metadata:
        limits |= {bound: value for bound in ("ge", "le") if (value := getattr(rule, bound, None)) is not None}
    return f"from {limits.get('ge')} to {limits.get('le')}"
