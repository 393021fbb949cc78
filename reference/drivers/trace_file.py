"""The steps of one life of a node, as lines of a file: `NODE.LIFE.ndjson`, lives counted from 0."""

import time
from collections.abc import Iterable
from itertools import count
from pathlib import Path
from typing import BinaryIO

import msgspec

from reference.effects import Effect, Trace
from spec.formats.trace import Step
from spec.formats.verdict import UsageError


class TraceFile:
    """Nothing is buffered here: what a killed process has sent, it has written the step of before."""

    def __init__(self, folder: Path, node: str) -> None:
        """Begin the node's next life; UsageError for a folder that cannot be written."""
        self._encoder = msgspec.json.Encoder()
        self._seq = 0
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = _next_life(folder, node)
        except OSError as error:
            raise UsageError(f"cannot write traces here ({error.strerror})", where=str(folder)) from error

    def write(self, effects: Iterable[Effect]) -> None:
        """All lines of a step, under one time of the host's monotonic clock; to be called before it sends anything."""
        now, lines = time.monotonic_ns(), []
        for effect in effects:
            if isinstance(effect, Trace):
                step = Step(
                    seq=self._seq, time_ns=now, node=effect.node, entity=effect.entity,
                    action=effect.action, choices=effect.choices, state=effect.state,
                )  # fmt: skip
                lines.append(self._encoder.encode(step) + b"\n")
                self._seq += 1
        if lines:
            self._file.write(b"".join(lines))
            self._file.flush()


def _next_life(folder: Path, node: str) -> BinaryIO:
    for life in count():
        try:
            return (folder / f"{node}.{life}.ndjson").open("xb")
        except FileExistsError:
            continue
    raise AssertionError("count() has no end")
