"""Events in the making."""

from typing import Any

from highwater.spec.formats.history import Event


class Emitter:
    """Events under ascending indices, at the time of what they come from; `take` hands them over."""

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
