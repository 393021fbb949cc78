"""Selection and order of the cases of a run, and the check of their Kafka versions."""

from collections.abc import Iterable
from typing import Final, NamedTuple

import pytest

from highwater.conformance.failures import NotApplicable
from highwater.conformance.running.choice import Choice
from highwater.conformance.running.verdicts import deviations_by_clause
from highwater.errors import UsageError
from highwater.releases import version_numbers
from highwater.spec.clauses import Clause, find_clause

VERSION: Final = "--kafka-version"


def case_of(item: pytest.Item) -> tuple[str, Clause]:
    """Return the case id (`PRD-7`, `FRM-3[split]`, `API-1[ApiVersions v3]`) and the clause."""
    marker = item.get_closest_marker("clause")
    if marker is None:
        raise UsageError("a case without a clause", where=item.nodeid, hint="mark it with @clause")
    clause_id, variant = marker.args
    callspec = getattr(item, "callspec", None)
    inside = [part for part in (variant, callspec.id if callspec else "") if part]
    return clause_id + (f"[{' '.join(inside)}]" if inside else ""), find_clause(clause_id)


class Selection(NamedTuple):
    """The cases of a run in their order, and the names of long ones that were neither asked for nor named."""

    items: list[pytest.Item]
    left_out: list[str]


def select_cases(config: pytest.Config, items: list[pytest.Item]) -> Selection:
    """Select cases by area, clause, level and slowness; in the order `in_order`."""
    selected, left_out, case_ids = [], [], set()
    choice = _choice(config)
    has_long = config.getoption("hw_long") or config.getoption("hw_clause")
    for item in items:
        case, clause = case_of(item)
        if case in case_ids:
            raise UsageError(f"two cases are called {case}", where=item.nodeid, hint="give one a variant")
        case_ids.add(case)
        if not choice.has_case(case, clause) or (_is_slow(item) and config.getoption("hw_no_slow")):
            continue
        if _is_long(item) and not has_long:
            left_out.append(case)
        else:
            selected.append(item)
    return Selection(in_order(selected), left_out)


def in_order(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Return fast cases first, of these the clauses of which most brokers are known to deviate; then slow ones.

    Cases that stop nodes come last: they have the target alone.
    """
    deviations = deviations_by_clause()
    return sorted(
        items, key=lambda item: (needs_exclusive_target(item), _is_slow(item), -deviations[case_of(item)[1].id])
    )


def _choice(config: pytest.Config) -> Choice:
    options = {"areas": "area", "clauses": "clause", "excluded": "exclude"}
    options |= {name: name for name in ("level", "since", "until")}
    return Choice(**{name: config.getoption(f"hw_{option}") for name, option in options.items()})


def needs_exclusive_target(item: pytest.Item) -> bool:
    """Return whether the case stops nodes or otherwise disturbs the cases that run in parallel."""
    return item.get_closest_marker("cluster_fault") is not None


def _is_long(item: pytest.Item) -> bool:
    return item.get_closest_marker("long") is not None


def _is_slow(item: pytest.Item) -> bool:
    return item.get_closest_marker("slow") is not None


def check_era(version: str, marks: Iterable[pytest.Mark]) -> None:
    """Raise NotApplicable unless the clause and the case with these marks apply to `version`; until 2.8 includes 2.8.2.

    Any version applies if it is empty.
    """
    for mark in marks:
        if mark.name == "clause":
            clause = find_clause(mark.args[0])
            what, since, until = clause.id, clause.since, clause.until
        elif mark.name == "era":
            what, since, until = "the case", *mark.args
        else:
            continue
        if not applies(version, since, until):
            raise NotApplicable(f"{what} holds from {since or 'ever'} to {until or 'now'}, not {version}")


def applies(version: str, since: str, until: str = "") -> bool:
    """Return whether what holds from one Kafka version to another holds for this one, or for an unknown one."""
    if not version:
        return True
    known = version_numbers(version, VERSION)
    last = version_numbers(until, VERSION) if until else known
    return known >= version_numbers(since or "0", VERSION) and known[: len(last)] <= last
