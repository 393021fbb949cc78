"""What a configuration promises the rules; what it does not state is not promised."""

from typing import Any

import msgspec
import pytest

from highwater.reports.columns import ISOLATIONS
from highwater.reports.rules.findings import Promise
from highwater.reports.tests.histories import PROMISED
from highwater.spec.formats.history import Config


def test_by_default_everything_is_promised_and_nothing_is_limited() -> None:
    assert Promise() == Promise.of(PROMISED)


def test_an_empty_configuration_promises_as_little_as_possible() -> None:
    assert Promise.of(Config()) == Promise(
        acks_all=False,
        acks_known=False,
        idempotence=False,
        unclean_election=True,
        unclean_known=False,
        retention=False,
        compaction=False,
    )


@pytest.mark.parametrize(
    ("setting", "value", "expected"),
    [
        ("acks", "1", {"acks_all": False}),
        ("acks", None, {"acks_all": False, "acks_known": False}),
        ("idempotence", False, {"idempotence": False}),
        ("unclean_election", True, {"unclean_election": True}),
        ("unclean_election", None, {"unclean_election": True, "unclean_known": False}),
        ("retention", True, {"retention": True}),
        ("compaction", True, {"compaction": True}),
        ("retention_ms", 0, {"retention_ms": 0}),
        ("transaction_timeout_ms", 0, {"transaction_timeout_ms": 0}),
        ("patience_ms", 7, {"patience_ms": 7}),
        ("started_ms", 7, {"started_ms": 7}),
        ("isolation", "read_committed", {"isolation": ISOLATIONS["read_committed"]}),
    ],
)
def test_each_setting_decides_its_part_of_the_promise(setting: str, value: Any, expected: dict[str, Any]) -> None:
    config = msgspec.structs.replace(PROMISED, **{setting: value})
    assert Promise.of(config) == Promise(**expected)
