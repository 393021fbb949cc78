"""Failures of cases name the error codes that they compare."""

import pytest

from highwater.conformance.expectations import expect
from highwater.conformance.failures import TargetFailure
from highwater.reference.wire.errors import ErrorCode


@pytest.mark.parametrize(
    ("what", "expected", "actual", "says"),
    [
        ("error code", ErrorCode.INVALID_REQUEST, 0, "expected 42 (INVALID_REQUEST), actual 0 (NONE)"),
        ("error code of Fetch", {0, 6}, 999, "expected 0 (NONE) or 6 (NOT_LEADER_OR_FOLLOWER), actual 999"),
        ("error code and offset", (0, 42), (1, 42), "expected (0 (NONE), 42), actual (1 (OFFSET_OUT_OF_RANGE), 42)"),
        ("error codes", [0, 3], [3, 3], "expected (0 (NONE), 3 (UNKNOWN_TOPIC_OR_PARTITION)), actual (3 "),
        (
            "error codes",
            (0, {"a": 3}),
            (16, {}),
            "expected (0 (NONE), {'a': 3 (UNKNOWN_TOPIC_OR_PARTITION)}), actual (16 ",
        ),
        ("error code", True, {"a": 1}, "expected True, actual {'a': 1 (OFFSET_OUT_OF_RANGE)}"),
        ("offset", 42, 0, "expected 42, actual 0"),
    ],
)
def test_a_failure_names_error_codes(what: str, expected: object, actual: object, says: str) -> None:
    with pytest.raises(TargetFailure) as failure:
        expect(what, expected, actual)
    assert f"{what}: {says}" in str(failure.value)
