"""What went over the wire in one case, for the reader of a failure: bytes, and the same decoded."""

from collections import deque
from dataclasses import dataclass
from typing import Final

from reference.wire.errors import WireError
from reference.wire.framing import decode_request, decode_response
from reference.wire.printer import describe, hexdump
from reference.wire.registry import Api

KEPT: Final = 40
SHOWN_BYTES: Final = 512


@dataclass(frozen=True, slots=True)
class Event:
    """One frame (size included), or a happening when `data` is empty. `api` and `version` are those of a reply."""

    address: str
    what: str
    data: bytes = b""
    api: Api | None = None
    version: int = 0

    def text(self) -> str:
        if not self.data:
            return f"{self.address} {self.what}"
        cut = f"\n... {len(self.data) - SHOWN_BYTES} bytes more" if len(self.data) > SHOWN_BYTES else ""
        return f"{self.address} {self.what}\n{hexdump(self.data[:SHOWN_BYTES])}{cut}\n{self._decoded()}"

    def _decoded(self) -> str:
        try:
            if self.api is not None:
                return describe(decode_response(self.api, self.version, self.data[4:])[1])
            header, message = decode_request(self.data[4:])
            return f"{header}\n{describe(message)}"
        except WireError as error:
            return f"does not decode: {error}"


class ExchangeLog:
    """The last events of a case, oldest first."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque(maxlen=KEPT)

    def add(self, event: Event) -> None:
        self._events.append(event)

    def text(self, last: int = KEPT) -> str:
        return "\n".join(event.text() for event in list(self._events)[-last:])
