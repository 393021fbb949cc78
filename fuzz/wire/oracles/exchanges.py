"""The oracles for single responses on the exchanges of a program, and the exchanges as text."""

from collections import defaultdict, deque
from collections.abc import Iterator
from typing import Final, NamedTuple

from highwater.conformance.client.exchange import Event, ExchangeLog
from highwater.fuzz.wire.oracles.responses import Failure, judge
from highwater.reference.wire.errors import WireError
from highwater.reference.wire.framing import decode_request, decode_response
from highwater.reference.wire.printer import brief
from highwater.reference.wire.registry import Api

SHOWN: Final = 600


class Misread(NamedTuple):
    """A response that violates an oracle, to a request of this API and version."""

    failure: Failure
    api: Api
    version: int


def misread(log: ExchangeLog) -> Misread | None:
    """Return the first exchange that violates an oracle for single responses."""
    waiting = defaultdict[tuple[int, bytes, tuple[int, int]], deque[bytes]](deque)
    for event in log:
        if event.api is None and event.data:
            waiting[event.connection, event.data[8:12], api_and_version(event.data)].append(event.data)
        elif event.api is not None:
            asked = waiting[event.connection, event.data[4:8], (event.api.key, event.version)]
            failure, _ = judge(asked.popleft(), event.data[4:]) if asked else (None, ())
            if failure is not None:
                return Misread(failure, event.api, event.version)
    return None


def api_and_version(frame: bytes) -> tuple[int, int]:
    """Return API key and version of a request with its size."""
    return int.from_bytes(frame[4:6]), int.from_bytes(frame[6:8])


def transcript(log: ExchangeLog) -> list[str]:
    """Return requests, responses and what was done to brokers, one line each."""
    return [line[:SHOWN] for event in log for line in _lines(event)]


def _lines(event: Event) -> Iterator[str]:
    if not event.data:
        yield f"   {event.address} {event.what}"
        return
    try:
        if event.api is None:
            header, message = decode_request(event.data[4:])
            yield f"-> v{header.api_version} {brief(message)}"
        else:
            yield f"<- v{event.version} {brief(decode_response(event.api, event.version, event.data[4:])[1])}"
    except WireError:
        yield f"{'->' if event.api is None else '<-'} {event.data.hex()}"
