"""What a proxy does to links at the moment: the faults that are on, and the connections that they hit."""

import asyncio
import contextlib
from dataclasses import dataclass, field

from highwater.fuzz.schedule import Fault


@dataclass(eq=False, slots=True)
class Rule:
    """A fault that is on: for messages from any of `sources` to any of `targets`. None: everybody but the node."""

    fault: Fault
    node: str
    over: asyncio.Event
    swallowed: set["Passage"] = field(default_factory=set)

    def holds(self, source: str, target: str) -> bool:
        direction = self.fault.option("direction")
        out = source == self.node and self._is_other(target) and direction in {"both", "out"}
        return out or (target == self.node and self._is_other(source) and direction in {"both", "in"})

    def _is_other(self, name: str) -> bool:
        of = self.fault.option("of")
        if of == "brokers":
            return name.isdigit()
        return of in {"others", name}


@dataclass(eq=False, slots=True)
class Passage:
    """One connection through the proxy, from `source` to `target`."""

    source: str
    target: str
    writers: list[asyncio.StreamWriter]

    def close(self) -> None:
        for writer in self.writers:
            with contextlib.suppress(OSError, RuntimeError):
                writer.transport.abort()
