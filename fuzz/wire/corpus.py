"""What a run has learned and the next one goes on with: coverage, the shortest case of each answer, what kills.

`state.json` and `corpus.bin` stand in the folder of the findings; both are written whole and renamed.
"""

from collections import Counter
from pathlib import Path
from typing import Any, Final

import msgspec

from highwater.errors import UsageError
from highwater.fuzz.wire.generate.cases import Case
from highwater.reference.wire.registry import APIS
from highwater.results import write_json

# --------------------------------------------------------------------------------------------------
# What was reached: which field of which version was spoiled how, and what the target made of it.


POINTS_MAX: Final = 250_000
"""Memory has a limit: to write so many takes 170 MB at its peak. 292,000 cases on the reference came to 22,700."""
Point = tuple[int, int, str, str, str]
"""Key, version, field, mutation, what came: error codes, `closed`, `silent`, `reset` or `left`."""


class Coverage:
    """Points with how often; `growth` is the number of points at each second, for the curve."""

    def __init__(self) -> None:
        self.points: Counter[Point] = Counter()
        self.growth: list[tuple[float, int, int]] = []

    def note(self, point: Point) -> bool:
        """Is it new?"""
        is_new = point not in self.points and len(self.points) < POINTS_MAX
        if is_new or point in self.points:
            self.points[point] += 1
        return is_new

    def mark(self, seconds: float, cases: int) -> None:
        self.growth.append((round(seconds, 1), cases, len(self.points)))

    def by_api(self) -> dict[str, dict[str, Any]]:
        """For the map: points, versions, mutations and answers of each API."""
        found: dict[str, dict[str, Any]] = {}
        for (key, version, field, mutation, came), count in self.points.items():
            name = APIS[key].name if key in APIS else str(key)
            row = found.setdefault(name, {"points": 0, "cases": 0, "versions": set(), "fields": set(),
                                          "mutations": Counter(), "answers": Counter()})  # fmt: skip
            row["points"] += 1
            row["cases"] += count
            row["versions"].add(version)
            row["fields"].add(field)
            row["mutations"][mutation] += count
            row["answers"][came] += count
        return found

    def rows(self) -> list[tuple[int, int, str, str, str, int]]:
        return [(*point, count) for point, count in sorted(self.points.items())]

    @classmethod
    def of(cls, rows: list[Any], growth: list[Any]) -> "Coverage":
        """As `rows` and `growth` told."""
        made = cls()
        for key, version, field, mutation, came, count in rows:
            made.points[int(key), int(version), field, mutation, came] = count
        made.growth = msgspec.convert(growth, list[tuple[float, int, int]])
        return made


STATE, CORPUS = "state.json", "corpus.bin"
KEPT_MAX: Final = 20_000
FRAME_MAX: Final = 4_096
"""Bombs are not kept: they are made anew."""
Answer = tuple[int, int, str]
"""Key, version, what came."""


class State(msgspec.Struct, kw_only=True):
    """Totals of all runs into this folder."""

    seed: int
    runs: int = 0
    cases: int = 0
    sequences: int = 0
    seconds: float = 0.0
    avoid: list[tuple[int, str, str]] = []
    left_alone: list[tuple[int, int]] = []
    seen: list[list[str]] = []
    findings: list[dict[str, Any]] = []
    points: list[tuple[int, int, str, str, str, int]] = []
    growth: list[tuple[float, int, int]] = []
    memory: list[tuple[float, int]] = []
    """Seconds, and megabytes that the fuzzer itself held then."""


class Corpus:
    """The shortest frame for each answer: minimal by being replaced."""

    def __init__(self) -> None:
        self.frames: dict[Answer, bytes] = {}

    def note(self, case: Case, came: str) -> None:
        frame, answer = case.frames[-1], (case.key, case.version, came)
        kept = self.frames.get(answer)
        if len(frame) > FRAME_MAX or (kept is None and len(self.frames) >= KEPT_MAX):
            return
        if kept is None or len(frame) < len(kept):
            self.frames[answer] = frame

    def write(self, folder: Path) -> None:
        rows = [(*answer, frame) for answer, frame in sorted(self.frames.items())]
        hidden = folder / f".{CORPUS}"
        hidden.write_bytes(msgspec.msgpack.encode(rows))
        hidden.replace(folder / CORPUS)

    @classmethod
    def read(cls, folder: Path) -> "Corpus":
        made = cls()
        if (folder / CORPUS).exists():
            try:
                rows = msgspec.msgpack.decode((folder / CORPUS).read_bytes(), type=list[tuple[int, int, str, bytes]])
            except (OSError, msgspec.DecodeError) as error:
                raise UsageError(f"not a corpus: {error}", where=str(folder / CORPUS), hint="remove it") from error
            made.frames = {(key, version, came): frame for key, version, came, frame in rows}
        return made


def read_state(folder: Path) -> State | None:
    """None where nothing was run before."""
    if not (folder / STATE).exists():
        return None
    try:
        return msgspec.json.decode((folder / STATE).read_bytes(), type=State)
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(f"not the state of a run: {error}", where=str(folder / STATE), hint="remove it") from error


def write_state(folder: Path, state: State, coverage: Coverage, corpus: Corpus) -> None:
    """UsageError when the disk refuses."""
    state.points, state.growth = coverage.rows(), coverage.growth
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / STATE, state)
        corpus.write(folder)
    except OSError as error:
        what = f"cannot write the state of the run ({error.strerror})"
        raise UsageError(what, where=str(folder), hint="free disk space, or give --out") from error
