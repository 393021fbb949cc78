"""What a defect makes of one request or reply; frames come and go whole, size included."""

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Final

from highwater.conformance.defects import Garbled, OnTheWire, Reply, Request
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


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that went to the broker. `api` is None where it cannot be read; the broker is the one to judge it."""

    api: Api | None = None
    version: int = 0
    has_reply: bool = True


class Fault:
    """The defect that is planted in a cluster, and whether it came to anything."""

    def __init__(self) -> None:
        self.defect: OnTheWire | None = None
        self.taken_effect = False
        self.complaint = ""

    def plant(self, defect: OnTheWire | None) -> None:
        self.defect, self.taken_effect, self.complaint = defect, False, ""

    def lift(self) -> None:
        self.defect = None

    def meets(self, kind: type[Any], asked: Asked) -> bool:
        """The planted defect is of this kind and about this request."""
        return isinstance(self.defect, kind) and asked.api is not None and self.defect.request is asked.api.request

    def spoiled_request(self, frame: bytes) -> bytes:
        asked = read_request(frame)
        if not self.meets(Request, asked):
            return frame
        return self._noted(frame, self._attempt(frame, _with_other_request))

    def spoiled_reply(self, frame: bytes, asked: Asked) -> bytes:
        if self.meets(Reply, asked):
            return self._noted(frame, self._attempt(frame, lambda data, how: _with_other_reply(data, how, asked)))
        if self.meets(Garbled, asked):
            return self._noted(frame, self._attempt(frame, lambda data, how: how.change(data)))
        return frame

    def _attempt(self, frame: bytes, spoil: Callable[[bytes, Any], bytes]) -> bytes:
        """A defect that is written down wrongly must show, and not end a thread in silence."""
        try:
            return spoil(frame, self.defect)
        except Exception as error:
            self.complaint = f"{type(error).__name__}: {error}"
            return frame

    def _noted(self, before: bytes, after: bytes) -> bytes:
        self.taken_effect |= before != after
        return after


def read_request(frame: bytes) -> Asked:
    try:
        header, _ = decode_request_header(frame[SIZE:])
        api = APIS[header.api_key]
        has_reply = api is not PRODUCE or decode_request(frame[SIZE:])[1].acks != 0
    except WireError:
        return Asked()
    known = api.min_version <= header.api_version <= api.max_version
    return Asked(api, header.api_version if known or api is not API_VERSIONS else 0, has_reply)


def changed_reply(frame: bytes, asked: Asked, change: Callable[[Any], Any]) -> bytes:
    """The frame as it was where it cannot be read."""
    assert asked.api is not None
    try:
        correlation_id, message = decode_response(asked.api, asked.version, frame[SIZE:])
    except WireError:
        return frame
    return encode_response(change(message), asked.version, correlation_id)


def _with_other_reply(frame: bytes, defect: Reply, asked: Asked) -> bytes:
    return changed_reply(frame, asked, lambda message: changed(message, defect.path, defect.value))


def _with_other_request(frame: bytes, defect: Request) -> bytes:
    header, message = decode_request(frame[SIZE:])
    other = changed(message, defect.path, defect.value)
    return encode_request(other, header.api_version, header.correlation_id, header.client_id)


def changed(message: Any, path: str, value: Any) -> Any:
    """`value`, or what it makes of the old one, at every place to which the path leads; null leads nowhere."""
    if isinstance(message, tuple):
        return tuple(changed(each, path, value) for each in message)
    if message is None:
        return None
    name, _, rest = path.partition(".")
    if not is_dataclass(message) or name not in {field.name for field in fields(message)}:
        raise AttributeError(f"{type(message).__name__} has no {name}")
    old = getattr(message, name)
    new = changed(old, rest, value) if rest else value(old) if callable(value) else value
    return replace(message, **{name: new})  # type: ignore[type-var]
