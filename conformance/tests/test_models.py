"""Gaps of the models that drawn walks have shown."""

import pytest

from highwater.conformance.expectations import expect, require
from highwater.conformance.failures import Disturbed, Required, TargetFailure
from highwater.conformance.models.batches import Batch, Stored
from highwater.conformance.models.fetch_sessions import FetchSession
from highwater.conformance.models.log import ModelLog
from highwater.conformance.models.settings import APPEND, SET, TopicSettings
from highwater.reference.wire.compression import Compression
from highwater.reference.wire.errors import ErrorCode

THROTTLED = "follower.replication.throttled.replicas"


@pytest.mark.parametrize(("override", "expected"), [("*", ErrorCode.INVALID_CONFIG), ("0:1", {THROTTLED: "0:1,1:2"})])
def test_a_list_of_throttled_replicas_has_no_others_beside_all(override: str, expected: object) -> None:
    topic = TopicSettings("t", {}, {THROTTLED: override})
    assert topic.changed([(THROTTLED, APPEND, "1:2")]) == expected
    assert topic.changed([(THROTTLED, SET, "*")]) == {THROTTLED: "*"}


def test_the_largest_time_is_unknown_while_a_batch_was_not_read() -> None:
    log = ModelLog(0, by_append_time=True)
    stored = Stored(0, 0, Batch(((5, None, b"v", ()),)), Compression.NONE, by_append_time=True)
    log.batches = [stored]
    assert log.largest_is_deleted
    stored.append_time = 7
    assert not log.largest_is_deleted


def test_a_session_reports_a_partition_until_its_ends_were_reported() -> None:
    log, session = ModelLog(0), FetchSession[str]()
    session.begin({("t", 0): "first"})
    assert session.must_report(("t", 0), log)
    session.report(("t", 0), log)
    assert not session.must_report(("t", 0), log)
    log.end += 1
    assert session.must_report(("t", 0), log)
    session.report(("t", 0), None)
    assert session.must_report(("t", 0), log), "an error is no report of the ends"
    session.change({("t", 1): "second"}, [("t", 0), ("u", 3)])
    assert session.reads == {("t", 1): "second"}


def test_an_error_after_which_a_client_tries_again_is_distinguished_from_others() -> None:
    with pytest.raises(Disturbed):
        expect("error code", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    with pytest.raises(Disturbed):
        expect("error code and offset", (0, 1), (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1))
    for what, actual in (("error code", ErrorCode.INVALID_REQUEST), ("number of partitions", 6)):
        with pytest.raises(TargetFailure) as failure:
            expect(what, 0, actual)
        assert not isinstance(failure.value, Disturbed)
    with pytest.raises(Required):
        require("error code", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
