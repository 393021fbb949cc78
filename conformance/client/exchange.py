"""The log of the frames of one case, as bytes and decoded, for reports of failures."""

import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from highwater.reference.wire.errors import WireError
from highwater.reference.wire.framing import decode_request, decode_response
from highwater.reference.wire.printer import describe, hexdump
from highwater.reference.wire.registry import Api

NO_CONNECTION: Final = -1
"""The number of the events that are not of a connection: what a case does to a broker."""
LOST_TAIL: Final = "kill and loss of the tail"
MAX_EVENTS: Final = 40
MAX_REPORT_CHARACTERS: Final = 16 * 1024
"""Limit of an exchange in a report, in characters; the oldest events are dropped and counted."""
MAX_DATA_BYTES: Final = 512
MAX_DECODED_CHARACTERS: Final = 3000


class ReportedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One frame or event in a report; `data` holds the first of `size` bytes in hexadecimal."""

    address: str
    what: str
    size: int = 0
    data: str = ""
    decoded: str = ""

    def text(self) -> str:
        return "\n".join([f"{self.address} {self.what}", *self.body()])

    def body(self) -> list[str]:
        """Return the lines of the hexdump and the decoded fields."""
        if not self.size:
            return []
        shown = bytes.fromhex(self.data)
        cut = [f"... {self.size - len(shown)} bytes more"] if self.size > len(shown) else []
        return [hexdump(shown), *cut, self.decoded]

    def weight(self) -> int:
        return len(self.address) + len(self.what) + len(self.data) + len(self.decoded)


class ExchangedReply(msgspec.Struct, frozen=True, kw_only=True):
    """A reply of one case: `request` is what was asked, without what the run chose; `values` by path."""

    api: str
    version: int
    request: str
    values: dict[str, str]


@dataclass(frozen=True, slots=True)
class Event:
    """One frame, size included, or another event if `data` is empty; `api` and `version` are set for replies.

    `connection` numbers the connections of a log, `at` are seconds of the client's clock.
    """

    address: str
    what: str
    data: bytes = b""
    api: Api | None = None
    version: int = 0
    connection: int = 0
    at: float = 0.0

    def to_report(self) -> ReportedEvent:
        if not self.data:
            return ReportedEvent(address=self.address, what=self.what)
        decoded = self._decoded()
        if len(decoded) > MAX_DECODED_CHARACTERS:
            decoded = f"{decoded[:MAX_DECODED_CHARACTERS]}\n... {len(decoded) - MAX_DECODED_CHARACTERS} characters more"
        shown = self.data[:MAX_DATA_BYTES].hex()
        return ReportedEvent(address=self.address, what=self.what, size=len(self.data), data=shown, decoded=decoded)

    def _decoded(self) -> str:
        try:
            if self.api is not None:
                return describe(decode_response(self.api, self.version, self.data[4:])[1])
            header, message = decode_request(self.data[4:])
            return f"{header}\n{describe(message)}"
        except WireError as error:
            return f"does not decode: {error}"


def newest_events(events: Sequence[ReportedEvent], budget: int) -> list[ReportedEvent]:
    """Return the newest events within `budget` characters, oldest first, preceded by the number of dropped ones."""
    fitting: list[ReportedEvent] = []
    for event in reversed(events):
        budget -= event.weight()
        if budget < 0:
            left = len(events) - len(fitting)
            fitting.append(ReportedEvent(address="", what=f"... {left} earlier events left out"))
            break
        fitting.append(event)
    return fitting[::-1]


class ExchangeLog:
    """The last events of a case, oldest first; with `whole` all of them."""

    def __init__(self, *, whole: bool = False) -> None:
        self._events: deque[Event] = deque(maxlen=None if whole else MAX_EVENTS)
        self.connections = itertools.count()

    def __iter__(self) -> Iterator[Event]:
        return iter(self._events)

    def add(self, event: Event) -> None:
        self._events.append(event)

    def add_fault(self, what: str, node: int) -> None:
        """Note what the case does to a broker."""
        self._events.append(Event(f"broker {node}", what, connection=NO_CONNECTION))

    def to_report(self) -> list[ReportedEvent]:
        """Convert the events for a report: at most `MAX_REPORT_CHARACTERS` characters."""
        return newest_events([event.to_report() for event in self._events], MAX_REPORT_CHARACTERS)

    def text(self, last: int = MAX_EVENTS) -> str:
        return "\n".join(event.to_report().text() for event in list(self._events)[-last:])
