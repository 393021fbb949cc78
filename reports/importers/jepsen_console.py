"""Read the lines about operations in what Jepsen prints while it runs, such as the etcd logs of Porcupine's tests.

Such a line is `INFO  jepsen.util - 3   :invoke :cas    [4 3]`: the process, the type, the operation and its value, or
`:timed-out` if the outcome is unknown. Jepsen prints other loggers' lines into the same file; they are passed over.
"""

import re
from collections.abc import Iterator
from typing import Final

from highwater.reports.importers import jepsen
from highwater.reports.importers.edn import EdnError, parse
from highwater.reports.importers.jepsen import LOG, Op
from highwater.reports.importers.jepsen_objects import NAMES
from highwater.reports.importers.quarantine import Quarantine
from highwater.reports.importers.sources import numbered_lines
from highwater.spec.formats.history import Config, Event

LOGGER: Final = b"jepsen.util - "
_OPERATION: Final = re.compile(
    rb"^.*?INFO\s+(?:\[[^]]*\]\s+)?jepsen\.util - (:?\w+)\s+(:invoke|:ok|:fail|:info)\s+(:\S+)(?:\s+(\S.*))?$"
)
_OTHER_LOGGER: Final = re.compile(rb"^.*?\b(?:TRACE|DEBUG|INFO|WARN|ERROR)\s+(?:\[[^]]*\]\s+)?[\w.$-]+ - ")
NEMESIS: Final = b"jepsen.util - :nemesis"
TIMED_OUT: Final = ":timed-out"
KNOWN: Final = LOG | NAMES.keys()


def recognises(head: bytes) -> bool:
    """Return whether one of the first lines is an operation."""
    return any(_OPERATION.match(line.rstrip()) for line in head.splitlines() if LOGGER in line)


def read(where: str, quarantine: Quarantine) -> tuple[Config, Iterator[Event]]:
    """Return the configuration and the events. Raises UsageError for an unknown workload."""
    return jepsen.read(where, _operations(where, quarantine), quarantine)


def _operations(where: str, quarantine: Quarantine) -> Iterator[Op]:
    for line in numbered_lines(where, quarantine):
        text = line.rstrip()
        found = _OPERATION.match(text)
        if found is None:
            is_other = LOGGER not in text and _OTHER_LOGGER.match(text) is not None
            if text and not is_other:
                quarantine.add("no operation of Jepsen, and no line of another logger", matters=NEMESIS not in text)
            continue
        try:
            process, kind, f, value = (parse((part or b"nil").decode()) for part in found.groups())
        except (EdnError, UnicodeDecodeError) as error:
            quarantine.add(f"no operation: {error}", matters=NEMESIS not in text)
            continue
        if type(process) is int and f not in KNOWN:
            quarantine.add(f"{f} is no known operation")
            continue
        op = {":process": process, ":type": kind, ":f": f, ":value": value}
        yield op | {":value": None, ":error": TIMED_OUT} if value == TIMED_OUT else op
