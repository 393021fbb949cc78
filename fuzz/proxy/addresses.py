"""Replace broker addresses in replies by those of the proxy, and limit ApiVersions to known versions."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from highwater.reference.wire.registry import APIS

Address = tuple[str, int]
# The field of each API's reply whose entries have `host` and `port`.
ENTRIES: Final = {
    "Metadata": "brokers",
    "DescribeCluster": "brokers",
    "FindCoordinator": "coordinators",
    "Produce": "node_endpoints",
    "Fetch": "node_endpoints",
}
INLINE: Final = "FindCoordinator"  # these replies also have one address of their own, up to version 3


def addresses(name: str, reply: Any) -> Iterator[Address]:
    """Yield every broker address in a reply."""
    for entry in _entries(name, reply):
        if entry.host:
            yield entry.host, entry.port


def _entries(name: str, reply: Any) -> tuple[Any, ...]:
    found: tuple[Any, ...] = getattr(reply, ENTRIES[name])
    return (*found, reply) if name == INLINE else found


def rewrite_addresses(name: str, reply: Any, ours: Callable[[Address], Address]) -> Any:
    """Return the reply with each broker address replaced by the address of its proxy port."""

    def replace_entry(entry: Any) -> Any:
        if not entry.host:
            return entry
        host, port = ours((entry.host, entry.port))
        return replace(entry, host=host, port=port)

    field = ENTRIES[name]
    changed = replace(reply, **{field: tuple(replace_entry(entry) for entry in getattr(reply, field))})
    return replace_entry(changed) if name == INLINE else changed


def limit_api_versions(reply: Any) -> Any:
    """Return an ApiVersions reply limited to the APIs and versions that this package can decode."""
    known = tuple(
        replace(api, max_version=min(api.max_version, APIS[api.api_key].max_version))
        for api in reply.api_keys
        if api.api_key in APIS and api.min_version <= APIS[api.api_key].max_version
    )
    return replace(reply, api_keys=known)
