"""Share one target among pytest workers: the process that launched it serves it over a Unix socket."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from threading import Condition
from typing import Any, Final

from highwater.conformance.failures import Unsupported
from highwater.conformance.targets.base import SaslListener, Target
from highwater.errors import UsageError
from highwater.reference.client.transport import TCP, Transport


class SharedExclusiveLock:
    """A lock with many shared holders or one exclusive holder; a waiting exclusive request blocks new shared ones.

    Cases share the target. A case that stops nodes, or that is run again after a failure, holds it exclusively.
    """

    def __init__(self) -> None:
        self._changed = Condition()
        self._shared_holders = self._exclusive_waiters = 0
        self._held_exclusively = False

    @contextmanager
    def acquire(self, *, exclusive: bool) -> Iterator[None]:
        self._acquire_exclusive() if exclusive else self._acquire_shared()
        try:
            yield
        finally:
            with self._changed:
                if exclusive:
                    self._held_exclusively = False
                else:
                    self._shared_holders -= 1
                self._changed.notify_all()

    def _acquire_shared(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._held_exclusively and not self._exclusive_waiters)
            self._shared_holders += 1

    def _acquire_exclusive(self) -> None:
        with self._changed:
            self._exclusive_waiters += 1
            self._changed.wait_for(lambda: not self._held_exclusively and not self._shared_holders)
            self._exclusive_waiters -= 1
            self._held_exclusively = True


KEY: Final = b"highwater"
"""Rejects stray connections; the permissions of the socket file are what protects it."""
GONE: Final = (EOFError, OSError)

CALLS: Final[Mapping[str, Callable[..., Any]]] = {
    "name": lambda target: target.name,
    "version": lambda target: target.version,
    "era": lambda target: target.era,
    "capabilities": lambda target: target.capabilities,
    "settings": lambda target: dict(target.settings),
    "command_config": lambda target: target.command_config,
    "addresses": lambda target: dict(target.addresses),
    "sasl": lambda target: target.sasl,
    "start_node": lambda target, node: target.start_node(node),
    "stop_node": lambda target, node: target.stop_node(node),
    "kill_node": lambda target, node: target.kill_node(node),
    "pause_node": lambda target, node: target.pause_node(node),
    "resume_node": lambda target, node: target.resume_node(node),
    "slow_links": lambda target, node, others, delay_ms: target.slow_links(node, others, delay_ms),
    "cut_links": lambda target, node, others: target.cut_links(node, others),
    "restore_links": lambda target: target.restore_links(),
    "kill_losing_tail": lambda target, node: target.kill_losing_tail(node),
    "move_clocks": lambda target, seconds: target.move_clocks(seconds),
    "revive": lambda target: target.revive(),
}
ACQUIRE, RELEASE = "acquire", "release"


class TargetServer:
    """Serve a target until `close`; the owner closes the target itself."""

    def __init__(self, target: Target) -> None:
        self._target, self._lock, self._one_at_a_time = target, SharedExclusiveLock(), threading.Lock()
        self._revivals = 0
        self._listener = Listener(family="AF_UNIX", authkey=KEY)
        self.address = str(self._listener.address)
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(*GONE):
            while True:
                threading.Thread(target=self._serve, args=(self._listener.accept(),), daemon=True).start()

    def _serve(self, worker: "Connection[Any, Any]") -> None:
        """Serve one worker; the lock that it holds is released when it disconnects."""
        held_lock = ExitStack()
        with worker, held_lock, suppress(*GONE):
            while True:
                name, arguments = worker.recv()
                if name == ACQUIRE:
                    held_lock.enter_context(self._lock.acquire(exclusive=arguments[0]))
                elif name == RELEASE:
                    held_lock.close()
                worker.send(self._answer(name, arguments) if name in CALLS else (self._revivals, None))

    def _answer(self, name: str, arguments: tuple[Any, ...]) -> tuple[Any, Exception | None]:
        with self._one_at_a_time:
            self._revivals += name == "revive"
            try:
                return CALLS[name](self._target, *arguments), None
            except Unsupported as lacking:
                return None, lacking
            except Exception as error:
                return None, RuntimeError(f"{type(error).__name__}: {error}")


class SharedTarget:
    """Client of a TargetServer; has the interface of Target."""

    transport: Transport = TCP

    def __init__(self, address: str) -> None:
        self._server = Client(address, "AF_UNIX", KEY)
        self.name: str = self._call("name")
        self.version: str = self._call("version")
        self.era: str = self._call("era")
        self.capabilities: frozenset[str] = self._call("capabilities")
        self.settings: Mapping[str, int] = self._call("settings")
        self.command_config: Path | None = self._call("command_config")
        self.addresses: Mapping[int, str] = self._call("addresses")

    @contextmanager
    def acquire(self, *, exclusive: bool) -> Iterator[int]:
        """Hold the lock and yield how often the target was restarted so far; a restart may have changed addresses."""
        revivals: int = self._call(ACQUIRE, exclusive)
        try:
            self.addresses = self._call("addresses")
            yield revivals
        finally:
            self._call(RELEASE)

    @property
    def bootstrap(self) -> str:
        return ",".join(self.addresses.values())

    @property
    def sasl(self) -> SaslListener | None:
        found: SaslListener | None = self._call("sasl")
        return found

    def start_node(self, node: int | str) -> None:
        self._call("start_node", node)

    def stop_node(self, node: int | str) -> None:
        self._call("stop_node", node)

    def kill_node(self, node: int | str) -> None:
        self._call("kill_node", node)

    def pause_node(self, node: int | str) -> None:
        self._call("pause_node", node)

    def resume_node(self, node: int | str) -> None:
        self._call("resume_node", node)

    def slow_links(self, node: int, others: Sequence[int], delay_ms: int) -> None:
        self._call("slow_links", node, others, delay_ms)

    def cut_links(self, node: int, others: Sequence[int]) -> None:
        self._call("cut_links", node, others)

    def restore_links(self) -> None:
        self._call("restore_links")

    def kill_losing_tail(self, node: int) -> None:
        self._call("kill_losing_tail", node)

    def move_clocks(self, seconds: int) -> None:
        self._call("move_clocks", seconds)

    def revive(self) -> bool:
        is_back = bool(self._call("revive"))
        self.addresses = self._call("addresses")
        return is_back

    def close(self) -> None:
        self._server.close()

    def _call(self, name: str, *arguments: object) -> Any:
        try:
            self._server.send((name, arguments))
            value, error = self._server.recv()
        except GONE as gone:
            raise UsageError("the process that launched the target is gone", where=name) from gone
        if error is not None:
            raise error
        return value
