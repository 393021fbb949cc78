"""Write the protocol steps of one node process to `NODE.N.ndjson`, where N counts its starts from 0."""

import time
from collections.abc import Iterable
from itertools import count
from pathlib import Path
from typing import BinaryIO

import msgspec

from highwater.errors import UsageError
from highwater.reference.effects import Effect, Trace
from highwater.spec.formats.trace import Step


class TraceFile:
    """Unbuffered, and written before any message of the step is sent, so a killed process loses no visible step."""

    def __init__(self, folder: Path, node: str) -> None:
        """Open the next file of a node; raise UsageError if the folder cannot be written."""
        self._encoder = msgspec.json.Encoder()
        self._seq = 0
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = _open_next_file(folder, node)
        except OSError as error:
            raise UsageError(f"cannot write traces here ({error.strerror})", where=str(folder)) from error

    def write(self, effects: Iterable[Effect]) -> None:
        """Write all trace effects of a step with one monotonic timestamp; call it before the step sends anything."""
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


def _open_next_file(folder: Path, node: str) -> BinaryIO:
    for number in count():
        try:
            return (folder / f"{node}.{number}.ndjson").open("xb")
        except FileExistsError:
            continue
    raise AssertionError("count() has no end")
