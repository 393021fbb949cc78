"""Verdicts of cases, the expected deviations of known targets, and the exit code of a run."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec

from highwater.conformance.client.exchange import ExchangedReply, ReportedEvent
from highwater.conformance.failures import NotApplicable, TargetFailure, Unsupported
from highwater.conformance.patterns import check_patterns, covers
from highwater.errors import ExitCode, UsageError
from highwater.reference.wire.errors import DecodeError
from highwater.releases import NEWEST, release_number
from highwater.spec.clauses import find_clause

EXPECTATIONS: Final = Path(__file__).parents[1] / "targets" / "expectations"
EXAMPLE: Final = 'one looks like: [[expectation]] clause = "ADM-6[again]" verdict = "fail" reason = "..."'


class CaseVerdict(StrEnum):
    PASS = "pass"
    FAIL = "fail"
    NON_STRICT = "non-strict"
    UNSUPPORTED = "unsupported"
    NOT_APPLICABLE = "not applicable"
    FLAKY = "flaky"
    ERROR = "error"
    NOT_RUN = "not run"


MUST: Final = "MUST"
BROKEN: Final = frozenset({CaseVerdict.FAIL, CaseVerdict.NON_STRICT})
UNDECIDED: Final = frozenset({CaseVerdict.FLAKY, CaseVerdict.ERROR, CaseVerdict.NOT_RUN})
NOT_TESTABLE: Final = frozenset({CaseVerdict.UNSUPPORTED, CaseVerdict.NOT_APPLICABLE})
DECIDED: Final = frozenset(CaseVerdict) - NOT_TESTABLE - {CaseVerdict.NOT_RUN}
"""Verdicts of cases that were run to an end."""


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
    replies: list[ExchangedReply] = []
    """The values of all replies, if they were asked for and the verdict is `pass`."""
    audited: int | None = None
    """How many operations of the client were audited; 0 if they cannot be judged, None if no audit was asked for."""
    fingerprint: str = ""
    """A hash of all events of the run, on a target that repeats them exactly."""

    def full_message(self) -> str:
        """Return the message, for a failure with the sentence and source of the clause."""
        clause = find_clause(self.clause) if self.clause and self.verdict in BROKEN else None
        return self.message + (f" [{clause.sentence} {clause.source}]" if clause else "")


class Expectation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A known deviation: `clause` is the id of a clause or of a case, or a pattern that covers several (`SEC-*`).

    `since` is the first release of the target that deviates. An expected `flaky` also excuses a failure.
    """

    clause: str
    verdict: CaseVerdict
    reason: str
    link: str = ""
    since: str = ""

    def covers(self, result: CaseResult) -> bool:
        return covers(self.clause, result.case, result.clause)

    def excuses(self, result: CaseResult) -> bool:
        allowed = BROKEN | {self.verdict} if self.verdict is CaseVerdict.FLAKY else {self.verdict}
        return self.covers(result) and result.verdict in allowed


class ExpectationFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of expectations."""

    expectation: list[Expectation]


def read_expectations(path: Path) -> list[Expectation]:
    """Return the expectations of a file.

    Raises UsageError if it cannot be read, is not a list of expectations, or names a clause that does not exist.
    """
    try:
        expectations = msgspec.toml.decode(path.read_bytes(), type=ExpectationFile).expectation
    except OSError as error:
        raise UsageError(f"cannot be read ({error.strerror})", where=str(path)) from error
    except (UnicodeDecodeError, msgspec.DecodeError) as error:
        raise UsageError(f"not a list of expectations: {error}", where=str(path), hint=EXAMPLE) from error
    check_patterns((expectation.clause for expectation in expectations), str(path))
    return expectations


def known_expectations(target: str, folder: Path = EXPECTATIONS) -> list[Expectation]:
    """Return what is known of a target such as `apache-kafka:4.0.0:3`; nothing for an external broker."""
    launcher, _, release = target.partition(":")
    path = folder / f"{launcher}.toml"
    if not path.exists():
        return []
    expectations = read_expectations(path)
    version = release.partition(":")[0] if "." in release else NEWEST
    return [
        expectation
        for expectation in expectations
        if not expectation.since or release_number(version) >= release_number(expectation.since)
    ]


def all_expectations(target: str, added: Path | None) -> list[Expectation]:
    """Return what is known of a target after what a file of the user adds; raises UsageError as `read_expectations`."""
    return [*(read_expectations(added) if added else []), *known_expectations(target)]


@cache
def deviations_by_clause(folder: Path = EXPECTATIONS) -> Counter[str]:
    """Count the known deviations of all targets by clause; a pattern counts for none."""
    return Counter(
        known.clause.partition("[")[0] for path in folder.glob("*.toml") for known in read_expectations(path)
    )


def expected_by(result: CaseResult, expectations: Sequence[Expectation]) -> Expectation | None:
    return next((e for e in expectations if e.excuses(result)), None)


def unexpected(
    results: Sequence[CaseResult], expectations: Sequence[Expectation], *, strict: bool = False
) -> list[str]:
    """Return one line for each unexpected failure and each outdated expectation."""
    counted = BROKEN if strict else {CaseVerdict.FAIL}
    lines = [
        f"{result.case}: {result.verdict}: {result.full_message()}"
        for result in results
        if result.verdict in counted and expected_by(result, expectations) is None
    ]
    return lines + outdated(results, expectations)


def outdated(results: Sequence[CaseResult], expectations: Sequence[Expectation]) -> list[str]:
    """Return one line for each expectation that no case shows although one passed."""
    lines = []
    for expectation in expectations:
        observed = {result.verdict for result in results if expectation.covers(result)}
        if expectation.verdict not in {*observed, CaseVerdict.FLAKY} and CaseVerdict.PASS in observed:
            lines.append(f"{expectation.clause}: passes, but {expectation.verdict} was expected: {expectation.reason}")
    return lines


def count_verdicts(results: Iterable[CaseResult]) -> dict[str, int]:
    """Count results by verdict, in the order of `CaseVerdict`, zeros included."""
    counted = Counter(result.verdict for result in results)
    return {verdict.value: counted[verdict] for verdict in CaseVerdict}


def decides_nothing(results: Iterable[CaseResult]) -> bool:
    """Return whether no case passed, failed or differed: such a run says nothing about the broker."""
    return all(result.verdict not in DECIDED for result in results)


def results_of(target: dict[str, Any]) -> list[CaseResult]:
    """Return the results of one entry of `targets` in the report."""
    return msgspec.convert(target["cases"], list[CaseResult])


def expectations_text(
    results: Iterable[CaseResult], known: Sequence[Expectation], kept: Sequence[Expectation] = ()
) -> str:
    """Return a file with the entries of `kept`, and one without a reason for each deviation that is not known."""
    deviations = [
        Expectation(clause=result.case, verdict=result.verdict, reason=f"TODO: {result.message}")
        for result in results
        if result.verdict in BROKEN and result.clause and expected_by(result, known) is None
    ]
    return "\n".join(_entry(expectation) for expectation in [*kept, *deviations])


def _entry(expectation: Expectation) -> str:
    filled = {name: value for name, value in msgspec.to_builtins(expectation).items() if value}
    return "[[expectation]]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in filled.items())


def exit_code(report: dict[str, Any], *, strict: bool = False) -> ExitCode:
    """Return VIOLATED for an unexpected failure, UNDECIDED for a case without a verdict, else HELD.

    A target of which no case was decided is UNDECIDED, too: nothing was checked.
    """
    decided = ExitCode.HELD
    for target in report["targets"]:
        results = results_of(target)
        expectations = msgspec.convert(target.get("expectations", []), list[Expectation])
        if unexpected(results, expectations, strict=strict):
            return ExitCode.VIOLATED
        undecided = (result for result in results if result.verdict in UNDECIDED)
        if decides_nothing(results) or any(expected_by(result, expectations) is None for result in undecided):
            decided = ExitCode.UNDECIDED
    return decided
