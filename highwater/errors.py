"""Verdicts (valid, invalid, unknown) and the four exit codes of every subcommand."""

from enum import IntEnum, StrEnum
from typing import NoReturn


class Verdict(StrEnum):
    """The result of a check. A timeout, a lost process or a missing capability is `UNKNOWN`, never `VALID`."""

    VALID = "valid"
    INVALID = "invalid"
    UNKNOWN = "unknown"


class ExitCode(IntEnum):
    """0: everything holds; 1: a violation; 2: wrong usage or input; 3: undecided."""

    HELD = 0
    VIOLATED = 1
    USAGE = 2
    UNDECIDED = 3


EXIT_OF_VERDICT = {
    Verdict.VALID: ExitCode.HELD,
    Verdict.INVALID: ExitCode.VIOLATED,
    Verdict.UNKNOWN: ExitCode.UNDECIDED,
}


def worst(verdicts: "list[Verdict]") -> Verdict:
    """Return the worst verdict: INVALID if there is one, else UNKNOWN if there is one, else VALID."""
    for verdict in (Verdict.INVALID, Verdict.UNKNOWN):
        if verdict in verdicts:
            return verdict
    return Verdict.VALID


class UsageError(Exception):
    """Wrong usage or input: the command line prints the message and exits with `ExitCode.USAGE`.

    Every message says what is wrong, where, and how to fix it.
    """

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        self.what, self.where, self.hint = what, where, hint
        super().__init__(": ".join(part for part in (where, what) if part) + (f"; {hint}" if hint else ""))


def usage(what: str, *, where: str = "", hint: str = "") -> NoReturn:
    """Raise UsageError."""
    raise UsageError(what, where=where, hint=hint)
