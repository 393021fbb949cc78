"""Brokers that are wrong in one place, and the one probe that must notice: shared by the tests of the probes."""

from collections.abc import Callable, Collection, Mapping

import pytest
from _pytest.mark import ParameterSet

from highwater.fuzz.simulator.cluster import PROBES_CALM, Load, Settings
from highwater.fuzz.simulator.probes import table
from highwater.fuzz.simulator.probes.client.node import PROBES
from highwater.fuzz.simulator.probes.table import NEEDS
from highwater.fuzz.simulator.search import run_seed

Plant = Callable[[pytest.MonkeyPatch], None]
"""Makes the reference wrong for one test."""


def parameters(brokers: Mapping[str, Plant], quick: Collection[str]) -> list[ParameterSet]:
    """Return a parameter for each wrong broker, named after its probe; those that are not quick are `long`."""
    return [
        pytest.param(name, plant, id=name, marks=() if name in quick else pytest.mark.long)
        for name, plant in sorted(brokers.items())
    ]


def expect_found(patch: pytest.MonkeyPatch, probe: str, plant: Plant) -> None:
    """Run this probe alone on the wrong broker, and check that it finds an answer that does not fit the model."""
    chosen = tuple(each for each in PROBES if each.name == probe)
    patch.setattr(table, "PROBES", chosen)
    plant(patch)
    kinds = {needs: kind for kind, needs in NEEDS.items()}
    (kind,) = {kinds.get(each.needs, PROBES_CALM) for each in chosen}
    violation = run_seed(0, Settings(swarm=True, load=Load(producers=1, probes=kind))).violation
    assert violation is not None
    assert violation.invariant == "AnswersFitModel", str(violation)
    assert violation.message.startswith(f"probe {probe} (")
