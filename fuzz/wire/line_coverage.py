"""Which lines of the reference broker a run has reached, as coverage counts them in each of its processes.

Coverage starts by itself in a process that finds a settings file named in its environment, and writes when the process
ends in good order; of one that is killed nothing is known.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import msgspec

from highwater.errors import UsageError
from highwater.reference import state_table
from highwater.results import write_json

FILE: Final = "lines.json"
SHOWN: Final = 20
"""Files of the page; `lines.json` has all."""
START: Final = "COVERAGE_PROCESS_START"
SOURCE: Final = Path(state_table.__file__).parent
LEFT_OUT: Final = ("*/tests/*", "*/drivers/simulation/*", "*/legacy/*", "*/clients/*")
"""Of the reference, but not of a broker that runs."""


def check_lines(target: str) -> None:
    """UsageError where lines cannot be counted."""
    if target.partition(":")[0] != "reference":
        raise UsageError("lines are counted of the reference only", where=target, hint="leave out --lines")
    if find_spec("coverage") is None:
        raise UsageError("no coverage", where="Python", hint="pip install coverage")


@contextmanager
def counted(folder: Path) -> Iterator[None]:
    """Processes that start meanwhile count their lines; `lines.json` in the folder tells of them in the end."""
    data = folder.absolute() / "lines"
    data.mkdir(parents=True, exist_ok=True)
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
        write_json(folder / FILE, _told(data, settings))


def lines_told(folder: Path) -> dict[str, Any]:
    """How many lines were covered, of how many, and in which files the fewest."""
    told = msgspec.json.decode((folder / FILE).read_bytes())
    fewest = [{name: row[name] for name in ("file", "covered", "all")} for row in told["files"][:SHOWN]]
    return {"covered": told["covered"], "all": told["all"], "fewest": fewest}


def _told(data: Path, settings: Path) -> dict[str, Any]:
    """Lines covered of all, and by file, the least covered first."""
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
