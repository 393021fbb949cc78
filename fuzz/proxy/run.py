"""Run a proxy until it is interrupted, or in a thread of its own."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from highwater.errors import UsageError
from highwater.fuzz.proxy.addresses import Address
from highwater.fuzz.proxy.faults import MessageFault, parse_fault
from highwater.fuzz.proxy.matching import Armed, Faults
from highwater.fuzz.proxy.proxy import Proxy
from highwater.fuzz.proxy.summary import table
from highwater.fuzz.proxy.upstream import Upstream
from highwater.signals import TERMINATION_SIGNALS

POLL_S: Final = 0.5


async def open_proxy(proxy: Proxy, upstream: Upstream, listen: Address) -> Address:
    """Listen at this address. Raises UsageError if the port cannot be opened."""
    try:
        return await proxy.listen(upstream, listen[1])
    except OSError as error:
        what = f"cannot listen on {listen[0]}:{listen[1]} ({error.strerror})"
        raise UsageError(what, where="--listen", hint="choose a port that is free, or 0") from error


async def run_until_interrupted(
    proxy: Proxy, upstream: Upstream, listen: Address, listening: Callable[[Address], object]
) -> None:
    """Serve clients until a signal ends it; an unexpected error of a connection ends it, too."""
    ended = asyncio.Event()
    for number in TERMINATION_SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    listening(await open_proxy(proxy, upstream, listen))
    while not ended.is_set() and proxy.failure is None:
        try:
            await asyncio.wait_for(ended.wait(), POLL_S)
        except TimeoutError:
            continue
    await proxy.close()
    if proxy.failure is not None:
        raise proxy.failure


@dataclass(slots=True)
class FaultProxy:
    """A proxy in a thread of its own, for tests of an application: a context manager.

    `bootstrap` is the address for clients. Faults are added and removed while it runs. Every strike is in `strikes`,
    and what became of requests that were delivered late in `late`; `listener` receives both.
    """

    upstream: str
    lines: Sequence[str] = ()
    seed: int = 0
    bootstrap: str = ""
    strikes: list[str] = field(default_factory=list)
    late: list[str] = field(default_factory=list)
    listener: Callable[[str], object] | None = None
    _faults: Faults = field(default_factory=Faults)
    _proxy: Proxy = field(init=False)
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    _thread: threading.Thread = field(init=False)

    def __enter__(self) -> "FaultProxy":
        self._faults.seed = self.seed
        self._faults.on_strike = lambda fault, subject: self._tell(self.strikes, f"{subject}: {fault}")
        self._proxy = Proxy("127.0.0.1", faults=self._faults, note=lambda text: self._tell(self.late, text))
        for line in self.lines:
            self.add(line)
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault proxy", daemon=True)
        self._thread.start()
        addresses = tuple(parse_address(each) for each in self.upstream.split(","))
        host, port = self._run(open_proxy(self._proxy, Upstream(addresses), ("127.0.0.1", 0)))
        self.bootstrap = f"{host}:{port}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self._proxy.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        if error is None and self._proxy.failure is not None:
            raise self._proxy.failure

    def _tell(self, texts: list[str], text: str) -> None:
        texts.append(text)
        if self.listener is not None:
            self.listener(text)

    def table(self) -> Iterator[str]:
        """Yield a line for each fault, also of those that were removed: how many messages it matched and struck."""
        return table(self._faults)

    def add(self, line: str) -> Armed:
        """Add a fault; the result counts what it matched and struck. Raises UsageError for a line with a mistake."""
        return self._faults.add(parse_fault(line))

    def remove(self, armed: Armed) -> None:
        """Take a fault away."""
        self._faults.remove(armed)

    def script(self, api: str, reply: Callable[[Any, int], Any], when: str = "") -> Armed:
        """Answer requests of an API with `reply(request, version)`, a response message; `when` is as in a line."""
        fault = parse_fault(f"{api}: answer UNKNOWN_SERVER_ERROR {when}")
        armed = self._faults.add(fault)
        self._proxy.scripts[id(armed.fault)] = reply
        return armed

    def _run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


def parse_address(text: str, where: str = "--upstream") -> Address:
    """Return host and port of HOST:PORT. Raises UsageError if it is something else."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise UsageError(f"expected HOST:PORT, not {text!r}", where=where, hint=f"{where} 127.0.0.1:9092")
    return host.strip("[]"), int(port)


def armed_faults(lines: Sequence[str], seed: int, on_strike: Callable[[MessageFault, str], None]) -> Faults:
    """Return the faults of these lines. Raises UsageError for a line with a mistake."""
    faults = Faults(seed=seed, on_strike=on_strike)
    for line in lines:
        faults.add(parse_fault(line))
    return faults


def read_lines(path: Path) -> list[str]:
    """Return the lines of a file of faults, without comments. Raises UsageError if it cannot be read."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read it ({error})", where=str(path), hint="give a text file") from error
    return [line for each in text.splitlines() if (line := each.split("#")[0].strip())]
