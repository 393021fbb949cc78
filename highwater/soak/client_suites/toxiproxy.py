"""Toxiproxy before the brokers, and the `docker` command with which Sarama's tests stop and start a broker."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Listener
from pathlib import Path
from typing import Final

from highwater.errors import UsageError
from highwater.ports import Ports
from highwater.soak.client_suites.go_tests import go

MODULE: Final = "github.com/Shopify/toxiproxy/v2"
VERSION: Final = "v2.5.0"
WAIT_S: Final = 20.0
DOCKER: Final = """\
#!{python}
import sys
from multiprocessing.connection import Client

with Client({path!r}) as connection:
    connection.send(sys.argv[1:])
    sys.exit(connection.recv())
"""


@contextmanager
def proxies(upstream: Mapping[str, tuple[int, int]], folder: Path) -> Iterator[str]:
    """Run Toxiproxy with a proxy for each name: (the port it listens on, the port it connects to); yield its URL."""
    go("install", f"{MODULE}/cmd/server@{VERSION}", folder=folder, environment={"GOBIN": str(folder)})
    (port,) = ports = Ports(1)
    with (folder / "toxiproxy.log").open("w") as log:
        server = subprocess.Popen(
            [folder / "server", "-host", "127.0.0.1", "-port", str(port)], stdout=log, stderr=subprocess.STDOUT
        )
    try:
        _await_listener(port)
        for name, (listen, connect) in upstream.items():
            proxy = {"name": name, "listen": f"127.0.0.1:{listen}", "upstream": f"127.0.0.1:{connect}", "enabled": True}
            _post(f"http://127.0.0.1:{port}/proxies", proxy)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(WAIT_S)
        ports.release()


def _await_listener(port: int) -> None:
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise UsageError("Toxiproxy did not start", where=f"127.0.0.1:{port}")


def _post(url: str, body: Mapping[str, object]) -> None:
    headers = {"Content-Type": "application/json", "User-Agent": "highwater"}  # Toxiproxy refuses browsers
    urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)).close()


@contextmanager
def docker(stop: Callable[[int], None], start: Callable[[int], None], folder: Path) -> Iterator[Mapping[str, str]]:
    """Yield an environment in which `docker compose stop kafka-1` calls `stop(1)`, and `start` likewise."""
    verbs, path = {"stop": stop, "start": start}, str(folder / "docker.socket")
    program = folder / "docker"
    program.write_text(DOCKER.format(python=sys.executable, path=path))
    program.chmod(0o755)
    listener = Listener(path)

    def serve() -> None:
        while True:
            try:
                connection = listener.accept()
            except OSError:  # closed below
                return
            with connection:
                _, verb, service = connection.recv()
                verbs[verb](int(service.removeprefix("kafka-")))
                connection.send(0)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    finally:
        listener.close()
