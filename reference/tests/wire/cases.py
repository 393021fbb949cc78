"""Parametrization of tests over every message in every version, and Hypothesis settings."""

from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, settings

from highwater.reference.wire.messages.consumer_groups import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from highwater.reference.wire.registry import APIS
from highwater.reference.wire.schema import schema_of

QUICK: Final = settings(
    max_examples=12,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
"""The same examples in every run, so that a failure needs no seed."""

FUZZ: Final = settings(QUICK, max_examples=400)

CLASSES: Final[list[type[Any]]] = [
    *(cls for api in APIS.values() for cls in (api.request, api.response)),
    ConsumerProtocolSubscription,
    ConsumerProtocolAssignment,
]

VERSIONS: Final[list[tuple[type[Any], int]]] = [
    (cls, version)
    for cls in CLASSES
    for version in range(schema_of(cls).versions.first, schema_of(cls).versions.last + 1)
]


def versioned(cases: list[tuple[type[Any], int]]) -> pytest.MarkDecorator:
    """Parametrize by class and version, named so that `-k FetchResponse-12` finds one."""
    return pytest.mark.parametrize(
        ("cls", "version"), [pytest.param(*case, id=f"{case[0].__name__}-{case[1]}") for case in cases]
    )
