"""A finding is one small file: what was sent, what was broken, and how to see it again."""

from pathlib import Path

import msgspec

from fuzz.wire.oracles import Line, Oracle, Outcome, is_alive, run_case
from spec.formats.verdict import UsageError


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """`frames` are hexadecimal, each with its size prefix, sent in order on one connection."""

    id: str
    oracle: Oracle
    api: str
    version: int
    mutation: str
    message: str
    seed: int
    case: int
    frames: list[str]


def write_finding(folder: Path, finding: Finding) -> Path:
    path = folder / f"{finding.id}.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(finding)) + b"\n")
    return path


def read_finding(path: Path) -> Finding:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Finding)
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(
            f"not a finding: {error}", where=str(path), mend="give a file that highwater fuzz wrote"
        ) from error


def replay(frames: list[bytes], address: str) -> Outcome:
    """Send the frames; the first broken oracle, or a sound outcome."""
    line = Line(address)
    try:
        for frame in frames:
            try:
                outcome = run_case(line, frame)
            except OSError as error:
                return Outcome(False, Oracle.ALIVE, f"the target refuses connections ({error})")
            if outcome.broken is not None:
                return outcome
    finally:
        line.close()
    dead = is_alive(address)
    if dead is not None:
        return Outcome(False, Oracle.ALIVE, f"the target {dead}")
    return Outcome(answered=True)


def minimise(frames: list[bytes], address: str, oracle: Oracle) -> list[bytes]:
    """Fewer frames, then shorter ones, as long as the same oracle breaks. The target must survive being broken."""

    def breaks(candidate: list[bytes]) -> bool:
        return replay(candidate, address).broken is oracle

    for number in range(len(frames) - 1, -1, -1):
        fewer = frames[:number] + frames[number + 1 :]
        if fewer and breaks(fewer):
            frames = fewer
    return [_shorten(frames, number, breaks) for number in range(len(frames))]


def _shorten(frames: list[bytes], number: int, breaks: object) -> bytes:
    """Cut bytes out of one frame's body in ever smaller pieces, correcting its size."""
    assert callable(breaks)
    body = frames[number][4:]
    honest = int.from_bytes(frames[number][:4], "big", signed=True) == len(body)
    piece = len(body) // 2
    while piece and honest:
        start = 0
        while start < len(body):
            shorter = body[:start] + body[start + piece :]
            candidate = len(shorter).to_bytes(4, "big") + shorter
            if len(shorter) >= 8 and breaks([*frames[:number], candidate, *frames[number + 1 :]]):
                body = shorter
            else:
                start += piece
        piece //= 2
    return len(body).to_bytes(4, "big") + body if honest else frames[number]
