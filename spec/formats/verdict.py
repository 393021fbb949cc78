"""Verdicts are three-valued, and every subcommand ends with one of four exit codes."""

from enum import IntEnum, StrEnum
from typing import NoReturn


class Verdict(StrEnum):
    """A timeout, a lost process or a missing capability is never `VALID`."""

    VALID = "valid"
    INVALID = "invalid"
    UNKNOWN = "unknown"


class ExitCode(IntEnum):
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
    """One violation decides; otherwise one unknown does."""
    for verdict in (Verdict.INVALID, Verdict.UNKNOWN):
        if verdict in verdicts:
            return verdict
    return Verdict.VALID


class UsageError(Exception):
    """Bad usage or input: the command line prints one line and exits with `ExitCode.USAGE`.

    Every message says what is wrong, where, and how to mend it.
    """

    def __init__(self, what: str, *, where: str = "", mend: str = "") -> None:
        self.what, self.where, self.mend = what, where, mend
        super().__init__(": ".join(part for part in (where, what) if part) + (f"; {mend}" if mend else ""))


def usage(what: str, *, where: str = "", mend: str = "") -> NoReturn:
    raise UsageError(what, where=where, mend=mend)
