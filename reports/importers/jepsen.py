"""Convert Jepsen operations to events: `history.edn`, `history.txt`, `test.jepsen`, and lines of Jepsen's own log.

An operation is a dict of EDN keywords as `edn` returns them, ordered by `:index`, or by position without one.
"""

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, Final

import msgspec

from highwater.errors import UsageError
from highwater.names import number_of
from highwater.reports.importers.edn import MAP, EdnError, forms, parse
from highwater.reports.importers.emitter import Emitter
from highwater.reports.importers.jepsen_log import Log
from highwater.reports.importers.jepsen_objects import Objects, keyed, kind_of_read
from highwater.reports.importers.quarantine import Quarantine
from highwater.reports.importers.sources import numbered_lines
from highwater.spec.formats.history import NEMESIS, Config, Event

Op = dict[str, Any]
TYPES: Final[dict[Any, str]] = {":invoke": "invoke", ":ok": "ok", ":fail": "fail", ":info": "info"}
KEY_VALUE: Final = {":get", ":put", ":append"}  # of the key-value store in Porcupine's tests; `:key` names the register
LOG: Final = {":send", ":poll", ":txn", ":assign", ":subscribe", ":crash", ":debug-topic-partitions"}
DECIDED_WITHIN: Final = 100_000  # operations within which a set must be distinguished from a counter
# Names of Jepsen's nemesis operations, and ours.
FAULTS: Final = {"start": "restart"}


def recognises_edn(head: bytes) -> bool:
    text = head.lstrip(b" \t\r\n[(")
    return text.startswith((b"{:", b"#jepsen.history.Op{")) and b":type" in head and b":process" in head


def recognises_txt(head: bytes) -> bool:
    columns = head.split(b"\n", 1)[0].split(b"\t")
    return len(columns) >= 4 and columns[1] in {b":invoke", b":ok", b":fail", b":info"}


def read_edn(where: str, quarantine: Quarantine) -> tuple[Config, Iterator[Event]]:
    """Read `history.edn`: one map a line, a vector of maps, or maps over many lines."""
    return read(where, _maps(where, quarantine), quarantine)


def read_txt(where: str, quarantine: Quarantine) -> tuple[Config, Iterator[Event]]:
    """Read `history.txt`: process, type, f, value and optional error, separated by tabs; no times."""
    return read(where, _rows(where, quarantine), quarantine)


def read(where: str, ops: Iterator[Op], quarantine: Quarantine) -> tuple[Config, Iterator[Event]]:
    """Return the configuration and events. Raises UsageError for an unknown workload."""
    ordered = _in_order(ops, quarantine)
    first_ops: list[Op] = []
    workload = _workload(where, ordered, first_ops)
    if workload is None:
        return Config(source="jepsen"), iter(())
    config = Config(workload=workload, source="jepsen")  # type: ignore[arg-type]
    emit = Emitter()
    client: Log | Objects = Log(emit, quarantine) if workload == "log" else Objects(emit, keyed=keyed(first_ops))
    return config, _events(chain(first_ops, ordered), client.take, emit)


def _maps(where: str, quarantine: Quarantine) -> Iterator[Op]:
    for form in forms(where, quarantine):
        try:
            cells = iter(form)
            next(cells, MAP)
            op = dict(zip(cells, cells, strict=True))
        except (TypeError, ValueError) as error:
            quarantine.add(f"no map of keywords: {error}")
        else:
            yield op


def _rows(where: str, quarantine: Quarantine) -> Iterator[Op]:
    for line in numbered_lines(where, quarantine):
        columns = line.decode(errors="replace").rstrip("\r\n").split("\t")
        try:
            process, kind, f, value = (parse(column) for column in columns[:4])
        except (EdnError, ValueError) as error:
            quarantine.add(f"no operation: {error}", matters=not line.startswith(b":nemesis"))
            continue
        op = {":process": process, ":type": kind, ":f": f, ":value": value}
        yield op if len(columns) < 5 else op | {":error": columns[4]}


def _in_order(ops: Iterator[Op], quarantine: Quarantine) -> Iterator[Op]:
    """Yield valid operations; quarantine incomplete, repeated and out-of-order ones."""
    due: int | None = None
    for op in ops:
        index = op.get(":index")
        if op.get(":type") not in TYPES or ":f" not in op or ":process" not in op:
            quarantine.add("an operation without :type, :f or :process")
        elif index is None:
            yield op
        elif type(index) is not int or (due is not None and index < due):
            quarantine.add(f":index {index} where {due} was due: repeated or out of order")
        else:
            if due is not None and index > due:
                quarantine.add(f":index {index} where {due} was due: missing: {number_of(index - due, 'operation')}")
            due = index + 1
            yield op


def _workload(where: str, ops: Iterator[Op], first_ops: list[Op]) -> str | None:
    """Detect the workload; operations read are appended to `first_ops`. None without client operations."""
    adding = clients = False
    for op in ops:
        first_ops.append(op)
        f = op[":f"]
        if type(op[":process"]) is not int:
            continue
        clients = True
        if f in {":write", ":cas"} or (f in KEY_VALUE and ":key" in op):
            return "register"
        if f in {":send", ":poll", ":assign", ":subscribe"} or (f == ":txn" and _sends_or_polls(op.get(":value"))):
            return "log"
        adding |= f == ":add"
        if f == ":read" and op[":type"] == ":ok":
            return kind_of_read(op.get(":value"), adding=adding)
        if len(first_ops) >= DECIDED_WITHIN:
            break
    if clients and not adding:
        names = ", ".join(sorted({str(op[":f"]) for op in first_ops if type(op[":process"]) is int})[:8])
        raise UsageError(
            f"the operations {names} belong to no known workload",
            where=where,
            hint="known: Kafka (send, poll, txn), register (read, write, cas; get, put, append with a :key), "
            "set and counter (add, read)",
        )
    return "counter" if clients else None


def _sends_or_polls(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(mop, list) and mop[:1] in ([":send"], [":poll"]) for mop in value)


def _events(ops: Iterator[Op], take: Callable[[Op], None], emit: Emitter) -> Iterator[Event]:
    faults = Faults(emit)
    for op in ops:
        time = op.get(":time")
        if type(time) is int and 0 <= time < 1 << 62:
            emit.time_ns = time
        if type(op[":process"]) is int:
            take(op)
        else:
            faults.take(op)
        yield from emit.take()


class Faults:
    """Converts nemesis operations, whose :info comes twice: when the fault begins and when it is done."""

    def __init__(self, emit: Emitter) -> None:
        self._emit = emit
        self._doing: Any = None

    def take(self, op: Op) -> None:
        f = op[":f"]
        if f == self._doing:
            self._doing = None
            return
        self._doing = f
        name = str(f).lstrip(":")
        self._emit(NEMESIS, "info", FAULTS.get(name, name), value=msgspec.json.encode(op.get(":value")).decode())
