"""The reference broker as a target: a cluster of processes, controlled over a pipe."""

import contextlib
import json
import os
import select
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from highwater.conformance.targets.base import PAUSE_NODE, STOP_NODE, SaslListener
from highwater.conformance.targets.commands import QUICK_SETTINGS, SESSIONS_MS, rack_of
from highwater.conformance.targets.discovery import restart_dead
from highwater.errors import UsageError
from highwater.processes import python_command
from highwater.reference.client.transport import TCP, Transport
from highwater.temporary import temporary_in_memory
from highwater_kafka import installed_version

READY_TIMEOUT_S = 40.0
COMMAND_TIMEOUT_S = 20.0
NODE_PROGRAM = ("-m", "highwater.node")
"""Arguments of Python that run a node."""


class ReferenceCluster:
    """A cluster of reference brokers; nodes are named by broker id, or `store` for the metadata store."""

    def __init__(
        self, brokers: int = 1, *, guards_off: Sequence[str] = (), truncation: str = "kip320",
        settings: Mapping[str, object] | None = None, folder: Path | None = None, trace: Path | None = None,
        environment: Mapping[str, Mapping[str, str]] | None = None, node_program: Sequence[str] = NODE_PROGRAM,
        port: int = 0, in_memory: bool = False,
    ) -> None:  # fmt: skip
        """Start the cluster, at free ports or from `port` on; `environment` has more variables by node name.

        `in_memory`: a temporary folder is on a file system in memory if this machine has room on one.
        """
        command = python_command("-m", "highwater", "broker", "--cluster", str(brokers), "--control")
        command += ["--truncation", truncation]
        command += [part for guard in guards_off for part in ("--guard-off", guard)]
        command += [part for key, value in (settings or {}).items() for part in ("--set", f"{key}={_text(value)}")]
        command += ["--port", str(port)] if port else []
        command += ["--folder", str(folder)] if folder else []
        command += ["--trace", str(trace)] if trace else []
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1,
            start_new_session=True,
            env={
                **os.environ, **(temporary_in_memory() if in_memory else {}),
                "HIGHWATER_NODE_ENVIRONMENT": json.dumps(environment or {}),
                "HIGHWATER_NODE_PROGRAM": json.dumps(node_program),
            },
        )  # fmt: skip
        try:
            ready = self._line(READY_TIMEOUT_S)
            if not ready.startswith("ready "):
                raise UsageError(f"the reference cluster did not start: {ready or self._stderr()}")
        except BaseException:
            self.close()
            raise
        self.addresses = dict(enumerate(ready.split()[1].split(","), 1))

    @property
    def bootstrap(self) -> str:
        return ",".join(self.addresses.values())

    def start_node(self, node: int | str) -> None:
        self._command(f"start {node}")

    def kill_node(self, node: int | str) -> None:
        self._command(f"kill {node}")

    def stop_node(self, node: int | str) -> None:
        self._command(f"stop {node}")

    def pause_node(self, node: int | str) -> None:
        self._command(f"pause {node}")

    def resume_node(self, node: int | str) -> None:
        self._command(f"resume {node}")

    def pid(self, node: int | str) -> int:
        """Return the process id, 0 if the node is down."""
        return int(self._command(f"pid {node}").split()[-1])

    def close(self) -> None:
        """Close the standard input of the cluster, which ends every process."""
        with contextlib.suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        try:
            self._process.wait(COMMAND_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()  # the nodes end when their parent is gone
            self._process.wait()
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()

    def __enter__(self) -> "ReferenceCluster":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _command(self, text: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{text}\n")
        self._process.stdin.flush()
        answer = self._line(COMMAND_TIMEOUT_S)
        if not answer.startswith("ok"):
            raise UsageError(f"the reference cluster rejected {text!r}: {answer or self._stderr()}")
        return answer

    def _line(self, timeout_s: float) -> str:
        """Return the next output line; empty if the process ended or printed nothing in time."""
        assert self._process.stdout is not None
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            readable, _, _ = select.select([self._process.stdout], [], [], 0.2)
            if readable:
                return self._process.stdout.readline().strip()
            if self._process.poll() is not None:
                return ""
        return ""

    def _stderr(self) -> str:
        if self._process.poll() is None or self._process.stderr is None:
            return "no answer in time"
        return self._process.stderr.read().strip().removeprefix("highwater: ") or "it ended without output"


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


USER, OTHER_USER, PASSWORD = "alice", "bob", "alice-secret"
LOGIN_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
LOGIN_SETTINGS: Final[Mapping[str, object]] = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_inter_broker_user": USER,
    "sasl_users": {USER: PASSWORD, OTHER_USER: PASSWORD},
    "sasl_enabled_mechanisms": LOGIN_MECHANISMS,
    "connections_max_reauth_ms": SESSIONS_MS,
}
"""Settings of the broker with the listener for cases about logins."""


def login_listener(address: str) -> SaslListener:
    """Return the listener of a broker with `LOGIN_SETTINGS`."""
    return SaslListener(address, USER, PASSWORD, LOGIN_MECHANISMS, sessions_ms=SESSIONS_MS, other_user=OTHER_USER)


def placement(brokers: int) -> dict[str, object]:
    """Return the settings by which the brokers are in racks and send consumers to replicas in their own rack.

    The controller decides about the ISR, as in Kafka 2.7 and later, and stores the eligible leader replicas of KIP-966.
    """
    racks: dict[str, object] = {f"{node}.broker_rack": rack_of(node) for node in range(1, brokers + 1)}
    return {**racks, "replica_selector": "rack_aware", "isr_update": "alter_partition"}


class ReferenceTarget(ReferenceCluster):
    """The reference broker with short timeouts, so that failures are detected within seconds."""

    _login_cluster: ReferenceCluster | None = None

    capabilities = frozenset({STOP_NODE, PAUSE_NODE})
    command_config: Path | None = None
    transport: Transport = TCP
    era = ""  # mixed: newest protocol versions, but metadata in a store as before KRaft
    settings: Mapping[str, int] = {**QUICK_SETTINGS, "metadata_store_session_timeout_ms": 2_000}

    def __init__(
        self, brokers: int = 1, *, guards_off: Sequence[str] = (), truncation: str = "kip320",
        hidden: Mapping[str, object] | None = None, node_program: Sequence[str] = NODE_PROGRAM,
    ) -> None:  # fmt: skip
        """Start the cluster; `hidden` settings are applied, but not reported in `settings`."""
        settings = {**self.settings, **placement(brokers), **(hidden or {})}
        super().__init__(
            brokers, guards_off=guards_off, truncation=truncation, settings=settings, node_program=node_program,
            in_memory=True,
        )  # fmt: skip
        self.name, self.version = "reference", installed_version()

    @property
    def sasl(self) -> SaslListener:
        """Return the listener of a separate broker, started on first use; a reference broker has a single listener."""
        if self._login_cluster is None:
            self._login_cluster = ReferenceCluster(1, settings=LOGIN_SETTINGS, in_memory=True)
        return login_listener(self._login_cluster.bootstrap)

    def close(self) -> None:
        if self._login_cluster is not None:
            self._login_cluster.close()
        super().close()

    def revive(self) -> bool:
        restart_dead(self.addresses, self.kill_node, self.start_node, check=self._check_nodes)
        return True

    def _check_nodes(self) -> None:
        """Raise UsageError if a broker has ended, which is not waited for."""
        for node, address in self.addresses.items():
            if not self.pid(node):
                raise UsageError(f"broker {node} ends while it starts", where=address)
