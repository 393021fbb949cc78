"""Which lines of the reference broker or of kfake the runs into a folder have covered.

Kfake is built with counters (`go_counters.py`), which are kept as of their last reading, in the process that is fuzzed.
For the reference, coverage.py starts in each process whose environment names a settings file, and writes its data at a
normal exit; nothing is known of a process that was killed.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import msgspec

from highwater.conformance.targets.kfake import COVERAGE
from highwater.errors import UsageError
from highwater.fuzz.wire.steering.go_counters import Counters, go_line_report
from highwater.reference import state_table
from highwater.results import write_json

FILE: Final = "lines.json"
COUNTED: Final = ("reference", "kfake")
SHOWN: Final = 20
"""Files on the page; `lines.json` has all."""
START: Final = "COVERAGE_PROCESS_START"
SOURCE: Final = Path(state_table.__file__).parent
LEFT_OUT: Final = ("*/tests/*", "*/drivers/simulation/*", "*/legacy/*", "*/clients/*")
"""Modules of the reference that a running broker does not use."""


def check_lines(target: str) -> None:
    """Raise UsageError if lines cannot be counted for this target."""
    if target.partition(":")[0] not in COUNTED:
        raise UsageError("lines are counted of reference and kfake only", where=target, hint="leave out --lines")
    if target.startswith("reference") and find_spec("coverage") is None:
        raise UsageError("no coverage", where="Python", hint="pip install coverage")


@contextmanager
def count_lines(target: str, folder: Path) -> Iterator[Counters | None]:
    """Measure the processes that start meanwhile, and write `lines.json` to the folder at the end.

    Yields what reads the counters of a running kfake, None for the reference.
    """
    data = folder.absolute() / "lines"
    data.mkdir(parents=True, exist_ok=True)
    with _count_of_kfake(folder, data) if target.startswith("kfake") else _count_of_reference(folder, data) as counters:
        yield counters


@contextmanager
def _count_of_kfake(folder: Path, data: Path) -> Iterator[Counters]:
    counters = Counters(data)
    os.environ[COVERAGE] = str(data)
    try:
        yield counters
    finally:
        del os.environ[COVERAGE]
        counters.close()
        if any(data.glob("covcounters.*")):  # else kfake did not start, and that error is on its way
            write_json(folder / FILE, go_line_report(data))


@contextmanager
def _count_of_reference(folder: Path, data: Path) -> Iterator[None]:
    settings = data / "settings"
    left_out = "".join(f"\n    {pattern}" for pattern in LEFT_OUT)
    settings.write_text(
        f"[run]\ndata_file = {data}/.coverage\nparallel = true\nsource_dirs = {SOURCE}\nomit ={left_out}\n"
    )
    os.environ[START] = str(settings)
    try:
        yield
    finally:
        del os.environ[START]
        write_json(folder / FILE, _line_report(data, settings))


def lines_summary(folder: Path) -> dict[str, Any]:
    """Return how many lines were covered, of how many, and the least covered files."""
    report = msgspec.json.decode((folder / FILE).read_bytes())
    fewest = [{name: row[name] for name in ("file", "covered", "all")} for row in report["files"][:SHOWN]]
    return {"covered": report["covered"], "all": report["all"], "fewest": fewest}


def _line_report(data: Path, settings: Path) -> dict[str, Any]:
    """Return covered and all lines, in total and by file, the least covered file first."""
    import coverage
    from coverage.exceptions import NoDataError

    measured = coverage.Coverage(config_file=str(settings))
    measured.load()  # what earlier runs into this folder have reached
    try:
        measured.combine([str(data)])
        measured.save()
    except NoDataError:
        pass  # every process was killed
    files = []
    for path in sorted(measured.get_data().measured_files()):
        _, lines, _, missing, _ = measured.analysis2(path)
        if lines:
            name = Path(path).relative_to(SOURCE.parent).as_posix()
            files.append({"file": name, "covered": len(lines) - len(missing), "all": len(lines), "missing": missing})
    files.sort(key=lambda row: (row["covered"] / row["all"], row["file"]))
    return {"covered": sum(row["covered"] for row in files), "all": sum(row["all"] for row in files), "files": files}
