"""The clusters that are measured, with settings that are alike for all of them, and their topics."""

import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from highwater.conformance.targets import launch_target
from highwater.conformance.targets.apache_kafka import ApacheKafka
from highwater.conformance.targets.base import STOP_NODE, Target
from highwater.conformance.targets.reference import ReferenceCluster
from highwater.fuzz.chaos.cluster import LaunchedTarget, launched_target
from highwater.releases import release_number

SESSION_MS: Final = 3_000
NEVER_MS: Final = 3_600_000
WAIT_S: Final = 60.0
POLL_S: Final = 0.02
SERVER_FLAGS: Final = ("-server", "-Xms512M", "-Xmx512M", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
"""As Kafka's own scripts start a broker, but with half of their heap: several clusters run side by side."""
APACHE_SETTINGS: Final[Mapping[str, object]] = {
    "num.network.threads": 2, "num.io.threads": 2, "background.threads": 2,
    "broker.session.timeout.ms": SESSION_MS, "broker.heartbeat.interval.ms": SESSION_MS // 6,
    "zookeeper.session.timeout.ms": SESSION_MS,
    "log.segment.delete.delay.ms": 1_000,  # a deleted topic leaves the disk before the next ones have filled it
    "auto.leader.rebalance.enable": "false", "group.max.size": 100, "group.consumer.max.size": 100,
}  # fmt: skip
REFERENCE_SETTINGS: Final[Mapping[str, object]] = {
    "metadata_store_session_timeout_ms": SESSION_MS,
    "log_flush_interval_ms": NEVER_MS,  # Apache Kafka leaves flushing to the operating system
}
CREATE_TOPICS_SINCE: Final = (0, 10, 1)  # KIP-4
OLD_RELEASE: Final = "the clients of highwater chaos need CreateTopics (KIP-4, Kafka 0.10.1)"
API_VERSIONS_SINCE: Final = (0, 10, 0)  # KIP-35
TOPIC_COMMAND: Final = "kafka.admin.TopicCommand"
TOPIC_COMMAND_TIMEOUT_S: Final = 30.0
CONTROLLER: Final = 1
"""The only controller of a KRaft cluster here: the documents kill brokers, and the quorum must outlive them."""


@dataclass(slots=True)
class Bench:
    """A cluster under measurement; `launched` is None if it was not started here, and then no node can be killed."""

    name: str
    cluster: Any
    launched: LaunchedTarget | None
    _admin: AdminClient | None = field(default=None, repr=False)

    @property
    def addresses(self) -> Mapping[int, str]:
        return self.cluster.addresses  # type: ignore[no-any-return]

    @property
    def bootstrap(self) -> str:
        return ",".join(self.addresses.values())

    @property
    def can_kill(self) -> bool:
        return self.launched is not None or STOP_NODE in self.cluster.capabilities

    @property
    def release(self) -> tuple[int, ...] | None:
        """Return the release of Apache Kafka; None for other brokers."""
        is_apache = self.launched is not None and self.launched.kind == "apache-kafka"
        return release_number(self.launched.version) if is_apache and self.launched else None

    @property
    def client_settings(self) -> dict[str, Any]:
        """Return what every librdkafka client of this cluster is configured with."""
        settings: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }  # fmt: skip
        if self.release is not None and self.release < API_VERSIONS_SINCE and self.launched is not None:
            settings |= {"api.version.request": False, "broker.version.fallback": self.launched.version}
        return settings

    def revive(self) -> None:
        """Start every node that is down, if the nodes can be started."""
        if self.can_kill:
            for node in self.addresses:
                self.cluster.start_node(node)

    # -- topics --------------------------------------------------------------------------------------

    def create_topic(self, topic: str, partitions: int, replicas: int, min_insync_replicas: int = 1) -> None:
        """Create a topic whose leaders are spread evenly, and wait until each partition has a leader and a full ISR.

        Raises TimeoutError and KafkaException.
        """
        around = sorted(self.addresses) * 2
        nodes = len(self.addresses)
        placed = [around[number % nodes :][:replicas] for number in range(partitions)]
        if self.creates_topics:
            new = NewTopic(
                topic, num_partitions=partitions, replica_assignment=placed,
                config={"min.insync.replicas": str(max(1, min_insync_replicas))},
            )  # fmt: skip
            self._create(new)
        else:
            text = ",".join(":".join(map(str, nodes)) for nodes in placed)
            least = f"min.insync.replicas={max(1, min_insync_replicas)}"
            self._topic_command("--create", topic, "--replica-assignment", text, "--config", least)
        self.await_topic(topic, partitions)

    def _create(self, new: NewTopic) -> None:
        """Create a topic; ask again while another broker has just become the controller."""
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                self.admin.create_topics([new], operation_timeout=WAIT_S)[new.topic].result(WAIT_S)
                return
            except KafkaException as error:
                if error.args[0].code() != KafkaError.NOT_CONTROLLER or time.monotonic() > deadline:
                    raise
            time.sleep(POLL_S)
            self.admin.list_topics(timeout=WAIT_S)  # says which broker is

    def await_topic(self, topic: str, partitions: int) -> None:
        """Wait until each partition has a leader and a full ISR; raises TimeoutError."""
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            with suppress(KafkaException):
                found = self.admin.list_topics(topic, timeout=5).topics[topic].partitions.values()
                if sum(part.leader >= 0 and len(part.isrs) == len(part.replicas) for part in found) == partitions:
                    return
            time.sleep(POLL_S)
        raise TimeoutError(f"topic {topic} is not in sync after {WAIT_S:g} s")

    def delete_topic(self, topic: str) -> None:
        """Ask for the deletion of a topic, and do not wait for it; errors are ignored, since nothing depends on it."""
        with suppress(KafkaException, subprocess.SubprocessError, TimeoutError):
            if self.creates_topics:
                self.admin.delete_topics([topic], operation_timeout=5)[topic].result(5)
            else:
                self._topic_command("--delete", topic)

    @property
    def admin(self) -> AdminClient:
        if self._admin is None:
            self._admin = AdminClient(self.client_settings)
        return self._admin

    @property
    def creates_topics(self) -> bool:
        """Return whether topics are created with CreateTopics, and not through ZooKeeper."""
        return self.release is None or self.release >= CREATE_TOPICS_SINCE

    def _topic_command(self, *arguments: str) -> None:
        """Run the tool that wrote topics to ZooKeeper before there were requests for it."""
        action, topic, *others = arguments
        ended = subprocess.run(
            self.cluster.tool_command(TOPIC_COMMAND, action, "--topic", topic, *others, "--zookeeper",
                                      self.cluster.zookeeper),
            capture_output=True, text=True, check=False, timeout=TOPIC_COMMAND_TIMEOUT_S,
        )  # fmt: skip
        if ended.returncode:
            raise TimeoutError(f"{TOPIC_COMMAND} {action}: {(ended.stdout + ended.stderr).strip()[-200:]}")


@contextmanager
def open_bench(name: str) -> Iterator[Bench]:
    """Launch the cluster, or connect to it; close it at the end of the block. Raises UsageError."""
    cluster = _launch(name)
    try:
        yield Bench(name, cluster, launched_target(name))
    finally:
        cluster.close()


def _launch(name: str) -> ReferenceCluster | ApacheKafka | Target:
    launched = launched_target(name)
    if launched is None:
        return launch_target(name)
    if launched.kind == "reference":
        return ReferenceCluster(launched.brokers, settings=dict(REFERENCE_SETTINGS))
    return ApacheKafka(
        launched.version, launched.brokers, settings=APACHE_SETTINGS, java_flags=SERVER_FLAGS,
        node_settings=_one_controller,
    )  # fmt: skip


def _one_controller(node: int, settings: Mapping[str, object]) -> Mapping[str, object]:
    """Return the settings that make a node of a KRaft cluster a broker only, except for the one controller."""
    if "controller.quorum.voters" not in settings:
        return {}
    voters = {"controller.quorum.voters": str(settings["controller.quorum.voters"]).partition(",")[0]}
    if node == CONTROLLER:
        return voters
    listeners = str(settings["listeners"]).rpartition(",CONTROLLER://")[0]
    return {**voters, "process.roles": "broker", "listeners": listeners}
