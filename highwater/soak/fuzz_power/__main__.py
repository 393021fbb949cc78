"""Measure which wrong brokers the wire fuzzer finds: `python -m highwater.soak.fuzz_power [NAME...] [--seconds N]`.

The brokers of `defects.toml`, and of `typical.toml` and `many.toml` beside it (`--file`), were written by authors who
had read only the reference broker. Each is a copy of the package with one change; `highwater fuzz reference` runs on it
with its default settings. The control comes first: what it reports about the correct broker counts for no other. Prints
for each broker what was reported, and the score. The runs are kept in results/fuzz-power. Exit code 1 if any is missed,
or the control is not clean.
"""

import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from highwater.errors import ExitCode, UsageError
from highwater.soak.compiled.build import copy_sources
from highwater.temporary import temporary_folder

TABLE: Final = Path(__file__).with_name("defects.toml")
FOLDER: Final = Path("results") / "fuzz-power"
LATE_S: Final = 240
"""How much longer than its time a run may take: restarts, and what is examined at its end."""
CONTROL: Final = "control"


class Defect(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One change of one module; `kind` is what the fuzzer promises to report."""

    name: str
    file: str
    kind: str
    old: str
    new: str
    effect: str


class Reported(msgspec.Struct):
    """What a run reported; `left` are failures that it saw and did not examine."""

    findings: list[str]
    left: list[str]

    def besides(self, control: "Reported") -> list[str]:
        """Return the findings of this run that the control lacks, by oracle and API; what was left finds nothing."""
        known = {_kind(finding) for finding in control.findings}
        return [finding for finding in self.findings if _kind(finding) not in known]


def _kind(finding: str) -> str:
    """Return oracle and API of a finding such as `deadline-Produce-v4-1`."""
    return finding.partition(":")[0].rpartition("-v")[0]


def defects(table: Path = TABLE) -> list[Defect]:
    """Return the defects of a table."""
    return msgspec.convert(tomllib.loads(table.read_text())["mutant"], list[Defect])


def plant(tree: Path, defect: Defect) -> None:
    """Change the copy of the package; raises UsageError if the text is not there exactly once."""
    path = tree / "highwater" / defect.file
    text = path.read_text()
    if text.count(defect.old) != 1:
        raise UsageError(f"the text of {defect.name} occurs {text.count(defect.old)} times", where=defect.file)
    path.write_text(text.replace(defect.old, defect.new))


def fuzz(tree: Path, folder: Path, seconds: int, seed: int) -> Reported:
    """Fuzz the reference broker of a tree; findings and output are kept in the folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    command = [
        sys.executable,
        "-m",
        "highwater",
        "fuzz",
        "reference",
        "--seconds",
        str(seconds),
        "--seed",
        str(seed),
        "--json",
    ]
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONSAFEPATH": "1"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=seconds + LATE_S, check=False
    )
    (folder / "fuzz.json").write_text(done.stdout)
    (folder / "stderr.txt").write_text(done.stderr)
    if done.returncode not in {ExitCode.HELD, ExitCode.VIOLATED} or not done.stdout:
        return Reported([], [f"the run ended with exit code {done.returncode}: see stderr.txt in {folder}"])
    summary = msgspec.json.decode(done.stdout)
    found = [f"{finding['id']}: {finding['message']}" for finding in summary["findings"]]
    return Reported(found, [f"not examined: {name}" for name in summary["unexamined"]])


def runs(table: Path, names: Collection[str], seconds: int, seed: int) -> Iterator[tuple[str, Reported]]:
    """Yield the control and then each wrong broker of a table with what was reported."""
    chosen = [defect for defect in defects(table) if not names or defect.name in names]
    if unknown := set(names) - {defect.name for defect in chosen}:
        raise UsageError(f"no such defects: {', '.join(sorted(unknown))}", where=str(table))
    with temporary_folder() as scratch:
        unchanged, tree = scratch / "unchanged", scratch / "tree"
        copy_sources(unchanged)  # once, so that all brokers differ from the same version
        for defect in (None, *chosen):
            name = defect.name if defect is not None else CONTROL
            shutil.rmtree(tree, ignore_errors=True)
            shutil.copytree(unchanged, tree)
            if defect is not None:
                plant(tree, defect)
            yield name, fuzz(tree, FOLDER.resolve() / name, seconds, seed)


def main(
    names: Annotated[list[str] | None, typer.Argument(help="Defects by name; default: all.")] = None,
    seconds: Annotated[int, typer.Option(min=5, help="Seconds for each broker.")] = 60,
    seed: Annotated[int, typer.Option(help="Seed of the fuzzer.")] = 1,
    file: Annotated[Path, typer.Option(help="The table of defects.", exists=True, dir_okay=False)] = TABLE,
) -> None:
    """Fuzz each wrong broker and print the score; exit code 1 if one is missed."""
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    kinds, control, found, missed = {d.name: d for d in defects(file)}, Reported([], []), 0, list[str]()
    started = time.monotonic()
    for name, reported in runs(file, names or (), seconds, seed):
        if name == CONTROL:
            control = reported
            typer.echo(f"control: {'; '.join(control.findings + control.left) or 'clean'}")
            continue
        shown = reported.besides(control)
        found += bool(shown)
        typer.echo(f"{kinds[name].kind:<9} {name}: {'; '.join(shown)[:160] or 'MISSED: ' + kinds[name].effect}")
        if not shown:
            missed.append(name)
    total, minutes = found + len(missed), (time.monotonic() - started) / 60
    typer.echo(f"{found} of {total} wrong brokers were found in {seconds} s each ({minutes:.0f} minutes)")
    is_clean = not control.findings + control.left
    raise typer.Exit(ExitCode.HELD if is_clean and not missed else ExitCode.VIOLATED)


if __name__ == "__main__":
    typer.run(main)
