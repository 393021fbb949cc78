"""Compare whole and divided audits: `python -m highwater.soak.division [--ops N]`.

Audits small random histories with planted anomalies, cut at random, then one log of N operations, cut as the engines
cut it. Exit code 1 when the findings of the whole and of the divided partition differ.
"""

import random
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Final

import numpy as np
import typer
from rich.console import Console

from highwater.errors import ExitCode
from highwater.experiments.figures.audits import BLOCK, followed_log, write_dataset
from highwater.reports.columns import NEVER, UNKNOWN, Ints, Operations, Status, concatenate_operations, take_rows
from highwater.reports.dataset.reader import Partitions
from highwater.reports.execution.division.chunks import InMemoryChunks
from highwater.reports.execution.division.kept_chunks import DatasetChunks
from highwater.reports.execution.division.run import DividedPartition
from highwater.reports.rules.findings import Promise, RuleFindings
from highwater.reports.rules.partition import check
from highwater.reports.rules.summary import unresolved
from highwater.reports.synth.healthy import CONFIG
from highwater.reports.tests.random_ops import random_operations

HEALTHY_ABOVE: Final = 1 << 40
"""Values above this are never written in a followed log."""


def finding_rows(found: list[RuleFindings]) -> list[tuple[object, ...]]:
    return [(f.rule, f.weight, *(c.tolist() for c in (f.first, f.second, f.offset))) for f in found]


def by_completion(ops: Operations) -> Operations:
    """Return the operations in order of completion, as in a dataset."""
    order = np.argsort(ops.returned, kind="stable")
    return concatenate_operations([take_rows(ops, order[place : place + 1]) for place in range(len(order))])


def same_when_divided(ops: Operations, promise: Promise, chance: random.Random) -> tuple[bool, set[int]]:
    """Cut at random places; return whether the findings are the same, and the rules with findings."""
    starts = sorted({0, *(chance.randrange(len(ops)) for _ in range(chance.randint(1, 4)))})
    divided = DividedPartition.of(InMemoryChunks(ops, starts), promise, size=chance.randint(1, 8))
    if divided is None:
        return promise.compaction or bool(np.any(unresolved(ops))), set()
    whole = check(ops, promise)
    return finding_rows(divided.check()) == finding_rows(whole), {findings.rule for findings in whole}


def corrupt_cells(ops: Operations, chance: np.random.Generator, changes: int) -> Operations:
    """Change some cells of a followed log: offsets, values and log ends, and the outcome of sends."""
    columns = {name: getattr(ops, name).copy() for name in CELLS}
    sends, reads = (np.flatnonzero(ops.offset != UNKNOWN), np.flatnonzero(ops.offset == UNKNOWN))

    def sample(of: Ints) -> Ints:
        return chance.choice(of, changes, replace=False)

    far = int(ops.offset.max(initial=0)) + 1
    columns["offset"][sample(sends)] = chance.integers(0, far, changes)
    columns["value"][sample(sends)] = chance.integers(0, far, changes)
    columns["high_watermark"][sample(reads)] = chance.integers(0, far, changes)
    columns["position"][sample(reads)] = UNKNOWN
    records = np.arange(len(ops.record_offset))
    columns["record_value"][sample(records)] = chance.integers(0, far, changes)
    columns["record_offset"][sample(records)] = chance.integers(0, far, changes)
    columns["record_value"][sample(records)] = HEALTHY_ABOVE + chance.integers(0, far, changes)
    uncertain = sample(sends)
    columns["status"][uncertain], columns["offset"][uncertain] = Status.INFO, UNKNOWN
    columns["returned"][uncertain[: changes // 2]] = NEVER
    return replace(ops, **columns)


CELLS: Final = (
    "offset", "value", "high_watermark", "position", "record_value", "record_offset", "status", "returned",
)  # fmt: skip


def _log(operations: int, seed: int) -> Iterator[dict[str, Operations]]:
    chance = np.random.default_rng(seed)
    for first in range(0, operations, BLOCK):
        yield {"t-0": corrupt_cells(followed_log(first, min(first + BLOCK, operations)), chance, 8)}


def soak(
    histories: Annotated[int, typer.Option(min=0, help="Number of small random histories.")] = 5_000,
    ops: Annotated[int, typer.Option(min=1_000, help="Operations of the large log.")] = 2_000_000,
    seed: int = 1,
) -> None:
    """Compare, and print which rules have findings."""
    chance, rules, differ = random.Random(seed), set[int](), list[str]()
    for number in range(histories):
        history, promise = random_operations(chance)
        same, found = same_when_divided(by_completion(history), promise, chance)
        rules |= found
        differ += [] if same else [f"random history {number} of seed {seed}"]
    with TemporaryDirectory(prefix="highwater-soak-") as name:
        folder = Path(name) / "dataset"
        write_dataset(folder, _log(ops, seed), ops)
        partitions, promise = Partitions(folder), Promise.of(CONFIG)
        divided = DividedPartition.of(DatasetChunks(partitions, "t-0"), promise)
        assert divided is not None
        slices, whole = divided.check(), check(partitions["t-0"], promise)
    differ += [] if finding_rows(slices) == finding_rows(whole) else [f"a log of {ops:,} operations, seed {seed}"]
    count = sum(len(findings.first) for findings in whole)
    console = Console(highlight=False)
    console.print(f"{histories:,} random histories, rules {sorted(rules)}")
    console.print(f"{ops:,} operations in {len(divided.plan.spans)} spans and {len(divided.plan.times)} times: "
                  f"{count} findings of rules {sorted({difference.rule for difference in whole})}")  # fmt: skip
    console.print("\n".join(f"{difference}: other findings" for difference in differ) or "the same, whole and divided")
    sys.exit(ExitCode.VIOLATED if differ else ExitCode.HELD)


if __name__ == "__main__":
    typer.run(soak)
