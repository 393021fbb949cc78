"""Nodes as processes: configurations that they refuse, faults that they survive, and how they exit."""

import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from highwater.conformance.targets.reference import ReferenceCluster
from highwater.errors import UsageError
from highwater.reference.client.cluster import ClusterClient
from highwater.reference.configuration.broker import BrokerConfig
from highwater.reference.configuration.properties import read_config
from highwater.reference.drivers.files import Disk

pytestmark = pytest.mark.xdist_group("cluster")


def highwater(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "highwater", "broker", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def refused(*arguments: str) -> str:
    """Return the one line of standard error; the exit code must be 2."""
    process = highwater(*arguments)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 2, error
    (line,) = error.strip().splitlines()
    return line


@pytest.mark.long
def test_each_cluster_has_an_id_of_its_own_and_keeps_it(tmp_path: Path) -> None:
    found = []
    for folder in ("one", "one", "two"):
        with ReferenceCluster(1, folder=tmp_path / folder) as cluster, ClusterClient(cluster.bootstrap) as client:
            found.append(str(client.metadata().cluster_id))
    first, again, other = found
    assert first == again
    assert first != other
    assert len(first) == len(other) == 22


def test_a_cluster_prints_ready_and_stops_all_its_processes(tmp_path: Path) -> None:
    process = highwater("--cluster", "1", "--folder", str(tmp_path))
    assert process.stdout is not None
    try:
        assert re.fullmatch(r"ready 127\.0\.0\.1:\d+\n", process.stdout.readline())
        children = _children(process.pid)
        assert len(children) == 2
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    assert process.returncode == 0
    assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]
    assert (tmp_path / "broker-1" / ".kafka_cleanshutdown").exists()


def test_nodes_exit_when_their_supervisor_is_killed(tmp_path: Path) -> None:
    process = highwater("--cluster", "1", "--folder", str(tmp_path))
    assert process.stdout is not None
    process.stdout.readline()
    children = _children(process.pid)
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 15
    while any(Path(f"/proc/{pid}").exists() for pid in children) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]


def _children(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in listed.split()]


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = refused("--cluster", "1", "--folder", str(tmp_path), "--port", str(port))
    assert "cannot listen" in line
    assert str(port) in line


def test_a_data_folder_of_another_cluster_is_refused(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.claim({"cluster.id": "one", "broker.id": "1"})
    disk.close()
    with pytest.raises(UsageError, match=r"belongs to cluster\.id one, not two"):
        Disk(tmp_path).claim({"cluster.id": "two", "broker.id": "1"})
    held = Disk(tmp_path)
    held.claim({"cluster.id": "one", "broker.id": "1"})
    with pytest.raises(UsageError, match="another process uses"):
        Disk(tmp_path).claim({"cluster.id": "one", "broker.id": "1"})
    held.close()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[broker]\nbroker_id = 1\ncolour = 'red'\n", "colour"),
        ("[broker]\nbroker_id = 'one'\n", "broker_id"),
        ("[broker\n", "Expected"),
        ("", "exactly one table"),
        ("[broker]\nbroker_id = 1\nguards_off = ['NoSuchGuard']\n", "NoSuchGuard"),
    ],
)
def test_a_bad_config_is_refused_with_its_key(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "node.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        read_config(path)


def test_truncation_high_watermark_switches_its_guard_off() -> None:
    assert not BrokerConfig(broker_id=1, truncation="high_watermark").guards.truncate_by_epoch
    assert BrokerConfig(broker_id=1).guards.truncate_by_epoch


def test_a_full_disk_leaves_no_half_append(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(tmp_path)
    disk.append("log", b"whole")
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:3]))
    with pytest.raises(OSError, match="No space left"):
        disk.append("log", b"does not fit")
    assert disk.read("log", 0, 99) == b"whole"


def test_hostile_bytes_close_their_connection_and_nothing_else(bootstrap: str) -> None:
    address = bootstrap.split(",", maxsplit=1)[0].rpartition(":")
    seed = 20261121
    chance = random.Random(seed)
    for _ in range(150):
        with socket.create_connection((address[0], int(address[2])), timeout=5) as connection:
            body = chance.randbytes(chance.randrange(1, 200))
            connection.sendall(len(body).to_bytes(4, "big") + body)
            connection.shutdown(socket.SHUT_WR)
            connection.settimeout(5)
            while connection.recv(4096):
                pass
    with socket.create_connection((address[0], int(address[2])), timeout=5) as connection:
        connection.sendall(bytes.fromhex("0000000a 0012 0000 00000001 ffff".replace(" ", "")))
        assert connection.recv(4096)[4:8] == b"\x00\x00\x00\x01", f"seed {seed}"
