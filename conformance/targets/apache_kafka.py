"""Apache Kafka from Maven Central as a target: KRaft from 3.3 on, older releases with the ZooKeeper of their jars.

Heaps of 256 MB, few threads and sessions of seconds: chosen for a machine with two cores and quick failure detection.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from highwater.conformance.targets.base import PAUSE_NODE, STOP_NODE, SaslListener
from highwater.conformance.targets.commands import QUICK_SETTINGS, SESSIONS_MS, rack_of
from highwater.conformance.targets.discovery import restart_dead, wait_for_group_coordinator, wait_until_complete
from highwater.errors import UsageError
from highwater.java_classes import ClassArchive
from highwater.ports import Ports
from highwater.processes import Processes
from highwater.reference.client.transport import TCP, Transport
from highwater.releases import NEWEST, TESTS, fetch_release, release_number
from highwater.temporary import make_folder
from highwater.toolchain import java

TOOL_TIMEOUT_S: Final = 60.0
CLUSTER_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"
ZOOKEEPER_NODE: Final = "zookeeper"
KRAFT_SINCE: Final = (3, 3)
LISTENERS_SINCE: Final = (0, 9)  # KIP-2
METADATA_1_SINCE: Final = (0, 10)
OLD_SETTINGS: Final[Mapping[str, object]] = {  # 0.8 rejects a retention of -1, and records that no follower can fetch
    "log.retention.ms": 2_147_483_647,
    "replica.fetch.max.bytes": 2_097_152,
}
RACK_SELECTOR_SINCE: Final = (2, 4)  # KIP-392
SCRAM_USERS_SINCE: Final = (3, 5)  # the storage tool can create SCRAM users since KIP-900
METRICS_RECEIVER_SINCE: Final = (4, 3)
METRICS_RECEIVER: Final[Mapping[str, object]] = {"metric.reporters": "kafka.server.TestReceiverOnly"}
"""A class of Apache Kafka's tests that receives the metrics of clients and drops them; releases have no such plugin."""
PLAIN, SCRAM, EXPIRING, BEARER = "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"
USER, OTHER_USER, PASSWORD = "highwater", "highwater-2", "highwater-secret"
SCRAM_USERS: Final = ((SCRAM, USER), (EXPIRING, USER), (EXPIRING, OTHER_USER))
JAVA_FLAGS: Final = (
    "-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:MaxMetaspaceSize=128m", "-Xss512k",
    "-XX:-UsePerfData",
)  # fmt: skip
SMALL: Final[Mapping[str, object]] = {
    "num.network.threads": 2,
    "num.io.threads": 2,
    "background.threads": 2,
    "num.recovery.threads.per.data.dir": 1,
    "log.cleaner.dedupe.buffer.size": 2_097_152,
    "log.cleaner.io.buffer.size": 65_536,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.min.isr": 1,
    "share.coordinator.state.topic.num.partitions": 1,
    "share.coordinator.state.topic.min.isr": 1,
    "group.initial.rebalance.delay.ms": 0,
    "group.share.min.record.lock.duration.ms": 1000,
    "group.streams.initial.rebalance.delay.ms": 0,
    "log.initial.task.delay.ms": 500,  # until retention is checked for the first time
}
QUICK_KRAFT: Final[Mapping[str, object]] = {
    "broker.session.timeout.ms": 4500,
    "broker.heartbeat.interval.ms": 500,
    "controller.quorum.fetch.timeout.ms": 1000,
    "controller.quorum.election.timeout.ms": 500,
    "controller.quorum.election.backoff.max.ms": 200,
    "controller.socket.timeout.ms": 5000,  # until a broker gives up on a paused controller
}
QUICK_ZOOKEEPER: Final[Mapping[str, object]] = {"zookeeper.session.timeout.ms": 4500, "delete.topic.enable": "true"}
AUTHORIZER: Final[Mapping[str, object]] = {  # nothing is denied until a case says so
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:ANONYMOUS",  # the listener without login, on which the suite changes the lists
}
TOKENS_SINCE: Final = (3, 6)  # delegation tokens without ZooKeeper
TOKENS: Final[Mapping[str, object]] = {"delegation.token.secret.key": "highwater"}
REPLICATED: Final = (
    "offsets.topic.replication.factor", "transaction.state.log.replication.factor",
    "share.coordinator.state.topic.replication.factor", "default.replication.factor",
)  # fmt: skip
PLAIN_USER: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_USER: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
BEARER_MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
NodeSettings = Callable[[int, Mapping[str, object]], Mapping[str, object]]
"""Returns settings that differ for one node, from its id and its other settings."""
NodeEnvironment = Callable[[int | str], Mapping[str, str]]
"""Returns additional environment variables of one node."""


class ApacheKafka:
    """A running cluster of brokers 1 to N, which in KRaft are controllers too.

    `settings` are Kafka's, by their dotted names; `client_metrics` has the brokers receive the metrics of clients.
    Raises UsageError if Java or Maven is missing or a node ends.
    """

    capabilities = frozenset({STOP_NODE, PAUSE_NODE})
    command_config: Path | None = None
    transport: Transport = TCP

    def __init__(
        self, version: str = NEWEST, brokers: int = 1, *, settings: Mapping[str, object] | None = None,
        java_flags: Sequence[str] = JAVA_FLAGS, node_settings: NodeSettings = lambda node, settings: {},
        environment: NodeEnvironment = lambda node: {}, client_metrics: bool = False,
    ) -> None:  # fmt: skip
        self.name, self.version, self.era = f"apache-kafka:{version}", version, version
        self.settings = QUICK_SETTINGS
        self._kraft = release_number(version) >= KRAFT_SINCE
        self._java, self._extra_settings = (str(java().executable), *java_flags), settings or {}
        self._node_settings, self._environment = node_settings, environment
        metrics = _client_metrics(version) if client_metrics else None
        self._classpath = os.pathsep.join(f"{jars}/*" for jars in (fetch_release(version), metrics) if jars)
        self._classes = ClassArchive(f"apache-kafka-{version}", self._classpath)
        self._metrics = METRICS_RECEIVER if metrics else {}
        self._ports, self._logins = Ports(brokers + (brokers if self._kraft else 1)), Ports(brokers)
        self.addresses: Mapping[int, str] = {
            node: f"127.0.0.1:{port}" for node, port in enumerate(self._ports[:brokers], 1)
        }
        has_scram = release_number(version) >= SCRAM_USERS_SINCE
        self._login = SaslListener(
            f"127.0.0.1:{self._logins[0]}", USER, PASSWORD,
            (PLAIN, BEARER, SCRAM, EXPIRING) if has_scram else (PLAIN, BEARER),
            sessions_ms=SESSIONS_MS if has_scram else {}, other_user=OTHER_USER if has_scram else "",
        )  # fmt: skip
        self.sasl = self._login if self._kraft else None
        self.folder = make_folder("kafka-")
        self._recorder = next(iter(self.addresses)) if self._classes.claim() else None  # the node that writes them
        self.nodes = Processes(self.folder, self._write_configs())
        try:
            self._start_all()
        except BaseException:
            self.close()
            raise

    @property
    def bootstrap(self) -> str:
        return ",".join(self.addresses.values())

    @property
    def zookeeper(self) -> str:
        """Return the address of ZooKeeper; only for releases that are launched with it."""
        assert not self._kraft, self.version
        return f"127.0.0.1:{self._ports[-1]}"

    @property
    def zookeeper_folder(self) -> Path:
        """Return the dataDir of ZooKeeper, which has snapshots and the log; KRaft has none."""
        return self.folder / "zookeeper-data"

    def start_node(self, node: int | str) -> None:
        self.nodes.start(node)

    def stop_node(self, node: int | str) -> None:
        if self.nodes.stop(node) and node == self._recorder:
            self._keep_classes(self._recorder)

    def kill_node(self, node: int | str) -> None:
        self.nodes.kill(node)

    def pause_node(self, node: int | str) -> None:
        self.nodes.signal(node, signal.SIGSTOP)

    def resume_node(self, node: int | str) -> None:
        self.nodes.signal(node, signal.SIGCONT)

    def pid(self, node: int) -> int:
        return self.nodes.pid(node)

    def revive(self) -> bool:
        restart_dead(self.addresses, self.kill_node, self.start_node, check=lambda: self.nodes.check(self.addresses))
        return True

    def close(self) -> None:
        if self._recorder is not None and self.nodes.is_running(self._recorder):
            self.stop_node(self._recorder)  # and write the archive of classes
        self._classes.release()
        self.nodes.close()
        self._ports.release()
        self._logins.release()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _keep_classes(self, recorder: int) -> None:
        """Keep the archive that a node has written when it ended; from now on it uses that one like all others."""
        self._classes.keep(self.folder)
        self._recorder = None
        self.nodes.change(recorder, self._start_command(recorder, "kafka.Kafka"))

    # -- start ---------------------------------------------------------------------------------------

    def _start_all(self) -> None:
        if self._kraft:
            self._format_all()
        else:
            self.nodes.start(ZOOKEEPER_NODE)
        for node in self.addresses:
            self.nodes.start(node)
        if release_number(self.version) >= METADATA_1_SINCE:
            wait_until_complete(self.addresses, self.nodes.check)
            wait_for_group_coordinator(self.addresses)
        else:  # these releases list no broker before there is a topic
            wait_for_group_coordinator(self.addresses, version=0)
            wait_until_complete(self.addresses, self.nodes.check, version=0)

    def _format_all(self) -> None:
        """Format all nodes in parallel with Kafka's storage tool, which also writes feature levels and users."""
        tools = []
        for node in self.addresses:
            line = self.tool_command(
                "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(self._config(node))
            )
            for mechanism, user in SCRAM_USERS if SCRAM in self._login.mechanisms else ():
                line += ["--add-scram", f"{mechanism}=[name={user},password={PASSWORD}]"]
            tools.append(subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        for tool in tools:
            output, _ = tool.communicate(timeout=TOOL_TIMEOUT_S)
            if tool.returncode:
                raise UsageError(f"the storage could not be formatted: {output.strip()[-300:]}", where=self.name)

    # -- configuration -------------------------------------------------------------------------------

    def tool_command(self, main: str, *arguments: str) -> list[str]:
        """Return the command that runs a main class of the release with the Java and the flags of the brokers."""
        return self._java_command(self._classes.using(), main, *arguments)

    def _java_command(self, flags: Sequence[str], main: str, *arguments: str) -> list[str]:
        return [*self._java, *flags, "-cp", self._classpath, main, *arguments]

    def _start_command(self, node: int | str, main: str) -> list[str]:
        report_owned = [f"{name}={value}" for name, value in self._environment(node).items()]
        classes = self._classes.writing(self.folder) if node == self._recorder else self._classes.using()
        command = self._java_command(classes, main, str(self._config(node)))
        return [*(["env", *report_owned] if report_owned else []), *command]

    def _config(self, node: int | str) -> Path:
        return self.folder / f"{node}.properties"

    def _write_configs(self) -> dict[int | str, list[str]]:
        commands: dict[int | str, list[str]] = {}
        if not self._kraft:
            _write(self._config(ZOOKEEPER_NODE), self._zookeeper())
            main = "org.apache.zookeeper.server.ZooKeeperServerMain"
            commands[ZOOKEEPER_NODE] = self._start_command(ZOOKEEPER_NODE, main)
        for number, node in enumerate(self.addresses):
            role = self._kraft_role(number) if self._kraft else self._zookeeper_role(node)
            settings = self._broker(node) | role | dict(self._extra_settings)
            _write(self._config(node), settings | dict(self._node_settings(node, settings)))
            commands[node] = self._start_command(node, "kafka.Kafka")
        return commands

    def _broker(self, node: int) -> dict[str, object]:
        quick = {name.replace("_", "."): value for name, value in QUICK_SETTINGS.items()}
        replicas = dict.fromkeys(REPLICATED, min(len(self.addresses), 3))
        place: dict[str, object] = {"log.dirs": self.folder / f"{node}-data", "broker.rack": rack_of(node)}
        if release_number(self.version) >= RACK_SELECTOR_SINCE:
            place["replica.selector.class"] = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
        return {**SMALL, **quick, **replicas, **place, **self._metrics}

    def _kraft_role(self, number: int) -> dict[str, object]:
        brokers = len(self.addresses)
        controllers = self._ports[brokers:]
        voters = ",".join(f"{node}@127.0.0.1:{port}" for node, port in enumerate(controllers, 1))
        plain, login = f"PLAINTEXT://127.0.0.1:{self._ports[number]}", f"LOGIN://127.0.0.1:{self._logins[number]}"
        user = f'username="{USER}" password="{PASSWORD}"'
        lifetimes = {
            f"listener.name.login.{mechanism.lower()}.connections.max.reauth.ms": lifetime_ms
            for mechanism, lifetime_ms in self._login.sessions_ms.items()
        }
        return {
            **QUICK_KRAFT,
            **AUTHORIZER,
            **(TOKENS if release_number(self.version) >= TOKENS_SINCE else {}),
            "process.roles": "broker,controller",
            "node.id": number + 1,
            "controller.quorum.voters": voters,
            "controller.listener.names": "CONTROLLER",
            "listeners": f"{plain},{login},CONTROLLER://127.0.0.1:{controllers[number]}",
            "advertised.listeners": f"{plain},{login}",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,LOGIN:SASL_PLAINTEXT",
            "listener.name.login.sasl.enabled.mechanisms": ",".join(self._login.mechanisms),
            "listener.name.login.plain.sasl.jaas.config": (
                f'{PLAIN_USER} required {user} user_{USER}="{PASSWORD}" user_{OTHER_USER}="{PASSWORD}";'
            ),
            "listener.name.login.scram-sha-256.sasl.jaas.config": f"{SCRAM_USER} required {user};",
            "listener.name.login.scram-sha-512.sasl.jaas.config": f"{SCRAM_USER} required {user};",
            "listener.name.login.oauthbearer.sasl.jaas.config": f"{BEARER_MODULE} required;",  # the validator for tests
            **lifetimes,
        }

    def _zookeeper_role(self, node: int) -> dict[str, object]:
        host, _, port = self.addresses[node].partition(":")
        has_listeners = release_number(self.version) >= LISTENERS_SINCE
        old = {"host.name": host, "port": port, **OLD_SETTINGS}
        return {
            **QUICK_ZOOKEEPER,
            "broker.id": node,
            **({"listeners": f"PLAINTEXT://{host}:{port}"} if has_listeners else old),
            "zookeeper.connect": self.zookeeper,
        }

    def _zookeeper(self) -> dict[str, object]:
        return {
            "dataDir": self.zookeeper_folder,
            "preAllocSize": 1024,  # kB; the default adds 64 MB of zeroes to each file of the log
            "clientPort": self._ports[-1],
            "clientPortAddress": "127.0.0.1",
            "tickTime": 500,
            "minSessionTimeout": 1000,
            "maxSessionTimeout": 60_000,
            "admin.enableServer": "false",
        }


def _client_metrics(version: str) -> Path | None:
    """Return the folder with a plugin that receives metrics of clients; None if this release has none, or no network.

    Without it a broker does not advertise these requests (KIP-714).
    """
    if release_number(version) < METRICS_RECEIVER_SINCE:
        return None
    with suppress(UsageError):
        return fetch_release(f"{TESTS}{version}")
    return None


def _write(path: Path, values: Mapping[str, object]) -> None:
    path.write_text("".join(f"{key}={value}\n" for key, value in values.items()))


@contextmanager
def apache_kafka(
    brokers: int = 1, settings: Mapping[str, object] | None = None, java_flags: Sequence[str] = JAVA_FLAGS
) -> Iterator[ApacheKafka]:
    """Start the newest release and close it at the end of the block."""
    cluster = ApacheKafka(brokers=brokers, settings=settings, java_flags=java_flags)
    try:
        yield cluster
    finally:
        cluster.close()
