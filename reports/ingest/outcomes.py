"""What became of an operation: the outcome that was written down, unless its error says that nobody can know."""

import re
from typing import Final

from reports.columns import Status
from spec.formats.history import Event

_STATUS: Final = {"ok": Status.OK, "fail": Status.FAIL, "info": Status.INFO}
_ANSWER_LOST: Final = re.compile(
    r"time.?d?.?out|disconnect|connection|network|unknown.?server|after.?append|not.?leader|\A(6|7|20)\Z", re.IGNORECASE
)
"""What was asked may have been done all the same. Not the leader any more: KAFKA-13574; codes 7 and 20 of a Produce."""
_AFTER_A_COMMIT: Final = re.compile(
    r"producer.?fenced|invalid.?producer.?epoch|concurrent.?transactions", re.IGNORECASE
)
"""The transaction may have been committed by an attempt before, or by the one that was asked."""


def status_of(invoke: Event, done: Event | None) -> Status:
    """Of an operation that never returned nobody knows."""
    if done is None:
        return _STATUS["info"]
    if done.type == "fail" and done.error is not None:
        commits = invoke.f == "end_txn" and invoke.value == "commit"
        if _ANSWER_LOST.search(done.error) or (commits and _AFTER_A_COMMIT.search(done.error)):
            return _STATUS["info"]
    return _STATUS[done.type]
