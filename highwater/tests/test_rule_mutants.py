"""The mutants of the audit rules."""

from highwater.soak.rule_mutants import KILLERS, WITHOUT_RULES, places


def test_each_module_of_the_rules_has_what_should_notice_its_mutants() -> None:
    assert places().keys() == KILLERS.keys() | WITHOUT_RULES
