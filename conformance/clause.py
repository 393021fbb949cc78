"""What a case module needs to say: which clause a case holds a target to, and over which versions it sweeps."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import pytest

from highwater.reference.wire.compression import Compression
from highwater.reference.wire.registry import api_of

F = TypeVar("F", bound=Callable[..., None])


def clause(clause_id: str, variant: str = "") -> Callable[[F], F]:
    """Mark a case. `variant` tells several cases of one clause apart: `FRM-3[split]`."""
    return pytest.mark.clause(clause_id, variant)


def era(since: str = "", until: str = "") -> pytest.MarkDecorator:
    """Narrow the era of one case, or with `marks=` of one of its parameters, within that of its clause."""
    return pytest.mark.era(since, until)


CODECS: Final = [
    pytest.param(codec, id=codec.name.lower(), marks=[era(since="2.1")] if codec is Compression.ZSTD else [])
    for codec in Compression
]
"""Parameters of a case that goes through every compression; zstd came with KIP-110."""
KRAFT: Final = era(since="3.3")
"""The quorum's controller tells apart what the one that kept its state in ZooKeeper did not, or told otherwise."""


def sweep(request: type[Any], first: int = 0, last: int | None = None) -> Callable[[F], F]:
    """Run a case once for each version; those that the target does not advertise are `unsupported`."""
    api = api_of(request)
    versions = range(max(first, api.min_version), (api.max_version if last is None else last) + 1)
    return pytest.mark.parametrize("version", [pytest.param(each, id=f"{api.name} v{each}") for each in versions])
