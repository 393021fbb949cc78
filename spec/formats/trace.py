"""`trace.ndjson`: one line per protocol step, to be validated by a TLA+ trace module."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from highwater.errors import UsageError


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One step of one entity (partition `t-0`, group or controller).

    `action` is the name of the TLA+ action; `choices` are the values that the spec leaves open;
    `state` are the variables of the spec after the step.
    `time_ns` is monotonic and taken before any message of the step is sent.
    `seq` counts the steps of a file from 0, so that missing or moved lines are detected.
    """

    seq: int
    time_ns: int
    node: int | str
    entity: str
    action: str
    choices: dict[str, Any] = {}
    state: dict[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Line:
    """A step with its file name and line number (from 1)."""

    file: str
    number: int
    step: Step


def renumber(steps: Iterable[Step]) -> list[Step]:
    """Return the steps with `seq` counted from 0."""
    return [msgspec.structs.replace(step, seq=seq) for seq, step in enumerate(steps)]


def write_trace(path: Path, steps: Iterable[Step]) -> None:
    """Write the steps as NDJSON."""
    encoder = msgspec.json.Encoder()
    path.write_bytes(b"".join(encoder.encode(step) + b"\n" for step in steps))


def read_trace(path: Path) -> list[Step]:
    """Return all steps of a trace file; raise UsageError with the number of a line that is not a step."""
    return [line.step for line in read_lines(path)]


def read_lines(path: Path, *, of_process: bool = False) -> list[Line]:
    """Return all steps with their line numbers, like `read_trace`.

    `of_process`: the writer may have been killed during a write, so ignore an incomplete last line.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise UsageError(f"cannot read this trace ({error.strerror})", where=str(path)) from error
    if of_process or not lines[-1]:
        lines.pop()
    decoder = msgspec.json.Decoder(Step)
    return [Line(path.name, number, _decode(decoder, line, path, number)) for number, line in enumerate(lines, 1)]


def _decode(decoder: msgspec.json.Decoder[Step], line: bytes, path: Path, number: int) -> Step:
    try:
        return decoder.decode(line)
    except msgspec.DecodeError as error:
        raise UsageError(f"line {number}: expected one trace step, {error}", where=str(path)) from error


def out_of_order(lines: Iterable[Line]) -> tuple[Line, str] | None:
    """Return the first line whose `seq` or time does not follow the line before it, and what was expected; or None."""
    time_ns = 0
    for seq, line in enumerate(lines):
        if line.step.seq != seq:
            return line, f"expected seq {seq}, not {line.step.seq}: a line is missing or was moved"
        if line.step.time_ns < time_ns:
            return line, f"expected time_ns {time_ns} or later, not {line.step.time_ns}"
        time_ns = line.step.time_ns
    return None
