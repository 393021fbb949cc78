"""Read `history.ndjson`, also if it was truncated, corrupted or edited by hand."""

import io
from collections.abc import Iterator
from typing import Annotated, Final, NamedTuple

import msgspec

from highwater.names import number_of
from highwater.reports.importers.jepsen_shape import Marked
from highwater.reports.importers.quarantine import Quarantine
from highwater.reports.importers.sources import blocks
from highwater.spec.formats.history import NEMESIS, OPERATIONS, TRAILER, Config, Event

_Number = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class _Bounded(Event, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """An event whose numbers fit into the columns of a dataset; a misspelt field makes the line unusable."""

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


ENDS: Final = ("commit", "abort")
UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding a line may raise; RecursionError if it is nested too deeply."""


def recognises(head: bytes) -> bool:
    """Return whether one of the first 20 lines is an event."""
    decoder = msgspec.json.Decoder(Event)
    for line in head.splitlines()[:20]:
        try:
            decoder.decode(line)
        except UNREADABLE:
            continue
        return True
    return False


def read(where: str, quarantine: Quarantine) -> tuple[Config, Iterator[Event]]:
    """Return the configuration in the header, if any, and the events."""
    return read_blocks(blocks(where, quarantine), quarantine)


def read_blocks(found: Iterator[bytes], quarantine: Quarantine) -> tuple[Config, Iterator[Event]]:
    """Do the same for blocks of whole lines; each block is consumed before the next is read."""
    found_events = events(found, quarantine)
    first = next(found_events, None)
    if first is None:
        return Config(), iter(())
    if first.f == "header":
        config = config_of(first, quarantine)
        return config, _until_trailer(config, found_events, quarantine)
    return Config(), _prepend(first, found_events)


def config_of(header: Event, quarantine: Quarantine) -> Config:
    """Return the configuration in a header; one that is not valid is quarantined."""
    try:
        return msgspec.convert(header.value, Config)
    except msgspec.ValidationError as error:
        quarantine.add(f"header: {error}")
        return Config()


def _prepend(first: Event, events: Iterator[Event]) -> Iterator[Event]:
    yield first
    yield from events


def _until_trailer(config: Config, found: Iterator[Event], quarantine: Quarantine) -> Iterator[Event]:
    yield from found
    require_trailer(config, quarantine)


def require_trailer(config: Config, quarantine: Quarantine) -> None:
    """Quarantine the end of a history without the trailer that its header promises."""
    if config.trailer and not quarantine.trailer:
        quarantine.add(
            "the trailer is missing: the history was cut, or its writer was killed", line=quarantine.line + 1
        )


class _Unrecorded(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    index: int
    unrecorded: str


class _NoEvent(NamedTuple):
    line: bytes
    why: str


def events(found: Iterator[bytes], quarantine: Quarantine) -> Iterator[Event]:
    """Yield the events of blocks of whole lines in the order of their indices, from `quarantine.due` on."""
    invoked: dict[int | str, Event] = {}
    for decoded in _decoded(found):
        if isinstance(decoded, _NoEvent):
            quarantine.line += 1
            quarantine.due += _quarantined(decoded, quarantine)
            continue
        for event in decoded:
            quarantine.line += 1
            index, due = event.index, quarantine.due
            if index != due:
                if index < due:
                    quarantine.add(f"index {index} where {due} was due: repeated or out of order")
                    continue
                missing = f"index {index} where {due} was due: missing: {number_of(index - due, 'event')}"
                quarantine.add(missing if due else f"{missing}; a history begins with a header, index 0")
            quarantine.due = index + 1
            if event.process == NEMESIS and event.f == TRAILER:
                quarantine.trailer = True
                continue
            if event.f not in OPERATIONS and event.process != NEMESIS:
                quarantine.add(f"f {event.f!r} is no operation; docs/audit/events.md lists them")
                continue
            if event.type == "invoke":
                if event.f == "end_txn" and event.value not in ENDS:
                    quarantine.add(f"an end_txn invokes 'commit' or 'abort', not {event.value!r}")
                    continue
                if event.f == "send":
                    invoked[event.process] = event
            elif event.f == "send" and not _completes(invoked.pop(event.process, event), event):
                quarantine.add("the completion of a send names another topic, partition or value than its invocation")
                continue
            yield event


def _completes(invoke: Event, done: Event) -> bool:
    """Return whether the completion of a send is about the same record, as far as it names it."""
    return (
        done.value in (None, invoke.value)
        and done.partition in (None, invoke.partition)
        and done.topic in (None, invoke.topic)
    )


def _decoded(found: Iterator[bytes]) -> Iterator[list[_Bounded] | _NoEvent]:
    """Decode many lines at once; a block with an invalid or blank line is decoded line by line."""
    decoder = msgspec.json.Decoder(_Bounded)
    for block in found:
        try:
            events = decoder.decode_lines(block)
        except UNREADABLE:
            events = []
        if len(events) == block.count(b"\n") + (not block.endswith(b"\n")):
            yield events
            continue
        for line in io.BytesIO(block):
            try:
                yield [decoder.decode(line)]
            except UNREADABLE as error:
                yield _NoEvent(line, str(error))


def _quarantined(found: _NoEvent, quarantine: Quarantine) -> bool:
    """Quarantine a line that is not an event; return False for a blank line."""
    if not found.line.strip():
        return False
    reason = _unrecorded(found.line)
    if reason is not None:
        quarantine.add(f"not recorded: {reason}")
        return True
    cut = "" if found.line.endswith(b"\n") else " (the line is cut)"
    quarantine.add(f"no event: {found.why}{cut}", matters=b'"process":"nemesis"' not in found.line)
    return True


def _unrecorded(line: bytes) -> str | None:
    """Return what the recorder wrote in place of something that it could not decode."""
    try:
        return msgspec.json.decode(line, type=_Unrecorded).unrecorded
    except UNREADABLE:
        return None
