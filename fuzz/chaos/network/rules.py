"""The active faults of a proxy and the connections that pass through it."""

import asyncio
import contextlib
from dataclasses import dataclass, field

from highwater.fuzz.schedule import Fault


@dataclass(eq=False, slots=True)
class Rule:
    """An active fault on the links of `node`; `truncated` are the connections that lost data to it."""

    fault: Fault
    node: str
    over: asyncio.Event
    truncated: set["ProxiedConnection"] = field(default_factory=set)

    def applies(self, source: str, target: str) -> bool:
        """Return whether the fault affects messages from `source` to `target`."""
        direction = self.fault.option("direction")
        out = source == self.node and self._is_other(target) and direction in {"both", "out"}
        return out or (target == self.node and self._is_other(source) and direction in {"both", "in"})

    def _is_other(self, name: str) -> bool:
        of = self.fault.option("of")
        if of == "brokers":
            return name.isdigit()
        return of in {"others", name}


@dataclass(eq=False, slots=True)
class ProxiedConnection:
    """One connection through the proxy, from `source` to `target`."""

    source: str
    target: str
    writers: list[asyncio.StreamWriter]

    def close(self) -> None:
        for writer in self.writers:
            with contextlib.suppress(OSError, RuntimeError):
                writer.transport.abort()
