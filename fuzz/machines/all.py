"""Run the state machines: with the quick profile in the tests, repeatedly in `highwater.soak.nightly`."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import hypothesis
from hypothesis import HealthCheck, Phase
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test
from hypothesis.statistics import collector

from highwater.fuzz.machines.log import LogMachine
from highwater.fuzz.machines.store import StoreMachine

MACHINES: Final[dict[str, tuple[type[RuleBasedStateMachine], int, int]]] = {
    "log": (LogMachine, 120, 40),
    "metadata store": (StoreMachine, 150, 40),
}
"""Machine class, number of examples and steps per example of the quick profile, by component."""

HYPOTHESIS_EVENTS: Final = ("Retried draw from", "gave up because")
"""Prefixes of the events that Hypothesis itself adds."""

ALL_PHASES: Final = (Phase.generate, Phase.target, Phase.shrink)


def run_machine(name: str, *, seed: int, times: int = 1, phases: tuple[Phase, ...] = ALL_PHASES) -> None:
    """Run a machine with `times` the examples of its quick profile.

    Raises the exception of a failing example, with the steps and a blob that reproduce it in its notes.
    """
    machine, examples, steps = MACHINES[name]
    seeded = hypothesis.seed(seed)(type(machine.__name__, (machine,), {}))
    run_state_machine_as_test(
        seeded,
        settings=hypothesis.settings(
            max_examples=examples * times,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            print_blob=True,
            phases=phases,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )


@contextmanager
def count_events() -> Iterator[Counter[str]]:
    """Count, for each `event()`, the test cases in which it occurred while the context is active."""
    tally: Counter[str] = Counter()

    def count_statistics(statistics: Any) -> None:
        for phase in statistics.values():
            for case in phase.get("test-cases", ()) if isinstance(phase, dict) else ():
                tally.update(name for name in case["events"] if not name.startswith(HYPOTHESIS_EVENTS))

    with collector.with_value(count_statistics):  # type: ignore[arg-type]  # the type is declared as None only
        yield tally
