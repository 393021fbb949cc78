"""A user's own clients under a chaos run: they are led to the recorder, told when all is healed, and ended."""

import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from highwater.conformance.targets.reference import ReferenceCluster
from highwater.errors import UsageError
from highwater.reports.importers.formats import open_history
from highwater.reports.recorder import clients
from highwater.reports.recorder.clients import UserClients

pytestmark = [pytest.mark.xdist_group("cluster"), pytest.mark.timeout(300)]
CLIENT = """
import os, signal, sys, threading
from confluent_kafka import Producer
healed = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: healed.set())
producer = Producer({"bootstrap.servers": os.environ["BOOTSTRAP"]})
producer.produce("t", b"under faults")
assert producer.flush(120) == 0
os.close(os.open(sys.argv[1], os.O_WRONLY))
healed.wait()
producer.produce("t", b"healed")
assert producer.flush(120) == 0
"""


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with ReferenceCluster(1) as cluster:
        yield cluster.bootstrap


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    """What a client opens when it has come so far; whoever reads it waits for that."""
    os.mkfifo(tmp_path / "so far")
    return tmp_path / "so far"


def test_they_are_recorded_together_with_the_faults(bootstrap: str, tmp_path: Path, fifo: Path) -> None:
    client = [sys.executable, "-c", CLIENT, str(fifo)]
    with UserClients(f"{shlex.join(client)} && exit 0", bootstrap, tmp_path) as user_clients:
        fifo.read_bytes()  # until the client has opened it
        user_clients.record_fault("phase", "load", None)
        user_clients.record_fault("kill", "leader", "1")
        user_clients.finish()
    assert user_clients.failure is None, (tmp_path / "clients" / "output.txt").read_text()
    events = list(open_history(str(tmp_path / "clients" / "history.ndjson")).events)
    events_recorded = [(event.f, event.type, event.value) for event in events if event.f in {"send", "kill", "phase"}]
    assert events_recorded == [
        ("send", "invoke", "under faults"), ("send", "ok", None), ("kill", "info", "leader"),
        ("send", "invoke", "healed"), ("send", "ok", None),
    ]  # fmt: skip


def test_a_command_that_fails_is_told(bootstrap: str, tmp_path: Path, fifo: Path) -> None:
    with UserClients(
        f": > {shlex.quote(str(fifo))}; echo no clients here; exit 3", bootstrap, tmp_path
    ) as user_clients:
        fifo.read_bytes()
        user_clients.finish()
    assert user_clients.failure is not None
    assert "exit code 3" in user_clients.failure
    assert (tmp_path / "clients" / "output.txt").read_text() == "no clients here\n"


def test_a_command_that_does_not_end_is_told_and_killed(
    bootstrap: str, tmp_path: Path, fifo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "FINISH_S", 0.1)
    stubborn = f"trap '' TERM; : > {shlex.quote(str(fifo))}; while :; do sleep 1; done"
    with UserClients(stubborn, bootstrap, tmp_path) as user_clients:
        fifo.read_bytes()
        with pytest.raises(UsageError, match="did not end"):
            user_clients.finish()
