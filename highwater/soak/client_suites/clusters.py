"""The brokers that the suites expect, each with the variables of the environment that say where they are."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from highwater.conformance.targets.reference import ReferenceCluster
from highwater.ports import Ports
from highwater.soak.client_suites.toxiproxy import docker, proxies
from highwater.temporary import temporary_folder

KAFKA_GO_PORT: Final = 9092  # its tests have these ports and the host name in their source
KAFKA_GO_SASL_PORT: Final = 9093
KAFKA_GO_USERS: Final = {
    "adminplain": "admin-secret",
    "adminscram256": "admin-secret-256",
    "adminscram512": "admin-secret-512",
}
LARGE: Final[dict[str, object]] = {"message_max_bytes": 200_000_000, "socket_request_max_bytes": 210_000_000}
SARAMA_BROKERS: Final = 5
SARAMA_PORT: Final = 29_091  # the first of five that its tests have in their source
SARAMA_SETTINGS: Final[dict[str, object]] = {
    "default_replication_factor": 2,
    "offsets_topic_replication_factor": 2,
    "transaction_state_log_replication_factor": 2,
    "auto_create_topics_enable": False,
    "replica_selector": "rack_aware",
}


@contextmanager
def franz_go() -> Iterator[Mapping[str, str]]:
    with ReferenceCluster(3) as cluster:
        yield {"KGO_SEEDS": cluster.bootstrap}


@contextmanager
def kafka_go() -> Iterator[Mapping[str, str]]:
    """One broker, which its tests take for the leader of everything, and one that asks for a login."""
    login: dict[str, object] = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_users": KAFKA_GO_USERS,
        "sasl_inter_broker_user": "adminscram256",
        "host": "localhost",
    }
    with (
        ReferenceCluster(1, settings={**LARGE, "host": "localhost"}, port=KAFKA_GO_PORT),
        ReferenceCluster(1, settings=login, port=KAFKA_GO_SASL_PORT),
    ):
        yield {}


@contextmanager
def sarama() -> Iterator[Mapping[str, str]]:
    """Five brokers behind Toxiproxy; the brokers reach each other through it too."""
    numbers = range(1, SARAMA_BROKERS + 1)
    racks = {f"{number}.broker_rack": f'"{number}"' for number in numbers}
    settings = {**SARAMA_SETTINGS, **racks, "advertised_port": SARAMA_PORT}
    ports = Ports(SARAMA_BROKERS)
    upstream = {f"kafka{number}": (SARAMA_PORT + number - 1, ports[number - 1]) for number in numbers}
    with (
        temporary_folder() as folder,
        proxies(upstream, folder) as url,
        ReferenceCluster(SARAMA_BROKERS, settings=settings, port=ports[0]) as cluster,
        docker(cluster.stop_node, cluster.start_node, folder) as path,
    ):
        yield {"TOXIPROXY_ADDR": url, **path}
    ports.release()
