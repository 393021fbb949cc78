"""A cluster of Apache Kafka 4.3.1 on loopback: KRaft, node 1 is the controller and a broker, the others are brokers."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from reference.tests.apache_kafka.write_segments import CLUSTER_ID, command, free_port, process, wait_for

VERSION: Final = "4.3.1"


@contextmanager
def apache_kafka(folder: Path, brokers: int = 1, settings: dict[str, object] | None = None) -> Iterator[list[str]]:
    """The addresses, by node. UsageError when Java or Maven is missing."""
    controller, ports = free_port(), [free_port() for _ in range(brokers)]
    with ExitStack() as stack:
        for node, port in enumerate(ports, 1):
            place = folder / str(node)
            place.mkdir()
            config = place / "server.properties"
            config.write_text(_properties(node, port, controller, place, brokers, settings or {}))
            _format(place / "data", node)
            started = process(place / "kafka.log", *command(VERSION, "kafka.Kafka", str(config)))
            stack.enter_context(started)
        for port in ports:
            wait_for(port)
        yield [f"127.0.0.1:{port}" for port in ports]


def _format(data: Path, node: int) -> None:
    """What its storage tool leaves; that would be one more Java to start for each node."""
    data.mkdir()
    (data / "meta.properties").write_text(f"version=1\ncluster.id={CLUSTER_ID}\nnode.id={node}\n")


def _properties(node: int, port: int, controller: int, folder: Path, brokers: int, settings: dict[str, object]) -> str:
    listeners = f"PLAINTEXT://127.0.0.1:{port}"
    values: dict[str, object] = {
        "process.roles": "broker,controller" if node == 1 else "broker",
        "node.id": node,
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller}" if node == 1 else listeners,
        "advertised.listeners": listeners,
        "controller.listener.names": "CONTROLLER",
        "log.dirs": folder / "data",
        "group.initial.rebalance.delay.ms": 0,
        "offsets.topic.num.partitions": 4,
        "offsets.topic.replication.factor": min(brokers, 3),
        "transaction.state.log.num.partitions": 4,
        "transaction.state.log.replication.factor": min(brokers, 3),
        "transaction.state.log.min.isr": 1,
        **settings,
    }
    return "".join(f"{key}={value}\n" for key, value in values.items())
