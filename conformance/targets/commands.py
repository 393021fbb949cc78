"""A cluster described by a TOML file with its brokers and the shell commands that start and stop its nodes.

bootstrap = "kafka1:9092,kafka2:9092"
version = "3.9"                        # as for --kafka-version; optional
command_config = "client.properties"   # TLS and SASL; optional
settings = { replica_lag_time_max_ms = 30000 }   # broker settings that cases use for deadlines; optional

[login]                                # a listener that requires a login, for the cases about SASL; optional
bootstrap = "kafka1:9094"
command_config = "login.properties"

[nodes.1]                              # by broker id
start = "ssh kafka1 systemctl start kafka"
stop = "ssh kafka1 systemctl stop kafka"
kill = "ssh kafka1 systemctl kill -s KILL kafka"
pause = "ssh kafka1 systemctl kill -s STOP kafka"
resume = "ssh kafka1 systemctl kill -s CONT kafka"
"""

import subprocess
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from highwater.conformance.client.connection import access_of
from highwater.conformance.targets.base import PAUSE_NODE, STOP_NODE
from highwater.conformance.targets.discovery import restart_dead
from highwater.conformance.targets.external import ExternalTarget
from highwater.errors import UsageError
from highwater.releases import check_version

COMMAND_TIMEOUT_S: Final = 60.0
OUTPUT_TAIL: Final = 300


class NodeCommands(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Shell command lines for one node; an empty one means that the operation is not possible."""

    start: str = ""
    stop: str = ""
    kill: str = ""
    pause: str = ""
    resume: str = ""


class LoginListener(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A listener that requires a SASL login, and the client properties with an account for it."""

    bootstrap: str
    command_config: Path


class ClusterFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Contents of a cluster file; `nodes` by broker id."""

    bootstrap: str
    nodes: dict[int, NodeCommands] = {}
    version: str = ""
    command_config: Path | None = None
    login: LoginListener | None = None
    settings: dict[str, int] = {}


def read_cluster_file(path: Path) -> ClusterFile:
    """Read a cluster file, with paths relative to its folder; raises UsageError if it is not valid."""
    try:
        document = tomllib.loads(path.read_text())
        found = msgspec.convert(document, ClusterFile, strict=False, dec_hook=lambda kind, text: kind(text))
    except OSError as error:
        raise UsageError(error.strerror or str(error), where=str(path)) from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        hint = "see docs/conformance/README.md for an example"
        raise UsageError(f"not a cluster file: {error}", where=str(path), hint=hint) from error
    if found.version:
        check_version(found.version, str(path))
    config = found.command_config and path.parent / found.command_config
    login = found.login and msgspec.structs.replace(
        found.login, command_config=path.parent / found.login.command_config
    )
    return msgspec.structs.replace(found, command_config=config, login=login)


class CommandTarget(ExternalTarget):
    """Target of a cluster file; it has the capabilities for which every node has commands."""

    def __init__(self, path: Path, command_config: Path | None = None) -> None:
        self._file = file = read_cluster_file(path)
        login = (file.login.bootstrap, file.login.command_config) if file.login else None
        super().__init__(file.bootstrap, command_config or file.command_config, login)
        unknown_nodes = sorted(file.nodes.keys() - self.addresses.keys())
        if unknown_nodes:
            known = ", ".join(map(str, sorted(self.addresses)))
            raise UsageError(f"the cluster has no brokers {unknown_nodes}", where=str(path), hint=f"brokers: {known}")
        self.name, self.version, self.settings = path.stem, file.version or self.version, file.settings
        self.era = file.version or self.era
        self.capabilities = frozenset(
            capability
            for capability, needed in {STOP_NODE: ("start", "stop", "kill"), PAUSE_NODE: ("pause", "resume")}.items()
            if file.nodes.keys() == self.addresses.keys()
            and all(getattr(node, name) for node in file.nodes.values() for name in needed)
        )

    def start_node(self, node: int | str) -> None:
        self._run(node, "start")

    def stop_node(self, node: int | str) -> None:
        self._run(node, "stop")

    def kill_node(self, node: int | str) -> None:
        self._run(node, "kill")

    def pause_node(self, node: int | str) -> None:
        self._run(node, "pause")

    def resume_node(self, node: int | str) -> None:
        self._run(node, "resume")

    def revive(self) -> bool:
        if STOP_NODE not in self.capabilities:
            return False
        restart_dead(self.addresses, self.kill_node, self.start_node, access_of(self.command_config))
        return True

    def _run(self, node: int | str, name: str) -> None:
        line = getattr(self._file.nodes[int(node)], name)
        try:
            run = subprocess.run(
                line, shell=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                text=True, timeout=COMMAND_TIMEOUT_S, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired as late:
            raise UsageError(
                f"the {name} command of node {node} took longer than {COMMAND_TIMEOUT_S:g} s", where=line
            ) from late
        if run.returncode:
            output = run.stdout.strip()[-OUTPUT_TAIL:]
            raise UsageError(
                f"the {name} command of node {node} ended with exit code {run.returncode}: {output}", where=line
            )


QUICK_SETTINGS: Final[Mapping[str, int]] = {
    "group_min_session_timeout_ms": 500,
    "group_max_session_timeout_ms": 60_000,
    "group_max_size": 4,
    "log_cleaner_backoff_ms": 200,
    "replica_lag_time_max_ms": 2_000,
    "num_partitions": 2,
    "max_incremental_fetch_session_cache_slots": 600,
    "message_max_bytes": 1_048_588,
    "offset_metadata_max_bytes": 4_096,
    "transaction_max_timeout_ms": 900_000,
    "transaction_abort_timed_out_transaction_cleanup_interval_ms": 1_000,
    "transaction_remove_expired_transaction_cleanup_interval_ms": 1_000,
    "offsets_retention_check_interval_ms": 500,
    "log_retention_check_interval_ms": 500,
    "log_retention_ms": -1,
    "producer_id_expiration_check_interval_ms": 500,
}
"""Settings of launched brokers, which make timeouts expire within seconds; Kafka's names with underscores.

Records are kept unless a topic limits their age: most cases write records of a fixed time, which is years ago.
"""
SESSIONS_MS: Final[Mapping[str, int]] = {"SCRAM-SHA-512": 1_000, "OAUTHBEARER": 7_200_000}
"""Lifetimes of sessions by mechanism (connections.max.reauth.ms); those of other mechanisms do not expire.

That of OAUTHBEARER is longer than the tokens of most cases, whose sessions end with their token.
"""


def rack_of(node: int) -> str:
    """Return the rack of a launched broker: two racks, so that brokers of one rack and of another one exist."""
    return f"rack-{node % 2}"
