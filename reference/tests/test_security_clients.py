"""Third-party clients and brokers authenticate to brokers with TLS and SASL."""

import asyncio
import itertools
import socket
import ssl
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from typer.testing import CliRunner

from highwater.errors import UsageError
from highwater.reference.client.access import Access
from highwater.reference.client.cluster import ClusterClient
from highwater.reference.configuration.properties import broker_config
from highwater.reference.drivers.cluster import Cluster
from highwater.reference.security.login import Account
from highwater.reference.tests.certificates import self_signed
from highwater.reference.tests.fixtures import QUICK
from highwater.reference.tools import topics
from highwater.reference.wire.framing import encode_request
from highwater.reference.wire.messages.metadata import MetadataRequest
from highwater.reference.wire.messages.topics import CreatableTopic, CreateTopicsRequest

pytestmark = pytest.mark.xdist_group("security")
NAMES = itertools.count()
PATIENCE_S = 60
RECORDS = 20
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return self_signed(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module", params=["SASL_PLAINTEXT", "SASL_SSL", "SSL"])
def secured(request: pytest.FixtureRequest) -> Iterator[tuple[Cluster, dict[str, object]]]:
    """Start two brokers, which authenticate to each other; yield them with the client's credentials."""
    protocol = request.param
    settings: dict[str, object] = {**QUICK, "security_protocol": protocol}
    settings |= {"default_replication_factor": 2, "offsets_topic_replication_factor": 2}
    access: dict[str, object] = {"security.protocol": protocol}
    if protocol != "SASL_PLAINTEXT":
        path = str(request.getfixturevalue("certificate"))
        settings |= {"ssl_certfile": path, "ssl_cafile": path}
        access["ssl.ca.location"] = path
    if protocol != "SSL":
        settings |= {"sasl_users": {"alice": "secret", "broker": "among us"}, "sasl_inter_broker_user": "broker"}
    cluster = Cluster(2, settings=settings)
    try:
        cluster.start_all()
        cluster.wait_until_ready()
        yield cluster, access
    finally:
        cluster.stop_all()


def bootstrap_of(cluster: Cluster) -> str:
    return ",".join(cluster.addresses.values())


def mechanisms(access: dict[str, object]) -> list[str]:
    return MECHANISMS if str(access["security.protocol"]).startswith("SASL") else [""]


def create(cluster: Cluster, access: dict[str, object]) -> str:
    name, ca = f"secured-{next(NAMES)}", access.get("ssl.ca.location")
    context = ssl.create_default_context(cafile=str(ca)) if ca else None
    account = Account("PLAIN", "alice", "secret") if mechanisms(access)[0] else None
    with ClusterClient(bootstrap_of(cluster), Access(context, account)) as client:
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=2)
        (result,) = client.controller().call(CreateTopicsRequest(topics=(topic,))).topics
    assert result.error_code == 0, result
    return name


def test_confluent_kafka_authenticates(secured: tuple[Cluster, dict[str, object]]) -> None:
    cluster, access = secured
    for mechanism in mechanisms(access):
        login = {"sasl.mechanism": mechanism, "sasl.username": "alice", "sasl.password": "secret"} if mechanism else {}
        settings: dict[str, Any] = {"bootstrap.servers": bootstrap_of(cluster), **access, **login}
        topic = create(cluster, access)
        producer = Producer({**settings, "acks": "all"})
        for number in range(RECORDS):
            producer.produce(topic, b"%d" % number)
        assert producer.flush(30) == 0
        consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
        consumer.subscribe([topic])
        found: list[int] = []
        while len(found) < RECORDS:
            found += [int(each.value()) for each in consumer.consume(RECORDS, 20) if each.error() is None]
        consumer.close()
        assert found == list(range(RECORDS)), mechanism


def test_kafka_python_authenticates(secured: tuple[Cluster, dict[str, object]]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from kafka import KafkaConsumer, KafkaProducer
    cluster, access = secured
    for mechanism in mechanisms(access):
        settings: dict[str, Any] = {"bootstrap_servers": bootstrap_of(cluster).split(",")}
        settings |= {"security_protocol": access["security.protocol"], "ssl_cafile": access.get("ssl.ca.location")}
        if mechanism:
            settings |= {"sasl_mechanism": mechanism, "sasl_plain_username": "alice", "sasl_plain_password": "secret"}
        topic = create(cluster, access)
        producer = KafkaProducer(acks="all", **settings)
        assert [producer.send(topic, b"%d" % n).get(20).offset for n in range(RECORDS)] == list(range(RECORDS))
        producer.close()
        consumer = KafkaConsumer(
            topic, group_id=topic, auto_offset_reset="earliest", consumer_timeout_ms=20_000, **settings
        )
        assert [int(each.value) for each in itertools.islice(consumer, RECORDS)] == list(range(RECORDS)), mechanism
        consumer.close()


def test_aiokafka_authenticates(secured: tuple[Cluster, dict[str, object]]) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    cluster, access = secured

    async def round_trip(topic: str, settings: dict[str, Any]) -> list[int]:
        async with AIOKafkaProducer(acks="all", **settings) as producer:
            for number in range(RECORDS):
                await producer.send_and_wait(topic, b"%d" % number)
        async with AIOKafkaConsumer(topic, auto_offset_reset="earliest", **settings) as consumer:
            return [int((await asyncio.wait_for(consumer.getone(), 20)).value) for _ in range(RECORDS)]

    for mechanism in mechanisms(access):
        settings: dict[str, Any] = {"bootstrap_servers": bootstrap_of(cluster)}
        settings["security_protocol"] = access["security.protocol"]
        if "ssl.ca.location" in access:
            settings["ssl_context"] = ssl.create_default_context(cafile=str(access["ssl.ca.location"]))
        if mechanism:
            settings |= {"sasl_mechanism": mechanism, "sasl_plain_username": "alice", "sasl_plain_password": "secret"}
        assert asyncio.run(round_trip(create(cluster, access), settings)) == list(range(RECORDS)), mechanism


def test_a_wrong_password_is_refused(secured: tuple[Cluster, dict[str, object]]) -> None:
    cluster, access = secured
    for mechanism in filter(None, mechanisms(access)):
        login = {"sasl.mechanism": mechanism, "sasl.username": "alice", "sasl.password": "guess"}
        errors: list[KafkaError] = []
        settings = {"bootstrap.servers": bootstrap_of(cluster), **access, **login, "error_cb": errors.append}
        producer = Producer(settings)
        deadline = time.monotonic() + PATIENCE_S
        while KafkaError._AUTHENTICATION not in (codes := {e.code() for e in errors}) and time.monotonic() < deadline:
            producer.poll(0.2)
        assert KafkaError._AUTHENTICATION in codes, mechanism


def test_an_unauthenticated_client_gets_no_reply(secured: tuple[Cluster, dict[str, object]]) -> None:
    """Metadata without TLS on a TLS port, or without login, closes the connection."""
    cluster, _ = secured
    host, _, port = cluster.addresses["1"].rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(encode_request(MetadataRequest(), 9, 1, "stranger"))
        received = b""
        try:
            while data := connection.recv(4096):
                received += data
        except ConnectionResetError:
            pass
    assert len(received) < 32  # at most an alert of TLS


def test_the_tools_accept_apache_kafka_client_properties(
    secured: tuple[Cluster, dict[str, object]], tmp_path: Path
) -> None:
    cluster, access = secured
    properties = tmp_path / "client.properties"
    lines = [f"security.protocol={access['security.protocol']}", "sasl.mechanism=SCRAM-SHA-512"]
    lines += [f"ssl.truststore.location={access.get('ssl.ca.location', '')}"]
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    jaas = f'sasl.jaas.config={module} required username="alice" password="%s";'
    properties.write_text("\n".join([*lines, jaas % "secret"]))
    topic = create(cluster, access)
    command = ["list", "--bootstrap-server", bootstrap_of(cluster), "--command-config", str(properties)]
    result = CliRunner().invoke(topics.app, command, catch_exceptions=False)
    assert topic in result.stdout.split()
    if mechanisms(access)[0]:
        properties.write_text("\n".join([*lines, jaas % "guess"]))
        with pytest.raises(UsageError, match=r"cannot log in \(wrong user or password\)"):
            CliRunner().invoke(topics.app, command, catch_exceptions=False)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"security_protocol": "SASL_PLAINTEXT"}, "add that user to sasl_users"),
        ({"security_protocol": "SSL"}, "TLS needs a certificate"),
        ({"sasl_enabled_mechanisms": ["GSSAPI"]}, "known: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
        ({"security_protocol": "TLS"}, "security_protocol"),
        ({"connections_max_reauth_ms": {"GSSAPI": 1000}}, "at least 1 ms for each mechanism"),
        ({"connections_max_reauth_ms": {"PLAIN": 0}}, "at least 1 ms for each mechanism"),
        (
            {
                "security_protocol": "SASL_PLAINTEXT", "sasl_users": {"a": "b"}, "sasl_inter_broker_user": "a",
                "connections_max_reauth_ms": {"SCRAM-SHA-256": 1000},
            },
            "leave out sasl_mechanism_inter_broker_protocol",
        ),
    ],
)  # fmt: skip
def test_contradictory_security_settings_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        broker_config({"broker_id": 1, **settings}, "broker.toml")
