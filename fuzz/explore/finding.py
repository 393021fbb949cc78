"""A difference is a folder: `walk.json` to walk it again, `test_walk.py` as a test, `README.md` for people."""

import re
from pathlib import Path as File
from typing import Final
from zlib import crc32

import msgspec

from highwater.conformance.cases.programs import PROGRAMS
from highwater.conformance.client.draws import Path
from highwater.errors import UsageError
from highwater.fuzz.explore.explorer import CONFIRMATIONS, Difference
from highwater.fuzz.explore.ground import Kind, Walked, key_of
from highwater.fuzz.wire.oracles.exchanges import transcript
from highwater.results import write_json

WALK: Final = "walk.json"
SHOWN: Final = 12
"""Lines of requests and replies in the README; all of them are in exchanges.txt."""
TEST: Final = '''"""{failure}

Run it:             pytest -p highwater.conformance.plugin {name} --hw-target {target}
In the suite:       copy this file into conformance/cases; its id is {clause}[walk {digest}]
"""

from highwater.conformance.cases.programs import follow
from highwater.conformance.clause import clause
from highwater.conformance.client.cluster import Cluster

PATH = """{path}"""


@clause("{clause}", "walk {digest}")
def test_the_walk_follows_the_model(cluster: Cluster) -> None:
    follow("{program}", cluster, PATH)
'''


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A difference with all that is needed to walk it again. `met` walks met it, `repeated` of `tries` met it again."""

    program: str
    clause: str
    kind: Kind
    failure: str
    path: Path
    target: str
    version: str
    seed: int
    met: int
    repeated: int
    tries: int = CONFIRMATIONS

    @property
    def key(self) -> str:
        return key_of(self.program, self.kind, self.failure)


def write_findings(folder: File, differences: list[Difference], target: str, version: str, seed: int) -> list[File]:
    """Write a folder for each difference, smallest first; return them. Raises UsageError if that is not possible."""
    found = []
    for difference in sorted(differences, key=lambda each: each.smallest.size):
        walked = difference.smallest
        finding = Finding(
            program=walked.program, clause=clause_of(walked.program), kind=walked.kind, failure=walked.failure,
            path=walked.path, target=target, version=version, seed=seed, met=difference.met,
            repeated=difference.repeated,
        )  # fmt: skip
        found.append(_write(folder, finding, walked, is_flaky=not difference.is_confirmed))
    return found


def clause_of(program: str) -> str:
    """Return the clause of the case that the program is."""
    marks = getattr(PROGRAMS[program], "pytestmark", ())
    return next((str(mark.args[0]) for mark in marks if mark.name == "clause"), "")


def _write(folder: File, finding: Finding, walked: Walked, *, is_flaky: bool) -> File:
    number = 1
    while (place := folder / f"{finding.program}-{number}").exists():
        number += 1
    try:
        place.mkdir(parents=True)
        write_json(place / WALK, finding)
        lines = transcript(walked.log)
        (place / "exchanges.txt").write_text("\n".join(lines) + "\n")
        (place / "README.md").write_text(_readme(finding, walked, lines, is_flaky=is_flaky))
        (place / "test_walk.py").write_text(_test(finding))
    except OSError as error:
        hint = "give another folder with --out"
        raise UsageError(f"cannot write a finding ({error.strerror})", where=str(place), hint=hint) from error
    return place


def _test(finding: Finding) -> str:
    path = msgspec.json.encode(finding.path).decode()
    digest = f"{crc32(path.encode()):08x}"
    failure = re.sub(r'[\\"]', "'", finding.failure)
    return TEST.format(
        failure=failure, name="test_walk.py", target=finding.target, clause=finding.clause, digest=digest, path=path,
        program=finding.program,
    )  # fmt: skip


def _readme(finding: Finding, walked: Walked, lines: list[str], *, is_flaky: bool) -> str:
    left = len(lines) - SHOWN
    return "\n".join([
        f"# {finding.program}: {finding.kind}", "", finding.failure, "",
        f"- target: {finding.target} ({finding.version}); seed {finding.seed}",
        f"- clause: {finding.clause} (`highwater conform --clause {finding.clause} --dry-run` names its cases)",
        f"- walk: {len(finding.path)} steps, {len(walked.replies)} replies; walks that met it: {finding.met}",
        f"- walked again: {finding.repeated} of {finding.tries} times with the same difference"
        + (" (**flaky**)" if is_flaky else ""),
        "", f"Walk it again, in this folder: `highwater replay . {finding.target}`", "",
        "As a test without Hypothesis: "
        f"`pytest -p highwater.conformance.plugin test_walk.py --hw-target {finding.target}`", "",
        f"## The last requests and replies{f' ({left} earlier lines are in exchanges.txt)' if left > 0 else ''}", "",
        "```text", *lines[-SHOWN:], "```", "",
    ])  # fmt: skip


def read_walk(file: File) -> Finding:
    """Read a finding of `highwater explore`. Raises UsageError if it is none."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=Finding)
    except (OSError, msgspec.DecodeError) as error:
        hint = "give a folder that highwater explore wrote"
        raise UsageError(f"not a walk: {error}", where=str(file), hint=hint) from error
