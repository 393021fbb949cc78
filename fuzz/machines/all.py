"""All machines, and how they are run: quickly in the tests, for long at night."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import hypothesis
from hypothesis import HealthCheck, Phase
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test
from hypothesis.statistics import collector

from highwater.fuzz.machines.fetch_sessions import FetchingMachine
from highwater.fuzz.machines.groups import GroupMachine
from highwater.fuzz.machines.log import LogMachine
from highwater.fuzz.machines.store import StoreMachine
from highwater.fuzz.machines.transactions import TransactionMachine

MACHINES: Final[dict[str, tuple[type[RuleBasedStateMachine], int, int]]] = {
    "log": (LogMachine, 120, 40),
    "metadata store": (StoreMachine, 150, 40),
    "group coordinator": (GroupMachine, 60, 30),
    "transaction coordinator": (TransactionMachine, 50, 25),
    "fetch sessions": (FetchingMachine, 20, 15),
}
"""Each with the examples and steps of its quick profile."""

OF_HYPOTHESIS: Final = ("Retried draw from", "gave up because")
"""How the events begin that it notes itself."""

ALL_PHASES: Final = (Phase.generate, Phase.target, Phase.shrink)


def run_machine(name: str, *, seed: int, times: int = 1, phases: tuple[Phase, ...] = ALL_PHASES) -> None:
    """Run a machine, `times` its quick profile. What fails is printed with the steps and a blob that reproduce it."""
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
def tallied() -> Iterator[Counter[str]]:
    """Counts the test cases in which each `event()` came up, of all that Hypothesis runs inside."""
    tally: Counter[str] = Counter()

    def note(statistics: Any) -> None:
        for phase in statistics.values():
            for case in phase.get("test-cases", ()) if isinstance(phase, dict) else ():
                tally.update(each for each in case["events"] if not each.startswith(OF_HYPOTHESIS))

    with collector.with_value(note):  # type: ignore[arg-type]  # declared for None alone
        yield tally
