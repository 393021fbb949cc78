"""Decorators for cases: the clause that a case checks, its Kafka versions, and the API versions that it covers."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import pytest

from highwater.reference.wire.compression import Compression
from highwater.reference.wire.registry import api_of

F = TypeVar("F", bound=Callable[..., None])


def clause(clause_id: str, variant: str = "") -> Callable[[F], F]:
    """Mark a case with its clause; `variant` distinguishes several cases of one clause: `FRM-3[split]`."""
    return pytest.mark.clause(clause_id, variant)


def era(since: str = "", until: str = "") -> pytest.MarkDecorator:
    """Limit a case, or with `marks=` one of its parameters, to fewer Kafka versions than its clause."""
    return pytest.mark.era(since, until)


CODECS: Final = [
    pytest.param(codec, id=codec.name.lower(), marks=[era(since="2.1")] if codec is Compression.ZSTD else [])
    for codec in Compression
]
"""Parameters of a case that runs with every codec; zstd exists since KIP-110."""
KRAFT: Final = era(since="3.3")
"""For cases in which the KRaft controller returns other errors than the one that used ZooKeeper."""


def sweep(request: type[Any], first: int = 0, last: int | None = None) -> Callable[[F], F]:
    """Run a case once for each API version; versions that the target does not advertise are `unsupported`."""
    api = api_of(request)
    versions = range(max(first, api.min_version), (api.max_version if last is None else last) + 1)
    return pytest.mark.parametrize(
        "version", [pytest.param(version, id=f"{api.name} v{version}") for version in versions]
    )
