"""Compare the oracle with the auditor, and shrink the first history of each kind of difference."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Final

import msgspec

from highwater.errors import Verdict
from highwater.reports.audit import audit_events
from highwater.reports.rules.rule import Rule
from highwater.reports.tests.worlds.changes import changed_history, pairs_of, without
from highwater.reports.tests.worlds.drawn import drawn_history
from highwater.reports.tests.worlds.operations import History
from highwater.reports.tests.worlds.oracle import Answer, Decision, verdict
from highwater.reports.verdicts import RuleVerdict
from highwater.spec.formats.history import Config, Event

CHANGED: Final = 2
"""How many changes of each drawn history are compared."""
DECIDING: Final = {Verdict.INVALID: RuleVerdict.VIOLATED, Verdict.UNKNOWN: RuleVerdict.UNDECIDED}
WRONG: Final = {(Decision.POSSIBLE, Verdict.INVALID), (Decision.IMPOSSIBLE, Verdict.VALID)}


@dataclass(frozen=True)
class Comparison:
    answer: Answer
    audited: Verdict
    rules: tuple[str, ...]
    """Names of the rules that decided the auditor's verdict."""
    reason: str
    """What the auditor states about an unknown verdict."""

    @property
    def wrong(self) -> bool:
        return (self.answer.decision, self.audited) in WRONG

    @property
    def timid(self) -> bool:
        return self.audited == Verdict.UNKNOWN and self.answer.decision != Decision.OPEN

    @property
    def kind(self) -> tuple[str, ...]:
        """Return what histories that differ in the same way have in common; names with digits are left out."""
        reason = re.sub(r"\bt-\d:? |[xy]?\d+ ?", "", self.answer.reason).strip()
        return self.answer.decision, self.audited, *filter(None, (*self.rules, reason))


def compared(history: History) -> Comparison:
    """Return what the oracle and the auditor answer."""
    events = [event | {"index": index, "time_ns": index * 1000} for index, event in enumerate(history)]
    config = msgspec.convert(history[0]["value"], Config)
    result = audit_events(config, msgspec.convert(events, list[Event])[1:], "drawn")
    deciding = DECIDING.get(result.verdict)
    rows = [row for row in result.rules if row.verdict == deciding]
    reason = "; ".join(
        f"{row.name}: {re.sub(r'[0-9][0-9,]* ', '', row.why)}" for row in rows if row.rule != Rule.UNSEEN
    )
    return Comparison(verdict(history), result.verdict, tuple(row.name for row in rows), reason or "no rule was judged")


def histories_of(seed: int) -> Iterator[History]:
    """Yield a history of a right cluster, and changed ones."""
    history = drawn_history(seed)
    yield history
    for number in range(CHANGED):
        yield changed_history(history, CHANGED * seed + number)


def ndjson(history: History) -> str:
    """Return the history as a file for `highwater audit`."""
    header = history[0] | {"value": history[0]["value"] | {"trailer": True}}
    trailer = {"process": "nemesis", "type": "info", "f": "trailer"}
    rows = enumerate([header, *history[1:], trailer])
    return "".join(json.dumps({"index": index, "time_ns": index * 1000} | event) + "\n" for index, event in rows)


def shrunk(history: History) -> History:
    """Leave out processes, transactions, operations and records while the difference remains."""
    kind = compared(history).kind
    while smaller := next((one for one in _smaller(history) if compared(one).kind == kind), None):
        history = smaller
    return history


def _smaller(history: History) -> Iterator[History]:
    for name in ("process", "txn"):
        for value in sorted({str(event.get(name)) for event in history[1:]} - {"nemesis", "None"}):
            yield [event for event in history if str(event.get(name)) != value]
    for pair in pairs_of(history):
        if pair[0]["f"] not in {"assign", "begin_txn"}:
            yield without(history, pair)
    for index, event in enumerate(history[1:], 1):
        if event["process"] == "nemesis":
            yield without(history, [event])
        if event["f"] in {"fetch", "poll"} and event["type"] == "ok":
            keys = list(event["value"]) if event["f"] == "poll" else [None]
            for key in keys:
                for place in range(len(event["value"] if key is None else event["value"][key])):
                    result = deepcopy(history)
                    del (result[index]["value"] if key is None else result[index]["value"][key])[place]
                    yield result


@dataclass
class Campaign:
    """Counts of all comparisons, and the first history of each kind of difference, with the seed it came from."""

    table: Counter[tuple[Decision, Verdict]] = field(default_factory=Counter)
    unknown: Counter[tuple[Decision, str]] = field(default_factory=Counter)
    kinds: Counter[tuple[str, ...]] = field(default_factory=Counter)
    first: dict[tuple[str, ...], tuple[int, History]] = field(default_factory=dict)
    wrong: int = 0

    def take(self, seed: int) -> None:
        """Compare the histories of one seed."""
        for history in histories_of(seed):
            comparison = compared(history)
            self.table[comparison.answer.decision, comparison.audited] += 1
            self.wrong += comparison.wrong
            if comparison.audited == Verdict.UNKNOWN:
                self.unknown[comparison.answer.decision, comparison.reason] += 1
            if comparison.wrong or comparison.timid:
                self.kinds[comparison.kind] += 1
                self.first.setdefault(comparison.kind, (seed, history))
