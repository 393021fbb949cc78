"""What a case module needs to say: which clause a case holds a target to, and over which versions it sweeps."""

from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from reference.wire.registry import api_of

F = TypeVar("F", bound=Callable[..., None])


def clause(clause_id: str, variant: str = "") -> Callable[[F], F]:
    """Mark a case. `variant` tells several cases of one clause apart: `FRM-3[split]`."""
    return pytest.mark.clause(clause_id, variant)


def sweep(request: type[Any], first: int = 0, last: int | None = None) -> Callable[[F], F]:
    """Run a case once for each version; those that the target does not advertise are `unsupported`."""
    api = api_of(request)
    versions = range(max(first, api.min_version), (api.max_version if last is None else last) + 1)
    return pytest.mark.parametrize("version", [pytest.param(each, id=f"{api.name} v{each}") for each in versions])
