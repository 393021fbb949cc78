"""Which clauses and cases a run is limited to."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from highwater.conformance.patterns import covers
from highwater.releases import version_numbers
from highwater.spec.clauses import Clause

LEVELS: Final = {"must": ("MUST",), "should": ("MUST", "SHOULD"), "may": ("MUST", "SHOULD", "MAY")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The limits of a run; an empty one is none. `level` is the lowest one."""

    areas: Sequence[str] = ()
    clauses: Sequence[str] = ()
    excluded: Sequence[str] = ()
    level: str = "may"
    since: str = ""
    until: str = ""

    def has_case(self, case: str, clause: Clause) -> bool:
        return (
            (not self.areas or clause.area in self.areas)
            and (not self.clauses or any(covers(pattern, case, clause.id) for pattern in self.clauses))
            and not any(covers(pattern, case, clause.id) for pattern in self.excluded)
            and clause.level in LEVELS[self.level]
            and self._is_of_age(clause)
        )

    def has_clause(self, clause: Clause) -> bool:
        """Return whether the clause is chosen; the name of a case chooses its clause, and leaves none out."""
        chosen = [pattern.partition("[")[0] for pattern in self.clauses]
        excluded = [pattern for pattern in self.excluded if "[" not in pattern]
        return replace(self, clauses=chosen, excluded=excluded).has_case(clause.id, clause)

    def _is_of_age(self, clause: Clause) -> bool:
        """Return whether the clause first applied to a Kafka version from `since` to `until`."""
        first = version_numbers(clause.since or "0", "--since")
        return (not self.since or first >= version_numbers(self.since, "--since")) and (
            not self.until or first <= version_numbers(self.until, "--until")
        )
