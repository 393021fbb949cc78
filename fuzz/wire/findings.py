"""A finding is a folder: `finding.json` for replay, `frames.bin` with the bytes, `README.md` for people."""

import platform
import re
import shlex
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from highwater.errors import UsageError
from highwater.fuzz.wire.clients.served_replies import SIZE, ServedReplies
from highwater.fuzz.wire.generate.cases import Case, Ends, is_whole
from highwater.fuzz.wire.oracles.responses import Oracle, key_and_version, read_request
from highwater.reference.wire.errors import WireError
from highwater.reference.wire.printer import describe, hexdump
from highwater.reference.wire.registry import APIS
from highwater.results import write_json
from highwater_kafka import installed_version

FILE: Final = "finding.json"
UNEXAMINED: Final = "unexamined"
"""Folder of the failures that the last run saw and did not examine."""
SHOWN_BYTES: Final = 1024
SHOWN_HEX: Final = 200
SHOWN_STEPS: Final = 20
REPRODUCED: Final = {
    (True, True): "yes, also on a freshly started target",
    (True, False): "yes, by the same target, which was asked again (it was not restarted)",
    (False, True): "not on a freshly started target",
    (False, False): "no",
}
"""By `reproduced` and `restarted`."""
EXPECTED: Final = {
    Oracle.ALIVE: "the target stays alive: it accepts a fresh connection and answers ApiVersions",
    Oracle.STACK: "no uncaught exception in the log",
    Oracle.DEADLINE: "a response or a closed connection in time; acks=0, waiting members and long polls may be silent",
    Oracle.DECODE: "a response that decodes strictly in the requested version",
    Oracle.CORRELATION: "a response with the correlation id of its request",
    Oracle.ERROR_CODE: "error codes that exist, and that this API may return",
    Oracle.REFUSE: "an error code or a closed connection for a malformed request",
    Oracle.MEMORY: "memory in proportion to the bytes that were sent",
    Oracle.LEAK: "memory that does not grow with each request of one kind",
    Oracle.STALL: "a healthy connection is served while other requests are handled",
    Oracle.STATE: "the same state before and after a refused request",
    Oracle.DESCRIPTORS: "as many sockets as there are connections",
    Oracle.INVARIANT: "a result for each item of the request, within its limits",
    Oracle.RELATION: "the same response to equivalent requests",
    Oracle.AGREEMENT: "the same response as the other target",
}


class Step(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A case as it was sent: frames in hexadecimal with size prefixes; see `fuzz.wire.generate.cases`."""

    frames: list[str]
    cuts: list[int] = []
    ends: Ends = Ends.OPEN

    def case(self) -> Case:
        frames = tuple(bytes.fromhex(frame) for frame in self.frames)
        key, version = key_and_version(frames[-1]) if frames else (-1, -1)
        return Case(key, version, frames, cuts=tuple(self.cuts), ends=self.ends)


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A failure with all that is needed to replay it.

    `served` are the mutated replies to a client under test. `reproduced`: a replay failed in the same way;
    `restarted`: the target was freshly started before the last replay, so nothing else that it received is the cause.
    """

    id: str
    oracle: Oracle
    api: str
    version: int
    mutation: str
    field: str
    place: str
    message: str
    expected: str
    target: str
    seed: int
    case: int
    reproduced: bool
    steps: list[Step]
    log: str = ""
    environment: dict[str, str] = {}
    served: ServedReplies | None = None
    restarted: bool = True
    note: str = ""

    def cases(self) -> list[Case]:
        return [step.case() for step in self.steps]


def steps_of(cases: list[Case]) -> list[Step]:
    return [Step(frames=[frame.hex() for frame in case.frames], cuts=list(case.cuts), ends=case.ends) for case in cases]


def environment(version: str) -> dict[str, str]:
    return {
        "target version": version, "highwater": installed_version(), "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
    }  # fmt: skip


def api_name(key: int) -> str:
    return APIS[key].name if key in APIS else f"key{key}"


def make_folder(folder: Path) -> None:
    """Create the folder of findings and state; raise UsageError if that is not possible."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise UsageError(
            "is a file, or in one, and no folder", where=str(folder), hint="give a folder with --out"
        ) from error
    except OSError as error:
        what = f"cannot create the folder of the findings ({error.strerror})"
        raise UsageError(what, where=str(folder), hint="give another folder with --out") from error


def new_id(folder: Path, oracle: Oracle, api: str, version: int) -> str:
    """Return a name that is not yet used in this folder."""
    stem, number = re.sub(r"[^\w.-]", "", f"{oracle}-{api}-v{version}"), 1
    while (folder / f"{stem}-{number}").exists():
        number += 1
    return f"{stem}-{number}"


def write_finding(folder: Path, finding: Finding) -> Path:
    """Write a finding to a folder of its own; return the path of its JSON.

    Findings are published, so the path of the home directory in the log is replaced by `~`.
    """
    finding = msgspec.structs.replace(finding, log=finding.log.replace(str(Path.home()), "~"))
    place = folder / finding.id
    try:
        place.mkdir(parents=True, exist_ok=True)
        (place / "frames.bin").write_bytes(b"".join(b"".join(case.frames) for case in finding.cases()))
        (place / "README.md").write_text(readme_text(finding))
        write_json(place / FILE, finding)
    except OSError as error:
        raise UsageError(f"cannot write a finding ({error.strerror})", where=str(place), hint="give --out") from error
    return place / FILE


def write_unexamined(folder: Path, findings: list[Finding]) -> None:
    """Replace the failures that earlier runs saw and did not examine by these."""
    place = folder / UNEXAMINED
    for file in sorted(place.glob(f"*/{FILE}")):
        shutil.rmtree(file.parent)
    with suppress(OSError):  # it is not there, or a file of others is in it
        place.rmdir()
    for finding in findings:
        name = new_id(place, finding.oracle, finding.api, finding.version)
        write_finding(place, msgspec.structs.replace(finding, id=name))


def read_unexamined(folder: Path) -> list[Finding]:
    """Return the failures that the last run saw and did not examine."""
    return [read_finding(file) for file in sorted((folder / UNEXAMINED).glob(f"*/{FILE}"))]


def read_finding(path: Path) -> Finding:
    """Read a finding from its JSON or its folder; UsageError if it is none."""
    file = path / FILE if path.is_dir() else path
    try:
        finding = msgspec.json.decode(file.read_bytes(), type=Finding)
        finding.cases()
    except (OSError, msgspec.DecodeError, ValueError) as error:
        hint = "give a finding.json that highwater fuzz wrote"
        raise UsageError(f"not a finding: {error}", where=str(file), hint=hint) from error
    return finding


def readme_text(finding: Finding) -> str:
    """Return the README: expectation, observation, how to replay, and the frames field by field."""
    lines = [
        f"# {finding.api} v{finding.version}: {finding.oracle}", "",
        f"- expected: {finding.expected}",
        f"- observed: {finding.message}",
        f"- place: {finding.place or 'unknown'}",
        f"- mutation: {finding.mutation} {finding.field}".rstrip(),
        f"- reproduced: {REPRODUCED[finding.reproduced, finding.restarted]}",
        f"- target: {finding.target}; seed {finding.seed}, case {finding.case}",
        *(f"- {name}: {value}" for name, value in finding.environment.items()),
        "", f"Replay, in the folder of this file: `highwater replay . {shlex.quote(finding.target)}`", "",
    ]  # fmt: skip
    if finding.note:
        lines += [finding.note, ""]
    if finding.served is not None:
        lines += _replies_text(finding.served)
    steps = list(enumerate(finding.cases(), 1))
    if len(steps) > SHOWN_STEPS:
        lines += [f"The last {SHOWN_STEPS} of {len(steps)} steps; `{FILE}` has all of them.", ""]
    for number, case in steps[-SHOWN_STEPS:]:
        lines += [f"## Step {number}", "", *_step_text(case), ""]
    if finding.log:
        lines += ["## What the target logged", "", "```", finding.log, "```", ""]
    return "\n".join(lines)


def _replies_text(served: ServedReplies) -> list[str]:
    lines = [f"## Mutated replies (limits: {served.deadline_s:g} s and {served.memory_mb} MB)", ""]
    for reply in served.replies:
        lines.append(f"- {api_name(reply.key)} v{reply.version}, reply {reply.number + 1} of its API: {reply.how}")
        lines += [
            f"  - at {SIZE + at}: {removed} bytes become `{inserted[:SHOWN_HEX]}`{'…' * (len(inserted) > SHOWN_HEX)}"
            f" ({len(inserted) // 2} bytes)"
            for at, removed, inserted in map(msgspec.structs.astuple, reply.edits)
        ]
        lines += [f"  - its size: {reply.size}"] if reply.size is not None else []
    return [*lines, ""]


def _step_text(case: Case) -> list[str]:
    lines = []
    if case.cuts or case.ends is not Ends.OPEN:
        lines += [f"cut into segments at {list(case.cuts) or 'no place'}; then: {case.ends}", ""]
    for frame in case.frames:
        lines += ["```", _decoded(frame), "", hexdump(frame[:SHOWN_BYTES])]
        if len(frame) > SHOWN_BYTES:
            lines.append(f"… {len(frame)} bytes in total")
        lines.append("```")
    return lines


def _decoded(frame: bytes) -> str:
    if not is_whole(frame):
        return f"not a whole frame ({len(frame)} bytes)"
    try:
        header, body = read_request(frame[4:])
    except WireError as error:
        key, version = key_and_version(frame)
        return f"key {key} version {version}: does not decode: {error}"
    return f"version {header.api_version}, client {header.client_id!r}\n{describe(body)}"
