"""Targets are found, controlled and closed; an invalid one is reported within seconds, with advice."""

import dataclasses
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from highwater.conformance.client.broker import FEATURES_SINCE
from highwater.conformance.runner import Options, run_suite
from highwater.conformance.running.verdicts import CaseResult, exit_code
from highwater.conformance.targets import check_target, launch_target, open_target
from highwater.conformance.targets.base import PAUSE_NODE, STOP_NODE
from highwater.conformance.targets.commands import CommandTarget
from highwater.conformance.targets.reference import ReferenceCluster
from highwater.errors import ExitCode, UsageError
from highwater.ports import Ports
from highwater.processes import Processes
from highwater.reference.tests.certificates import self_signed
from highwater.reference.wire.framing import decode_response, encode_response
from highwater.reference.wire.messages.metadata import ApiVersionsRequest, MetadataRequest
from highwater.reference.wire.registry import api_of

LIFETIMES_MS = {"SCRAM-SHA-512": 90_000}
USER: dict[str, object] = {
    "sasl_inter_broker_user": "alice", "sasl_users": {"alice": "secret"}, "connections_max_reauth_ms": LIFETIMES_MS,
    "sasl_enabled_mechanisms": ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"],
}  # fmt: skip
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
METADATA, API_VERSIONS = api_of(MetadataRequest).key, api_of(ApiVersionsRequest).key
FEW = Options(clauses=["FRM-1", "MD-5", "GRP-10", "PRD-4"], jobs=1)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return self_signed(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def secured(certificate: Path) -> Iterator[ReferenceCluster]:
    tls = {"ssl_certfile": str(certificate), "ssl_keyfile": str(certificate), "ssl_cafile": str(certificate)}
    with ReferenceCluster(1, settings={"security_protocol": "SASL_SSL", **tls, **USER}) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def with_login() -> Iterator[ReferenceCluster]:
    with ReferenceCluster(1, settings={"security_protocol": "SASL_PLAINTEXT", **USER}) as cluster:
        yield cluster


def properties(folder: Path, protocol: str, password: str = "secret", store: str = "") -> Path:
    path = folder / "client.properties"
    jaas = f'sasl.jaas.config={PLAIN} required username="alice" password="{password}";'
    lines = [f"security.protocol={protocol}", "sasl.mechanism=PLAIN", jaas, f"ssl.truststore.location={store}"]
    path.write_text("\n".join(lines))
    return path


# -- TLS and SASL -----------------------------------------------------------------------------------


def test_cases_run_through_tls_and_a_login(secured: ReferenceCluster, certificate: Path, tmp_path: Path) -> None:
    path = properties(tmp_path, "SASL_SSL", store=str(certificate))
    options = Options(clauses=FEW.clauses, jobs=2, command_config=path)
    verdicts = run_suite([secured.bootstrap], options)["targets"][0]["verdicts"]
    assert verdicts["pass"] >= 16
    assert sum(verdicts.values()) - verdicts["pass"] - verdicts["unsupported"] == 0


@pytest.mark.parametrize("how", ["of the client properties", "of the cluster file"])
def test_cases_about_logins_run_on_the_listener(
    with_login: ReferenceCluster, secured: ReferenceCluster, certificate: Path, tmp_path: Path, how: str
) -> None:
    path = properties(tmp_path, "SASL_SSL", store=str(certificate))
    name, config = secured.bootstrap, path
    if how == "of the cluster file":
        name, config = str(tmp_path / "mine.toml"), properties(tmp_path, "SASL_PLAINTEXT")
        login = f'[login]\nbootstrap = "{secured.bootstrap}"\ncommand_config = "tls.properties"\n'
        (tmp_path / "tls.properties").write_text(properties(tmp_path, "SASL_SSL", store=str(certificate)).read_text())
        properties(tmp_path, "SASL_PLAINTEXT")
        Path(name).write_text(f'bootstrap = "{with_login.bootstrap}"\n{login}')
    with open_target(name, config) as target:
        assert target.sasl is not None
        assert target.sasl.mechanisms == ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
        assert target.sasl.sessions_ms == LIFETIMES_MS
    verdicts = run_suite([name], Options(clauses=["SEC-9", "SEC-11"], jobs=1, command_config=config))["targets"][0]
    assert verdicts["verdicts"]["pass"] >= 6
    assert sum(verdicts["verdicts"].values()) == verdicts["verdicts"]["pass"]


def refused(name: str, command_config: Path | None = None) -> str:
    """Return the error message, which must come within five seconds."""
    began = time.monotonic()
    with pytest.raises(UsageError) as caught:
        launch_target(name, command_config)
    assert time.monotonic() - began < 5
    return str(caught.value)


def test_a_wrong_password_is_reported(with_login: ReferenceCluster, tmp_path: Path) -> None:
    reported = refused(with_login.bootstrap, properties(tmp_path, "SASL_PLAINTEXT", "wrong"))
    assert "rejects the login" in reported
    assert "--command-config" in reported


def test_a_missing_login_is_reported_with_advice(with_login: ReferenceCluster) -> None:
    reported = refused(with_login.bootstrap)
    assert "ApiVersions, but not Metadata" in reported
    assert "sasl.mechanism" in reported


def test_a_tls_port_used_without_tls_is_reported(secured: ReferenceCluster) -> None:
    assert "the port uses TLS" in refused(secured.bootstrap)


def test_a_plaintext_port_used_with_tls_is_reported(with_login: ReferenceCluster, tmp_path: Path) -> None:
    assert "rejects the login" in refused(with_login.bootstrap, properties(tmp_path, "SASL_SSL"))


def test_an_unreachable_broker_is_reported() -> None:
    ports = Ports(1)
    assert "check that the broker is up" in refused(f"127.0.0.1:{ports[0]}")
    ports.release()


@contextmanager
def server(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """Run a server that is not a broker and yield its address."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            try:
                while True:
                    client = listening.accept()[0]
                    threading.Thread(target=answer, args=(client,), daemon=True).start()
            except OSError:
                return

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)


def http(client: socket.socket) -> None:
    with client:
        client.recv(100)
        client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def silence(client: socket.socket) -> None:
    with client:
        client.settimeout(10)
        while client.recv(100):
            pass


@pytest.mark.parametrize(("answer", "sign"), [(http, "HTTP/1.1"), (silence, "actual silence")])
def test_a_port_of_another_server_is_reported(answer: Callable[[socket.socket], None], sign: str) -> None:
    with server(answer) as address:
        reported = refused(address)
    assert sign in reported
    assert "another server's" in reported


@pytest.fixture(scope="module")
def bare() -> Iterator[ReferenceCluster]:
    with ReferenceCluster() as cluster:
        yield cluster


def relay(upstream: str, change: Callable[[int, int, bytes], bytes]) -> Callable[[socket.socket], None]:
    """Return a server that forwards requests, and the replies as `change` returns them; an empty one closes.

    The arguments of `change` are the API key, the version and the reply without its size.
    """
    host, _, port = upstream.partition(":")

    def serve(client: socket.socket) -> None:
        with client, socket.create_connection((host, int(port))) as broker, suppress(OSError):
            from_client, from_broker = client.makefile("rb"), broker.makefile("rb")
            while len(size := from_client.read(4)) == 4:
                request = from_client.read(int.from_bytes(size, "big"))
                broker.sendall(size + request)
                key, version = struct.unpack_from(">hh", request)
                reply = change(key, version, from_broker.read(int.from_bytes(from_broker.read(4))))
                if not reply:
                    return
                client.sendall(len(reply).to_bytes(4, "big") + reply)

    return serve


def with_another_id(reply: bytes) -> bytes:
    return b"\x55" + reply[1:]


def cut_short(reply: bytes) -> bytes:
    return reply[:9]


@pytest.mark.parametrize("wrong", [with_another_id, cut_short])
@pytest.mark.parametrize("keys", [{METADATA}, {METADATA, API_VERSIONS}], ids=["Metadata", "both"])
def test_a_broker_whose_first_reply_is_wrong_is_judged(
    bare: ReferenceCluster, keys: set[int], wrong: Callable[[bytes], bytes]
) -> None:
    """The run ended with exit code 2, and no case was run."""
    with server(relay(bare.bootstrap, lambda key, _, reply: wrong(reply) if key in keys else reply)) as address:
        (judged,) = run_suite([address], Options(clauses=["FRM-1", "API-1", "MD-1"], jobs=2))["targets"]
    verdicts = {case["clause"]: set[str]() for case in judged["cases"]}
    for case in judged["cases"]:
        verdicts[case["clause"]].add(case["verdict"])
    if API_VERSIONS in keys:
        assert verdicts["FRM-1"] == {"fail"}
        assert "fail" in verdicts["API-1"]
    else:
        assert verdicts["FRM-1"] == verdicts["API-1"] == {"pass"}
        assert "fail" in verdicts["MD-1"]
    assert judged["verdicts"]["error"] == judged["verdicts"]["not run"] == 0


def test_a_broker_without_features_does_not_break_the_clause_about_their_levels(bare: ReferenceCluster) -> None:
    """API-8 failed: `there are features: expected True, actual False`."""

    def change(key: int, version: int, reply: bytes) -> bytes:
        if key == METADATA:
            return cut_short(reply)  # the brokers' own addresses would bypass the relay
        if key != API_VERSIONS or version < FEATURES_SINCE:
            return reply
        correlation_id, message = decode_response(ApiVersionsRequest, version, reply)
        changed = dataclasses.replace(message, supported_features=(), finalized_features=())
        return encode_response(changed, version, correlation_id)[4:]

    with server(relay(bare.bootstrap, change)) as address:
        (judged,) = run_suite([address], Options(clauses=["API-8"], jobs=1))["targets"]
    assert [(case["case"], case["verdict"]) for case in judged["cases"]] == [("API-8", "unsupported")]


def test_a_broker_that_dies_at_first_contact_leaves_the_run_undecided(bare: ReferenceCluster) -> None:
    dead = threading.Event()

    def change(key: int, _: int, reply: bytes) -> bytes:
        if key == METADATA:
            dead.set()
        return b"" if dead.is_set() else reply

    with server(relay(bare.bootstrap, change)) as address:
        report = run_suite([address], FEW)
    cases = report["targets"][0]["cases"]
    assert {case["verdict"] for case in cases[:-1]} == {"not run"}
    assert f"{address}: the broker died when it was asked for Metadata" in cases[-1]["message"]
    assert exit_code(report) is ExitCode.UNDECIDED


def test_the_command_exits_with_2() -> None:
    ports = Ports(1)
    command = [sys.executable, "-m", "highwater", "conform", f"127.0.0.1:{ports[0]}"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    ports.release()
    assert (ended.returncode, ended.stdout) == (ExitCode.USAGE, "")
    assert len(ended.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    "name", ["apache", "reference:", "kfake:2.8", "localhost", "reference:0", "reference:10", "h:0", "a b:1"]
)
def test_an_unknown_target_lists_the_known_ones(name: str) -> None:
    with pytest.raises(UsageError, match="known: reference"):
        check_target(name)


# -- cluster files ---------------------------------------------------------------------------------


def cluster_file(folder: Path, bootstrap: str, pids: dict[int, int], **extra: Any) -> Path:
    """The cluster file's commands pause a broker process of the test; its stop command does nothing."""
    lines = [f'bootstrap = "{bootstrap}"', *(f"{key} = {value}" for key, value in extra.items())]
    for node, pid in pids.items():
        lines += [f"[nodes.{node}]", f'start = "echo start {node} >> {folder}/said"', f'pause = "kill -STOP {pid}"']
        lines += [f'stop = "echo stop {node} >> {folder}/said"', f'resume = "kill -CONT {pid}"', 'kill = "exit 7"']
    path = folder / "mine.toml"
    path.write_text("\n".join(lines))
    return path


def is_stopped_soon(pid: int) -> bool:
    """SIGSTOP takes effect when the kernel next schedules the process, not when it is sent."""
    for _ in range(100):
        if "T (stopped)" in Path(f"/proc/{pid}/status").read_text():
            return True
        time.sleep(0.05)
    return False


def test_commands_control_the_nodes_of_a_users_cluster(with_login: ReferenceCluster, tmp_path: Path) -> None:
    properties(tmp_path, "SASL_PLAINTEXT")
    extra = {"command_config": '"client.properties"', "version": '"3.9"', "settings": "{ group_max_size = 4 }"}
    path = cluster_file(tmp_path, with_login.bootstrap, {1: with_login.pid(1)}, **extra)
    with open_target(str(path)) as target:
        assert isinstance(target, CommandTarget)
        assert (target.name, target.era, target.settings) == ("mine", "3.9", {"group_max_size": 4})
        assert target.capabilities == {STOP_NODE, PAUSE_NODE}
        target.stop_node(1)
        target.start_node(1)
        assert (tmp_path / "said").read_text() == "stop 1\nstart 1\n"
        target.pause_node(1)
        stopped = is_stopped_soon(with_login.pid(1))
        target.resume_node(1)
        assert stopped
        with pytest.raises(UsageError, match="the kill command of node 1 ended with exit code 7"):
            target.kill_node(1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bootstrap = ", "not a cluster file"),
        ("", "bootstrap"),
        ('bootstrap = "x:1"\ncolour = 1', "colour"),
        ('bootstrap = "x:1"\nversion = "new"', "expected a version such as 2.8, not 'new'"),
        ('bootstrap = "x:1"\n[nodes.1]\nreboot = "x"', "reboot"),
        ('bootstrap = "x:1"\n[nodes.a]\nstart = "x"', "nodes"),
    ],
)
def test_a_bad_cluster_file_is_refused_before_anything_starts(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        run_suite([str(path)], FEW)


def test_a_cluster_file_with_an_unknown_broker_is_refused(with_login: ReferenceCluster, tmp_path: Path) -> None:
    properties(tmp_path, "SASL_PLAINTEXT")
    path = cluster_file(tmp_path, with_login.bootstrap, {1: 1, 9: 1}, command_config='"client.properties"')
    with pytest.raises(UsageError, match=r"the cluster has no brokers \[9\]"):
        launch_target(str(path))


# -- closing ----------------------------------------------------------------------------------------


def test_processes_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from highwater.processes import Processes\n"
        f"nodes = Processes(Path({str(tmp_path)!r}), {{1: ['sh', '-c', 'sleep 600 & sleep 600']}})\n"
        "nodes.start(1); print(nodes.pid(1), flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        os.kill(owner.pid, signal.SIGKILL)
    deadline = time.monotonic() + 30
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    with pytest.raises(ProcessLookupError):
        os.killpg(pid, 0)


def test_a_node_that_exits_is_named_with_its_last_output(tmp_path: Path) -> None:
    nodes = Processes(tmp_path, {1: ["sh", "-c", "echo no room on the disk >&2; exit 1"]})
    nodes.start(1)
    while nodes.is_running(1):
        time.sleep(0.01)
    with pytest.raises(UsageError, match="node 1 ended: no room on the disk"):
        nodes.check()
    nodes.close()


def test_a_target_that_dies_during_the_run_is_named() -> None:
    """The target cannot be restarted, so the run ends with an error."""
    observed = []
    with ReferenceCluster(1) as cluster:

        def kill_it_after_three(target: str, result: CaseResult, selected: int) -> None:
            observed.append(result)
            if len(observed) == 3:
                cluster.kill_node(1)

        report = run_suite([cluster.bootstrap], Options(areas=["MD"], jobs=2), kill_it_after_three)
    ran = [case for case in report["targets"][0]["cases"] if case["verdict"] != "not run"]
    broken = [case for case in ran if "died" in case["message"]]
    assert {case["verdict"] for case in broken if case["case"] != "suite"} == {"fail"}
    assert len(ran) < 20, "the run ends soon after the crash"
    assert exit_code(report) is ExitCode.VIOLATED


def test_a_guard_that_is_off_breaks_its_clause() -> None:
    (target,) = run_suite(["reference"], Options(clauses=["GRP-2"], jobs=1, guards_off=["RequireMemberId"]))["targets"]
    assert target["verdicts"]["fail"] > 0
    with pytest.raises(UsageError, match="no guard 'Nope'"):
        launch_target("reference", guards_off=["Nope"])
    with pytest.raises(UsageError, match="only the reference"):
        launch_target("kfake", guards_off=["RequireMemberId"])


def test_an_unavailable_target_does_not_lose_the_results_of_others(tmp_path: Path) -> None:
    with ReferenceCluster(1) as cluster:
        ports = Ports(1)
        report = run_suite([f"127.0.0.1:{ports[0]}", cluster.bootstrap], Options(clauses=["FRM-9"], jobs=1))
        ports.release()
    first, second = report["targets"]
    assert [case["verdict"] for case in first["cases"]] == ["error"]
    assert "unsupported" in first["cases"][0]["message"]
    assert second["verdicts"]["pass"] > 0
    assert exit_code(report) is ExitCode.UNDECIDED
