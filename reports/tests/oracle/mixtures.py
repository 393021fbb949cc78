"""Random histories of the operations of one or two themes: longer than the exhaustive ones, and as dense.

In a history of any operations most of them have nothing to do with each other; those of a theme do.
"""

import random
from typing import Final

from highwater.reports.columns import UNKNOWN, Kind, Operations
from highwater.reports.rules.findings import Promise
from highwater.reports.tests.oracle.exhaustive import END, STEP_MS, THEMES, Row, Theme
from highwater.reports.tests.oracle.histories import as_recorded, changed_promise
from highwater.reports.tests.oracle.scripts import SCRIPTS

STEP: Final = 100  # between two moments
SHARES: Final = {
    "log start": 7, "deletions of everything": 12, "below log start": 7, "keys": 7, "dumps and clients": 4,
    "order of unknown": 6, "groups": 1, "times": 4,
}  # fmt: skip
"""How often each script is drawn: each of its situations is in 1 of 50 histories (test_independent_oracle.py)."""
UNSCRIPTED: Final = [*sorted(THEMES.keys() - SHARES.keys()), *["times"] * 4, *["groups"] * 4]
"""The themes of the other mixtures; those of rules that are rarely found are drawn more often."""
LIMITS_MS: Final = (UNKNOWN, 0, STEP_MS // 2, 3 * STEP_MS)


def mixture(seed: int) -> tuple[Operations, Promise]:
    """Return a history of three to eight operations of one or two themes, in any order and of up to three processes.

    Most histories follow a script.
    """
    chance = random.Random(seed)
    if chance.random() < 0.75:
        return _scripted(chance)
    names = {chance.choice(UNSCRIPTED) for _ in range(chance.choice([1, 1, 2]))}
    themes = [THEMES[name] for name in sorted(names)]
    alphabet = [_of(number, row) for number, theme in enumerate(themes) for row in theme.alphabet]
    return _recorded(chance, chance.choices(alphabet, k=chance.randint(3, 8)), chance.choice(themes), 0.5)


def _scripted(chance: random.Random) -> tuple[Operations, Promise]:
    """Return a history of the operations of a script, and few others of its theme between them."""
    (name,) = chance.choices(list(SHARES), list(SHARES.values()))
    rows = [chance.choice(alternatives) for alternatives in SCRIPTS[name]]
    for _ in range(chance.choice([0, 0, 1, 1, 2])):
        rows.insert(chance.randint(0, len(rows)), chance.choice(THEMES[name].alphabet))
    return _recorded(chance, rows, THEMES[name], 0.1)


def _recorded(chance: random.Random, chosen: list[Row], theme: Theme, overlapping: float) -> tuple[Operations, Promise]:
    """Return these operations in this order, or with this probability at overlapping times."""
    rows = _without_contradictions([dict(row) for row in chosen])
    _schedule(chance, rows, overlap=chance.random() < overlapping)
    _time(chance, rows)
    return as_recorded(chance, rows, changed_promise(chance, theme.promise, LIMITS_MS))


def _of(theme: int, row: Row) -> Row:
    """Return an operation of a theme; each has its own transactions, since a transaction ends once."""
    return row | {"txn": row["txn"] + 2 * theme} if "txn" in row else row


def _without_contradictions(rows: list[Row]) -> list[Row]:
    """Leave out a send that is acknowledged at the offset of an earlier one of the same value."""
    places = [(row.get("value"), row["offset"]) if row.get("offset", UNKNOWN) != UNKNOWN else None for row in rows]
    return [row for number, row in enumerate(rows) if places[number] is None or places[number] not in places[:number]]


def _schedule(chance: random.Random, rows: list[Row], *, overlap: bool) -> None:
    """Give each operation a process and its calls: one after the other, or overlapping those of other processes."""
    processes = chance.randint(1, 3)
    last = dict.fromkeys(range(processes), -1)
    for place, row in enumerate(rows):
        row["process"] = process = chance.randrange(processes)
        begin = STEP * (10 * place - (chance.randrange(25) if overlap else 0)) + 2 * place  # all times are different
        row["invoked"] = max(begin, last[process] + 1)
        end = STEP * (10 * place + chance.randint(1, 8)) + 2 * place + 1
        row["returned"] = last[process] = max(end, row["invoked"] + 1)
        if "began" in row:  # the first read of a run
            row["run"] = 1 + place
    ended = max((row["invoked"] for row in rows if row.get("ended") == END), default=0)
    ended += 1 + STEP * chance.choice([0, 0, 15])  # its end is requested after its last call, perhaps long after
    for row in rows:
        if row.get("ended") == END:
            row["ended"] = ended


def _time(chance: random.Random, rows: list[Row]) -> None:
    now = 0
    for row in rows:
        now += chance.choice([0, 1, STEP_MS])
        if row["kind"] in {Kind.READ, Kind.LIST_OFFSETS, Kind.SEND} and ("at_ms" in row or chance.random() < 0.3):
            row["at_ms"], row["calm_ms"] = now, chance.choice([0, now, STEP_MS // 2])
