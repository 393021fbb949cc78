"""Build events with ascending indices."""

from typing import Any

from highwater.spec.formats.history import Event


class Emitter:
    """Builds events with ascending indices and the time of their source; `take` returns them."""

    def __init__(self) -> None:
        self.time_ns = 0
        self._index = 0
        self._made: list[Event] = []

    def __call__(self, process: int | str, kind: str, f: str, **fields: Any) -> None:
        self._index += 1
        event = Event(index=self._index, time_ns=self.time_ns, process=process, type=kind, f=f, **fields)  # type: ignore[arg-type]
        self._made.append(event)

    def take(self) -> list[Event]:
        made, self._made = self._made, []
        return made
