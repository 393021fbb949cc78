"""Decide by exhaustive search whether a right cluster can have produced a small history.

A history is `possible` if the strict reading of the guarantees permits it, `impossible` if the lenient one excludes it,
and `open` otherwise, or if it needs what is not modelled: weaker settings, deletion, replica dumps, metadata.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import product
from math import inf
from typing import Any, Final

from highwater.reports.tests.worlds.groups import group_contradictions, unexplained_offset
from highwater.reports.tests.worlds.logs import LogSearch, TooManyLogs, World
from highwater.reports.tests.worlds.operations import (
    History,
    Operation,
    Read,
    operations_of,
    reads_of,
    sends_of,
    transactions_of,
)

COMMITS: Final = frozenset({"commit", "send_offsets", "committed"})
MODELLED: Final = COMMITS | {"send", "poll", "fetch", "list_offsets", "assign", "revoke", "begin_txn", "end_txn"}
SETTINGS: Final = {"acks": "all", "unclean_election": False, "retention": False, "compaction": False}


class Decision(StrEnum):
    POSSIBLE = "possible"
    IMPOSSIBLE = "impossible"
    OPEN = "open"


@dataclass(frozen=True)
class Answer:
    decision: Decision
    reason: str = ""


def verdict(history: History) -> Answer:
    """Return whether a right cluster can have produced this history, and why not."""
    settings, operations = history[0]["value"], operations_of(history)
    if unknown := {operation.f for operation in operations} - MODELLED:
        return Answer(Decision.OPEN, f"not modelled: {min(unknown)}")
    for name, value in SETTINGS.items():
        if settings.get(name) != value:
            return Answer(Decision.OPEN, f"not modelled: another {name} than {value}")
    if settings.get("idempotence") is None or settings.get("isolation") is None:
        return Answer(Decision.OPEN, "idempotence or isolation is not stated")
    try:
        if why := _contradiction(operations, settings, lenient=True):
            return Answer(Decision.IMPOSSIBLE, _without_density(operations, settings, why))
        why = _contradiction(operations, settings, lenient=False)
    except TooManyLogs:
        why = "the search was stopped"
    return Answer(Decision.OPEN, why) if why else Answer(Decision.POSSIBLE)


def _without_density(operations: Sequence[Operation], settings: Mapping[str, Any], why: str) -> str:
    """Return what is impossible even if any offset that no read returned may have a control batch."""
    try:
        return _contradiction(operations, settings, lenient=True, dense=False) or "nothing is at an offset below an end"
    except TooManyLogs:
        return why


def _contradiction(
    operations: Sequence[Operation], settings: Mapping[str, Any], *, lenient: bool, dense: bool = True
) -> str:
    """Return what no right cluster does in any hidden world; empty if there is a world."""
    transactions, sends = transactions_of(operations), sends_of(operations)
    reads = reads_of(operations, settings["isolation"])
    for why, always in _direct_contradictions(operations, [read for replies in reads.values() for read in replies]):
        if always or not lenient:
            return why
    keys = sorted({*sends, *reads, *(key for op in operations if op.f in COMMITS for key in op.offsets())})
    obstacles: list[tuple[int, float, str]] = [(-1, 0, "a transaction was both committed and aborted")]
    for outcomes in product(*(sorted(txn.outcomes()) for txn in transactions.values())):
        for number, key in enumerate(keys):
            decided = dict(zip(transactions, outcomes, strict=True))
            world = World(key, decided, transactions, lenient, dense, settings["idempotence"])
            length, why = _obstacle(LogSearch(world, sends[key], reads[key]), operations)
            if why:
                obstacles.append((number, length, f"{key}: {why}"))
                break
        else:
            return ""
    return max(obstacles)[2]


def _obstacle(search: LogSearch, operations: Sequence[Operation]) -> tuple[float, str]:
    """Return how long a log explains the replies about one partition, and why none does; empty if one does."""
    unexplained = ""
    for log in search.logs():
        unexplained = unexplained_offset(operations, search.reads, search.world, log)
        if not unexplained:
            return inf, ""
    return (inf, unexplained) if unexplained else search.obstacle


def _direct_contradictions(operations: Sequence[Operation], reads: Sequence[Read]) -> Iterator[tuple[str, bool]]:
    """Yield what one or two operations contradict by themselves, with whether the lenient reading excludes it, too."""
    yield from group_contradictions(operations)
    yield from _transaction_contradictions(operations)
    for read in reads:
        offsets = [offset for offset, _ in read.records]
        # A leader reads its high watermark, its last stable offset and the records one after the other.
        high, stable = read.high_watermark, read.last_stable_offset
        if offsets != sorted(set(offsets)):
            yield "offsets within a reply do not increase", True
        if read.f == "poll" and read.start is not None and offsets[0] < read.start:
            yield "a consumer received offsets that it had passed", True
        if offsets and read.start is not None and offsets[-1] < read.start:
            yield "all records of a reply are below its position", False
        if high is not None and read.next > high:
            yield "a reply has a record at or above its high watermark", False
        if read.committed and stable is not None and read.next > stable:
            yield "a reply has a record at or above its last stable offset", False
        if high is not None and stable is not None and stable > high:
            yield "the last stable offset is above the high watermark", False


def _transaction_contradictions(operations: Sequence[Operation]) -> Iterator[tuple[str, bool]]:
    """A producer id belongs to one transactional id; a transaction that has ended takes no records."""
    owners: dict[int, str] = {}
    for fields in (
        op.fields for op in operations if op.f == "begin_txn" and {"producer_id", "value"} <= op.fields.keys()
    ):
        if owners.setdefault(fields["producer_id"], fields["value"]) != fields["value"]:
            yield "two transactional ids have one producer id", True
    ended = {op.fields["txn"]: op.returned for op in operations if op.f == "end_txn" and op.status == "ok"}
    if any(op.f == "send" and op.invoked > ended.get(op.fields.get("txn"), inf) for op in operations):
        yield "a record was sent in a transaction that had ended", False
