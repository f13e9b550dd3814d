"""The four security protocols and three SASL mechanisms with unmodified clients, and who is kept out."""

from __future__ import annotations

import asyncio
import itertools
import socket
import ssl
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError as AioKafkaError
from aiokafka.helpers import create_ssl_context
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka import KafkaConsumer as PyConsumer
from kafka import KafkaProducer as PyProducer
from kafka.errors import KafkaError as PyKafkaError
from pyspark.sql.streaming.datasource import ReadAllAvailable

from backend.control.gateway.client_security import security_of
from backend.control.gateway.connection_pool import ConnectionPool
from backend.control.gateway.gateway_errors import ClusterUnavailable
from backend.control.gateway.kafka_client import Gateway, parse_bootstrap
from backend.control.gateway.requests.metadata_requests import fetch_cluster
from backend.engine.broker import Broker, StartRefused
from backend.engine.config import BrokerConfig
from backend.engine.metrics import BrokerMetrics
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode
from spark import source
from spark.kafka import BrokersAway
from spark.source import RemoteLogMetadataReader
from tests.certificates import Authority
from tests.engine_cluster import EngineCluster
from tests.secure_cluster import MECHANISMS, PASSWORD, PROTOCOLS, USER, SecureLayout, secure_layout
from tests.waiting import wait_until
from tests.wire import ask

WAYS: Final = [
    (protocol, mechanism)
    for protocol, mechanism in itertools.product(PROTOCOLS, ("", *MECHANISMS))
    if bool(mechanism) == protocol.startswith("SASL")
]
SCRAM: Final = {"SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256, "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512}
VALUES: Final = [f"value {number}".encode() for number in range(50)]


class Secure:
    """One broker with all protocols, an authority it trusts and another one."""

    def __init__(self, folder: Path, cluster: EngineCluster, authority: Authority) -> None:
        self.cluster = cluster
        assert isinstance(cluster.layout, SecureLayout)
        self.layout: SecureLayout = cluster.layout
        self.authority = authority
        self.ca = str(authority.write(folder / "ca.pem"))
        self.other_ca = str(Authority("other").write(folder / "other.pem"))

    @property
    def metrics(self) -> BrokerMetrics:
        return self.cluster.broker(1).services.metrics

    def port(self, protocol: str) -> int:
        return self.layout.listener_ports[protocol][1]

    def confluent(self, protocol: str, mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
        made: dict[str, Any] = {
            "bootstrap.servers": self.layout.bootstrap(protocol),
            "security.protocol": protocol,
            "ssl.ca.location": self.ca,
            "log_level": 0,
        }
        if mechanism:
            made |= {"sasl.mechanism": mechanism, "sasl.username": USER, "sasl.password": password}
        return made

    def kafka_python(self, protocol: str, mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
        made: dict[str, Any] = {
            "bootstrap_servers": self.layout.bootstrap(protocol),
            "security_protocol": protocol,
            "ssl_cafile": self.ca,
        }
        if mechanism:
            made |= {
                "sasl_mechanism": mechanism,
                "sasl_plain_username": USER,
                "sasl_plain_password": password,
            }
        return made

    def aiokafka(self, protocol: str, mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
        made = self.kafka_python(protocol, mechanism, password)
        del made["ssl_cafile"]
        return made | {"ssl_context": create_ssl_context(cafile=self.ca)}


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    folder = tmp_path_factory.mktemp("secure")
    authority = Authority()
    settings = {"auto.create.topics.enable": "true", "connection.failed.authentication.delay.ms": "20"}
    with EngineCluster(folder, made=secure_layout(folder, authority, settings=settings)) as cluster:
        made = Secure(folder, cluster, authority)
        set_passwords(made, PASSWORD)
        yield made


def admin_of(secure: Secure) -> AdminClient:
    return AdminClient(secure.confluent("SASL_SSL", "PLAIN"))


def set_passwords(secure: Secure, password: str) -> None:
    """Of alice, for both SCRAM mechanisms."""
    admin = admin_of(secure)
    for mechanism in SCRAM.values():
        set_password(admin, USER, mechanism, password)


def set_password(
    admin: AdminClient, user: str, mechanism: ScramMechanism, password: str, iterations: int = 4096
) -> None:
    """One mechanism a request: Kafka takes no user twice."""
    info = ScramCredentialInfo(mechanism, iterations)
    made: Any = admin.alter_user_scram_credentials([UserScramCredentialUpsertion(user, info, password.encode())])
    made[user].result(30)


def topic_name() -> str:
    return f"secure-{uuid.uuid4().hex[:8]}"


# Everybody who is let in


@pytest.mark.parametrize(("protocol", "mechanism"), WAYS)
def test_confluent_kafka(secure: Secure, protocol: str, mechanism: str) -> None:
    settings, topic = secure.confluent(protocol, mechanism), topic_name()
    producer = Producer(settings)
    for value in VALUES:
        producer.produce(topic, value)
    assert producer.flush(30) == 0
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    values = [message.value() for message in consumer.consume(len(VALUES), 30)]
    consumer.close()
    assert values == VALUES


def test_the_pipeline_reads_its_topic_through_tls_and_sasl(secure: Secure) -> None:
    settings, topic = secure.confluent("SASL_SSL", "SCRAM-SHA-512"), topic_name()
    producer = Producer(settings)
    for value in VALUES:
        producer.produce(topic, value)
    assert producer.flush(30) == 0
    options = {f"kafka.{name}": str(value) for name, value in settings.items() if name != "bootstrap.servers"}
    reader = RemoteLogMetadataReader({"bootstrap.servers": settings["bootstrap.servers"], "topic": topic, **options})

    def answered(question: Callable[[], dict[str, int]]) -> dict[str, int]:
        """As the job does it: brokers that are busy are asked again."""

        def offsets() -> dict[str, int] | None:
            try:
                return question()
            except BrokersAway:
                return None

        return wait_until("the brokers tell offsets", offsets) or {}

    start = answered(reader.initialOffset)
    parts = reader.partitions(start, answered(lambda: reader.latestOffset(start, ReadAllAvailable())))
    rows = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
    assert [row["raw_value"] for row in rows] == VALUES  # no metadata events, so all are set aside with their bytes
    source.close_clients()


@pytest.mark.parametrize(("protocol", "mechanism"), WAYS)
def test_kafka_python(secure: Secure, protocol: str, mechanism: str) -> None:
    settings, topic = secure.kafka_python(protocol, mechanism), topic_name()
    producer = PyProducer(**settings)
    for value in VALUES:
        producer.send(topic, value)
    producer.flush(30)
    producer.close()
    consumer = PyConsumer(topic, group_id=topic, auto_offset_reset="earliest", consumer_timeout_ms=30_000, **settings)
    values = [record.value for record in itertools.islice(consumer, len(VALUES))]
    consumer.close()
    assert values == VALUES


@pytest.mark.parametrize(("protocol", "mechanism"), WAYS)
def test_aiokafka(secure: Secure, protocol: str, mechanism: str) -> None:
    topic = topic_name()

    async def play() -> list[bytes]:
        settings = secure.aiokafka(protocol, mechanism)
        async with AIOKafkaProducer(**settings) as producer:
            for value in VALUES:
                await producer.send_and_wait(topic, value)
        async with AIOKafkaConsumer(topic, group_id=topic, auto_offset_reset="earliest", **settings) as consumer:
            return [(await consumer.getone()).value for _ in VALUES]

    assert asyncio.run(asyncio.wait_for(play(), 60)) == VALUES


# Everybody who is not


# Errors that librdkafka adds when a connection ends for any reason, and sometimes reports first.
NOISE: Final = frozenset({KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT})


def error_of(settings: dict[str, Any], noise: frozenset[int] = NOISE) -> int:
    """Why librdkafka cannot connect."""
    seen: list[int] = []
    producer = Producer({**settings, "error_cb": lambda error: seen.append(error.code())})
    while not set(seen) - noise:
        producer.poll(0.1)
    return next(code for code in seen if code not in noise)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_a_wrong_password_is_refused(secure: Secure, protocol: str, mechanism: str) -> None:
    before = secure.metrics.failed_authentications
    assert error_of(secure.confluent(protocol, mechanism, "wrong")) == KafkaError._AUTHENTICATION
    with pytest.raises(PyKafkaError):
        PyProducer(**secure.kafka_python(protocol, mechanism, "wrong"), bootstrap_timeout_ms=2000)

    async def play() -> None:
        producer = AIOKafkaProducer(**secure.aiokafka(protocol, mechanism, "wrong"))
        try:
            with pytest.raises(AioKafkaError):
                await producer.start()
        finally:
            await producer.stop()

    asyncio.run(asyncio.wait_for(play(), 60))
    secure.cluster.wait_until("all are counted", lambda: has_failed(secure, before + 3))


def test_an_unknown_user_and_a_mechanism_that_is_not_served_are_refused(secure: Secure) -> None:
    nobody = secure.confluent("SASL_SSL", "SCRAM-SHA-512") | {"sasl.username": "nobody"}
    assert error_of(nobody) == KafkaError._AUTHENTICATION
    bearer = secure.confluent("SASL_SSL", "OAUTHBEARER") | {
        "sasl.oauthbearer.config": "principal=alice",
        "enable.sasl.oauthbearer.unsecure.jwt": True,
    }
    assert error_of(bearer) == KafkaError._AUTHENTICATION


@pytest.mark.parametrize(("protocol", "mechanism"), [("SSL", ""), ("SASL_SSL", "PLAIN")])
def test_a_client_that_trusts_another_authority_does_not_connect(secure: Secure, protocol: str, mechanism: str) -> None:
    before = secure.metrics.failed_authentications
    settings = secure.confluent(protocol, mechanism) | {"ssl.ca.location": secure.other_ca}
    assert error_of(settings) == KafkaError._SSL
    secure.cluster.wait_until("it is counted", lambda: has_failed(secure, before + 1))


def test_plain_text_at_a_tls_port_is_closed_and_counted(secure: Secure) -> None:
    for protocol in ("SSL", "SASL_SSL"):
        before = secure.metrics.failed_authentications
        with pytest.raises(OSError):
            ask(secure.port(protocol), m.ApiVersionsRequest(), 0, m.ApiVersionsResponse)
        secure.cluster.wait_until("it is counted", partial(has_failed, secure, before + 1))


def test_tls_at_a_plain_text_port_is_closed_and_counted(secure: Secure) -> None:
    context = ssl.create_default_context(cafile=secure.ca)
    for protocol in ("PLAINTEXT", "SASL_PLAINTEXT"):
        before = secure.metrics.malformed_frames
        with (
            socket.create_connection(("127.0.0.1", secure.port(protocol)), timeout=30) as raw,
            pytest.raises(OSError),
        ):
            context.wrap_socket(raw, server_hostname="127.0.0.1")
        secure.cluster.wait_until("it is counted", partial(has_malformed, secure, before + 1))


# Credentials


def test_credentials_are_described_without_their_keys_and_a_deleted_user_is_kept_out(secure: Secure) -> None:
    admin = admin_of(secure)
    for mechanism, iterations in ((ScramMechanism.SCRAM_SHA_256, 8192), (ScramMechanism.SCRAM_SHA_512, 4096)):
        set_password(admin, "bob", mechanism, "bob-secret", iterations)
    described: Any = admin.describe_user_scram_credentials(["bob"])
    result = described["bob"].result(30)
    infos = [(info.mechanism, info.iterations) for info in result.scram_credential_infos]
    assert infos == [(ScramMechanism.SCRAM_SHA_256, 8192), (ScramMechanism.SCRAM_SHA_512, 4096)]
    settings = secure.confluent("SASL_SSL", "SCRAM-SHA-256", "bob-secret") | {"sasl.username": "bob"}
    assert AdminClient(settings).list_topics(timeout=30).brokers
    deletion = UserScramCredentialDeletion("bob", ScramMechanism.SCRAM_SHA_256)
    admin.alter_user_scram_credentials([deletion])["bob"].result(30)
    assert error_of(settings) == KafkaError._AUTHENTICATION
    with pytest.raises(KafkaException) as raised:
        admin.alter_user_scram_credentials([deletion])["bob"].result(30)
    assert raised.value.args[0].code() == KafkaError.RESOURCE_NOT_FOUND


def test_what_is_secret_is_null_in_describe_configs_and_absent_from_the_log(
    secure: Secure, caplog: pytest.LogCaptureFixture
) -> None:
    resource = ConfigResource(ResourceType.BROKER, "1")
    admin = admin_of(secure)
    described = admin.describe_configs([resource])[resource].result(30)
    secrets = {name for name, text in secure.layout.settings.items() if "jaas" in name or "ssl.keystore.key" in name}
    assert secrets <= described.keys()
    for name in (*secrets, "ssl.keystore.certificate.chain"):
        assert (described[name].value, described[name].is_sensitive) == (None, True)
    assert PASSWORD not in caplog.text
    assert "PRIVATE KEY" not in caplog.text


# Client certificates


def has_malformed(secure: Secure, times: int) -> bool:
    return secure.metrics.malformed_frames >= times


def has_failed(secure: Secure, times: int) -> bool:
    return secure.metrics.failed_authentications >= times


def test_a_listener_that_requires_a_certificate_lets_in_who_has_one(tmp_path: Path) -> None:
    authority = Authority()
    layout = secure_layout(tmp_path, authority, settings={"ssl.client.auth": "required"})
    with EngineCluster(tmp_path, made=layout) as cluster:
        secure = Secure(tmp_path, cluster, authority)
        own = str(authority.identity("client").write_pem(tmp_path / "client.pem"))
        others = str(Authority("other").identity("client").write_pem(tmp_path / "others.pem"))
        settings = secure.confluent("SSL", "")
        certified = settings | {"ssl.certificate.location": own, "ssl.key.location": own}
        assert AdminClient(certified).list_topics(timeout=30).brokers
        python = PyConsumer(**secure.kafka_python("SSL", ""), ssl_certfile=own, ssl_keyfile=own)
        assert python.topics() <= {"__ebbline_events"}
        python.close()
        for number, uncertified in enumerate(
            (settings, settings | {"ssl.certificate.location": others, "ssl.key.location": others})
        ):
            ended = error_of(uncertified, frozenset({KafkaError._ALL_BROKERS_DOWN}))
            assert ended in (KafkaError._SSL, KafkaError._TRANSPORT)
            cluster.wait_until("it is counted", partial(has_failed, secure, number + 1))
        # A client that authenticates by SASL needs none.
        assert AdminClient(secure.confluent("SASL_SSL", "PLAIN")).list_topics(timeout=30).brokers


def certified_by(authority: Authority, port: int) -> bool:
    """Whether the listener shows a certificate of this authority."""
    trusting = ssl.create_default_context(cadata=authority.pem)
    try:
        with (
            socket.create_connection(("127.0.0.1", port), timeout=30) as plain,
            trusting.wrap_socket(plain, server_hostname="127.0.0.1"),
        ):
            return True
    except ssl.SSLCertVerificationError:
        return False


def test_a_listeners_certificate_is_changed_while_the_broker_runs_and_stays_after_a_restart(tmp_path: Path) -> None:
    old, new = Authority(), Authority("other")
    layout = secure_layout(tmp_path, old)
    ssl_port, sasl_port = (layout.listener_ports[name][1] for name in ("SSL", "SASL_SSL"))
    prefix, identity = "listener.name.ssl.ssl.keystore.", new.identity("broker")
    resource = m.IncrementalAlterConfigsRequest.Resources

    def alter(**values: str | None) -> tuple[int, str | None]:
        changes = [
            resource.Configs(name=prefix + name.replace("_", "."), config_operation=int(value is None), value=value)
            for name, value in values.items()
        ]
        request = m.IncrementalAlterConfigsRequest(
            resources=[resource(resource_type=4, resource_name="1", configs=changes)]
        )
        answer = ask(layout.ports[1], request, 1, m.IncrementalAlterConfigsResponse).responses[0]
        return answer.error_code, answer.error_message

    with EngineCluster(tmp_path, made=layout) as cluster:
        assert certified_by(old, ssl_port)
        code, message = alter(key="nonsense", certificate_chain=identity.certificate_pem)
        assert (code, "ssl.keystore.key holds no PEM text" in (message or "")) == (ErrorCode.INVALID_REQUEST, True)
        assert alter(key=identity.key_pem, certificate_chain=identity.certificate_pem) == (0, None)
        wait_until("the new certificate is shown", lambda: certified_by(new, ssl_port))
        assert certified_by(old, sasl_port)
        cluster.stop_broker(1)
        cluster.start_broker(1)
        wait_until("it is shown again", lambda: certified_by(new, ssl_port))
        assert alter(key=None, certificate_chain=None) == (0, None)
        wait_until("the old one is back", lambda: certified_by(old, ssl_port))


# Starts


def refused(layout: SecureLayout, **changes: str) -> str:
    """Why node 1 does not start."""
    properties = layout.properties(1) | {name.replace("_", "."): value for name, value in changes.items()}

    async def start() -> str:
        with pytest.raises(StartRefused) as raised:
            await Broker(BrokerConfig.parse(properties)).start()
        return str(raised.value)

    return asyncio.run(start())


def test_keys_that_cannot_be_used_refuse_the_start_in_one_line_and_write_nothing(tmp_path: Path) -> None:
    layout = secure_layout(tmp_path, Authority())
    store = tmp_path / "broker.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed")
    jks = {"ssl.keystore.type": "JKS", "ssl.keystore.location": str(store)}
    no_chain = {"ssl.keystore.certificate.chain": ""}
    for changes, words in (
        (jks | no_chain, f"{store} is a JKS store, which only Java reads"),
        (no_chain, "Listener SSL has no certificate"),
        ({"ssl.keystore.key": "nonsense"}, "ssl.keystore.key holds no PEM text"),
        ({"sasl.enabled.mechanisms": "PLAIN,GSSAPI"}, "is GSSAPI, which is not served"),
    ):
        message = refused(layout, **changes)
        assert message.startswith("Node 1 cannot start: ")
        assert words in message
        assert "\n" not in message
        assert not (tmp_path / "brokers").exists()


def test_a_listener_beyond_loopback_serves_with_tls_and_sasl(tmp_path: Path) -> None:
    authority = Authority()
    layout = secure_layout(tmp_path, authority)
    address = f"127.0.0.1:{layout.listener_ports['SASL_SSL'][1]}"
    settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:{layout.ports[1]},SASL_SSL://0.0.0.0:{address.rpartition(':')[2]},"
        f"CONTROLLER://127.0.0.1:{layout.controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{layout.ports[1]},SASL_SSL://{address}",
    }
    made = replace(layout, settings={**layout.settings, **settings})
    assert "open to the network" in refused(made, listeners=settings["listeners"].replace("SASL_SSL", "SSL"))
    with EngineCluster(tmp_path, made=made) as cluster:
        client = Secure(tmp_path, cluster, authority).confluent("SASL_SSL", "PLAIN")
        assert AdminClient(client).list_topics(timeout=30).brokers[1].port == int(address.rpartition(":")[2])


async def _cluster_id(properties: dict[str, Any]) -> str:
    given = {name: str(value) for name, value in properties.items()}
    gateway = Gateway(parse_bootstrap(given["bootstrap.servers"]), pool=ConnectionPool(security=security_of(given)))
    try:
        return (await fetch_cluster(gateway)).cluster_id
    finally:
        await gateway.close()


@pytest.mark.parametrize(("protocol", "mechanism"), WAYS)
def test_the_control_plane_connects_each_way(secure: Secure, protocol: str, mechanism: str) -> None:
    assert asyncio.run(_cluster_id(secure.confluent(protocol, mechanism))) == secure.layout.cluster_id


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_control_plane_says_that_its_password_is_wrong(secure: Secure, mechanism: str) -> None:
    with pytest.raises(ClusterUnavailable, match="refuses our credentials"):
        asyncio.run(_cluster_id(secure.confluent("SASL_SSL", mechanism, "wrong")))


def test_the_control_plane_trusts_no_other_authority(secure: Secure) -> None:
    properties = secure.confluent("SSL", "") | {"ssl.ca.location": secure.other_ca}
    with pytest.raises(ClusterUnavailable, match=r"cannot agree on TLS \(CERTIFICATE_VERIFY_FAILED: .*certificate"):
        asyncio.run(_cluster_id(properties))


def test_the_control_plane_takes_certificates_without_key_identifiers_as_other_clients_do(tmp_path: Path) -> None:
    authority = Authority(identifiers=False)
    layout = secure_layout(tmp_path, authority)
    with EngineCluster(tmp_path, made=layout) as cluster:
        properties = Secure(tmp_path, cluster, authority).confluent("SSL", "")
        assert asyncio.run(_cluster_id(properties)) == layout.cluster_id
        assert AdminClient(properties).list_topics(timeout=30).cluster_id == layout.cluster_id
