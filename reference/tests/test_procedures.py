"""Procedures that nobody will ever resume end without a word."""

import gc
import sys

import pytest

from highwater.reference.procedures import Pending, start_procedure


async def wait_for_ever() -> None:
    await Pending[None]()


def test_a_procedure_that_runs_another_is_collected_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    told = list[str]()
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: told.append(str(unraisable.exc_value)))
    gc.collect()
    told.clear()
    start_procedure(wait_for_ever)
    gc.collect()
    assert told == []
