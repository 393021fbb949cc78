"""What a run has learned and the next one goes on with: coverage, the shortest case of each answer, what kills.

`state.json` and `corpus.bin` stand in the folder of the findings; both are written whole and renamed.
"""

from pathlib import Path
from typing import Any, Final

import msgspec

from fuzz.wire.cases import Case
from fuzz.wire.coverage import Coverage
from spec.formats.run import write_json
from spec.formats.verdict import UsageError

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
                raise UsageError(f"not a corpus: {error}", where=str(folder / CORPUS), mend="remove it") from error
            made.frames = {(key, version, came): frame for key, version, came, frame in rows}
        return made


def read_state(folder: Path) -> State | None:
    """None where nothing was run before."""
    if not (folder / STATE).exists():
        return None
    try:
        return msgspec.json.decode((folder / STATE).read_bytes(), type=State)
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(f"not the state of a run: {error}", where=str(folder / STATE), mend="remove it") from error


def write_state(folder: Path, state: State, coverage: Coverage, corpus: Corpus) -> None:
    """UsageError when the disk refuses."""
    state.points, state.growth = coverage.rows(), coverage.growth
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / STATE, state)
        corpus.write(folder)
    except OSError as error:
        what = f"cannot write the state of the run ({error.strerror})"
        raise UsageError(what, where=str(folder), mend="free disk space, or give --out") from error
