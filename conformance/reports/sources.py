"""Links to the sources of clauses."""

import re
from collections.abc import Iterator
from typing import Final

KIP: Final = "https://cwiki.apache.org/confluence/dosearchsite.action?where=KAFKA&queryString="
"""A search, because the address of a KIP's page contains its title."""
ISSUE: Final = "https://issues.apache.org/jira/browse/"
GUIDE: Final = "https://kafka.apache.org/protocol"
NAMED: Final = re.compile(r"(?P<kip>KIP-\d+)|(?P<issue>KAFKA-\d+)|(?P<guide>[Pp]rotocol guide)")


def link_source(source: str) -> Iterator[tuple[str, str]]:
    """Yield the parts of a source with their links, which may be empty: `("KIP-101", "https://…"), (", ", "")`."""
    position = 0
    for found in NAMED.finditer(source):
        if found.start() > position:
            yield source[position : found.start()], ""
        yield found[0], _link(found)
        position = found.end()
    if position < len(source):
        yield source[position:], ""


def _link(found: re.Match[str]) -> str:
    if found["kip"]:
        return KIP + found["kip"]
    return ISSUE + found["issue"] if found["issue"] else GUIDE
