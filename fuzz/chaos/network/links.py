"""A TCP proxy in user space before every node: each link between two nodes, and each direction of it, can be spoiled.

What TCP does not do, it does not do either: nothing arrives twice or out of order on one connection, and what a cut
swallowed ends its connection once the cut is over.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final, TypeVar

from highwater.fuzz.chaos.nemesis import STORE, Inject, Undo
from highwater.fuzz.chaos.network.packets import address_of
from highwater.fuzz.chaos.network.rules import Passage, Rule
from highwater.fuzz.chaos.network.socket_owner import owner_of
from highwater.fuzz.schedule import Fault
from highwater.reference.drivers.simulation.chance import Chance

HOST: Final = "127.0.0.1"
CHUNK: Final = 1 << 16
WAITING: Final = 64
"""Chunks of a connection that are read ahead of the other side: with more, the sender is told to wait."""
TURNS: Final = 4
"""Of the loop, in which asyncio finishes what it has begun with a socket."""
T = TypeVar("T")
LASTING: Final = ("cut", "clog", "delay", "loss", "throttle")


class Links:
    """`front` puts a proxy before a node; then `begin` spoils links. One thread does it all, ended by `close`."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self._chance = folder, Chance(seed)
        self._drawn: dict[str, int] = {}
        self._rules: list[Rule] = []
        self._passages: set[Passage] = set()
        self._real_ports: dict[str, list[Callable[[], int]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._servers: list[asyncio.Server] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="links", daemon=True)
        self._thread.start()

    def front(self, node: str, port: int, real_port: Callable[[], int]) -> None:
        """Listen at `port` for what is meant for `node`, which itself listens at `real_port`."""

        self._real_ports.setdefault(node, []).append(real_port)

        async def serve() -> None:
            def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                passage = Passage("", node, [writer])
                self._passages.add(passage)
                self._spawn(self._pass_on(passage, real_port, reader))

            self._servers.append(await asyncio.start_server(connected, HOST, port))

        self._do(serve())

    def __enter__(self) -> "Links":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def faults(self) -> dict[str, Inject]:
        """By the names of `highwater.fuzz.schedule.KINDS`."""
        return {**dict.fromkeys(LASTING, self.begin), "disconnect": self.disconnect}

    def real_ports(self) -> dict[str, list[int]]:
        """Where each node listens behind its proxies."""
        return {node: [port() for port in ports] for node, ports in self._real_ports.items()}

    def begin(self, fault: Fault, node: str) -> Undo:
        rule = self._do(self._begin(fault, node))
        return lambda: self._do(self._end(rule))

    def disconnect(self, fault: Fault, node: str) -> Undo:
        """Open connections end at once."""

        async def cut() -> None:
            rule = Rule(fault, node, asyncio.Event())
            for passage in list(self._passages):
                if rule.holds(passage.source, passage.target) or rule.holds(passage.target, passage.source):
                    passage.close()

        self._do(cut())
        return lambda: None

    def expire(self, fault: Fault, node: str, *, for_ms: int) -> Undo:
        """The store hears nothing of the node for longer than a session; what the node said meanwhile comes late."""

        async def clog() -> None:
            rule = await self._begin(Fault(at_ms=0, kind="clog", nodes=(node,), options={"of": STORE}), node)
            self._loop.call_later(for_ms / 1000, lambda: self._spawn(self._end(rule)))

        self._do(clog())
        return lambda: None

    def close(self) -> None:
        async def end() -> None:
            await self._turns()  # what was just accepted gets its passage
            for server in self._servers:
                server.close()
            for passage in list(self._passages):
                passage.close()
            left = list(self._tasks)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            await self._loop.shutdown_default_executor()
            await self._turns()  # sockets that were ended get closed

        if self._thread.is_alive():
            self._do(end())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return future.result()

    # -- in the thread -------------------------------------------------------------------------------

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _turns(self) -> None:
        for _ in range(TURNS):
            await asyncio.sleep(0)

    async def _begin(self, fault: Fault, node: str) -> Rule:
        rule = Rule(fault, node, asyncio.Event())
        self._rules.append(rule)
        return rule

    async def _end(self, rule: Rule) -> None:
        self._rules.remove(rule)
        rule.over.set()
        for passage in rule.swallowed:
            passage.close()

    def _on(self, kind: str, source: str, target: str) -> list[Rule]:
        return [rule for rule in self._rules if rule.fault.kind == kind and rule.holds(source, target)]

    async def _pass_on(self, passage: Passage, real_port: Callable[[], int], reader: asyncio.StreamReader) -> None:
        (writer,), node = passage.writers, passage.target
        try:
            ends = writer.get_extra_info("peername"), writer.get_extra_info("sockname")
            passage.source = await asyncio.to_thread(owner_of, *ends, self.folder)
            from_ = (address_of(passage.source), 0)
            far_reader, far_writer = await asyncio.open_connection(HOST, real_port(), local_addr=from_)
            passage.writers.append(far_writer)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._carry(passage, passage.source, node, reader, far_writer))
                both.create_task(self._carry(passage, node, passage.source, far_reader, writer))
        except* OSError:
            pass  # one side is gone, so is the other
        finally:
            self._passages.discard(passage)
            passage.close()

    async def _carry(
        self, passage: Passage, source: str, target: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """One direction of one connection: what was read waits in order until it is due."""
        waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(WAITING)
        async with asyncio.TaskGroup() as both:
            both.create_task(self._read(passage, source, target, reader, waiting))
            both.create_task(self._write(source, target, writer, waiting))

    async def _read(
        self, passage: Passage, source: str, target: str, reader: asyncio.StreamReader,
        waiting: asyncio.Queue[tuple[float, bytes]],
    ) -> None:  # fmt: skip
        data, swallowed = b"?", False
        while data:
            data = await reader.read(CHUNK)
            for rule in self._on("loss", source, target):
                if self._draw(rule, source, target, 1000) < rule.fault.number("per_mille"):
                    raise ConnectionResetError
            for rule in self._on("cut", source, target):
                rule.swallowed.add(passage)
                swallowed = True  # and so is all that follows, for a stream has no gaps
                if not data:
                    await rule.over.wait()
            if not swallowed:
                late_ms = sum(self._delay_ms(rule, source, target) for rule in self._on("delay", source, target))
                await waiting.put((self._loop.time() + late_ms / 1000, data))
        if swallowed:
            raise ConnectionResetError

    async def _write(
        self, source: str, target: str, writer: asyncio.StreamWriter, waiting: asyncio.Queue[tuple[float, bytes]]
    ) -> None:
        data = b"?"
        while data:
            due, data = await waiting.get()
            await asyncio.sleep(due - self._loop.time())
            while clogged := self._on("clog", source, target):
                await clogged[0].over.wait()
            for rule in self._on("throttle", source, target):
                await asyncio.sleep(len(data) / rule.fault.number("bytes_per_second"))
            if data:
                writer.write(data)
                await writer.drain()
        writer.write_eof()

    def _delay_ms(self, rule: Rule, source: str, target: str) -> int:
        return rule.fault.number("ms") + self._draw(rule, source, target, rule.fault.number("spread_ms") + 1)

    def _draw(self, rule: Rule, source: str, target: str, below: int) -> int:
        """From a stream of its own for each fault and link."""
        purpose = f"{rule.fault.kind} {rule.fault.at_ms} {source}>{target}"
        self._drawn[purpose] = self._drawn.get(purpose, 0) + 1
        return self._chance.draw(purpose, self._drawn[purpose], below)
