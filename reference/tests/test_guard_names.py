"""Each guard has one row in `spec/guards.toml` and one switch in the broker."""

import dataclasses

import pytest

from highwater.errors import UsageError
from highwater.reference.guards import Guards
from highwater.spec.guards import Guard, load_guards

SWITCHES = {field.name for field in dataclasses.fields(Guards)}


def test_every_guard_has_its_switch_and_every_switch_its_guard() -> None:
    assert {guard.switch for guard in load_guards().values()} == SWITCHES


def test_all_are_on_unless_switched_off() -> None:
    assert all(dataclasses.astuple(Guards()))


@pytest.mark.parametrize("guard", load_guards().values(), ids=lambda guard: guard.id)
def test_a_guard_is_switched_off_by_either_name(guard: Guard) -> None:
    off = Guards().without(guard.id)
    assert off == Guards().without(guard.switch)
    assert [field.name for field in dataclasses.fields(off) if not getattr(off, field.name)] == [guard.switch]


def test_an_unknown_guard_lists_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"no guard 'FenceAll'; .*`highwater guards --list` lists all"):
        Guards().without("IsrCas", "FenceAll")
