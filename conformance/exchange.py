"""What went over the wire in one case, for the reader of a failure: bytes, and the same decoded."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from highwater.reference.wire.errors import WireError
from highwater.reference.wire.framing import decode_request, decode_response
from highwater.reference.wire.printer import describe, hexdump
from highwater.reference.wire.registry import Api

KEPT: Final = 40
KEPT_BYTES: Final = 16 * 1024
"""Of a whole exchange as characters of a report: what goes beyond is the oldest, and is told."""
SHOWN_BYTES: Final = 512
SHOWN_CHARACTERS: Final = 3000


class KeptEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One frame or happening in a report; `data` holds the first of its `size` bytes in hexadecimal."""

    address: str
    what: str
    size: int = 0
    data: str = ""
    decoded: str = ""

    def text(self) -> str:
        return "\n".join([f"{self.address} {self.what}", *self.body()])

    def body(self) -> list[str]:
        """Hexdump and fields."""
        if not self.size:
            return []
        shown = bytes.fromhex(self.data)
        cut = [f"... {self.size - len(shown)} bytes more"] if self.size > len(shown) else []
        return [hexdump(shown), *cut, self.decoded]

    def weight(self) -> int:
        return len(self.address) + len(self.what) + len(self.data) + len(self.decoded)


@dataclass(frozen=True, slots=True)
class Event:
    """One frame (size included), or a happening when `data` is empty. `api` and `version` are those of a reply."""

    address: str
    what: str
    data: bytes = b""
    api: Api | None = None
    version: int = 0

    def kept(self) -> KeptEvent:
        if not self.data:
            return KeptEvent(address=self.address, what=self.what)
        decoded = self._decoded()
        if len(decoded) > SHOWN_CHARACTERS:
            decoded = f"{decoded[:SHOWN_CHARACTERS]}\n... {len(decoded) - SHOWN_CHARACTERS} characters more"
        shown = self.data[:SHOWN_BYTES].hex()
        return KeptEvent(address=self.address, what=self.what, size=len(self.data), data=shown, decoded=decoded)

    def _decoded(self) -> str:
        try:
            if self.api is not None:
                return describe(decode_response(self.api, self.version, self.data[4:])[1])
            header, message = decode_request(self.data[4:])
            return f"{header}\n{describe(message)}"
        except WireError as error:
            return f"does not decode: {error}"


def newest_within(events: Sequence[KeptEvent], budget: int) -> list[KeptEvent]:
    """The newest events that fit, oldest first, and a line for those that do not."""
    fitting: list[KeptEvent] = []
    for event in reversed(events):
        budget -= event.weight()
        if budget < 0:
            left = len(events) - len(fitting)
            fitting.append(KeptEvent(address="", what=f"... {left} earlier events left out"))
            break
        fitting.append(event)
    return fitting[::-1]


class ExchangeLog:
    """The last events of a case, oldest first."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque(maxlen=KEPT)

    def add(self, event: Event) -> None:
        self._events.append(event)

    def kept(self) -> list[KeptEvent]:
        """For a report: at most `KEPT_BYTES`."""
        return newest_within([event.kept() for event in self._events], KEPT_BYTES)

    def text(self, last: int = KEPT) -> str:
        return "\n".join(event.kept().text() for event in list(self._events)[-last:])
