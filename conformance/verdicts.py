"""The verdict of a case, what was expected of a known target, and the exit code of it all."""

import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import msgspec

from highwater.conformance.exchange import KeptEvent
from highwater.conformance.failures import NotApplicable, TargetFailure, Unsupported
from highwater.errors import ExitCode, UsageError
from highwater.reference.wire.errors import DecodeError
from highwater.releases import NEWEST, release_number
from highwater.spec.clauses import find_clause, load_clauses

EXPECTATIONS: Final = Path(__file__).parent / "targets" / "expectations"


class CaseVerdict(StrEnum):
    PASS = "pass"
    FAIL = "fail"
    NON_STRICT = "non-strict"
    UNSUPPORTED = "unsupported"
    NOT_APPLICABLE = "not applicable"
    FLAKY = "flaky"
    ERROR = "error"


MUST: Final = "MUST"
BROKEN: Final = frozenset({CaseVerdict.FAIL, CaseVerdict.NON_STRICT})
UNDECIDED: Final = frozenset({CaseVerdict.FLAKY, CaseVerdict.ERROR})


def verdict_of(exception: BaseException | None, level: str) -> CaseVerdict:
    """A failed assertion is the target's, and so is what does not decode; whatever else is raised is ours."""
    if exception is None:
        return CaseVerdict.PASS
    if isinstance(exception, Unsupported):
        return CaseVerdict.UNSUPPORTED
    if isinstance(exception, NotApplicable):
        return CaseVerdict.NOT_APPLICABLE
    if isinstance(exception, (TargetFailure, AssertionError, DecodeError)):
        return CaseVerdict.FAIL if level == MUST else CaseVerdict.NON_STRICT
    return CaseVerdict.ERROR


class CaseResult(msgspec.Struct, frozen=True, kw_only=True):
    """One row of `conform --json`; `case` is the clause id with the variant or version in brackets."""

    case: str
    clause: str
    level: str
    verdict: CaseVerdict
    message: str = ""
    expected: str = ""
    actual: str = ""
    seconds: float = 0.0
    exchange: list[KeptEvent] = []
    """The last events, where the verdict is not a pass."""

    def told(self) -> str:
        """The message and the clause behind it."""
        clause = find_clause(self.clause) if self.clause and self.verdict in BROKEN else None
        return self.message + (f" [{clause.sentence} {clause.source}]" if clause else "")


class Expectation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`clause` is a clause id, or a whole case id when only that case deviates; `since` is a release of the target.

    `flaky` is what fails in some runs only, and excuses a failure as well.
    """

    clause: str
    verdict: CaseVerdict
    reason: str
    link: str = ""
    since: str = ""

    def covers(self, result: CaseResult) -> bool:
        return self.clause in (result.case, result.clause)

    def excuses(self, result: CaseResult) -> bool:
        allowed = BROKEN | {self.verdict} if self.verdict is CaseVerdict.FLAKY else {self.verdict}
        return self.covers(result) and result.verdict in allowed


def read_expectations(target: str, folder: Path = EXPECTATIONS) -> list[Expectation]:
    """Those of the launcher that a target's name begins with, for the release in it; none for somebody else's broker.

    UsageError for a file that is no list of expectations, or that names a clause which does not exist.
    """
    launcher, _, release = target.partition(":")
    path = folder / f"{launcher}.toml"
    if not path.exists():
        return []
    try:
        listed = msgspec.convert(tomllib.loads(path.read_text()).get("expectation", []), list[Expectation])
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise UsageError(f"not a list of expectations: {error}", where=str(path)) from error
    for each in listed:
        if each.clause.partition("[")[0] not in load_clauses():
            raise UsageError(f"no clause {each.clause!r}", where=str(path), hint="see spec/clauses")
    version = release.partition(":")[0] if "." in release else NEWEST
    return [each for each in listed if not each.since or release_number(version) >= release_number(each.since)]


def expected_by(result: CaseResult, expectations: Sequence[Expectation]) -> Expectation | None:
    return next((e for e in expectations if e.excuses(result)), None)


def unexpected(
    results: Sequence[CaseResult], expectations: Sequence[Expectation], *, strict: bool = False
) -> list[str]:
    """New failures, and expectations that nothing bears out although one of their cases passed: one line each."""
    counted = BROKEN if strict else {CaseVerdict.FAIL}
    lines = [
        f"{result.case}: {result.verdict}: {result.told()}"
        for result in results
        if result.verdict in counted and expected_by(result, expectations) is None
    ]
    for expectation in expectations:
        seen = {result.verdict for result in results if expectation.covers(result)}
        if expectation.verdict not in {*seen, CaseVerdict.FLAKY} and CaseVerdict.PASS in seen:
            lines.append(f"{expectation.clause}: passes, but {expectation.verdict} was expected: {expectation.reason}")
    return lines


def count_verdicts(results: Iterable[CaseResult]) -> dict[str, int]:
    """Every verdict is there, in order, also at zero."""
    counted = Counter(result.verdict for result in results)
    return {verdict.value: counted[verdict] for verdict in CaseVerdict}


def results_of(target: dict[str, Any]) -> list[CaseResult]:
    """The rows of one entry of the `conform` object."""
    return msgspec.convert(target["cases"], list[CaseResult])


def exit_code(report: dict[str, Any], *, strict: bool = False) -> ExitCode:
    """Of the whole `conform` object: one violation decides, otherwise one that could not be decided, or no case."""
    decided = ExitCode.HELD
    for target in report["targets"]:
        results, expectations = results_of(target), read_expectations(target["target"])
        if unexpected(results, expectations, strict=strict):
            return ExitCode.VIOLATED
        undecided = (result for result in results if result.verdict in UNDECIDED)
        if not results or any(expected_by(result, expectations) is None for result in undecided):
            decided = ExitCode.UNDECIDED
    return decided
