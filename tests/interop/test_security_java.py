"""Apache Kafka's own tools over TLS and SASL, with `--command-config` and their relatives."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backend.engine.config import format_properties
from tests.certificates import STORE_PASSWORD, Authority
from tests.engine_cluster import EngineCluster
from tests.interop.java_tools import JavaTools, libraries
from tests.secure_cluster import PASSWORD, USER, SecureLayout, jaas, secure_layout


class Site:
    """A cluster of one and the tools' settings for it."""

    def __init__(self, folder: Path, layout: SecureLayout, authority: Authority) -> None:
        self._folder = folder
        self._layout = layout
        self._libs = libraries()
        self._authority = authority

    def tools(self, protocol: str) -> JavaTools:
        return JavaTools(self._libs, self._layout.bootstrap(protocol))

    def config(self, protocol: str, mechanism: str = "", user: str = USER, password: str = PASSWORD) -> str:
        """The path of a client's properties file."""
        values: dict[str, Any] = {"security.protocol": protocol}
        if protocol.endswith("SSL"):
            # Java reads a PKCS12 store as its own.
            store = self._authority.identity("client").write_pkcs12(self._folder / "client.p12")
            values |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": self._authority.pem}
            values |= {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": str(store)}
            values |= {"ssl.keystore.password": STORE_PASSWORD, "ssl.key.password": STORE_PASSWORD}
        if mechanism:
            values |= {
                "sasl.mechanism": mechanism,
                "sasl.jaas.config": jaas(mechanism, username=user, password=password),
            }
        path = self._folder / f"{protocol}-{mechanism}-{user}.properties"
        path.write_text(format_properties(values))
        return str(path)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("java")
    authority = Authority()
    # Java's clients authenticate again while they work.
    settings = {"listener.name.ssl.ssl.client.auth": "required", "connections.max.reauth.ms": "4000"}
    layout = secure_layout(folder, authority, settings=settings)
    made = Site(folder, layout, authority)
    with EngineCluster(folder, made=layout):
        yield made


def test_configs_makes_and_describes_scram_users_who_then_produce_and_consume(site: Site) -> None:
    tools = site.tools("SASL_SSL")
    admin = ("--command-config", site.config("SASL_SSL", "PLAIN"))
    entity = ("--entity-type", "users", "--entity-name", "carol")
    # One user may be named once in a request, so the tool cannot set both mechanisms at a time, with Kafka neither.
    for added in ("SCRAM-SHA-256=[iterations=8192,password=carol-secret]", "SCRAM-SHA-512=[password=carol-secret]"):
        tools.run("kafka-configs", *admin, "--alter", "--add-config", added, *entity)
    tools.run("kafka-topics", *admin, "--create", "--topic", "from-java", "--partitions", "1")
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        config = site.config("SASL_SSL", mechanism, "carol", "carol-secret")
        words = ("--topic", "from-java")
        tools.run("kafka-console-producer", "--command-config", config, *words, given=f"by {mechanism}\n")
    config = site.config("SASL_SSL", "SCRAM-SHA-512", "carol", "carol-secret")
    read = tools.run(
        "kafka-console-consumer", "--command-config", config, "--topic", "from-java",
        "--from-beginning", "--max-messages", "2", "--timeout-ms", "30000",
    )  # fmt: skip
    assert read.splitlines() == ["by SCRAM-SHA-256", "by SCRAM-SHA-512"]
    tools.run("kafka-configs", *admin, "--alter", "--delete-config", "SCRAM-SHA-256", *entity)
    wrong = site.config("SASL_SSL", "SCRAM-SHA-256", "carol", "carol-secret")
    output = tools.run("kafka-topics", "--command-config", wrong, "--list", fails=True)
    assert "SaslAuthenticationException" in output
    assert "invalid credentials with SASL mechanism SCRAM-SHA-256" in output


def test_a_client_certificate_is_enough_on_a_listener_that_requires_one(site: Site) -> None:
    tools = site.tools("SSL")
    config = ("--command-config", site.config("SSL"))
    tools.run("kafka-topics", *config, "--create", "--topic", "certified", "--partitions", "1")
    assert "certified" in tools.run("kafka-topics", *config, "--list")


def test_acls_are_told_to_be_disabled(site: Site) -> None:
    tools = site.tools("SASL_PLAINTEXT")
    config = ("--command-config", site.config("SASL_PLAINTEXT", "PLAIN"))
    output = tools.run("kafka-acls", *config, "--list", fails=True)
    assert "SecurityDisabledException: No Authorizer is configured" in output


def test_a_producer_works_on_over_the_end_of_its_authentication(site: Site) -> None:
    tools = site.tools("SASL_SSL")
    config = ("--command-config", site.config("SASL_SSL", "PLAIN"))
    tools.run("kafka-topics", *config, "--create", "--topic", "long", "--partitions", "1")
    output = tools.run(
        "kafka-producer-perf-test", "--topic", "long", "--num-records", "500", "--record-size", "100",
        "--throughput", "100", *config,
    )  # fmt: skip
    assert "500 records sent" in output
