"""Operations that follow each other in the situations of `situations.py`: one of each step's alternatives.

Random operations of a theme are rarely in the order that a situation needs.
"""

from typing import Final

from highwater.reports.columns import TOMBSTONE, UNKNOWN, Fate
from highwater.reports.tests.oracle.exhaustive import (
    BOTH,
    FAIL,
    INFO,
    QUIET,
    THEMES,
    A,
    B,
    Row,
    delete,
    ends,
    read,
    send,
)

C: Final = 12  # a third value
OLD: Final = {"leader_epoch": 0}
NEW: Final = {"leader_epoch": 1}
KEY: Final = {"key": 0}
OTHER: Final = {"key": 1}
ABORTED: Final = {"txn": 0, "fate": int(Fate.ABORTED), "ended": 0}
OF_ONE: Final = {"producer": 0}
DUMPS: Final = THEMES["dumps and clients"].alphabet[:8]
Script = tuple[tuple[Row, ...], ...]

SCRIPTS: Final[dict[str, Script]] = {
    "log start": (
        (ends(log_start_offset=1), delete(1), delete(UNKNOWN, log_start_offset=1), delete(2, **INFO)),
        (send(A, 0), send(A, 0), send(A, **INFO)),
        (send(B, 1), ends(2), ends(log_start_offset=1), delete(1), read((0, A), **INFO)),
        (read((1, B)), read((0, A)), read((1, B), position=0), read((1, B), position=0, log_start_offset=1)),
    ),
    "groups": (
        (read((0, A), group=0), read((0, A))),
        (send(B, 1), read((1, B)), read(*BOTH)),
        (read((2, C), began=1, group=0), read((2, C), began=1, group=0), read((1, B), began=1, group=0)),
    ),
    "times": (
        (ends(1, last_stable_offset=0, at_ms=0, calm_ms=0), send(A, 0, at_ms=0, **OLD)),
        (ends(1, last_stable_offset=1), send(B, 1), ends(2)),
        (
            *[ends(high, last_stable_offset=0, at_ms=0, calm_ms=20) for high in (1, 2)],
            *[ends(0, at_ms=0, calm_ms=20, **OLD, **QUIET)] * 3,
        ),
    ),
    "deletions of everything": (
        (send(A, 0), read((0, A)), ends(1)),
        (*[delete(UNKNOWN)] * 5, delete(UNKNOWN, log_start_offset=1), delete(UNKNOWN, **INFO)),
        (*[send(B, 1)] * 5, send(B, **INFO)),
        (send(C, 2), send(C, 2), read((1, B))),
        (*[read((2, C), position=0), read((2, C), position=1)] * 3, read(*BOTH), read((1, B), position=0)),
    ),
    "below log start": (
        (send(A, 0), send(A, 0, **OLD), read((0, A), position=0, **OLD)),
        (*[ends(log_start_offset=1, **OLD)] * 4, ends(log_start_offset=1), delete(1)),
        (ends(**OLD), ends(**OLD), ends(**NEW), delete(UNKNOWN), send(B, 1, **NEW)),
        (
            *[read((0, A), position=0, **OLD), read(*BOTH, position=0, **OLD)] * 3,
            *[read((0, A)), read((0, A), position=0), read((0, A), position=0, **NEW)],
            *[read(*BOTH, position=1, **OLD), read((0, A), position=0, node=1), read(*BOTH, high_watermark=2)],
        ),
    ),
    "keys": (
        (*[send(A, 0, **KEY)] * 3, send(A, **KEY, **INFO), send(TOMBSTONE, 0, **KEY)),
        (read((0, A), position=0), read((0, A)), read((0, A), (1, B)), read((0, TOMBSTONE))),
        (
            *[send(B, 1, **cells) for cells in (OTHER, KEY, {**KEY, **ABORTED})],
            *[send(B, **KEY, **outcome) for outcome in (FAIL, INFO, {})],
            *[send(TOMBSTONE, 1, **KEY), send(TOMBSTONE, **KEY), delete(UNKNOWN)],
        ),
        (read((2, C), position=0), read((1, B), position=0), ends(0, **QUIET), read((1, B), position=0, **QUIET)),
    ),
    "dumps and clients": (
        (send(A, 0), read((0, A)), read(*BOTH)),
        (send(B, 1), send(B, **INFO), read((1, B), **INFO), read((1, B), position=0)),
        DUMPS,
    ),
    "order of unknown": (
        (
            *[send(A, sequence=0, **OF_ONE, **INFO)] * 3,
            *[send(A, offset, sequence=0, **OF_ONE) for offset in (0, 1)],
        ),
        (
            *[send(B, offset, sequence=1, **OF_ONE) for offset in (0, 0, 1)],
            *[send(B, sequence=1, producer=producer, **INFO) for producer in (0, 0, 1)],
        ),
        (
            *[send(C, 2, **cells) for cells in (OF_ONE, {"producer": 1}, {**OF_ONE, "sequence": 2})],
            send(C, sequence=2, **OF_ONE, **INFO),
        ),
        (
            *[read((0, B), (1, A)), read((0, B), (1, A), **INFO), read(*BOTH), read(*BOTH, position=0)],
            *[read((0, B), (2, A)), read((1, C), (3, A))],
        ),
    ),
}
