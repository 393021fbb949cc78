"""Detect the format of an input and open its history."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from highwater.errors import UsageError
from highwater.reports.importers import jepsen, jepsen_console, jepsen_file, native, pcap, verifiable
from highwater.reports.importers.jepsen_shape import sound
from highwater.reports.importers.quarantine import Quarantine
from highwater.reports.importers.sources import read_head
from highwater.spec.formats.history import Config, Event

Reader = Callable[[str, Quarantine], tuple[Config, Iterator[Event]]]


@dataclass(frozen=True, slots=True)
class Format:
    """A format; `recognises` inspects only the first bytes."""

    recognises: Callable[[bytes], bool]
    read: Reader


FORMATS: Final[dict[str, Format]] = {
    "ndjson": Format(native.recognises, native.read),
    "jepsen": Format(jepsen_file.recognises, jepsen_file.read_file),
    "jepsen-edn": Format(jepsen.recognises_edn, jepsen.read_edn),
    "jepsen-log": Format(jepsen_console.recognises, jepsen_console.read),
    "jepsen-txt": Format(jepsen.recognises_txt, jepsen.read_txt),
    "pcap": Format(pcap.recognises, pcap.read),
    "verifiable": Format(verifiable.recognises, verifiable.read),
}


@dataclass(frozen=True, slots=True)
class History:
    """A history with valid events; `quarantine` is complete after all events were read."""

    format: str
    config: Config
    events: Iterator[Event]
    quarantine: Quarantine


def open_history(where: str, name: str | None = None) -> History:
    """Open a path or address in the named format, or in the format detected from its content.

    Raises UsageError if the file does not exist or its format is unknown.
    """
    if name is not None and name not in FORMATS:
        raise UsageError(f"there is no format {name!r}", where="--format", hint=f"choose from {', '.join(FORMATS)}")
    found = name or detect(where)
    quarantine = Quarantine()
    config, events = FORMATS[found].read(where, quarantine)
    return History(found, config, sound(events, quarantine), quarantine)


def detect(where: str) -> str:
    """Detect the format from content; empty input counts as ndjson, and a folder as verifiable."""
    if Path(where).is_dir():
        return "verifiable"
    head = read_head(where)
    if not head.strip():
        return "ndjson"
    for name, candidate in FORMATS.items():
        if candidate.recognises(head):
            return name
    raise UsageError(
        f"the format is unknown; the input begins with {head[:40]!r}", where=where, hint=f"--format {'|'.join(FORMATS)}"
    )
