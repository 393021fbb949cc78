"""A cluster of reference brokers in forked processes, each of which loads a mutant instead of its module.

A fork has imported all third-party modules, so that a node starts in a fraction of a second.
"""

import os
import re
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from highwater.conformance.targets.base import SaslListener
from highwater.conformance.targets.reference import LOGIN_SETTINGS, ReferenceTarget, login_listener, placement
from highwater.errors import UsageError
from highwater.processes import Processes
from highwater.reference.client.transport import TCP, Transport
from highwater.reference.drivers.cluster import Cluster, cluster_settings
from highwater.reference.drivers.forked import POLL_S, ForkedNodes, NodeMain
from highwater.reference.drivers.process import PARENT
from highwater.soak.mutation import Mutant, load_instead

REFERENCE: Final = re.compile(r"highwater\.reference\..*")
CORE: Final = re.compile(r"highwater\.reference\.(?!wire\b).*")
"""All of the broker without its codecs, which import nothing of it and take longest to import."""
READY_TIMEOUT_S: Final = 10.0
TRACED_STOP_TIMEOUT_S: Final = 60.0


def node_main(mutant: Mutant | None, config: Path, prepare: Callable[[], Callable[[], None]]) -> NodeMain:
    """Return a function that runs a node with the mutant; `prepare` is called first, and what it returns at the end."""
    parent = os.getpid()

    def run() -> None:
        os.environ[PARENT] = str(parent)
        if mutant is not None:
            is_codec = ".wire." in mutant.module
            load_instead(mutant, REFERENCE if is_codec else CORE)
        finish = prepare()
        from highwater.reference.configuration.properties import read_config
        from highwater.reference.drivers.process import run_node

        try:
            run_node(read_config(config), lambda address: None)
        finally:
            finish()

    return run


def nothing_to_prepare(name: str) -> Callable[[], None]:
    """Return what a node does at its end: nothing."""
    return lambda: None


class ForkedCluster(Cluster):
    """The processes of a cluster, forked from this one."""

    def __init__(
        self, size: int, mutant: Mutant | None, settings: Mapping[str, object],
        prepare: Callable[[str], Callable[[], None]] = nothing_to_prepare,
    ) -> None:  # fmt: skip
        self._mutant, self._prepare = mutant, prepare
        super().__init__(size, settings=cluster_settings(size, truncation="kip320", **settings))

    def processes(self) -> Processes:
        return ForkedNodes(
            self.folder, self.configs,
            lambda name, config: node_main(self._mutant, config, lambda: self._prepare(name)),
        )  # fmt: skip

    def open(self) -> "ForkedCluster":
        """Start all nodes and wait until they answer; raises UsageError if they do not."""
        try:
            self.start_all()
            self.wait_until_ready(READY_TIMEOUT_S)
        except BaseException:
            self.end()
            raise
        return self

    def stop_slowly(self) -> None:
        """Stop all nodes and wait until each has written what it executed, which may take longer than a shutdown.

        A node gets one SIGTERM only: a second one would end it while it writes.
        """
        for name in self.nodes.started():
            self.nodes.signal(name, signal.SIGTERM)
        deadline = time.monotonic() + TRACED_STOP_TIMEOUT_S
        while any(self.nodes.is_running(name) for name in self.nodes.started()) and time.monotonic() < deadline:
            time.sleep(POLL_S)

    def end(self) -> None:
        """Kill all nodes; their data is of no use."""
        for name in self.nodes.started():
            self.nodes.kill(name)
        self.stop_all()


class MutantTarget:
    """A cluster that loads a mutant, as a target of the suite; the settings are those of the reference target."""

    name, version, era = "reference", "mutant", ""
    capabilities = ReferenceTarget.capabilities
    command_config: Path | None = None
    transport: Transport = TCP
    settings = ReferenceTarget.settings

    def __init__(
        self, size: int, mutant: Mutant | None, prepare: Callable[[str], Callable[[], None]] = nothing_to_prepare
    ) -> None:
        """Start the cluster; raises UsageError if it does not start."""
        self._mutant = mutant
        self.cluster = ForkedCluster(size, mutant, {**self.settings, **placement(size)}, prepare).open()
        self._login: ForkedCluster | None = None
        self.addresses = {int(name): address for name, address in self.cluster.addresses.items()}

    @property
    def bootstrap(self) -> str:
        return ",".join(self.addresses.values())

    @property
    def sasl(self) -> SaslListener:
        if self._login is None:
            self._login = ForkedCluster(1, self._mutant, LOGIN_SETTINGS).open()
        return login_listener(",".join(self._login.addresses.values()))

    def start_node(self, node: int | str) -> None:
        self.cluster.start(str(node))

    def stop_node(self, node: int | str) -> None:
        self.cluster.nodes.stop(str(node), TRACED_STOP_TIMEOUT_S)

    def kill_node(self, node: int | str) -> None:
        self.cluster.kill(str(node))

    def pause_node(self, node: int | str) -> None:
        self.cluster.signal(str(node), signal.SIGSTOP)

    def resume_node(self, node: int | str) -> None:
        self.cluster.signal(str(node), signal.SIGCONT)

    def revive(self) -> bool:
        """Return False: a cluster in which a broker ended is not used again."""
        return False

    def close(self) -> None:
        for cluster in (self.cluster, self._login):
            if cluster is not None:
                cluster.end()


def preload() -> Sequence[str]:
    """Import what the nodes import, so that their forks share it, and return the names of the modules."""
    import highwater.reference.drivers.process

    return [highwater.reference.drivers.process.__name__]


def start_error(error: UsageError) -> str:
    """Return why a cluster did not start, in one line."""
    return str(error).splitlines()[0]
