"""One question in two neighbouring versions: what both answers have room for, both must say."""

from collections.abc import Mapping
from typing import Any, Final

from highwater.reference.wire.errors import DecodeError
from highwater.reference.wire.framing import decode_response
from highwater.reference.wire.registry import Api
from highwater.reference.wire.schema import ArrayOf, Layout, StructOf, message_layout

FREE: Final = frozenset({"throttle_time_ms", "error_message", "session_id"})
"""Of the moment, or words for people."""
REWORDED: Final[Mapping[tuple[int, int], str]] = {
    (3, 1): "in Metadata 0 no topic means all, since 1 none",
    (3, 12): "topic ids are refused before Metadata 12",
    (9, 2): "an error of the whole OffsetFetch is told of each partition before 2",
    (18, 4): "features that begin at 0 are told since ApiVersions 4 (KAFKA-17011)",
    (18, 3): "a client must give a name since ApiVersions 3 (KIP-511)",
    (15, 6): "a group that is not there is Dead before DescribeGroups 6 (KIP-1043)",
}  # fmt: skip
"""By key and the later version: where the protocol itself says something else."""
Said = tuple[Any, ...]


def difference(api: Api, version: int, one: bytes, other: bytes) -> str | None:
    """Where the answer in `version` and the one in the next part; None also where one does not decode."""
    if (api.key, version + 1) in REWORDED:
        return None
    try:
        _, first = decode_response(api, version, one)
        _, second = decode_response(api, version + 1, other)
    except DecodeError:
        return None  # the stream of cases sees that
    this, that = message_layout(api.response, version), message_layout(api.response, version + 1)
    told = _said(this, that, first), _said(that, this, second)
    return next((f"{mine[0]} {_short(mine[1])} in version {version}, {_short(its[1])} in {version + 1}"
                 for mine, its in zip(*told, strict=True) if mine != its), None)  # fmt: skip


def _said(layout: Layout, other: Layout, message: Any) -> Said:
    """Name and value of each field that the other version has as well; arrays without their order."""
    shared = {field.name for field in (*other.in_line, *other.tagged)} - FREE
    fields = sorted((*layout.in_line, *layout.tagged), key=lambda field: field.name)
    return tuple(
        (field.name, _value(layout, other, field.type, getattr(message, field.name)))
        for field in fields
        if field.name in shared
    )


def _value(layout: Layout, other: Layout, kind: Any, value: Any) -> Any:
    if isinstance(kind, ArrayOf):
        return sorted((_value(layout, other, kind.element, each) for each in value or ()), key=repr)
    if isinstance(kind, StructOf) and value is not None:
        return _said(layout.of(kind.struct), other.of(kind.struct), value)
    return value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 160 else f"{text[:160]}…"
