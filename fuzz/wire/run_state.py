"""What a run has reached: totals, coverage and corpus, the state that another run continues from, and the summary."""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from highwater.fuzz.wire.examination.triage import Triage
from highwater.fuzz.wire.findings import FILE, Finding, api_name, make_folder
from highwater.fuzz.wire.generate.stream import Stream
from highwater.fuzz.wire.process import MEGABYTE, Process
from highwater.fuzz.wire.steering.corpus import Corpus, CorpusState, Coverage, read_state, write_state

PERSIST_EVERY_S: Final = 10.0
PERSIST_SHARE: Final = 50
"""The state is written for at most 1/PERSIST_SHARE of the time; after an hour each write takes seconds."""


@dataclass(slots=True)
class Totals:
    cases: int = 0
    sound: int = 0
    relations: int = 0
    """Requests that were compared with equivalent ones."""
    sending_s: float = 0.0
    seconds: float = 0.0
    hit_s: float = 0.0
    hit_processor_s: float = 0.0
    hit_frames: int = 0
    malformed: int = 0
    """Requests that had to be refused, and were judged."""
    ended: str = ""


class RunState:
    """The state of one run, kept in the folder of its findings; with `resume` it continues from what is there.

    Raises UsageError if that cannot be a folder.
    """

    def __init__(self, folder: Path, seed: int, *, resume: bool) -> None:
        make_folder(folder)
        self._earlier = 0 if resume else sum(1 for _ in folder.glob(f"*/{FILE}"))
        done = read_state(folder) if resume else None
        self.folder, self.seed, self.done = folder, seed, done or CorpusState(seed=seed)
        self.coverage = Coverage.from_rows(done.points, done.growth) if done is not None else Coverage()
        self.corpus = Corpus.read(folder) if done is not None else Corpus()
        self._own = Process(os.getpid(), None)
        self._persisted, self._persist_every_s, self._persisted_findings = time.monotonic(), PERSIST_EVERY_S, 0

    def persist_if_due(self, totals: Totals, triage: Triage, stream: Stream) -> None:
        started = time.monotonic()
        if len(triage.findings) > self._persisted_findings or started - self._persisted > self._persist_every_s:
            self.persist(totals, triage, stream)
            self._persist_every_s = max(PERSIST_EVERY_S, PERSIST_SHARE * (time.monotonic() - started))

    def persist(self, totals: Totals, triage: Triage, stream: Stream) -> None:
        """Write everything that another run needs to continue."""
        self._persisted, self._persisted_findings = time.monotonic(), len(triage.findings)
        done, (memory, _) = self.done, self._own.memory()
        self.coverage.mark(done.seconds + totals.seconds, done.cases + totals.cases)
        done.memory.append((round(done.seconds + totals.seconds, 1), memory // MEGABYTE))
        state = CorpusState(
            seed=self.seed, runs=done.runs + 1, cases=done.cases + totals.cases,
            relations=done.relations + totals.relations, seconds=done.seconds + totals.seconds,
            avoid=sorted(stream.avoided), left_alone=sorted(stream.left_alone),
            seen=sorted(list(row) for row in triage.signatures),
            findings=done.findings + [self._row(row) for row in triage.findings], memory=done.memory,
        )  # fmt: skip
        write_state(self.folder, state, self.coverage, self.corpus)

    def _row(self, finding: Finding) -> dict[str, Any]:
        return {
            "id": finding.id, "oracle": finding.oracle, "api": finding.api, "version": finding.version,
            "message": finding.message, "place": finding.place, "reproduced": finding.reproduced,
            "case": self.done.cases + finding.case,
            "path": str(self.folder / finding.id / FILE),
        }  # fmt: skip

    def summary(self, totals: Totals, triage: Triage, stream: Stream, frames: int) -> dict[str, Any]:
        """Return what was sent, how fast, and what was found and avoided."""
        return {
            "cases": totals.cases, "cases_per_second": _rate(totals.cases, totals.seconds),
            "frames": frames, "frames_per_second": _rate(frames, totals.seconds),
            "relations": totals.relations,
            "seconds": round(totals.seconds, 1), "sending_seconds": round(totals.sending_s, 2),
            "seed": self.seed, "ended": totals.ended,
            "folder": str(self.folder), "earlier_findings": self._earlier,
            "coverage": len(self.coverage.points), "memory_peak_mb": self._own.memory()[1] // MEGABYTE,
            "unconfirmed": triage.unconfirmed, "alike": triage.alike,
            "avoided": [f"{api_name(key)} {mutation} {place}".rstrip() for key, mutation, place in
                        sorted(stream.avoided)],
            "left_alone": [f"{api_name(key)} v{version}" for key, version in sorted(stream.left_alone)],
            "findings": [self._row(finding) for finding in triage.findings],
        }  # fmt: skip


def _rate(count: int, seconds: float) -> float:
    return round(count / seconds, 1) if seconds else 0.0
