"""Names of clauses and cases: `PRD-7`, `FET-1[uncompressed]`, or with `*` and `?` several of them; their order."""

import re
from collections.abc import Iterable
from functools import cache

from highwater.errors import UsageError
from highwater.spec.clauses import find_clause, load_clauses

WILD = re.compile(r"[*?]")
NUMBERED = re.compile(r"([^0-9]*)([0-9]*)")


def natural_key(name: str) -> list[tuple[str, int]]:
    """Return a sort key that puts `Fetch v4` before `Fetch v12`; parallel cases arrive in any order."""
    return [(text, int(number or 0)) for text, number in NUMBERED.findall(name)]


@cache
def _compiled(pattern: str) -> "re.Pattern[str]":
    """Return the pattern as a regular expression; brackets stand for themselves, since the names of cases have them."""
    return re.compile(re.escape(pattern).replace(r"\*", ".*").replace(r"\?", "."))


def covers(pattern: str, case: str, clause: str) -> bool:
    """Return whether a pattern names the case or its clause."""
    return any(_compiled(pattern).fullmatch(name) for name in (case, clause))


def check_patterns(patterns: Iterable[str], where: str) -> None:
    """Raise UsageError for a pattern that can name nothing: an empty run would look like a pass."""
    for pattern in patterns:
        clause = pattern.partition("[")[0]
        if not WILD.search(clause):
            try:
                find_clause(clause)
            except UsageError as unknown:
                raise UsageError(unknown.what, where=where, hint=unknown.hint) from None
        elif not any(_compiled(clause).fullmatch(name) for name in load_clauses()):
            raise UsageError(f"no clause is named like {pattern!r}", where=where, hint="see highwater conform --list")
