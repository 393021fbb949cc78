"""Find the histories of an argument: file, address, folder of a run or of runs, or pattern."""

import glob
import os
from pathlib import Path
from typing import Final

from highwater.errors import UsageError
from highwater.reports.dataset.schema import MANIFEST
from highwater.reports.importers.verifiable import logs

# If a folder has several, the first is used: they describe the same run, later ones in less detail.
NAMES: Final = ("history.ndjson", "history.ndjson.gz", "history.edn", "history.edn.gz", "test.jepsen", "history.txt")
ENDINGS: Final = (".ndjson", ".ndjson.gz", ".edn", ".edn.gz", ".jepsen", ".pcap", ".pcap.gz", ".pcapng")


def histories(argument: str) -> list[str]:
    """Return the histories sorted by name. Raises UsageError if a folder or pattern has none."""
    if "://" in argument:
        return [argument]
    if not os.path.lexists(argument) and glob.has_magic(argument):
        matches = sorted(glob.glob(argument, recursive=True))  # noqa: PTH207
        found = [history for match in matches for history in histories(match)]
        found = list({os.path.realpath(history): history for history in reversed(found)}.values())[
            ::-1
        ]  # links to the same run
    elif Path(argument).is_dir() and not (Path(argument) / MANIFEST).exists():
        found = _below(argument)
    else:
        return [argument]
    if not found:
        names = ", ".join(dict.fromkeys((*NAMES[:1], *NAMES[2:6], *(f"*{ending}" for ending in ENDINGS))))
        raise UsageError(
            "no history found here", where=argument, hint=f"looked for {names}, and logs of Kafka's verifiable tools"
        )
    return found


def _below(folder: str) -> list[str]:
    """Return one history for each folder with a known name; otherwise every file with a known ending.

    Links are not followed. A folder of logs of Kafka's verifiable tools is one history, and so is a dataset.
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
