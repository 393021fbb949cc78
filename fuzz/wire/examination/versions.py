"""Compare the responses to one request in two neighbouring versions: fields that both have must be equal."""

from collections.abc import Mapping
from typing import Any, Final

from highwater.fuzz.wire.oracles.responses import error_codes
from highwater.reference.wire.errors import DecodeError, ErrorCode
from highwater.reference.wire.framing import decode_response
from highwater.reference.wire.registry import Api
from highwater.reference.wire.schema import ArrayOf, Layout, StructOf, message_layout

FREE: Final = frozenset({"throttle_time_ms", "error_message", "session_id"})
"""Fields that vary from response to response, or contain text for people."""
CHANGED: Final[Mapping[tuple[int, int], str]] = {
    (3, 1): "in Metadata 0 no topic means all, since 1 none",
    (3, 12): "topic ids are refused before Metadata 12",
    (9, 10): "OffsetFetch names topics by their id since 10 (KIP-848)",
    (9, 2): "an error of the whole OffsetFetch is returned for each partition before 2",
    (18, 4): "features that begin at 0 are returned since ApiVersions 4 (KAFKA-17011)",
    (18, 3): "a client must give a name since ApiVersions 3 (KIP-511)",
    (15, 6): "a group that is not there is Dead before DescribeGroups 6 (KIP-1043)",
}  # fmt: skip
"""By key and the later version: where the protocol itself changed the meaning."""
NEW_VALUES: Final[Mapping[int, str]] = {
    2: "timestamps -3, -4 and -5 are UNSUPPORTED_VERSION before ListOffsets 7, 8, 9 (KIP-734, KIP-405, KIP-1005)",
}
"""By key: values that older versions refuse with UNSUPPORTED_VERSION."""
Comparable = tuple[Any, ...]


def difference(api: Api, version: int, one: bytes, other: bytes) -> str | None:
    """Return where the response in `version` differs from the one in the next; None if one does not decode."""
    if (api.key, version + 1) in CHANGED:
        return None
    try:
        _, first = decode_response(api, version, one)
        _, second = decode_response(api, version + 1, other)
    except DecodeError:
        return None  # the oracle `decode` reports that for single requests
    if api.key in NEW_VALUES and ErrorCode.UNSUPPORTED_VERSION in error_codes(api, version, first):
        return None
    this, that = message_layout(api.response, version), message_layout(api.response, version + 1)
    both = _comparable(this, that, first), _comparable(that, this, second)
    return next((f"{mine[0]} {_short(mine[1])} in version {version}, {_short(its[1])} in {version + 1}"
                 for mine, its in zip(*both, strict=True) if mine != its), None)  # fmt: skip


def _comparable(layout: Layout, other: Layout, message: Any) -> Comparable:
    """Return name and value of each field that the other version also has; arrays are sorted."""
    shared = {field.name for field in (*other.in_line, *other.tagged)} - FREE
    fields = sorted((*layout.in_line, *layout.tagged), key=lambda field: field.name)
    return tuple(
        (field.name, _value(layout, other, field.type, getattr(message, field.name)))
        for field in fields
        if field.name in shared
    )


def _value(layout: Layout, other: Layout, kind: Any, value: Any) -> Any:
    if isinstance(kind, ArrayOf):
        return sorted((_value(layout, other, kind.element, element) for element in value or ()), key=repr)
    if isinstance(kind, StructOf) and value is not None:
        return _comparable(layout.of(kind.struct), other.of(kind.struct), value)
    return value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 160 else f"{text[:160]}…"
