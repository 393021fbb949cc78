"""The proxy between nodes on real sockets: an echo server behind it, a client and a node process before it."""

import select
import socket
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from highwater.fuzz.chaos.network.links import HOST, Links
from highwater.fuzz.chaos.network.socket_owner import CLIENTS, find_owner
from highwater.fuzz.schedule import Fault, Option
from highwater.ports import Ports

LIMIT_S = 20.0
NODE = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as link:
    for line in sys.stdin:
        link.sendall(line.encode())
        print(link.recv(100).decode().strip() or "ended", file=sys.stderr, flush=True)
"""


class Echo(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        for line in self.rfile:
            self.wfile.write(line)


class Proxied:
    """An echo server as node 2 behind a proxy that listens at `port`."""

    def __init__(self, folder: Path) -> None:
        self.links, self.ports = Links(folder, seed=1), Ports(1)
        self.port = self.ports[0]
        self.server = socketserver.ThreadingTCPServer((HOST, 0), Echo)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.links.add_proxy("2", self.port, lambda: int(self.server.server_address[1]))

    def connect(self) -> socket.socket:
        return socket.create_connection((HOST, self.port), timeout=LIMIT_S)

    def close(self) -> None:
        self.links.close()
        self.server.shutdown()
        self.server.server_close()
        self.ports.release()


@pytest.fixture
def proxied(tmp_path: Path) -> Iterator[Proxied]:
    found = Proxied(tmp_path)
    yield found
    found.close()


def fault(kind: str, **options: Option) -> Fault:
    return Fault(at_ms=0, kind=kind, nodes=("2",), options=options)


def echo(link: socket.socket, text: bytes) -> bytes:
    link.sendall(text)
    return link.recv(100)


def is_silent(link: socket.socket) -> bool:
    return not select.select([link], [], [], 0.2)[0]


def has_ended(link: socket.socket) -> bool:
    try:
        return link.recv(100) == b""
    except ConnectionError:
        return True


def test_bytes_and_the_end_of_a_stream_are_forwarded(proxied: Proxied) -> None:
    with proxied.connect() as link:
        assert echo(link, b"one\n") == b"one\n"
        link.shutdown(socket.SHUT_WR)
        assert has_ended(link)


def test_a_clog_delays_data_and_loses_none(proxied: Proxied) -> None:
    with proxied.connect() as link:
        assert echo(link, b"before\n") == b"before\n"
        undo = proxied.links.begin(fault("clog", of="clients"), "2")
        link.sendall(b"meanwhile\n")
        assert is_silent(link)
        undo()
        assert link.recv(100) == b"meanwhile\n"


def test_a_cut_drops_data_and_closes_the_connection_when_it_ends(proxied: Proxied) -> None:
    with proxied.connect() as link:
        assert echo(link, b"before\n") == b"before\n"
        undo = proxied.links.begin(fault("cut"), "2")
        link.sendall(b"meanwhile\n")
        assert is_silent(link)
        undo()
        assert has_ended(link)
    with proxied.connect() as link:
        assert echo(link, b"after\n") == b"after\n"


def test_a_cut_in_one_direction_leaves_the_other_direction_open(tmp_path: Path) -> None:
    received: list[bytes] = []
    done = threading.Event()

    class Listener(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            for line in self.rfile:
                received.append(line)
                self.wfile.write(line)
                done.set()

    links, ports = Links(tmp_path, seed=1), Ports(1)
    with socketserver.ThreadingTCPServer((HOST, 0), Listener) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        links.add_proxy("2", ports[0], lambda: int(server.server_address[1]))
        links.begin(fault("cut", direction="out"), "2")
        with socket.create_connection((HOST, ports[0]), timeout=LIMIT_S) as link:
            link.sendall(b"received\n")
            assert done.wait(LIMIT_S)
            assert received == [b"received\n"]
            assert is_silent(link)
        links.close()
        server.shutdown()
    ports.release()


@pytest.mark.parametrize("kind", ["delay", "throttle"])
def test_delayed_and_throttled_data_stays_in_order(proxied: Proxied, kind: str) -> None:
    options: dict[str, Option] = {"ms": 1, "spread_ms": 30} if kind == "delay" else {"bytes_per_second": 2_000}
    proxied.links.begin(fault(kind, **options), "2")
    sent = b"".join(b"%d\n" % n for n in range(50))
    with proxied.connect() as link:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for line in sent.splitlines(keepends=True):
            link.sendall(line)
        received = b""
        while len(received) < len(sent):
            received += link.recv(1000)
    assert received == sent


def test_loss_and_disconnect_close_connections(proxied: Proxied) -> None:
    undo = proxied.links.begin(fault("loss", per_mille=1000), "2")
    with proxied.connect() as link:
        link.sendall(b"lost\n")
        assert has_ended(link)
    undo()
    with proxied.connect() as link:
        assert echo(link, b"one\n") == b"one\n"
        proxied.links.disconnect(fault("disconnect"), "2")
        assert has_ended(link)


def test_the_proxy_identifies_a_node_by_its_socket(proxied: Proxied, tmp_path: Path) -> None:
    command = [sys.executable, "-c", NODE, str(proxied.port)]
    with (tmp_path / "1.log").open("w") as log:
        node = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.PIPE, text=True, bufsize=1
        )  # fmt: skip
    assert node.stdin is not None
    assert node.stderr is not None
    with node, proxied.connect() as link:
        node.stdin.write("hello\n")
        assert node.stderr.readline() == "hello\n"
        undo = proxied.links.begin(fault("cut", of="1"), "2")
        node.stdin.write("lost\n")
        assert echo(link, b"one\n") == b"one\n", "clients are not cut off"
        assert not select.select([node.stderr], [], [], 0.2)[0]
        undo()
        assert node.stderr.readline() == "ended\n"
        node.stdin.close()


def test_the_owner_of_an_unknown_socket_is_the_clients(tmp_path: Path) -> None:
    assert find_owner((HOST, 1), (HOST, 2), tmp_path) == CLIENTS


def test_a_closed_proxy_leaves_no_thread_and_no_port(tmp_path: Path) -> None:
    before = threading.active_count()
    proxied = Proxied(tmp_path)
    link = proxied.connect()
    proxied.close()
    assert has_ended(link)
    link.close()
    with pytest.raises(ConnectionRefusedError):
        proxied.connect()
    assert not [thread for thread in threading.enumerate() if thread.name == "links"]
    assert threading.active_count() <= before + 1
