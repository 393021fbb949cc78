"""Every guard has a case that fails without it, which the self-test tries, or its row says why there can be none."""

import ast
from collections.abc import Iterator

import pytest

from highwater.conformance.runner import CASES
from highwater.spec.guards import NONE_BECAUSE, Guard, load_guards


def seen_missing() -> Iterator[tuple[str, str]]:
    """Each guard that a case says it sees missing, and the case. To import cases takes the suite's own pytest."""
    for path in CASES.rglob("test_*.py"):
        for case in ast.parse(path.read_text()).body:
            if isinstance(case, ast.FunctionDef):
                for (guard,) in _said(case, "GuardOff"):
                    clause, *variant = next(_said(case, "clause"))
                    yield guard, clause + "".join(f"[{each}]" for each in variant)


def _said(case: ast.FunctionDef, name: str) -> Iterator[list[str]]:
    """The arguments of each call of that name among the decorators."""
    for decorator in case.decorator_list:
        for node in ast.walk(decorator):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == name:
                yield [ast.literal_eval(argument) for argument in node.args]


@pytest.fixture(scope="module")
def seen() -> dict[str, str]:
    return dict(seen_missing())


@pytest.mark.parametrize("guard", load_guards().values(), ids=load_guards())
def test_a_row_names_the_case_that_sees_its_guard_missing(guard: Guard, seen: dict[str, str]) -> None:
    told = guard.witnesses.conformance
    if guard.id in seen:
        assert told == f"{seen[guard.id]} fails"
    else:
        assert told.startswith(NONE_BECAUSE)
