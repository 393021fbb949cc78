"""Run seeds of a sweep again and compare the traces: `python -m highwater.soak.seed_recheck DIR [--master M]`.

Every tenth seed runs under another hash seed, and with `--master` some run on every worker of a cluster; the hash of
each trace must equal that of the sweep.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from highwater.commands.seed_sweep import read_rows, run_on_spark, settings_of_sweep
from highwater.errors import ExitCode
from highwater.fuzz.simulator.cluster import Settings

TWO_WORKERS_AND_A_HASH_SEED: Final = 3


def hashes_elsewhere(seeds: list[int], out: Path, hash_seed: int) -> dict[int, str]:
    """Return the trace hashes of an interpreter with another hash seed."""
    script = (
        "import sys; from pathlib import Path; from highwater.commands.seed_sweep import row_of, settings_of_sweep;"
        "settings = settings_of_sweep(Path(sys.argv[1]));"
        "[print(seed, row_of(int(seed), settings)['trace_hash']) for seed in sys.argv[2:]]"
    )
    output = subprocess.run(
        [sys.executable, "-c", script, str(out), *map(str, seeds)],
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed)}, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    return {int(seed): found for seed, found in (line.split() for line in output.splitlines())}


def hashes_on_every_worker(seeds: list[int], settings: Settings, master: str) -> list[tuple[int, str, str]]:
    """Return (seed, worker, trace hash) of each seed, run four times over the cluster."""
    rows = run_on_spark([[seed] for seed in seeds] * 4, settings, master)
    return [(row["seed"], row["worker"], row["trace_hash"]) for chunk in rows for row in chunk]


def main(
    out: Annotated[Path, typer.Argument(help="The folder of a sweep.")],
    every: Annotated[int, typer.Option(min=1, help="Run every n-th seed again.")] = 10,
    hash_seed: Annotated[int, typer.Option(help="PYTHONHASHSEED of the second run.")] = 4242,
    master: Annotated[str, typer.Option(help="Also run some seeds on every worker of this Spark cluster.")] = "",
) -> None:
    """Run seeds of a sweep again elsewhere, and compare the hashes of their traces."""
    known = {row["seed"]: row["trace_hash"] for row in read_rows(out, ["seed", "trace_hash"])}
    again = sorted(known)[::every]
    found = [(seed, "another hash seed", text) for seed, text in hashes_elsewhere(again, out, hash_seed).items()]
    if master:
        found += hashes_on_every_worker(again[:8], settings_of_sweep(out), master)
    differing = [(seed, where) for seed, where, text in found if text != known[seed]]
    for seed, where in differing:
        typer.echo(f"seed {seed} has another trace on {where}")
    places = {where for _, where, _ in found}
    typer.echo(f"{len(again)} seeds run again in {len(places)} places: {len(differing) or 'no'} differences")
    no_other_worker = bool(master) and len(places) < TWO_WORKERS_AND_A_HASH_SEED
    raise typer.Exit(ExitCode.VIOLATED if differing else ExitCode.UNDECIDED if no_other_worker else ExitCode.HELD)


if __name__ == "__main__":
    typer.run(main)
