"""Two metadata stores behind one interface: the embedded one and ZooKeeper through kazoo."""

import asyncio
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from kazoo.client import KazooClient

from highwater.ports import Ports
from highwater.reference.drivers.zookeeper import ZooKeeperLink
from highwater.reference.store.messages import Connect, Operation, StoreReply, StoreRequest, WatchEvent
from highwater.reference.tests.apache_kafka.programs import command
from highwater.reference.tests.apache_kafka.write_segments import process, wait_for
from highwater.reference.tests.driven import Driven

PATIENCE_S = 30.0
TIMEOUT_MS = 2_000


class Session(Protocol):
    """A session of a broker with its metadata store."""

    def ask(self, operation: Operation) -> StoreReply: ...
    def events(self, count: int) -> list[tuple[str, str]]:
        """Wait for `count` watch events and return them."""

    def expire(self) -> None:
        """Expire the session as if no heartbeat had arrived."""


class EmbeddedSession:
    def __init__(self, driven: Driven, peer: str) -> None:
        self._driven, self._peer = driven, peer
        self._session = driven.session(peer)

    def ask(self, operation: Operation) -> StoreReply:
        return self._driven.ask(self._session, operation, self._peer)

    def events(self, count: int) -> list[tuple[str, str]]:
        return [(str(event.kind), event.path) for event in self._driven.events(self._peer)[:count]]

    def expire(self) -> None:
        self._driven.do(self._driven.store.expire(self._driven.now, self._peer))


class ZooKeeperSession:
    """One connection in its own event loop."""

    def __init__(self, hosts: str) -> None:
        self._hosts = hosts
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._replies: dict[int, asyncio.Future[StoreReply]] = {}
        self._events: list[WatchEvent] = []
        self._xid = 0
        self.closed_links = 0
        self._link = self._run(self._make())
        self.session_id = self.ask(Connect(0, TIMEOUT_MS)).session_id

    async def _make(self) -> ZooKeeperLink:
        return ZooKeeperLink(self._hosts, self._deliver, self._closed)

    def _closed(self) -> None:
        self.closed_links += 1

    def _deliver(self, message: StoreReply | WatchEvent) -> None:
        if isinstance(message, WatchEvent):
            self._events.append(message)
        else:
            self._replies.pop(message.xid).set_result(message)

    def _run(self, step: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(step, self._loop).result(PATIENCE_S)

    def ask(self, operation: Operation) -> StoreReply:
        async def send() -> StoreReply:
            self._xid += 1
            pending: asyncio.Future[StoreReply] = self._loop.create_future()
            self._replies[self._xid] = pending
            self._link.send(StoreRequest(self._xid, 0, operation))
            return await pending

        reply: StoreReply = self._run(send())
        return reply

    def events(self, count: int) -> list[tuple[str, str]]:
        until(lambda: len(self._events) >= count)
        return [(str(event.kind), event.path) for event in self._events[:count]]

    def expire(self) -> None:
        """Another client takes the session over and closes it."""
        thief = KazooClient(self._hosts, client_id=self._link._client.client_id)
        thief.start()
        thief.stop()
        thief.close()
        until(lambda: self.closed_links > 0)

    def close(self) -> None:
        async def close() -> None:
            self._link.close()

        self._run(close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, "not within 30 s"
        time.sleep(0.02)


@contextmanager
def zookeeper(folder: Path) -> Iterator[str]:
    """Start a ZooKeeper server and yield its `host:port`."""
    port = Ports(1)[0]
    config = folder / "zoo.cfg"
    config.write_text(
        f"dataDir={folder}/zk\nclientPort={port}\nclientPortAddress=127.0.0.1\ntickTime=500\nminSessionTimeout=1000\n"
        "admin.enableServer=false\n"
    )
    main = "org.apache.zookeeper.server.ZooKeeperServerMain"
    with process(folder / "zk.log", *command("zookeeper-3.9.3", main, str(config))):
        wait_for(port)
        yield f"127.0.0.1:{port}"


def missing() -> str:
    """Return why ZooKeeper cannot run here, or an empty string if it can."""
    if shutil.which("mvn") is None:
        return "mvn is not on PATH (apt-get install maven)"
    try:
        subprocess.run([*command("zookeeper-3.9.3", "-version")[:1], "-version"], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        return f"no Java: {error}"
    return ""
