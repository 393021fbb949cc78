"""A TCP proxy before every node, which injects faults into each direction of each link between two nodes.

As with TCP, nothing arrives twice or out of order on a connection. A connection that lost data to a cut is closed when
the cut ends.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final, TypeVar

from highwater.fuzz.chaos.nemesis import STORE, Inject, Undo
from highwater.fuzz.chaos.network.packets import source_address
from highwater.fuzz.chaos.network.rules import ProxiedConnection, Rule
from highwater.fuzz.chaos.network.socket_owner import find_owner
from highwater.fuzz.schedule import Fault
from highwater.reference.drivers.simulation.chance import Chance

HOST: Final = "127.0.0.1"
CHUNK: Final = 1 << 16
QUEUE_CHUNKS: Final = 64
"""Chunks of a connection that are read but not yet written; when it is full, TCP flow control stops the sender."""
LOOP_ITERATIONS: Final = 4
"""Iterations of the event loop after which asyncio has finished accepting or closing a socket."""
T = TypeVar("T")
LASTING: Final = ("cut", "clog", "delay", "loss", "throttle")


class Links:
    """The proxies of a cluster. All of them run in one thread, which `close` ends."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self._chance = folder, Chance(seed)
        self._drawn: dict[str, int] = {}
        self._rules: list[Rule] = []
        self._connections: set[ProxiedConnection] = set()
        self._real_ports: dict[str, list[Callable[[], int]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._servers: list[asyncio.Server] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="links", daemon=True)
        self._thread.start()

    def add_proxy(self, node: str, port: int, real_port: Callable[[], int]) -> None:
        """Listen at `port` and forward connections to `node`, which listens at `real_port`."""
        self._real_ports.setdefault(node, []).append(real_port)

        async def serve() -> None:
            def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                connection = ProxiedConnection("", node, [writer])
                self._connections.add(connection)
                self._spawn(self._forward(connection, real_port, reader))

            self._servers.append(await asyncio.start_server(connected, HOST, port))

        self._run(serve())

    def __enter__(self) -> "Links":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def faults(self) -> dict[str, Inject]:
        """Return the faults, by their names in `highwater.fuzz.schedule.KINDS`."""
        return {**dict.fromkeys(LASTING, self.begin), "disconnect": self.disconnect}

    def real_ports(self) -> dict[str, list[int]]:
        """Return the ports at which each node listens behind its proxies."""
        return {node: [port() for port in ports] for node, ports in self._real_ports.items()}

    def begin(self, fault: Fault, node: str) -> Undo:
        """Begin a fault that lasts, such as a cut or a delay."""
        rule = self._run(self._begin(fault, node))
        return lambda: self._run(self._end(rule))

    def disconnect(self, fault: Fault, node: str) -> Undo:
        """Close the open connections of the links once."""

        async def cut() -> None:
            rule = Rule(fault, node, asyncio.Event())
            for connection in list(self._connections):
                ends = connection.source, connection.target
                if rule.applies(*ends) or rule.applies(*reversed(ends)):
                    connection.close()

        self._run(cut())
        return lambda: None

    def expire(self, fault: Fault, node: str, *, for_ms: int) -> Undo:
        """Delay all messages between the node and the store for longer than a session, so that the session expires."""

        async def clog() -> None:
            rule = await self._begin(Fault(at_ms=0, kind="clog", nodes=(node,), options={"of": STORE}), node)
            self._loop.call_later(for_ms / 1000, lambda: self._spawn(self._end(rule)))

        self._run(clog())
        return lambda: None

    def close(self) -> None:
        async def end() -> None:
            await self._finish_sockets()  # so that connections just accepted are in the set
            for server in self._servers:
                server.close()
            for connection in list(self._connections):
                connection.close()
            remaining = list(self._tasks)
            for task in remaining:
                task.cancel()
            await asyncio.gather(*remaining, return_exceptions=True)
            await self._loop.shutdown_default_executor()
            await self._finish_sockets()  # so that aborted sockets are closed

        if self._thread.is_alive():
            self._run(end())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return future.result()

    # The methods below run in the thread of the event loop.

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _finish_sockets(self) -> None:
        for _ in range(LOOP_ITERATIONS):
            await asyncio.sleep(0)

    async def _begin(self, fault: Fault, node: str) -> Rule:
        rule = Rule(fault, node, asyncio.Event())
        self._rules.append(rule)
        return rule

    async def _end(self, rule: Rule) -> None:
        self._rules.remove(rule)
        rule.over.set()
        for connection in rule.truncated:
            connection.close()

    def _active(self, kind: str, source: str, target: str) -> list[Rule]:
        return [rule for rule in self._rules if rule.fault.kind == kind and rule.applies(source, target)]

    async def _forward(
        self, connection: ProxiedConnection, real_port: Callable[[], int], reader: asyncio.StreamReader
    ) -> None:
        """Forward a connection in both directions until either side closes it."""
        (writer,), node = connection.writers, connection.target
        try:
            ends = writer.get_extra_info("peername"), writer.get_extra_info("sockname")
            connection.source = await asyncio.to_thread(find_owner, *ends, self.folder)
            from_ = (source_address(connection.source), 0)
            far_reader, far_writer = await asyncio.open_connection(HOST, real_port(), local_addr=from_)
            connection.writers.append(far_writer)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._forward_direction(connection, connection.source, node, reader, far_writer))
                both.create_task(self._forward_direction(connection, node, connection.source, far_reader, writer))
        except* OSError:
            pass  # one side closed the connection; `finally` closes the other
        finally:
            self._connections.discard(connection)
            connection.close()

    async def _forward_direction(
        self, connection: ProxiedConnection, source: str, target: str, reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:  # fmt: skip
        """Forward one direction: chunks wait in a queue, in order, until the time at which they are due."""
        waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(QUEUE_CHUNKS)
        async with asyncio.TaskGroup() as both:
            both.create_task(self._read(connection, source, target, reader, waiting))
            both.create_task(self._write(source, target, writer, waiting))

    async def _read(
        self, connection: ProxiedConnection, source: str, target: str, reader: asyncio.StreamReader,
        waiting: asyncio.Queue[tuple[float, bytes]],
    ) -> None:  # fmt: skip
        data, is_truncated = b"?", False
        while data:
            data = await reader.read(CHUNK)
            for rule in self._active("loss", source, target):
                if self._draw(rule, source, target, 1000) < rule.fault.number("per_mille"):
                    raise ConnectionResetError
            for rule in self._active("cut", source, target):
                rule.truncated.add(connection)
                is_truncated = True  # all later data is dropped too, because a stream has no gaps
                if not data:
                    await rule.over.wait()
            if not is_truncated:
                late_ms = sum(self._delay_ms(rule, source, target) for rule in self._active("delay", source, target))
                await waiting.put((self._loop.time() + late_ms / 1000, data))
        if is_truncated:
            raise ConnectionResetError

    async def _write(
        self, source: str, target: str, writer: asyncio.StreamWriter, waiting: asyncio.Queue[tuple[float, bytes]]
    ) -> None:
        data = b"?"
        while data:
            due, data = await waiting.get()
            await asyncio.sleep(due - self._loop.time())
            while clogged := self._active("clog", source, target):
                await clogged[0].over.wait()
            for rule in self._active("throttle", source, target):
                await asyncio.sleep(len(data) / rule.fault.number("bytes_per_second"))
            if data:
                writer.write(data)
                await writer.drain()
        writer.write_eof()

    def _delay_ms(self, rule: Rule, source: str, target: str) -> int:
        return rule.fault.number("ms") + self._draw(rule, source, target, rule.fault.number("spread_ms") + 1)

    def _draw(self, rule: Rule, source: str, target: str, below: int) -> int:
        """Return a drawn number below `below`; each fault on each link has a separate stream."""
        purpose = f"{rule.fault.kind} {rule.fault.at_ms} {source}>{target}"
        self._drawn[purpose] = self._drawn.get(purpose, 0) + 1
        return self._chance.draw(purpose, self._drawn[purpose], below)
