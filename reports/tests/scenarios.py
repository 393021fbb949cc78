"""Functions that write small histories, each with the rules that it violates; test modules audit them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from highwater.reports.audit import audit
from highwater.reports.tests.histories import PROMISED, History

KEY = "t-0"
CONFIG = msgspec.structs.replace(PROMISED, isolation="read_committed")
Scenario = Callable[[History], None]


class Row(NamedTuple):
    """A history: the rules that it violates, settings that differ from `CONFIG`, and the function that writes it."""

    name: str
    rules: set[int]
    config: dict[str, Any]
    write: Scenario
    verdict: str


class Scenarios(list[Row]):
    """The scenarios of a test module."""

    def scenario(self, *rules: int, verdict: str = "", **config: Any) -> Callable[[Scenario], Scenario]:
        """Register a function that writes a history which violates exactly `rules`; without any it is valid."""

        def register(write: Scenario) -> Scenario:
            expected = verdict or ("invalid" if rules else "valid")
            self.append(Row(write.__name__, set(rules), config, write, expected))
            return write

        return register


def check(row: Row, tmp_path: Path) -> None:
    """Audit the history, and compare the violated rules and the verdict."""
    h = History(msgspec.structs.replace(CONFIG, **row.config))
    row.write(h)
    result = audit(h.write(tmp_path / "history.ndjson"))
    assert {finding.rule for finding in result.findings if finding.severity == "violation"} == row.rules
    assert result.verdict == row.verdict


def op(
    h: History, process: int, f: str, kind: str = "ok", argument: Any = None, result: Any = None, **fields: Any
) -> None:
    """Record one operation with its argument and its result; `fields` are in both events."""
    h.begin(process, f, **{"value": argument, **fields})
    h.end(process, kind, **({"value": result} if result is not None else {}))


def event(h: History, process: int | str, f: str, kind: str = "info", **fields: Any) -> None:
    h._add(process, kind, f, **fields)


def begin(h: History, txn: int) -> None:
    event(h, 80 + txn, "begin_txn", txn=txn)


def end(h: History, txn: int, how: str = "commit", kind: str = "ok", error: str | None = None) -> None:
    h.begin(80 + txn, "end_txn", txn=txn, value=how)
    h.end(80 + txn, kind, error=error)


def member(h: History, process: int, *records: tuple[int, int]) -> None:
    event(h, process, "assign", "ok", value=[KEY], group="g")
    h.poll(*records, process=process)


def leave(h: History, process: int) -> None:
    event(h, process, "revoke", value=[KEY], group="g")
