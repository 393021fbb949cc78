"""Registers pairs: a history with an anomaly of a rule, and the most similar history without one."""

from collections.abc import Callable
from typing import Any, Final

from highwater.reports.tests.histories import History

KEY: Final = "t-0"
Scenario = Callable[[History], None]
PAIRS: Final[dict[tuple[int, str], dict[str, tuple[Scenario, dict[str, Any]]]]] = {}
"""By rule, and by the way in which it finds the anomaly: empty for the first."""


def anomaly(rule: int, way: str = "", **config: Any) -> Callable[[Scenario], Scenario]:
    return _half(rule, way, "anomaly", config)


def near_miss(rule: int, way: str = "", **config: Any) -> Callable[[Scenario], Scenario]:
    return _half(rule, way, "near miss", config)


def _half(rule: int, way: str, which: str, config: dict[str, Any]) -> Callable[[Scenario], Scenario]:
    def register(write: Scenario) -> Scenario:
        PAIRS.setdefault((rule, way), {})[which] = write, config
        return write

    return register


def op(
    h: History, process: int, f: str, argument: Any = None, result: Any = None, *, kind: str = "ok", **fields: Any
) -> None:
    """Record one operation with its argument and its result; `fields` are in both events."""
    h.begin(process, f, **{"value": argument, **fields})
    h.end(process, kind, **({"value": result} if result is not None else {}))


def event(h: History, process: int, f: str, **fields: Any) -> None:
    h._add(process, "info", f, **fields)


def begin(h: History, *txns: int) -> None:
    for txn in txns:
        event(h, 80 + txn, "begin_txn", txn=txn)


def end(h: History, txn: int, how: str = "commit", *, kind: str = "ok") -> None:
    op(h, 80 + txn, "end_txn", how, txn=txn, kind=kind)


def sent(h: History, count: int) -> None:
    """Send the values 1, 2 ... to the offsets 0, 1 ..."""
    for offset in range(count):
        h.send(offset + 1, offset)


def read_all(h: History, count: int) -> None:
    """Fetch all of them, by a separate reader."""
    h.fetch(0, *((offset, offset + 1) for offset in range(count)), end=count)


def fetched(h: History, *records: tuple[int, Any], position: int = 0, **fields: Any) -> None:
    op(h, 60, "fetch", result=[list(record) for record in records], position=position, **fields)


def join(h: History, process: int, *records: tuple[int, int]) -> None:
    """Assign the partition to a member, which polls `records`."""
    event(h, process, "assign", value=[KEY], group="g")
    h.poll(*records, process=process)


def leave(h: History, process: int) -> None:
    event(h, process, "revoke", value=[KEY], group="g")


def commit(h: History, offset: int, *, process: int = 1, **fields: Any) -> None:
    op(h, process, "commit", {KEY: offset}, {KEY: offset}, group="g", **fields)


def committed(h: History, offset: int) -> None:
    op(h, 2, "committed", result={KEY: offset}, group="g")


def wait(h: History, ms: int) -> None:
    """Let `ms` milliseconds pass: each event takes one."""
    for _ in range(ms):
        h.phase("load")
