"""Kill processes of a cluster at random times, then audit: `python -m highwater.soak.kills [--minutes M] [--seed N]`.

Three brokers and their metadata store. Every few seconds SIGKILL ends one process, sometimes two, sometimes the whole
cluster. The audit must have no findings. Exit codes: 0 nothing found, 1 an anomaly, 3 undecided.
"""

import random
import sys
from typing import Annotated

import typer
from rich.console import Console

from highwater.conformance.targets.reference import ReferenceCluster
from highwater.errors import EXIT_OF_VERDICT
from highwater.fuzz.chaos.nemesis import STORE
from highwater.fuzz.chaos.workload.run import run_workload
from highwater.fuzz.chaos.workload.topic import TOPIC, Load
from highwater.fuzz.schedule import Fault, Schedule, write_schedule
from highwater.reports.audit import audit
from highwater.reports.verdicts import write_verdict
from highwater.results import new_folder

QUICK_FAILOVER = {"metadata_store_session_timeout_ms": 2_000, "replica_lag_time_max_ms": 3_000}
VICTIMS = ("1", "2", "3", STORE, "controller", f"leader({TOPIC},0)", f"leader({TOPIC},1)")
BROKERS = 3


def schedule(seed: int, minutes: float) -> Schedule:
    """Draw kills at random times, each followed by a restart of the killed processes."""
    draw = random.Random(seed)
    end_ms, at_ms, faults = int(minutes * 60_000), 2_000, list[Fault]()
    while at_ms < end_ms - 15_000:
        whole_cluster = draw.random() < 0.05
        victims = (
            [*map(str, range(1, BROKERS + 1)), STORE] if whole_cluster else draw.sample(VICTIMS, draw.choice([1, 1, 2]))
        )
        killed = []
        for victim in victims:
            killed.append((at_ms, victim))
            at_ms += draw.randrange(0, 400)
        at_ms += draw.randrange(200, 6_000)
        faults += [Fault(at_ms=at, for_ms=at_ms - at, kind="kill", nodes=(victim,)) for at, victim in killed]
        at_ms += draw.randrange(500, 9_000)
    return Schedule(faults=tuple(faults), duration_ms=end_ms)


def soak(
    minutes: Annotated[float, typer.Option(min=0.5, help="Minutes of faults.")] = 10.0,
    seed: Annotated[int, typer.Option(help="Seed of the faults; printed to repeat the run.")] = 1,
) -> None:
    """Kill any process of a cluster at any time, then audit the history."""
    console, folder, faults = Console(highlight=False), new_folder("soak"), schedule(seed, minutes)
    write_schedule(folder / "schedule.json", faults)
    kills = len(faults.faults)
    console.print(
        f"{minutes:g} minutes, {kills} kills; to repeat: "
        f"python -m highwater.soak.kills --minutes {minutes:g} --seed {seed}"
    )
    brokers = ReferenceCluster(BROKERS, settings=dict(QUICK_FAILOVER), folder=folder / "cluster")
    with brokers as cluster, console.status("killing") as status:
        run_workload(cluster, cluster.bootstrap, folder, faults, Load(), say=status.update)
    result = audit(folder / "history.ndjson")
    write_verdict(folder, result)
    found = (
        ", ".join(f"{finding.count} {finding.name} ({finding.severity})" for finding in result.findings) or "nothing"
    )
    console.print(f"{result.operations:,} operations audited: {result.verdict}; found: {found}\n{folder}")
    sys.exit(EXIT_OF_VERDICT[result.verdict])


if __name__ == "__main__":
    typer.run(soak)
