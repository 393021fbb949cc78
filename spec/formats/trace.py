"""`trace.ndjson`: one line per protocol step, to be accepted or refused by a TLA+ trace module."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from spec.formats.verdict import UsageError


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One step of one entity (partition `t-0`, group or controller).

    `action` is the TLA+ action's name; `choices` what was chosen where the spec leaves a choice;
    `state` the values after the step of the variables that the spec names.
    `time_ns` is monotonic and taken before anything of the step is sent.
    """

    seq: int
    time_ns: int
    node: int | str
    entity: str
    action: str
    choices: dict[str, Any] = {}
    state: dict[str, Any] = {}


def write_trace(path: Path, steps: Iterable[Step]) -> None:
    encoder = msgspec.json.Encoder()
    path.write_bytes(b"".join(encoder.encode(step) + b"\n" for step in steps))


def read_trace(path: Path) -> list[Step]:
    """All steps of a trace file; UsageError names the line that is not a step."""
    decoder = msgspec.json.Decoder(Step)
    steps = []
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise UsageError(f"cannot read this trace ({error.strerror})", where=str(path)) from error
    for number, line in enumerate(lines, 1):
        try:
            steps.append(decoder.decode(line))
        except msgspec.DecodeError as error:
            raise UsageError(f"line {number}: expected one trace step, {error}", where=str(path)) from error
    return steps
