"""What later runs reuse: coverage, the shortest frame for each response, and cases to avoid.

`state.json` and `corpus.bin` are in the folder of the findings; each is written to a temporary file and renamed.
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
# Coverage: which field of which version was mutated how, and how the target responded.


POINTS_MAX: Final = 250_000
"""Limits memory: writing this many points takes 170 MB at its peak. 292,000 cases on the reference gave 22,700."""
Point = tuple[int, int, str, str, str]
"""Key, version, field, mutation and outcome: error codes, `closed`, `silent`, `reset` or `left`."""


class Coverage:
    """Coverage points with their counts; `growth` is the number of points over time, for the curve."""

    def __init__(self) -> None:
        self.points: Counter[Point] = Counter()
        self.growth: list[tuple[float, int, int]] = []

    def note(self, point: Point) -> bool:
        """Count a point; return True if it is new."""
        is_new = point not in self.points and len(self.points) < POINTS_MAX
        if is_new or point in self.points:
            self.points[point] += 1
        return is_new

    def mark(self, seconds: float, cases: int) -> None:
        self.growth.append((round(seconds, 1), cases, len(self.points)))

    def by_api(self) -> dict[str, dict[str, Any]]:
        """Return cases, points, versions, mutations and responses of each API, for the map."""
        found: dict[str, dict[str, Any]] = {}
        for (key, version, field, mutation, outcome), count in self.points.items():
            name = APIS[key].name if key in APIS else str(key)
            row = found.setdefault(name, {"points": 0, "cases": 0, "versions": set(), "fields": set(),
                                          "mutations": Counter(), "answers": Counter()})  # fmt: skip
            row["points"] += 1
            row["cases"] += count
            row["versions"].add(version)
            row["fields"].add(field)
            row["mutations"][mutation] += count
            row["answers"][outcome] += count
        return found

    def rows(self) -> list[tuple[int, int, str, str, str, int]]:
        return [(*point, count) for point, count in sorted(self.points.items())]

    @classmethod
    def from_rows(cls, rows: list[Any], growth: list[Any]) -> "Coverage":
        """Restore the coverage from `rows` and `growth`."""
        loaded = cls()
        for key, version, field, mutation, outcome, count in rows:
            loaded.points[int(key), int(version), field, mutation, outcome] = count
        loaded.growth = msgspec.convert(growth, list[tuple[float, int, int]])
        return loaded


STATE, CORPUS = "state.json", "corpus.bin"
KEPT_MAX: Final = 20_000
FRAME_MAX: Final = 4_096
"""Larger frames, such as decompression bombs, are generated again instead of stored."""
Answer = tuple[int, int, str]
"""Key, version, outcome."""


class CorpusState(msgspec.Struct, kw_only=True):
    """Totals of all runs into this folder."""

    seed: int
    runs: int = 0
    cases: int = 0
    relations: int = 0
    seconds: float = 0.0
    avoid: list[tuple[int, str, str]] = []
    left_alone: list[tuple[int, int]] = []
    seen: list[list[str]] = []
    findings: list[dict[str, Any]] = []
    points: list[tuple[int, int, str, str, str, int]] = []
    growth: list[tuple[float, int, int]] = []
    memory: list[tuple[float, int]] = []
    """Seconds, and the megabytes that the fuzzer itself used then."""


class Corpus:
    """The shortest frame for each response; a shorter frame replaces a longer one."""

    def __init__(self) -> None:
        self.frames: dict[Answer, bytes] = {}

    def note(self, case: Case, outcome: str) -> None:
        frame, answer = case.frames[-1], (case.key, case.version, outcome)
        shortest = self.frames.get(answer)
        if len(frame) > FRAME_MAX or (shortest is None and len(self.frames) >= KEPT_MAX):
            return
        if shortest is None or len(frame) < len(shortest):
            self.frames[answer] = frame

    def write(self, folder: Path) -> None:
        rows = [(*answer, frame) for answer, frame in sorted(self.frames.items())]
        hidden = folder / f".{CORPUS}"
        hidden.write_bytes(msgspec.msgpack.encode(rows))
        hidden.replace(folder / CORPUS)

    @classmethod
    def read(cls, folder: Path) -> "Corpus":
        loaded = cls()
        if (folder / CORPUS).exists():
            try:
                rows = msgspec.msgpack.decode((folder / CORPUS).read_bytes(), type=list[tuple[int, int, str, bytes]])
            except (OSError, msgspec.DecodeError) as error:
                raise UsageError(f"not a corpus: {error}", where=str(folder / CORPUS), hint="remove it") from error
            loaded.frames = {(key, version, outcome): frame for key, version, outcome, frame in rows}
        return loaded


def read_state(folder: Path) -> CorpusState | None:
    """Return the state of earlier runs, or None if there was none."""
    if not (folder / STATE).exists():
        return None
    try:
        return msgspec.json.decode((folder / STATE).read_bytes(), type=CorpusState)
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(f"not the state of a run: {error}", where=str(folder / STATE), hint="remove it") from error


def write_state(folder: Path, state: CorpusState, coverage: Coverage, corpus: Corpus) -> None:
    """Write state and corpus; UsageError if the files cannot be written."""
    state.points, state.growth = coverage.rows(), coverage.growth
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / STATE, state)
        corpus.write(folder)
    except OSError as error:
        what = f"cannot write the state of the run ({error.strerror})"
        raise UsageError(what, where=str(folder), hint="free disk space, or give --out") from error
