"""A process that loads a mutant has it in place of its module, and again in all modules that import it."""

import re

from highwater.power.generated import importers_of, loaded
from highwater.power.rules import CHECKS, WITHOUT_RULES, places
from highwater.reference.groups import store
from highwater.reference.groups.coordinator import GroupCoordinator

CORE = re.compile(r"highwater\.reference\.groups\..*")


def test_the_importers_of_a_module() -> None:
    found = importers_of(store.__name__, loaded(CORE))
    assert {store.__name__, GroupCoordinator.__module__} <= found
    assert importers_of(GroupCoordinator.__module__, {store.__name__}) == {GroupCoordinator.__module__}


def test_each_module_of_the_rules_has_what_should_notice_its_mutants() -> None:
    assert places().keys() == CHECKS.keys() | WITHOUT_RULES
