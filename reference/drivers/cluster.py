"""A cluster of processes: a supervisor that starts, watches and stops one metadata store and N brokers.

With `control` it reads one command per line from standard input and prints one line per command: `start N`, `kill N`,
`stop N`, `pause N`, `resume N`, `pid N` (N is a broker id, or `store`). The nodes watch the supervisor and stop when it
ends, even if it is killed.
"""

import base64
import contextlib
import json
import os
import select
import shutil
import signal
import sys
import time
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path

from highwater.errors import UsageError
from highwater.ports import Ports
from highwater.processes import Name, Processes
from highwater.reference.client.access import Access
from highwater.reference.client.cluster import ClusterClient
from highwater.reference.configuration.broker import ZOOKEEPER
from highwater.reference.configuration.properties import broker_config, read_config
from highwater.reference.drivers.files import META, read_identity
from highwater.reference.drivers.forked import ForkedNodes, NodeMain
from highwater.reference.drivers.process import PARENT, run_node
from highwater.temporary import make_folder

READY_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 6.0
ANSWER_TIMEOUT_S = 1.0
STORE_NODE = "store"
STANDARD_PROGRAM = ["-m", "highwater.node"]
NODE_ENVIRONMENT = "HIGHWATER_NODE_ENVIRONMENT"
"""Variable with extra environment variables per node name, as JSON."""
NODE_PROGRAM = "HIGHWATER_NODE_PROGRAM"
"""Variable with the arguments of Python that run a node, as JSON; tests of the tools set it."""


def _toml(tables: dict[str, dict[str, object]]) -> str:
    """Format tables as TOML; numbers, booleans, strings and lists of strings have the same form as in JSON."""
    lines = []
    for name, table in tables.items():
        lines.append(f"[{name}]")
        lines += [f"{key} = {_toml_value(value)}" for key, value in table.items()]
    return "\n".join(lines) + "\n"


def _toml_value(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {json.dumps(item)}" for key, item in value.items()) + " }"
    return json.dumps(value)


def cluster_id_of(folder: Path) -> str:
    """Return the id of the cluster whose nodes have their data in a folder, or a new one (Uuid.randomUuid)."""
    for path in sorted(folder.glob(f"*/{META}")):
        if known := read_identity(path).get("cluster.id"):
            return known
    while True:
        found = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not found.startswith("-"):  # it would look like an option
            return found


def settings_of(broker_id: int, settings: dict[str, object]) -> dict[str, object]:
    """Return the settings of one broker: the common ones, overridden by those written `ID.KEY`."""
    prefix = f"{broker_id}."
    common = {key: value for key, value in settings.items() if not key[:1].isdigit()}
    return common | {key.removeprefix(prefix): value for key, value in settings.items() if key.startswith(prefix)}


def cluster_settings(brokers: int, **settings: object) -> dict[str, object]:
    """Return the settings of a cluster of local processes: what fits its size, overridden by `settings`."""
    return {
        "replica_fetch_wait_max_ms": 100,
        "default_replication_factor": min(brokers, 3),
        "offsets_topic_replication_factor": min(brokers, 3),
        **settings,
    }


class Cluster:
    """The processes of a cluster by node name: `store`, and N broker ids from `first_id` on.

    With `forks` the nodes are forks of this process, which has no other threads, unless the environment gives them
    another program or variables of their own.
    """

    def __init__(
        self,
        size: int,
        *,
        folder: Path | None = None,
        port: int = 0,
        settings: dict[str, object] | None = None,
        first_id: int = 1,
        trace: Path | None = None,
        forks: bool = False,
    ) -> None:
        self._trace, self._forks = trace, forks
        self._temporary = folder is None
        self.folder = folder or make_folder("cluster-")
        self._ports = Ports(size + 1)
        store_port, *ports = self._ports
        if port:
            ports = [port + number for number in range(size)]
        by_id = dict(enumerate(ports, first_id))
        self.addresses = {str(broker_id): f"127.0.0.1:{port}" for broker_id, port in by_id.items()}
        self.configs = self._write_configs(store_port, by_id, settings or {})
        self.nodes = self.processes()

    def _write_configs(self, store_port: int, ports: dict[int, int], settings: dict[str, object]) -> dict[str, Path]:
        nodes: dict[str, dict[str, dict[str, object]]] = {}
        cluster_id = cluster_id_of(self.folder)
        embedded = not str(settings.get("metadata_store", "")).startswith(ZOOKEEPER)
        if self._trace and not embedded:
            raise UsageError(
                "an external ZooKeeper writes no trace", where="--trace", hint="use the embedded metadata store"
            )
        if embedded:
            store = {"cluster_id": settings.get("cluster_id", cluster_id), "data_dir": str(self.folder / STORE_NODE)}
            nodes[STORE_NODE] = {"store": {"port": store_port, **store}}
        for number, (broker_id, port) in enumerate(ports.items()):
            broker: dict[str, object] = {
                "broker_id": broker_id,
                "cluster_id": cluster_id,
                "port": port,
                "metadata_store": f"127.0.0.1:{store_port}",
                "log_dir": str(self.folder / f"broker-{broker_id}"),
                **settings_of(broker_id, settings),
            }
            for key in ("metrics_port", "advertised_port"):
                first = broker.get(key)
                if isinstance(first, int) and first:
                    broker[key] = first + number
            nodes[str(broker_id)] = {"broker": broker}
            self._broker_config = broker_config(broker, "broker setting")
        paths = {}
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            for name, config in nodes.items():
                paths[name] = self.folder / f"{name}.toml"
                paths[name].write_text(_toml(config))
        except OSError as error:
            raise UsageError(f"cannot write the cluster's folder ({error.strerror})", where=str(self.folder)) from error
        return paths

    def processes(self) -> Processes:
        """Return the launcher of the nodes; they watch their parent, which is this process."""
        program = json.loads(os.environ.get(NODE_PROGRAM, "null")) or STANDARD_PROGRAM
        own = json.loads(os.environ.get(NODE_ENVIRONMENT, "{}"))
        if self._forks and program == STANDARD_PROGRAM and not own:
            return ForkedNodes(self.folder, self.configs, partial(_node_main, self._trace))
        trace = ["--trace", str(self._trace)] if self._trace else []
        commands: dict[Name, list[str]] = {
            name: [sys.executable, *program, "--config", str(path), *trace] for name, path in self.configs.items()
        }
        parent = {PARENT: str(os.getpid())}
        environments = {name: {**own.get(name, {}), **parent} for name in commands}
        return Processes(self.folder, commands, environments=environments, guarded=False)

    # -- nodes -----------------------------------------------------------------------------------

    def start(self, name: str) -> None:
        self.nodes.start(name)

    def start_all(self) -> None:
        for name in self.configs:
            self.start(name)

    def is_running(self, name: str) -> bool:
        return self.nodes.is_running(name)

    def signal(self, name: str, number: signal.Signals) -> None:
        self.nodes.signal(name, number)

    def kill(self, name: str) -> None:
        self.nodes.kill(name)

    def stop(self, name: str) -> None:
        self.nodes.stop(name, STOP_TIMEOUT_S)

    def stop_all(self) -> None:
        """Stop all brokers at once, then the store; delete a temporary folder."""
        for name in self.nodes.started():
            self.nodes.signal(name, signal.SIGCONT)
            if name != STORE_NODE:
                self.nodes.signal(name, signal.SIGTERM)
        for name in sorted(self.nodes.started(), key=lambda node: node == STORE_NODE):
            self.nodes.stop(name, STOP_TIMEOUT_S)
        self._ports.release()
        if self._temporary:
            shutil.rmtree(self.folder, ignore_errors=True)

    # -- readiness -------------------------------------------------------------------------------

    def wait_until_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Wait until every broker lists all brokers and a controller; raise UsageError with its log if a node died."""
        access, deadline = Access.to_cluster_of(self._broker_config), time.monotonic() + timeout_s
        for name, address in self.addresses.items():
            while not _is_complete(address, len(self.addresses), access):
                self.nodes.check(self.configs)
                if time.monotonic() > deadline:
                    raise UsageError(f"broker {name} is not ready after {timeout_s:.0f} s", where=address)
                time.sleep(0.05)


def _node_main(trace: Path | None, name: str, config: Path) -> NodeMain:
    parent = os.getpid()

    def run() -> None:
        os.environ[PARENT] = str(parent)
        run_node(read_config(config), lambda address: print(f"ready {address}", flush=True), trace=trace)

    return run


def _is_complete(address: str, brokers: int, access: Access) -> bool:
    """Return whether one broker's metadata lists all brokers and a controller."""
    try:
        with ClusterClient(address, access, timeout_s=ANSWER_TIMEOUT_S) as client:
            found = client.brokers()
    except UsageError:
        return False
    return len(found.brokers) == brokers and found.controller_id >= 0


def supervise(cluster: Cluster, report: Callable[[str], None], *, control: bool) -> None:
    """Run the cluster until Ctrl-C, SIGTERM or, with `control`, the end of standard input."""

    def interrupted(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGINT):  # a shell may have set SIGINT to ignored
        signal.signal(number, interrupted)
    try:
        cluster.start_all()
        cluster.wait_until_ready()
        report(f"ready {','.join(cluster.addresses.values())}")
        _serve_commands(cluster, report) if control else _watch(cluster, report)
    except KeyboardInterrupt:
        pass
    finally:
        with contextlib.suppress(ValueError):
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C must not leave child processes behind
        cluster.stop_all()


def _watch(cluster: Cluster, report: Callable[[str], None]) -> None:
    while True:
        time.sleep(0.5)
        for name, code in cluster.nodes.take_ended().items():
            report(f"node {name} ended with code {code}; see {cluster.folder / str(name)}.log")


def _serve_commands(cluster: Cluster, report: Callable[[str], None]) -> None:
    commands: dict[str, Callable[[str], object]] = {
        "start": cluster.start,
        "kill": cluster.kill,
        "stop": cluster.stop,
        "pause": lambda name: cluster.signal(name, signal.SIGSTOP),
        "resume": lambda name: cluster.signal(name, signal.SIGCONT),
        "pid": cluster.nodes.pid,
    }
    buffered = b""
    while True:
        select.select([sys.stdin.fileno()], [], [])
        data = os.read(sys.stdin.fileno(), 4096)
        if not data:
            return
        *lines, buffered = (buffered + data).split(b"\n")
        for line in lines:
            verb, _, name = line.decode().strip().partition(" ")
            if verb not in commands or (name != STORE_NODE and name not in cluster.addresses):
                report(f"error unknown command: {verb} {name}")
                continue
            result = commands[verb](name)
            report(f"ok {verb} {name}" + (f" {result}" if verb == "pid" else ""))
