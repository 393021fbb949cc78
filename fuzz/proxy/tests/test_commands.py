"""`highwater proxy` as a process, and the pytest fixture."""

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from highwater.conformance.targets.reference import ReferenceCluster
from highwater.errors import ExitCode
from highwater.fuzz.proxy.command_line import cluster_at
from highwater.fuzz.proxy.fixture import kafka_proxy
from highwater.fuzz.proxy.run import FaultProxy
from highwater.fuzz.proxy.tests.client import Client
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.metadata import FindCoordinatorRequest, MetadataRequest

pytestmark = [pytest.mark.xdist_group("cluster"), pytest.mark.timeout(120)]
__all__ = ["kafka_proxy"]
STARTED = re.compile(r"Connect clients to (\S+);")
PING = MetadataRequest(topics=())


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    with ReferenceCluster(1) as found:
        yield found.bootstrap


class Run:
    """A proxy that runs: where it listens, and after its end what it printed and its exit code."""

    address = ""
    output = ""
    code = -1


@contextmanager
def proxy(*options: str, number: signal.Signals = signal.SIGINT) -> Iterator[Run]:
    command = [sys.executable, "-m", "highwater", "proxy", "--listen", "127.0.0.1:0", *options]
    run = Run()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            assert process.stdout is not None
            first = process.stdout.readline()
            found = STARTED.search(first)
            assert found, first
            run.address = found[1]
            yield run
        finally:
            process.send_signal(number)
            run.output = process.communicate(timeout=60)[0]
    run.code = process.returncode


def test_a_cluster_that_does_not_answer_is_a_warning(capsys: pytest.CaptureFixture[str], cluster: str) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        cluster_at(address, None, None)
    assert f"no broker answers at {address}" in capsys.readouterr().err
    cluster_at(cluster, None, None)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_table_says_what_each_line_did(cluster: str, number: signal.Signals) -> None:
    lines = ("FindCoordinator: answer GROUP_AUTHORIZATION_FAILED once", "Metadata response: delay 1 ms")
    options = [option for line in lines for option in ("--fault", line)]
    with proxy("--upstream", cluster, *options, number=number) as run:
        client = Client(run.address)
        client.ask(PING)
        assert client.ask(FindCoordinatorRequest(key="g")).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert client.ask(FindCoordinatorRequest(key="g")).error_code != ErrorCode.GROUP_AUTHORIZATION_FAILED
        client.close()
    assert run.code == ExitCode.HELD, run.output
    assert "FindCoordinator version 2 request of client app: answer GROUP_AUTHORIZATION_FAILED" in run.output
    assert "     1 of 2 matching messages: FindCoordinator: answer GROUP_AUTHORIZATION_FAILED once" in run.output


def test_clients_get_the_host_name_that_is_advertised(cluster: str) -> None:
    with proxy("--upstream", cluster, "--advertise", "localhost") as run:
        client = Client(run.address)
        brokers = client.ask(MetadataRequest(topics=None)).brokers
        assert {broker.host for broker in brokers} == {"localhost"}
        client.close()
        again = Client(f"localhost:{brokers[0].port}")
        again.ask(PING)
        again.close()
    assert run.code == ExitCode.HELD


def test_a_fault_that_struck_nothing_is_undecided(cluster: str, tmp_path: Path) -> None:
    file = tmp_path / "faults.txt"
    file.write_text("# what never happens\nHeartbeat: close\n\nMetadata topic=none: close   # nor does this\n")
    with proxy("--upstream", cluster, "--faults", str(file), "--fault", "Metadata: delay 1 ms nth 9") as run:
        client = Client(run.address)
        client.ask(PING)
        client.close()
    assert run.code == ExitCode.UNDECIDED
    assert "never matched: no such request passed; there were: Metadata 1" in run.output
    assert "never matched: 1 Metadata passed, but not with this side, version and filters" in run.output
    assert "never struck: too few messages matched" in run.output


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--fault", "Metadatta: close", "--upstream", "127.0.0.1:1"], "no API 'Metadatta'; did you mean Metadata"),
        (["--upstream", "nowhere"], "--upstream: expected HOST:PORT, not 'nowhere'"),
        (["--faults", "/nowhere", "--upstream", "127.0.0.1:1"], "/nowhere: cannot read it"),
        ([], "--upstream: no cluster"),
    ],
)
def test_wrong_usage_is_one_line(options: list[str], said: str) -> None:
    command = [sys.executable, "-m", "highwater", "proxy", "--listen", "127.0.0.1:0", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == ExitCode.USAGE
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_list_has_actions_apis_and_errors() -> None:
    command = [sys.executable, "-m", "highwater", "proxy", "--list"]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    for word in ("black-hole [N ms]", "transaction", "EndTxn", "NOT_LEADER_OR_FOLLOWER"):
        assert word in shown


def test_the_fixture_opens_proxies(cluster: str, kafka_proxy: Callable[..., FaultProxy]) -> None:
    first = kafka_proxy(cluster, "FindCoordinator: answer NOT_COORDINATOR once")
    client = Client(kafka_proxy(first.bootstrap).bootstrap)
    assert client.ask(FindCoordinatorRequest(key="g")).error_code == 16
    assert len(first.strikes) == 1
    client.close()
