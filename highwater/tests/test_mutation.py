"""A mutant is judged in a process of its own, and the module without a mutation survives there."""

import re
from dataclasses import replace
from importlib import import_module

import pytest

from highwater import names
from highwater.soak import mutation
from highwater.soak.mutation import Mutant, Outcome, outcome, unchanged
from highwater.soak.rule_mutants import KILLERS, WITHOUT_RULES, places

CONTROL = unchanged(names.__name__)
IMPORTED = re.compile(r"highwater\.names")


def finds_a_near_name() -> bool:
    found = import_module("highwater.names").unknown_name("guard", "Fenc", ["Fence", "Isr"], "--list")
    return "Fence" in str(found.hint)


def with_first_line(line: str) -> Mutant:
    return replace(CONTROL, source=f"{line}\n{CONTROL.source}")


@pytest.mark.parametrize(
    ("mutant", "expected"),
    [
        (CONTROL, Outcome.SURVIVED),
        (with_first_line("1 / 0"), Outcome.RAISED),
        (with_first_line("import os, signal; os.kill(os.getpid(), signal.SIGKILL)"), Outcome.RAISED),
        (with_first_line("while True: pass"), Outcome.TIMED_OUT),
        (replace(CONTROL, source=CONTROL.source.replace("return ", "return None and ")), Outcome.RAISED),
    ],
    ids=["unchanged", "raises", "is killed", "loops", "returns nothing"],
)
def test_the_outcome_of_a_mutant(mutant: Mutant, expected: Outcome, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutation, "CPU_S", 1)
    assert outcome(mutant, IMPORTED, finds_a_near_name) is expected
    assert finds_a_near_name(), "this process has the module as it is"


def test_a_killer_that_finds_a_difference_kills() -> None:
    assert outcome(CONTROL, IMPORTED, lambda: not finds_a_near_name()) is Outcome.KILLED


def test_each_module_of_the_rules_has_what_should_notice_its_mutants() -> None:
    assert places().keys() == KILLERS.keys() | WITHOUT_RULES
