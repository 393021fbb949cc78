"""Which histories an argument names: a file, an address, a run's folder, a folder of runs, or a pattern."""

import glob
import os
from pathlib import Path
from typing import Final

from highwater.errors import UsageError
from highwater.reports.dataset.schema import MANIFEST
from highwater.reports.importers.verifiable import logs

# Of several in one folder the first is taken: they tell the same run, the later ones less of it.
NAMES: Final = ("history.ndjson", "history.ndjson.gz", "history.edn", "history.edn.gz", "test.jepsen", "history.txt")
ENDINGS: Final = (".ndjson", ".ndjson.gz", ".edn", ".edn.gz", ".jepsen")


def histories(argument: str) -> list[str]:
    """In the order of their names. UsageError for a folder or pattern with none in it."""
    if "://" in argument:
        return [argument]
    if not os.path.lexists(argument) and glob.has_magic(argument):
        matches = sorted(glob.glob(argument, recursive=True))  # noqa: PTH207
        found = [each for match in matches for each in histories(match)]
        found = list({os.path.realpath(each): each for each in reversed(found)}.values())[::-1]  # links to the same run
    elif Path(argument).is_dir() and not (Path(argument) / MANIFEST).exists():
        found = _below(argument)
    else:
        return [argument]
    if not found:
        names = ", ".join(dict.fromkeys((*NAMES[:1], *NAMES[2:6], *(f"*{ending}" for ending in ENDINGS))))
        raise UsageError(
            "no history here", where=argument, hint=f"looked for {names}, and logs of Kafka's verifiable tools"
        )
    return found


def _below(folder: str) -> list[str]:
    """One of each folder that holds one by name; elsewhere every file that ends like one. Links are not followed.

    A folder of logs of Kafka's verifiable tools is one history, and so is a dataset.
    """
    found = []
    for root, folders, files in os.walk(folder):
        folders.sort()
        if MANIFEST in files:
            found.append(root)
            continue
        chosen = next((name for name in NAMES if name in files), None)
        names = [chosen] if chosen else sorted(name for name in files if name.endswith(ENDINGS))
        found += [os.path.join(root, name) for name in names]  # noqa: PTH118
        found += [root] if not names and logs(root) else []
    return found
