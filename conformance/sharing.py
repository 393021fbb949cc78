"""One target for several pytest workers: the process that launched it serves it, the workers ask over a socket."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from threading import Condition
from typing import Any, Final

from highwater.conformance.failures import Unsupported
from highwater.conformance.targets.base import SaslListener, Target
from highwater.errors import UsageError

# --------------------------------------------------------------------------------------------------
# Who may use a target when: cases go together, but one that stops nodes, or is judged again, goes alone.


class Turns:
    """Many at once or one alone. Who waits to be alone goes before those who come after."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._together = self._waiting = 0
        self._alone = False

    @contextmanager
    def take(self, *, alone: bool) -> Iterator[None]:
        self._begin_alone() if alone else self._begin()
        try:
            yield
        finally:
            with self._changed:
                if alone:
                    self._alone = False
                else:
                    self._together -= 1
                self._changed.notify_all()

    def _begin(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._alone and not self._waiting)
            self._together += 1

    def _begin_alone(self) -> None:
        with self._changed:
            self._waiting += 1
            self._changed.wait_for(lambda: not self._alone and not self._together)
            self._waiting -= 1
            self._alone = True


KEY: Final = b"highwater"
"""The socket's file is its owner's alone; the key only tells a stray connection apart."""
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
    "revive": lambda target: target.revive(),
}
TAKE, GIVE = "take", "give"


class TargetServer:
    """Serves a target until it is closed; the target itself stays its owner's to close."""

    def __init__(self, target: Target) -> None:
        self._target, self._turns, self._one_at_a_time = target, Turns(), threading.Lock()
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
        """A worker that is gone gives its turn back."""
        turn = ExitStack()
        with worker, turn, suppress(*GONE):
            while True:
                name, arguments = worker.recv()
                if name == TAKE:
                    turn.enter_context(self._turns.take(alone=arguments[0]))
                elif name == GIVE:
                    turn.close()
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
    """The target as a worker has it."""

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
    def turn(self, *, alone: bool) -> Iterator[int]:
        """How often the target was brought back until then; addresses may be others than in the last turn."""
        revivals: int = self._call(TAKE, alone)
        try:
            self.addresses = self._call("addresses")
            yield revivals
        finally:
            self._call(GIVE)

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
