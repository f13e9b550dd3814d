"""Every setting with a value that cannot be used: one sentence that names it, before anything is started or written.

Each value holds what stands for a secret, which no message may show: it may have been given to the wrong setting.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Final

import pytest
import typer

from backend.cli.local.local_settings import REFUSED, local_settings
from backend.settings.settings import Settings
from backend.supervisor.checks.preflight import check_alerts_file
from backend.supervisor.checks.preparation import Refused, prepare
from tests.certificates import Authority
from tests.ports import free_ports

CANARY: Final = "CANARY7SECRET"
# By setting: a bad value, and what the sentence says beside its name.
BAD: Final = {
    "DATABASE_URL": (f"postgresql://u:{CANARY}@127.0.0.1:notaport/db", "database URL"),
    "BROKERS": (CANARY, "whole number"),
    "CONTROLLERS": ("2", "1 or 3"),
    "CLUSTER_NAME": (f"{CANARY} {CANARY}", "letters"),
    "PROCESS_PER_BROKER": (CANARY, "true or false"),
    "DEMO": (CANARY, "true or false"),
    "UI": (CANARY, "true or false"),
    "PIPELINE": (CANARY, "true or false"),
    "BROKER_PORT": (CANARY, "whole number"),
    "CONTROLLER_PORT": ("0", "from 1 to 65000"),
    "METRICS_PORT": ("-1", "from 1 to 65000"),
    "API_PORT": ("65536", "from 1 to 65535"),
    "API_LISTEN": (f"{CANARY}:9443:x", "host:port"),
    "API_TLS_CERTIFICATE": (f"/nowhere/{CANARY}", "for EBBLINE_API_LISTEN"),
    "API_TLS_KEY": (f"/nowhere/{CANARY}", "for EBBLINE_API_LISTEN"),
    "APP_PORT": (CANARY, "whole number"),
    "PUBLIC_URL": (f"https://u:{CANARY}@example.org", "address of a dashboard"),
    "SAMPLE_INTERVAL_MS": ("1", "from 200 to 600000"),
    "SAMPLE_DAYS": (CANARY, "whole number"),
    "ATTACH": (f"u:{CANARY}@host", "host:port"),
    "CLIENT_PROPERTIES": (f"/nowhere/{CANARY}", "EBBLINE_ATTACH"),
    "BROKER_METRICS": (f"http://u:{CANARY}@h/", "EBBLINE_BROKER_METRICS"),
    "WEBHOOK_URL": (f"ftp://h/{CANARY}", "the webhook's address is none"),
    "ALERTS_FILE": (f"/nowhere/{CANARY}", "cannot be read"),
    "HEARTBEAT_URL": (f"ftp://h/{CANARY}", "the heartbeat's address is none"),
    "HEARTBEAT_INTERVAL_S": ("9", "from 10 to 3600"),
    "ALLOW_CHANGES": (CANARY, "true or false"),
    "REMOTE_LOCATION": (f"s3x://k:{CANARY}@bucket/x?{CANARY}", "remote location"),
    "LOG_LEVEL": (CANARY, "DEBUG, INFO, WARNING or ERROR"),
}
OF_PIPELINE: Final = {
    "TASKS": (CANARY, "number from 1 to 1000"),
    "RECORDS_PER_BATCH": ("²", "number from 1 to 500000"),
    "HISTORY_DAYS": ("-1", "number from 0 to 36500"),
    "POLL_INTERVAL_MS": (CANARY, "number from 10 to 60000"),
    "SPARK_UI_PORT": ("70000", "number from 0 to 65535"),
    "CONNECTOR": (CANARY, "neither rlmm nor kafka"),
    "CONNECTOR_JARS": (f"/nowhere/{CANARY}", "no folder"),
    "TOPIC": (f"{CANARY}/x", "name of a topic"),
    "SPARK_MASTER": (f"spark://u:{CANARY}@h:1", "Spark cluster"),
    "SPARK_HOST": (f"{CANARY} x", "name or address"),
    "SPARK_EXECUTOR_MEMORY": (CANARY, "512m"),
}


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    base = free_ports(40)[0]
    for offset, name in enumerate(("BROKER", "CONTROLLER", "METRICS", "API", "APP")):
        monkeypatch.setenv(f"EBBLINE_{name}_PORT", str(base + 8 * offset))
    return tmp_path / "data"


def refused(capsys: pytest.CaptureFixture[str], data: Path, **options: object) -> str:
    """Returns the line with which `ebbline up` would end with 2: no secret in it, and none in the data folder."""
    with pytest.raises((Refused, typer.Exit)) as refusal:
        prepare(local_settings(data_dir=data, **options))
    said = capsys.readouterr().err
    if isinstance(refusal.value, typer.Exit):
        assert refusal.value.exit_code == REFUSED
    else:
        said = f"ebbline: {refusal.value}\n"
    assert len(said.splitlines()) == 1, said
    assert said.startswith("ebbline: ")
    assert CANARY not in said
    assert "pydantic" not in said
    assert not data.exists() or [path.name for path in data.iterdir()] == ["ebbline.toml"]
    return said


def test_every_setting_is_tried() -> None:
    assert {name.lower() for name in BAD} == set(Settings.model_fields) - {"data_dir"}


@pytest.mark.parametrize("name", sorted(BAD))
def test_a_bad_value_in_the_environment_is_refused_before_anything_starts(
    data: Path, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    value, cause = BAD[name]
    monkeypatch.setenv(f"EBBLINE_{name}", value)
    said = refused(capsys, data)
    assert cause in said
    assert name.lower().replace("_", "") in said.lower().replace("_", "").replace(" ", "")


@pytest.mark.parametrize("name", sorted(OF_PIPELINE))
def test_a_bad_value_of_the_pipeline_is_refused_before_anything_starts(
    data: Path, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    value, cause = OF_PIPELINE[name]
    monkeypatch.setenv(f"EBBLINE_PIPELINE_{name}", value)
    said = refused(capsys, data)
    assert f"EBBLINE_PIPELINE_{name}" in said
    assert cause in said


@pytest.mark.parametrize("name", sorted(set(BAD) - {"CONTROLLER_PORT", "METRICS_PORT", "API_PORT"}))
def test_a_bad_value_in_the_settings_file_is_refused_too(
    data: Path, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    value, cause = BAD[name]
    monkeypatch.delenv(f"EBBLINE_{name}", raising=False)
    data.mkdir()
    (data / "ebbline.toml").write_text(f'{name.lower()} = "{value}"\n')
    assert cause in refused(capsys, data)


@pytest.mark.parametrize("named", [False, True])
def test_a_mistake_in_the_alerts_file_is_refused_with_its_line(
    data: Path, tmp_path: Path, *, named: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rules.toml" if named else data / "alerts.toml"
    data.mkdir()
    path.write_text(f'[receivers.ops]\nkind = "webhook"\nurl = "ftp://{CANARY}"\n')
    if named:
        monkeypatch.setenv("EBBLINE_ALERTS_FILE", str(path))
    with pytest.raises(Refused, match=r"line 3: url of receivers\.ops: the webhook's address is none") as refusal:
        prepare(local_settings(data_dir=data))
    assert CANARY not in str(refusal.value)
    path.write_text("[rules.copy-slow]\noff = true\n")
    check_alerts_file(local_settings(data_dir=data), data, {})


def test_a_setting_that_is_none_does_not_show_its_value(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data.mkdir()
    (data / "ebbline.toml").write_text(f'webhok_url = "https://h/{CANARY}"\n')
    assert "webhok_url is not usable: there is no such setting" in refused(capsys, data)


def test_a_variable_that_is_empty_is_none(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WEBHOOK_URL", "BROKERS", "API_LISTEN", "ATTACH"):
        monkeypatch.setenv(f"EBBLINE_{name}", "")
    assert local_settings(data_dir=data).brokers == 3


def test_the_api_beyond_loopback_is_refused_without_what_tls_takes(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def use(listen: str, certificate: Path | None = None) -> None:
        monkeypatch.setenv("EBBLINE_API_LISTEN", listen)
        for name in ("CERTIFICATE", "KEY"):
            monkeypatch.setenv(f"EBBLINE_API_TLS_{name}", "" if certificate is None else str(certificate))

    (port,) = free_ports(1)
    use(f"127.0.0.1:{port}")
    assert "without TLS" in refused(capsys, data)
    broken = tmp_path / "broken.pem"
    broken.write_text(f"no key {CANARY}")
    use(f"127.0.0.1:{port}", broken)
    assert "broken.pem" in refused(capsys, data)
    identity = Authority("authority").identity("api")
    locked = tmp_path / "locked.pem"
    locked.write_text(identity.encrypted_key_pem + identity.certificate_pem)
    use(f"127.0.0.1:{port}", locked)
    assert "without a password" in refused(capsys, data)
    good = identity.write_pem(tmp_path / "good.pem")
    use("192.0.2.1:8443", good)
    assert "cannot listen on 192.0.2.1:8443" in refused(capsys, data)
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", port))
        holder.listen()
        use(f"127.0.0.1:{port}", good)
        assert f"cannot listen on 127.0.0.1:{port}" in refused(capsys, data)


@pytest.mark.parametrize("url", [f"https://h:port/{CANARY}", f"https:///{CANARY}", CANARY, f"https://h/\x01{CANARY}"])
def test_no_webhook_s_address_is_shown(
    data: Path, url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EBBLINE_WEBHOOK_URL", url)
    assert "the webhook's address is none" in refused(capsys, data)


@pytest.mark.parametrize(
    "url",
    [
        f"mysql://u:{CANARY}@h/db",
        f"postgresql://u:{CANARY}@127.0.0.1:1/db",
        f"postgresql://u@127.0.0.1:1/db?password={CANARY}",
        f"postgresql://u:{CANARY}@127.0.0.1:99999999/db",
        f"{CANARY}",
        f"sqlite:////nowhere/x.db?key={CANARY}",
    ],
)
def test_no_database_s_password_is_shown(data: Path, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    refused(capsys, data, database_url=url)


@pytest.mark.parametrize(
    "lines",
    [
        [f"security.protocol={CANARY}"],
        ["security.protocol=SASL_SSL", f"sasl.mechanism={CANARY}"],
        [f"sasl.password {CANARY}"],
        ["security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN", f"sasl.password={CANARY}"],
        ["security.protocol=SSL", "ssl.ca.location=/nowhere", f"ssl.key.password={CANARY}"],
        [f"sasl.jaas.config=x password={CANARY}"],
        ["security.protocol=SASL_PLAINTEXT", "sasl.mechanism=OAUTHBEARER", f"sasl.oauthbearer.client.secret={CANARY}"],
        ["security.protocol=SASL_PLAINTEXT", "sasl.mechanism=OAUTHBEARER",
         "enable.sasl.oauthbearer.unsecure.jwt=true", "sasl.oauthbearer.config=principal=a",
         f"sasl.oauthbearer.extensions={CANARY}"],
    ],
)  # fmt: skip
def test_no_password_of_client_properties_is_shown(
    data: Path, tmp_path: Path, lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    properties = tmp_path / "client.properties"
    properties.write_text("\n".join(lines))
    refused(capsys, data, attach="127.0.0.1:1", client_properties=properties)


def test_a_data_folder_with_a_comma_is_refused_and_nothing_is_written_beside_it(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = data.parent / "g,h" / "d"
    assert "has a comma" in refused(capsys, folder)
    assert list(data.parent.iterdir()) == []


def test_a_remote_tier_that_cannot_be_kept_is_refused(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("EBBLINE_REMOTE_LOCATION", str(tmp_path / "file" / "tier"))
    assert "is no folder" in refused(capsys, data)
