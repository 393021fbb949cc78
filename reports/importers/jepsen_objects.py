"""Convert operations on Jepsen's registers, sets and counters; `jepsen.independent` adds keys."""

from typing import Any, Final

from highwater.reports.importers.edn import SET
from highwater.reports.importers.emitter import Emitter

Op = dict[str, Any]
NAMES: Final[dict[Any, str]] = {
    ":read": "read", ":write": "write", ":cas": "cas", ":add": "add",
    ":get": "read", ":put": "write", ":append": "append",
}  # fmt: skip


def kind_of_read(value: Any, *, adding: bool) -> str:
    """Return the kind of object from the value of a successful read."""
    if isinstance(value, list) and (adding or value[:1] == [SET]):
        return "set"
    return "counter" if adding else "register"


def keyed(ops: list[Op]) -> bool:
    """Return whether operations name a key (reads: nil or [key nil]), from the first known one."""
    for op in ops:
        value: Any = op.get(":value")
        if op[":type"] != ":invoke" or op[":f"] not in NAMES or type(op[":process"]) is not int:
            continue
        pair = isinstance(value, list) and len(value) == 2 and value[0] != SET
        if op[":f"] == ":cas":
            return pair and isinstance(value[1], list) and len(value[1]) == 2
        return pair
    return False


class Objects:
    """Converts each operation to one event."""

    def __init__(self, emit: Emitter, *, keyed: bool) -> None:
        self._emit, self._keyed = emit, keyed

    def take(self, op: Op) -> None:
        f = NAMES.get(op[":f"])
        if f is None:
            return
        key, value = op.get(":key"), op.get(":value")
        if key is not None and value == "":
            value = None  # a key-value store returns an empty string for a key that was never written
        elif self._keyed and isinstance(value, list) and len(value) == 2:
            key, value = value
        if isinstance(value, list) and value[:1] == [SET]:
            value = value[1:]
        error = op.get(":error")
        self._emit(
            op[":process"], op[":type"][1:], f, value=value, key=key, error=None if error is None else str(error)
        )
