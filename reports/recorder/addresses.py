"""Addresses of brokers in replies, which must lead clients back to us; and versions that we could not follow."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from highwater.reference.wire.registry import APIS

Address = tuple[str, int]
# Where the addresses of an API's replies stand: fields of entries with `host` and `port`.
ENTRIES: Final = {
    "Metadata": "brokers",
    "DescribeCluster": "brokers",
    "FindCoordinator": "coordinators",
    "Produce": "node_endpoints",
    "Fetch": "node_endpoints",
}
INLINE: Final = "FindCoordinator"  # up to version 3


def addresses(name: str, reply: Any) -> Iterator[Address]:
    """All that a reply names."""
    for each in _entries(name, reply):
        if each.host:
            yield each.host, each.port


def _entries(name: str, reply: Any) -> tuple[Any, ...]:
    found: tuple[Any, ...] = getattr(reply, ENTRIES[name])
    return (*found, reply) if name == INLINE else found


def rewritten(name: str, reply: Any, ours: Callable[[Address], Address]) -> Any:
    """The reply with our addresses in the place of theirs."""

    def hint(entry: Any) -> Any:
        if not entry.host:
            return entry
        host, port = ours((entry.host, entry.port))
        return replace(entry, host=host, port=port)

    field = ENTRIES[name]
    mended = replace(reply, **{field: tuple(hint(each) for each in getattr(reply, field))})
    return hint(mended) if name == INLINE else mended


def followed(reply: Any) -> Any:
    """An ApiVersions reply without what is newer than our tables."""
    known = tuple(
        replace(each, max_version=min(each.max_version, APIS[each.api_key].max_version))
        for each in reply.api_keys
        if each.api_key in APIS and each.min_version <= APIS[each.api_key].max_version
    )
    return replace(reply, api_keys=known)
