"""Which formats there are, which of them an input is in, and the history that it holds."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from highwater.errors import UsageError
from highwater.reports.importers import jepsen, jepsen_file, native, verifiable
from highwater.reports.importers.jepsen_shape import sound
from highwater.reports.importers.quarantine import Quarantine
from highwater.reports.importers.sources import read_head
from highwater.spec.formats.history import Config, Event

Reader = Callable[[str, Quarantine], tuple[Config, Iterator[Event]]]


@dataclass(frozen=True, slots=True)
class Format:
    """`recognises` looks at the first bytes only."""

    recognises: Callable[[bytes], bool]
    read: Reader


FORMATS: Final[dict[str, Format]] = {
    "ndjson": Format(native.recognises, native.read),
    "jepsen": Format(jepsen_file.recognises, jepsen_file.read_file),
    "jepsen-edn": Format(jepsen.recognises_edn, jepsen.read_edn),
    "jepsen-txt": Format(jepsen.recognises_txt, jepsen.read_txt),
    "verifiable": Format(verifiable.recognises, verifiable.read),
}


@dataclass(frozen=True, slots=True)
class History:
    """Events that make sense, one after the other; `quarantine` is complete once they were all read."""

    format: str
    config: Config
    events: Iterator[Event]
    quarantine: Quarantine


def open_history(where: str, name: str | None = None) -> History:
    """Open a path or address, in the format that is named or that its content shows.

    UsageError when nothing in it can be read: no such file, no format that we know.
    """
    if name is not None and name not in FORMATS:
        raise UsageError(f"no format {name!r}", where="--format", hint=f"there are {', '.join(FORMATS)}")
    found = name or detect(where)
    quarantine = Quarantine()
    config, events = FORMATS[found].read(where, quarantine)
    return History(found, config, sound(events, quarantine), quarantine)


def detect(where: str) -> str:
    """The format by content; what is empty is an empty history of ours. Of the formats, one takes folders."""
    if Path(where).is_dir():
        return "verifiable"
    head = read_head(where)
    if not head.strip():
        return "ndjson"
    for name, candidate in FORMATS.items():
        if candidate.recognises(head):
            return name
    raise UsageError(
        f"in no format that is known; it begins with {head[:40]!r}", where=where, hint=f"--format {'|'.join(FORMATS)}"
    )
