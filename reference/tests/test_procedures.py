"""A procedure that is never resumed is garbage-collected without an error."""

import gc
import sys

import pytest

from highwater.reference.procedures import Pending, start_procedure


async def wait_for_ever() -> None:
    await Pending[None]()


def test_collecting_an_unfinished_procedure_raises_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    errors = list[str]()
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: errors.append(str(unraisable.exc_value)))
    gc.collect()
    errors.clear()
    start_procedure(wait_for_ever)
    gc.collect()
    assert errors == []
