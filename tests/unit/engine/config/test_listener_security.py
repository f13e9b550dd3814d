"""Listeners' security by their settings: prefixes, JAAS texts, and every refusal in one line without a secret."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pytest

from backend.engine.config import BrokerConfig, ConfigError
from backend.engine.config.jaas import parse_jaas
from backend.engine.config.listener_security import (
    SaslClientSettings,
    check_security,
    controller_security,
    inter_broker_security,
    sasl_server_settings,
    tls_settings,
)
from backend.engine.config.listeners import check
from tests.secure_cluster import jaas

SECRET: Final = "s3cr3t"
PLAIN_JAAS: Final = jaas("PLAIN", username="broker", password=SECRET, user_broker=SECRET, user_alice="a b;c")
GOOD: Final = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "log.dirs": "/data",
    "listeners": "CLIENTS://10.0.0.1:9092,INTERNAL://127.0.0.1:9093,CONTROLLER://127.0.0.1:9094",
    "listener.security.protocol.map": "CLIENTS:SASL_SSL,INTERNAL:SASL_PLAINTEXT,CONTROLLER:SSL",
    "inter.broker.listener.name": "INTERNAL",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@127.0.0.1:9094",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
    "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
    "listener.name.clients.plain.sasl.jaas.config": PLAIN_JAAS,
    "listener.name.internal.sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "listener.name.internal.scram-sha-512.sasl.jaas.config": jaas("SCRAM", username="broker", password=SECRET),
    "ssl.keystore.type": "PEM",
    "ssl.keystore.location": "/keys/all.pem",
    "listener.name.clients.ssl.keystore.location": "/keys/clients.pem",
    "ssl.client.auth": "required",
    "ssl.key.password": SECRET,
}


def config(**changes: str) -> BrokerConfig:
    return BrokerConfig.parse(GOOD | {name.replace("_", "."): value for name, value in changes.items()})


def config_with(changes: Mapping[str, str | None]) -> BrokerConfig:
    return BrokerConfig.parse({name: text for name, text in {**GOOD, **changes}.items() if text is not None})


def test_a_node_with_a_listener_of_each_kind_may_start() -> None:
    check(config())
    check_security(config())


def test_a_listeners_own_settings_win_over_the_nodes() -> None:
    clients = tls_settings(config(), "CLIENTS", "SASL_SSL")
    controller = tls_settings(config(), "CONTROLLER", "SSL")
    assert (clients.key_store.location, controller.key_store.location) == ("/keys/clients.pem", "/keys/all.pem")
    assert clients.key_password == controller.key_password == SECRET
    assert sasl_server_settings(config(), "INTERNAL").mechanisms == ("SCRAM-SHA-512",)
    assert sasl_server_settings(config(), "CLIENTS").mechanisms == ("PLAIN", "SCRAM-SHA-512")
    assert sasl_server_settings(config(), "CLIENTS").plain_users == {"broker": SECRET, "alice": "a b;c"}


def test_sasl_ssl_asks_for_certificates_only_where_the_listener_itself_says_so() -> None:
    assert tls_settings(config(), "CONTROLLER", "SSL").client_auth == "required"
    assert tls_settings(config(), "CLIENTS", "SASL_SSL").client_auth == "none"
    own = config(**{"listener.name.clients.ssl.client.auth": "requested"})
    assert tls_settings(own, "CLIENTS", "SASL_SSL").client_auth == "requested"


def test_the_lifetime_of_an_authentication_may_be_set_for_node_listener_and_mechanism() -> None:
    name = "connections.max.reauth.ms"
    limits = config_with({name: "1", f"listener.name.internal.{name}": "2", f"listener.name.clients.plain.{name}": "3"})
    assert sasl_server_settings(limits, "CLIENTS").max_reauth_ms == {"PLAIN": 3, "SCRAM-SHA-512": 1}
    assert sasl_server_settings(limits, "INTERNAL").max_reauth_ms == {"SCRAM-SHA-512": 2}
    assert sasl_server_settings(config(), "INTERNAL").max_reauth_ms == {"SCRAM-SHA-512": 0}


def test_how_a_broker_shows_itself_to_others() -> None:
    others = inter_broker_security(config())
    assert (others.tls, others.sasl) == (None, SaslClientSettings("SCRAM-SHA-512", "broker", SECRET))
    controller = controller_security(config())
    assert controller.tls is not None
    assert controller.tls.check_hostname
    assert controller.sasl is None
    unchecked = controller_security(config(**{"ssl.endpoint.identification.algorithm": ""}))
    assert unchecked.tls is not None
    assert not unchecked.tls.check_hostname


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sasl.enabled.mechanisms": None}, "is GSSAPI, which is not served; choose from PLAIN, SCRAM-SHA-256"),
        ({"sasl.enabled.mechanisms": ""}, "Listener CLIENTS has no mechanism"),
        ({"sasl.mechanism.inter.broker.protocol": None}, "sasl.mechanism.inter.broker.protocol of listener INTERNAL"),
        (
            {"listener.name.clients.plain.sasl.jaas.config": None},
            "listener.name.clients.plain.sasl.jaas.config is not set",
        ),
        (
            {"listener.name.clients.plain.sasl.jaas.config": PLAIN_JAAS[:-1]},
            "listener.name.clients.plain.sasl.jaas.config is not of the form",
        ),
        (
            {"listener.name.clients.plain.sasl.jaas.config": PLAIN_JAAS * 2},
            "listener.name.clients.plain.sasl.jaas.config is not of the form",
        ),
        (
            {"listener.name.clients.plain.sasl.jaas.config": jaas("SCRAM", username="broker", password=SECRET)},
            "names the module org.apache.kafka.common.security.scram.ScramLoginModule",
        ),
        (
            {"listener.name.internal.scram-sha-512.sasl.jaas.config": jaas("SCRAM", username="broker")},
            "has no username or no password",
        ),
        ({"ssl.cipher.suites": "TLS_AES_128_GCM_SHA256"}, "ssl.cipher.suites is set, which this version does not"),
        ({"authorizer.class.name": "org.example.Authorizer"}, "authorizer.class.name is set"),
        ({"listener.name.clients.ssl.engine.factory.class": "x"}, "ssl.engine.factory.class is set"),
        ({"ssl.enabled.protocols": ""}, "is empty; give TLSv1.2"),
        (
            {"listener.name.clients.ssl.client.auth": "perhaps"},
            "for configuration listener.name.clients.ssl.client.auth",
        ),
    ],
)
def test_settings_that_would_not_protect_are_refused_without_showing_a_secret(
    changes: dict[str, str | None], words: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        check_security(config_with(changes))
    assert words in str(raised.value)
    assert SECRET not in str(raised.value)
    assert "\n" not in str(raised.value)


def test_settings_do_not_print_their_secrets() -> None:
    shown: list[Any] = [
        config(),
        tls_settings(config(), "CLIENTS", "SASL_SSL"),
        sasl_server_settings(config(), "CLIENTS"),
        inter_broker_security(config()),
        parse_jaas("x", PLAIN_JAAS),
    ]
    assert [settings for settings in shown if SECRET in repr(settings)] == []


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("a.B required;", {}),
        ('a.B required username="x y" password=z;', {"username": "x y", "password": "z"}),
        ('\n a.B  Required\n user_a = "1;2"\n user_b="=" ;\n', {"user_a": "1;2", "user_b": "="}),
        (r'a.B required p="say \"no\" \\ now";', {"p": r'say "no" \ now'}),
    ],
)
def test_jaas_texts_are_read_as_java_reads_them(text: str, options: dict[str, str]) -> None:
    module = parse_jaas("x", text)
    assert (module.name, module.options) == ("a.B", options)


@pytest.mark.parametrize("text", ["", "a.B", "a.B required", "a.B maybe;", 'a.B required x="1;', "a.B required x=;"])
def test_what_is_no_jaas_text_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not of the form MODULE required"):
        parse_jaas("x", text)
