"""How a pair is told: an anomaly of a rule, and what is nearest to it and none."""

from collections.abc import Callable
from typing import Any, Final

from highwater.reports.tests.histories import History

KEY: Final = "t-0"
Story = Callable[[History], None]
PAIRS: Final[dict[int, dict[str, tuple[Story, dict[str, Any]]]]] = {}


def anomaly(rule: int, **config: Any) -> Callable[[Story], Story]:
    return _half(rule, "anomaly", config)


def near_miss(rule: int, **config: Any) -> Callable[[Story], Story]:
    return _half(rule, "near miss", config)


def _half(rule: int, which: str, config: dict[str, Any]) -> Callable[[Story], Story]:
    def keep(told: Story) -> Story:
        PAIRS.setdefault(rule, {})[which] = told, config
        return told

    return keep


def op(h: History, process: int, f: str, asked: Any = None, told: Any = None, *, kind: str = "ok", **both: Any) -> None:
    h.begin(process, f, **{"value": asked, **both})
    h.end(process, kind, **({"value": told} if told is not None else {}))


def event(h: History, process: int, f: str, **fields: Any) -> None:
    h._add(process, "info", f, **fields)


def begin(h: History, *txns: int) -> None:
    for txn in txns:
        event(h, 80 + txn, "begin_txn", txn=txn)


def end(h: History, txn: int, how: str = "commit", *, kind: str = "ok") -> None:
    op(h, 80 + txn, "end_txn", how, txn=txn, kind=kind)


def sent(h: History, count: int) -> None:
    """Values 1, 2 ... at offsets 0, 1 ..."""
    for offset in range(count):
        h.send(offset + 1, offset)


def seen(h: History, count: int) -> None:
    """All of them, by a reader of its own."""
    h.fetch(0, *((offset, offset + 1) for offset in range(count)), end=count)


def fetched(h: History, *records: tuple[int, Any], position: int = 0, **told: Any) -> None:
    op(h, 60, "fetch", told=[list(each) for each in records], position=position, **told)


def join(h: History, process: int, *records: tuple[int, int]) -> None:
    """A member begins where its group had come to."""
    event(h, process, "assign", value=[KEY], group="g")
    h.poll(*records, process=process)


def leave(h: History, process: int) -> None:
    event(h, process, "revoke", value=[KEY], group="g")


def commit(h: History, offset: int, *, process: int = 1, **who: Any) -> None:
    op(h, process, "commit", {KEY: offset}, {KEY: offset}, group="g", **who)


def committed(h: History, offset: int) -> None:
    op(h, 2, "committed", told={KEY: offset}, group="g")


def wait(h: History, ms: int) -> None:
    """An event takes a millisecond."""
    for _ in range(ms):
        h.phase("load")
