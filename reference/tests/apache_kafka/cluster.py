"""A cluster of Apache Kafka 4.3.1 on loopback: KRaft, node 1 is the controller and a broker, the others are brokers."""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from reference.tests.apache_kafka.write_segments import CLUSTER_ID, QUICK_START, WAIT_S, command, wait_for
from spec.ports import Ports

VERSION: Final = "4.3.1"


class ApacheKafka:
    """Nodes 1 to N, each with a folder. UsageError when Java or Maven is missing."""

    def __init__(self, folder: Path, brokers: int = 1, settings: dict[str, object] | None = None) -> None:
        self.flags: Sequence[str] = QUICK_START
        self._folder, self._ports = folder, dict(enumerate(Ports(brokers), 1))
        self.addresses = {node: f"127.0.0.1:{port}" for node, port in self._ports.items()}
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        controller = Ports(1)[0]
        for node, port in self._ports.items():
            place = folder / str(node)
            _format(place / "data", node)
            text = _properties(node, port, controller, place, brokers, settings or {})
            (place / "server.properties").write_text(text)

    def start(self, node: int) -> None:
        place = self._folder / str(node)
        line = command(VERSION, "kafka.Kafka", str(place / "server.properties"), flags=self.flags)
        with (place / "kafka.log").open("ab") as out:
            self.processes[node] = subprocess.Popen(line, stdout=out, stderr=out)

    def wait(self, node: int) -> None:
        wait_for(self._ports[node])

    def kill(self, node: int) -> None:
        self.processes[node].kill()
        self.processes[node].wait()

    def stop_all(self) -> None:
        """Brokers before the controller, who hears them leave."""
        for node in sorted(self.processes, reverse=True):
            self.processes[node].terminate()
            self.processes[node].wait(WAIT_S)


@contextmanager
def apache_kafka(
    folder: Path, brokers: int = 1, settings: dict[str, object] | None = None, flags: Sequence[str] = QUICK_START
) -> Iterator[ApacheKafka]:
    """Started, and stopped however the block ends; the flags are Java's."""
    cluster = ApacheKafka(folder, brokers, settings)
    cluster.flags = flags
    try:
        for node in cluster.addresses:
            cluster.start(node)
        for node in cluster.addresses:
            cluster.wait(node)
        yield cluster
    finally:
        cluster.stop_all()


def _format(data: Path, node: int) -> None:
    """What its storage tool leaves; that would be one more Java to start for each node."""
    data.mkdir(parents=True)
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
