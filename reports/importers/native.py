"""Our own `history.ndjson`, also one that was cut, spoilt or put together by hand."""

from collections.abc import Iterator
from typing import Annotated

import msgspec

from reports.importers.quarantine import Quarantine
from reports.importers.shape import Marked
from reports.importers.sources import numbered_lines
from spec.formats.history import Config, Event

_Number = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class _Bounded(Event, frozen=True, kw_only=True, omit_defaults=True):
    """An event whose numbers fit their columns."""

    index: Annotated[int, msgspec.Meta(ge=0, le=2**61)]
    time_ns: _Number
    partition: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] | None = None
    offset: Marked | None = None
    position: Marked | None = None
    high_watermark: Marked | None = None
    last_stable_offset: Marked | None = None
    log_start_offset: Marked | None = None
    leader_epoch: Marked | None = None
    generation_id: Marked | None = None
    timestamp_ms: _Number | None = None
    producer_id: Marked | None = None
    producer_epoch: Marked | None = None
    sequence: _Number | None = None
    positions: dict[str, Marked] | None = None


def recognises(head: bytes) -> bool:
    """One of the first lines is an event."""
    decoder = msgspec.json.Decoder(Event)
    for line in head.splitlines()[:20]:
        try:
            decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        return True
    return False


def read(where: str, quarantine: Quarantine) -> tuple[Config, Iterator[Event]]:
    """The configuration of the header, if there is one, and the events."""
    return read_lines(numbered_lines(where, quarantine), quarantine)


def read_lines(lines: Iterator[bytes], quarantine: Quarantine) -> tuple[Config, Iterator[Event]]:
    events = _events(lines, quarantine)
    first = next(events, None)
    if first is None:
        return Config(), iter(())
    if first.f == "header":
        try:
            return msgspec.convert(first.value, Config), events
        except msgspec.ValidationError as error:
            quarantine.add(f"header: {error}")
            return Config(), events
    return Config(), _again(first, events)


def _again(first: Event, events: Iterator[Event]) -> Iterator[Event]:
    yield first
    yield from events


def _events(lines: Iterator[bytes], quarantine: Quarantine) -> Iterator[Event]:
    decode = msgspec.json.Decoder(_Bounded).decode
    due = 0
    for line in lines:
        try:
            event = decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            if line.strip():
                cut = "" if line.endswith(b"\n") else " (the line is cut)"
                quarantine.add(f"no event: {error}{cut}", matters=b'"process":"nemesis"' not in line)
                due += 1
            continue
        if event.index < due:
            quarantine.add(f"index {event.index} where {due} was due: doubled or out of order")
            continue
        if event.index > due:
            quarantine.add(f"index {event.index} where {due} was due: {event.index - due} events are missing")
        due = event.index + 1
        yield event
