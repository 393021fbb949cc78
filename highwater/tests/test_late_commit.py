"""What the runs with a late commit prove: nothing, if it never arrived."""

import pytest

from highwater.errors import ExitCode, Verdict
from highwater.soak.late_commit import ABORTED_READ, Run, verdict_on

LATE = ("EndTxn version 5 of client pay, 1500 ms late: answered PRODUCER_FENCED",)
UNANSWERED = ("EndTxn version 5 of client pay, 1500 ms late: no answer (the broker closed the connection)",)
TORN = Run(Verdict.INVALID, frozenset({ABORTED_READ}), LATE)
CLEAN = Run(Verdict.VALID, frozenset(), LATE)
OTHER = Run(Verdict.INVALID, frozenset({"lost-write"}), LATE)


@pytest.mark.parametrize(
    ("older", "newer", "verdict"),
    [
        ([TORN] * 10, [CLEAN] * 5, ExitCode.HELD),
        ([TORN] * 9 + [CLEAN], [CLEAN], ExitCode.HELD),
        ([TORN] * 8 + [CLEAN] * 2, [CLEAN], ExitCode.VIOLATED),
        ([TORN], [CLEAN, TORN], ExitCode.VIOLATED),
        ([TORN], [CLEAN, Run(Verdict.VALID, frozenset(), ())], ExitCode.UNDECIDED),
        ([TORN], [Run(Verdict.VALID, frozenset(), UNANSWERED)], ExitCode.UNDECIDED),
        ([TORN], [Run(Verdict.UNKNOWN, frozenset(), LATE)], ExitCode.UNDECIDED),
        ([TORN], [OTHER], ExitCode.UNDECIDED),
        ([TORN], [], ExitCode.UNDECIDED),
        ([], [CLEAN], ExitCode.UNDECIDED),
    ],
)
def test_verdicts(older: list[Run], newer: list[Run], verdict: ExitCode) -> None:
    assert verdict_on(older, newer) is verdict
