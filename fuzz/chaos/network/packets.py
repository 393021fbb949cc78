"""Drops packets between nodes with nftables in a private network namespace, which disappears with this process.

The proxy connects from a separate address for each node, so that the filter can distinguish links. TCP retransmits
dropped packets: a short cut is a delay, a long one ends connections, as on a real network.
"""

import ctypes
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from highwater.errors import UsageError
from highwater.fuzz.chaos.nemesis import STORE, Inject, Undo
from highwater.fuzz.chaos.network.socket_owner import CLIENTS
from highwater.fuzz.schedule import Fault

CLONE_NEWNET: Final = 0x40000000
HOST: Final = "127.0.0.1"
CHAIN: Final = "ip highwater links"
TABLE: Final = "table ip highwater { chain links { type filter hook output priority 0; policy accept; }; }"
NFT_TIMEOUT_S: Final = 20
Ports = Callable[[], Mapping[str, list[int]]]
"""Returns the ports at which each node listens behind its proxies, by name."""


def source_address(name: str) -> str:
    """Return the address from which a node, the store or all clients together connect."""
    last = {CLIENTS: 201, STORE: 200}.get(name) or int(name)
    return f"127.0.1.{last}"


def missing_for_packets() -> str:
    """Return what this machine lacks to drop packets, or an empty string."""
    if os.geteuid() != 0:
        return "root, for a network namespace"
    lacking = [program for program in ("nft", "ip") if shutil.which(program) is None]
    return f"the program {lacking[0]}" if lacking else ""


@contextmanager
def own_network() -> Iterator[None]:
    """Move this thread, and what it starts, to a network namespace with only loopback; UsageError if that fails."""
    lacks = missing_for_packets()
    if lacks:
        raise UsageError(
            f"unsupported: it needs {lacks}", where="--packets", hint="leave it out; proxies then cut the links"
        )
    libc = ctypes.CDLL(None, use_errno=True)
    with Path("/proc/thread-self/ns/net").open("rb") as before:
        if libc.unshare(CLONE_NEWNET):
            raise UsageError(f"unsupported: {os.strerror(ctypes.get_errno())}", where="--packets")
        try:
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True, timeout=NFT_TIMEOUT_S)
            yield
        finally:
            libc.setns(before.fileno(), CLONE_NEWNET)


class Packets:
    """The filter rules of all active faults. Each change replaces the whole rule set."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._on: dict[int, list[str]] = {}
        self._begun = 0
        _nft(TABLE)

    def faults(self) -> dict[str, Inject]:
        """Return the faults, by their names in `highwater.fuzz.schedule.KINDS`."""
        return {"cut": self.begin, "loss": self.begin}

    def begin(self, fault: Fault, node: str) -> Undo:
        self._begun += 1
        number = self._begun
        self._on[number] = list(drop_rules(fault, node, self._ports()))
        self._write()

        def undo() -> None:
            del self._on[number]
            self._write()

        return undo

    def _write(self) -> None:
        lines = [f"add rule {CHAIN} {rule}" for rules in self._on.values() for rule in rules]
        _nft("\n".join([f"flush chain {CHAIN}", *lines]))


def drop_rules(fault: Fault, node: str, ports: Mapping[str, list[int]]) -> Iterator[str]:
    """Yield the filter rules of a fault: for each direction of each link, requests to a port and replies from one."""
    chance = f"numgen random mod 1000 < {fault.number('per_mille')} " if fault.kind == "loss" else ""
    direction, of = fault.option("direction"), fault.option("of")
    names = [name for name in (*ports, CLIENTS) if name != node]
    ends = [name for name in names if of in {"others", name} or (of == "brokers" and name.isdigit())]
    for end in ends:
        pairs = {"out": [(node, end)], "in": [(end, node)], "both": [(node, end), (end, node)]}[str(direction)]
        for source, target in pairs:
            for port in ports.get(target, []):
                yield f"ip saddr {source_address(source)} tcp dport {port} {chance}drop"
            for port in ports.get(source, []):
                yield f"ip daddr {source_address(target)} tcp sport {port} {chance}drop"


def _nft(script: str) -> None:
    run = subprocess.run(
        ["nft", "-f", "-"], input=script + "\n", capture_output=True, text=True, timeout=NFT_TIMEOUT_S, check=False
    )
    if run.returncode:
        raise UsageError(f"nft rejected a rule: {run.stderr.strip()[:200]}", where="--packets")
