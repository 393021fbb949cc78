"""Every guard has a case that fails without it, or its entry in guards.toml gives the reason why there is none."""

import ast
from collections.abc import Iterator

import pytest

from highwater.conformance.runner import CASES
from highwater.spec.guards import NONE_BECAUSE, Guard, load_guards


def guards_with_cases() -> Iterator[tuple[str, str]]:
    """Yield guards in `@defect(GuardOff(...))` with case ids; parsed, as only the suite's pytest can import cases."""
    for path in CASES.rglob("test_*.py"):
        for case in ast.parse(path.read_text()).body:
            if isinstance(case, ast.FunctionDef):
                for (guard,) in _decorator_arguments(case, "GuardOff"):
                    clause, *variant = next(_decorator_arguments(case, "clause"))
                    yield guard, clause + "".join(f"[{parameter}]" for parameter in variant)


def _decorator_arguments(case: ast.FunctionDef, name: str) -> Iterator[list[str]]:
    """Yield the arguments of each call of `name` in the decorators."""
    for decorator in case.decorator_list:
        for node in ast.walk(decorator):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == name:
                yield [ast.literal_eval(argument) for argument in node.args]


@pytest.fixture(scope="module")
def observed() -> dict[str, set[str]]:
    """Return the cases that declare each guard."""
    found: dict[str, set[str]] = {}
    for guard, case in guards_with_cases():
        found.setdefault(guard, set()).add(f"{case} fails")
    return found


@pytest.mark.parametrize("guard", load_guards().values(), ids=load_guards())
def test_a_row_names_a_case_that_fails_without_its_guard(guard: Guard, observed: dict[str, set[str]]) -> None:
    reported = guard.witnesses.conformance
    if guard.id in observed:
        assert reported in observed[guard.id]
    else:
        assert reported.startswith(NONE_BECAUSE)
