"""Audit on a Spark cluster that loses an executor: `python -m highwater.soak.spark_cluster [--master M]`.

The Java process of the first executor that reads a partition is killed there. Every partition must be audited, with the
findings that this process makes locally. Exit code 1 when one is not.
"""

import os
import signal
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Final

import typer
from rich.console import Console

from highwater.errors import ExitCode
from highwater.reports.dataset.reader import read_dataset
from highwater.reports.execution.engines import engine_for
from highwater.reports.execution.partitions import SameProcess
from highwater.reports.execution.spark_session import spark_session
from highwater.reports.rules.division import FirstPass
from highwater.reports.rules.findings import RuleFindings
from highwater.reports.rules.view import View
from highwater.reports.synth.plants import PLANTS, SETTINGS
from highwater.reports.synth.write import synth_dataset

PLANTED: Final = {rule: 1 for rule in PLANTS if rule not in SETTINGS}


class ExecutorDies(FirstPass):
    """The first pass over partitions, which kills the Java process of one executor, once."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __call__(self, key: str, view: View) -> list[RuleFindings]:
        if not self._mark.exists():
            self._mark.touch()
            forked_from = Path(f"/proc/{os.getppid()}/stat").read_text()
            os.kill(int(forked_from.rpartition(")")[2].split()[1]), signal.SIGKILL)
        return super().__call__(key, view)


def rows(found: dict[str, list[RuleFindings]]) -> dict[str, list[tuple[object, ...]]]:
    return {
        key: [(f.rule, f.weight, f.first.tolist(), f.second.tolist(), f.offset.tolist()) for f in partition_findings]
        for key, partition_findings in found.items()
    }


def soak(
    master: Annotated[
        str, typer.Option(help="A cluster whose workers run on this machine.")
    ] = "local-cluster[2,1,1024]",
    operations: Annotated[
        int, typer.Option(min=1, help="Operations of the history, in which every rule is broken once.")
    ] = 3_000,
) -> None:
    """Kill an executor in the middle of an audit, and compare."""
    with TemporaryDirectory(prefix="highwater-soak-") as name:
        folder, mark = Path(name) / "dataset", Path(name) / "killed"
        synth_dataset(folder, operations=operations, seed=3, planted=PLANTED)
        history = read_dataset(folder)
        expected = rows(dict(SameProcess().map_partitions(history, FirstPass())))
        found = rows(dict(engine_for("spark", master).map_partitions(history, ExecutorDies(mark))))
        spark_session(master).stop()  # stop the driver, or the workers log errors about it
        killed = mark.exists()
    same = killed and found == expected
    count = sum(len(partition_findings) for partition_findings in found.values())
    outcome = "the same findings" if same else "other findings" if killed else "no executor was killed"
    Console(highlight=False).print(f"{count} findings in {len(found)} partitions on {master}: {outcome}")
    sys.exit(ExitCode.HELD if same else ExitCode.VIOLATED)


if __name__ == "__main__":
    typer.run(soak)
