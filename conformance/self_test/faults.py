"""Apply a planted defect to the frames of requests and replies, size included."""

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Final

from highwater.conformance.defects import Garbled, Reply, Request, WireDefect
from highwater.reference.wire.errors import WireError
from highwater.reference.wire.framing import (
    decode_request,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
)
from highwater.reference.wire.registry import APIS, Api

PRODUCE, API_VERSIONS = APIS[0], APIS[18]
SIZE: Final = 4
MAX_FRAME: Final = 1 << 26


@dataclass(frozen=True, slots=True)
class SentRequest:
    """A request that was sent to the broker; `api` is None if it does not decode."""

    api: Api | None = None
    version: int = 0
    has_reply: bool = True


class PlantedDefect:
    """The defect that is planted in a cluster, and whether it took effect."""

    def __init__(self) -> None:
        self.defect: WireDefect | None = None
        self.taken_effect = False
        self.mutation_error = ""

    def plant(self, defect: WireDefect | None) -> None:
        self.defect, self.taken_effect, self.mutation_error = defect, False, ""

    def lift(self) -> None:
        self.defect = None

    def matches(self, kind: type[Any], request: SentRequest) -> bool:
        """Return whether the planted defect is of this kind and concerns this request."""
        return isinstance(self.defect, kind) and request.api is not None and self.defect.request is request.api.request

    def mutate_request(self, frame: bytes, request: SentRequest) -> bytes:
        if not self.matches(Request, request):
            return frame
        return self._record_effect(frame, self._try_mutation(frame, _with_other_request))

    def mutate_reply(self, frame: bytes, request: SentRequest) -> bytes:
        if self.matches(Reply, request):
            return self._record_effect(
                frame, self._try_mutation(frame, lambda data, how: _with_other_reply(data, how, request))
            )
        if self.matches(Garbled, request):
            return self._record_effect(frame, self._try_mutation(frame, lambda data, how: how.change(data)))
        return frame

    def _try_mutation(self, frame: bytes, mutate: Callable[[bytes, Any], bytes]) -> bytes:
        """Apply the mutation; record an exception from a wrong declaration, which else would look like a failure."""
        try:
            return mutate(frame, self.defect)
        except Exception as error:
            self.mutation_error = f"{type(error).__name__}: {error}"
            return frame

    def _record_effect(self, before: bytes, after: bytes) -> bytes:
        self.taken_effect |= before != after
        return after


def read_request(frame: bytes) -> SentRequest:
    try:
        header, _ = decode_request_header(frame[SIZE:])
        api = APIS[header.api_key]
        has_reply = api is not PRODUCE or decode_request(frame[SIZE:])[1].acks != 0
    except WireError:
        return SentRequest()
    known = api.min_version <= header.api_version <= api.max_version
    return SentRequest(api, header.api_version if known or api is not API_VERSIONS else 0, has_reply)


def rewrite_reply(frame: bytes, request: SentRequest, change: Callable[[Any], Any]) -> bytes:
    """Decode the reply, apply `change` and encode it; return the frame unchanged if it does not decode."""
    assert request.api is not None
    try:
        correlation_id, message = decode_response(request.api, request.version, frame[SIZE:])
    except WireError:
        return frame
    return encode_response(change(message), request.version, correlation_id)


def take_frames(buffer: bytearray) -> list[bytes]:
    """Remove complete frames from the buffer, size included; after an invalid size the rest is one frame."""
    frames = []
    while len(buffer) >= SIZE:
        size = int.from_bytes(buffer[:SIZE], "big", signed=True)
        end = SIZE + size if 0 <= size <= MAX_FRAME else len(buffer)
        if len(buffer) < end:
            break
        frames.append(bytes(buffer[:end]))
        del buffer[:end]
    return frames


def _with_other_reply(frame: bytes, defect: Reply, request: SentRequest) -> bytes:
    return rewrite_reply(frame, request, lambda message: replace_field(message, defect.path, defect.value))


def _with_other_request(frame: bytes, defect: Request) -> bytes:
    header, message = decode_request(frame[SIZE:])
    other = replace_field(message, defect.path, defect.value)
    return encode_request(other, header.api_version, header.correlation_id, header.client_id)


def replace_field(message: Any, path: str, value: Any) -> Any:
    """Return a copy with `value`, or `value(old)`, at every field that `path` leads to; null fields are skipped."""
    if isinstance(message, tuple):
        return tuple(replace_field(element, path, value) for element in message)
    if message is None:
        return None
    name, _, rest = path.partition(".")
    if not is_dataclass(message) or name not in {field.name for field in fields(message)}:
        raise AttributeError(f"{type(message).__name__} has no {name}")
    old = getattr(message, name)
    new = replace_field(old, rest, value) if rest else value(old) if callable(value) else value
    return replace(message, **{name: new})  # type: ignore[type-var]
