"""Verdicts of cases, the expected deviations of known targets, and the exit code of a run."""

import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import msgspec

from highwater.conformance.exchange import ReportedEvent
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
    """Return the verdict for an exception; failed assertions and undecodable replies are failures of the target."""
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
    """Result of one case; `case` is the clause id with the variant or version in brackets."""

    case: str
    clause: str
    level: str
    verdict: CaseVerdict
    message: str = ""
    expected: str = ""
    actual: str = ""
    seconds: float = 0.0
    exchange: list[ReportedEvent] = []
    """The last events, unless the verdict is `pass`."""

    def full_message(self) -> str:
        """Return the message, for a failure with the sentence and source of the clause."""
        clause = find_clause(self.clause) if self.clause and self.verdict in BROKEN else None
        return self.message + (f" [{clause.sentence} {clause.source}]" if clause else "")


class Expectation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A known deviation: `clause` is a clause id, or a case id if only that case deviates.

    `since` is the first release of the target that deviates. An expected `flaky` also excuses a failure.
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
    """Return the expectations for a target name such as `apache-kafka:4.0.0:3`; none for an external broker.

    Raises UsageError if the file is not a list of expectations or names a clause that does not exist.
    """
    launcher, _, release = target.partition(":")
    path = folder / f"{launcher}.toml"
    if not path.exists():
        return []
    try:
        expectations = msgspec.convert(tomllib.loads(path.read_text()).get("expectation", []), list[Expectation])
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise UsageError(f"not a list of expectations: {error}", where=str(path)) from error
    for expectation in expectations:
        if expectation.clause.partition("[")[0] not in load_clauses():
            raise UsageError(f"no clause {expectation.clause!r}", where=str(path), hint="see spec/clauses")
    version = release.partition(":")[0] if "." in release else NEWEST
    return [
        expectation
        for expectation in expectations
        if not expectation.since or release_number(version) >= release_number(expectation.since)
    ]


def expected_by(result: CaseResult, expectations: Sequence[Expectation]) -> Expectation | None:
    return next((e for e in expectations if e.excuses(result)), None)


def unexpected(
    results: Sequence[CaseResult], expectations: Sequence[Expectation], *, strict: bool = False
) -> list[str]:
    """Return one line for each unexpected failure and each expectation that no case shows although one passed."""
    counted = BROKEN if strict else {CaseVerdict.FAIL}
    lines = [
        f"{result.case}: {result.verdict}: {result.full_message()}"
        for result in results
        if result.verdict in counted and expected_by(result, expectations) is None
    ]
    for expectation in expectations:
        observed = {result.verdict for result in results if expectation.covers(result)}
        if expectation.verdict not in {*observed, CaseVerdict.FLAKY} and CaseVerdict.PASS in observed:
            lines.append(f"{expectation.clause}: passes, but {expectation.verdict} was expected: {expectation.reason}")
    return lines


def count_verdicts(results: Iterable[CaseResult]) -> dict[str, int]:
    """Count results by verdict, in the order of `CaseVerdict`, zeros included."""
    counted = Counter(result.verdict for result in results)
    return {verdict.value: counted[verdict] for verdict in CaseVerdict}


def results_of(target: dict[str, Any]) -> list[CaseResult]:
    """Return the results of one entry of `targets` in the report."""
    return msgspec.convert(target["cases"], list[CaseResult])


def exit_code(report: dict[str, Any], *, strict: bool = False) -> ExitCode:
    """Return VIOLATED for an unexpected failure, UNDECIDED for a case without verdict or an empty run, else HELD."""
    decided = ExitCode.HELD
    for target in report["targets"]:
        results, expectations = results_of(target), read_expectations(target["target"])
        if unexpected(results, expectations, strict=strict):
            return ExitCode.VIOLATED
        undecided = (result for result in results if result.verdict in UNDECIDED)
        if not results or any(expected_by(result, expectations) is None for result in undecided):
            decided = ExitCode.UNDECIDED
    return decided
