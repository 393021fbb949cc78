"""A storm: one long run with a fault every second and a half, for traces of a thousand lines of every model."""

from collections.abc import Iterator
from functools import cache
from itertools import cycle
from typing import Final

from fuzz.guard_focus import fault
from fuzz.load import GROUP
from fuzz.schedule import KINDS, Fault, Schedule
from fuzz.search import run_seed
from fuzz.simulated_cluster import TOPIC, Load, Settings
from spec.formats.trace import Step, renumber
from spec.trace import read_layout

DURATION_MS: Final = 160_000
EVERY_MS: Final = 1_500
CALM_MS: Final = 2_000
SETTINGS: Final = Settings(
    partitions=3, brokers=4, replication_factor=3,
    load=Load(producers=3, members=("cooperative-sticky",) * 3, administrator=True),
)  # fmt: skip
FAULTS: Final = (
    ("kill", f"leader({TOPIC},0)"), ("expire", "controller"), ("bounce", f"leader({TOPIC},0)"),
    ("pause", "controller"), ("kill", "member:0"), ("kill", f"followers({TOPIC},0)"),
)  # fmt: skip
ENTITIES: Final = {"partition": f"{TOPIC}-0", "group": GROUP}


def faults() -> Iterator[Fault]:
    """Leaders and controllers go and come back, as long as the storm lasts."""
    moments = range(1_000, DURATION_MS - CALM_MS, EVERY_MS)
    for at_ms, (kind, node) in zip(moments, cycle(FAULTS), strict=False):
        yield fault(at_ms, 700 if KINDS[kind].lasts else 0, kind, node)


@cache
def storm() -> tuple[Step, ...]:
    """All steps of all nodes."""
    result = run_seed(0, SETTINGS, schedule=Schedule(duration_ms=DURATION_MS, faults=tuple(faults())), tracing=True)
    assert result.violation is None, result.violation
    return tuple(result.steps)


def steps_for(model: str, lines: int) -> list[Step]:
    """The first so many of one partition, or the group, that the model reads, as a trace of their own."""
    layout = read_layout(model)
    entity, everybody = ENTITIES[layout.kind], range(1, SETTINGS.brokers + 1)
    mine = [step for step in storm() if step.entity == entity or (not step.entity and step.node in everybody)]
    read = [step for step in mine if step.action in layout.actions]
    return renumber(read[:lines])
