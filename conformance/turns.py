"""Who may use a target when: cases go together, but one that stops nodes, or is judged again, goes alone."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition


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
