"""Requests with items of several kinds, drawn from the rows of their tables: each item is answered in its own right."""

from typing import Final

import pytest

from highwater.conformance.cases.fields.mixtures import MIXED, MixedTrial, kinds_of
from highwater.conformance.cases.fields.program import defects_of
from highwater.conformance.cases.fields.world import World
from highwater.conformance.clause import clause, era
from highwater.conformance.client.cluster import Cluster

ROUNDS: Final = 8


@clause("FLD-11")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, id=name, marks=[pytest.mark.defect(*defects_of(table)), era(table.since)])
        for name, table in MIXED.items()
    ],
)
def test_items_of_several_kinds_are_answered_each_by_itself(cluster: Cluster, name: str) -> None:
    """Each request has topics, groups and producers of its own."""
    table, chance = MIXED[name], cluster.draws.generator(21)
    for _ in cluster.draws.steps(ROUNDS, chance):
        world = World(cluster)
        try:
            MixedTrial.prepared(table, kinds_of(table), world).check_mixture(chance)
        finally:
            world.clean_up(*table.leaves)
