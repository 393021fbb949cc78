"""Oracles on what a response has for each item of its request, and on error codes that a version does not have."""

from typing import Any, cast

import pytest

from highwater.fuzz.wire.generate.cases import Case
from highwater.fuzz.wire.oracles.allowed_errors import ADDED, ALLOWED, is_allowed
from highwater.fuzz.wire.oracles.responses import Oracle, judge
from highwater.fuzz.wire.oracles.results import RESULTS, missing_results
from highwater.fuzz.wire.oracles.sizes import excess
from highwater.fuzz.wire.oracles.states import is_refusal
from highwater.fuzz.wire.replay import Replay
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.framing import encode_request, encode_response
from highwater.reference.wire.messages.committed_offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from highwater.reference.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from highwater.reference.wire.messages.groups import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from highwater.reference.wire.messages.metadata import ApiVersionsRequest, ApiVersionsResponse
from highwater.reference.wire.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from highwater.reference.wire.messages.produce import ProduceRequest
from highwater.reference.wire.messages.replicas import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)
from highwater.reference.wire.messages.security import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from highwater.reference.wire.messages.topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from highwater.reference.wire.records import build_batch
from highwater.reference.wire.registry import APIS

CREATE_TOPICS, CREATE_ACLS, LIST_OFFSETS, PRODUCE = 19, 30, 2, 0
LEAVE_GROUP, ELECT_LEADERS, OFFSET_FETCH = 13, 43, 9


def test_a_response_has_a_result_for_each_topic_in_any_order() -> None:
    asked = CreateTopicsRequest(topics=tuple(CreatableTopic(name=name) for name in ("a", "b", "a")))
    answered = CreateTopicsResponse(topics=tuple(CreatableTopicResult(name=name) for name in ("b", "a")))
    assert missing_results(CREATE_TOPICS, 5, asked, answered) == ""
    lacking = CreateTopicsResponse(topics=answered.topics[:1])
    assert missing_results(CREATE_TOPICS, 5, asked, lacking) == "results for nothing added, for a missing"
    other = CreateTopicsResponse(topics=(*answered.topics, CreatableTopicResult(name="c")))
    assert missing_results(CREATE_TOPICS, 5, asked, other) == "results for c added, for nothing missing"


def test_results_without_a_name_are_counted() -> None:
    asked = CreateAclsRequest(creations=(AclCreation(), AclCreation()))
    assert missing_results(CREATE_ACLS, 3, asked, CreateAclsResponse(results=(AclCreationResult(),) * 2)) == ""
    found = missing_results(CREATE_ACLS, 3, asked, CreateAclsResponse(results=(AclCreationResult(),)))
    assert found == "1 results for 2 items"


def test_a_lacking_partition_is_a_failure_of_the_response() -> None:
    parts = tuple(ListOffsetsPartition(partition_index=number) for number in (0, 1))
    asked = ListOffsetsRequest(topics=(ListOffsetsTopic(name="t", partitions=parts),))
    frame = encode_request(asked, 5, 7, "c")
    both = tuple(ListOffsetsPartitionResponse(partition_index=number) for number in (0, 1))

    def answer(partitions: tuple[ListOffsetsPartitionResponse, ...]) -> bytes:
        response = ListOffsetsResponse(topics=(ListOffsetsTopicResponse(name="t", partitions=partitions),))
        return encode_response(response, 5, 7)[4:]

    assert judge(frame, answer(both))[0] is None
    failure, _ = judge(frame, answer(both[:1]))
    assert failure is not None
    assert (failure.oracle, failure.message) == (
        Oracle.INVARIANT, "ListOffsets v5: results for nothing added, for t-1 missing",
    )  # fmt: skip


def test_members_that_are_named_by_their_instance_ids_have_a_result_each() -> None:
    asked = LeaveGroupRequest(members=tuple(MemberIdentity(group_instance_id=name) for name in ("a", "b")))
    answered = LeaveGroupResponse(members=tuple(MemberResponse(group_instance_id=name) for name in ("b", "a")))
    assert missing_results(LEAVE_GROUP, 3, asked, answered) == ""
    lacking = LeaveGroupResponse(members=answered.members[1:])
    assert missing_results(LEAVE_GROUP, 3, asked, lacking) == "results for nothing added, for -b missing"


def test_a_request_without_items_may_ask_for_all() -> None:
    answered = ElectLeadersResponse(
        replica_election_results=(ReplicaElectionResult(topic="t", partition_result=(PartitionResult(),)),)
    )
    assert missing_results(ELECT_LEADERS, 2, ElectLeadersRequest(topic_partitions=None), answered) == ""
    asked = ElectLeadersRequest(topic_partitions=(TopicPartitions(topic="t", partitions=(0, 1)),))
    assert missing_results(ELECT_LEADERS, 2, asked, answered) == "results for nothing added, for t-1 missing"


def test_offsets_are_answered_by_group_or_by_partition() -> None:
    by_group = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="a"), OffsetFetchRequestGroup(group_id="b")))
    one = OffsetFetchResponse(groups=(OffsetFetchResponseGroup(group_id="a"),))
    assert missing_results(OFFSET_FETCH, 8, by_group, one) == "results for nothing added, for b missing"
    by_topic = OffsetFetchRequest(topics=(OffsetFetchRequestTopic(name="t", partition_indexes=(0, 1)),))
    part = OffsetFetchResponsePartition(partition_index=1)
    answered = OffsetFetchResponse(topics=(OffsetFetchResponseTopic(name="t", partitions=(part,)),))
    assert missing_results(OFFSET_FETCH, 7, by_topic, answered) == "results for nothing added, for t-0 missing"


@pytest.mark.parametrize("key", RESULTS)
def test_the_fields_of_the_table_exist(key: int) -> None:
    api = APIS[key]
    assert missing_results(key, 0, api.request(), api.response()) == ""


def test_an_error_code_of_a_later_version_is_not_allowed_before() -> None:
    assert is_allowed(PRODUCE, 11, ErrorCode.TRANSACTION_ABORTABLE)
    assert not is_allowed(PRODUCE, 10, ErrorCode.TRANSACTION_ABORTABLE)
    assert is_allowed(PRODUCE, 3, ErrorCode.INVALID_PRODUCER_EPOCH)


def test_added_codes_are_allowed_in_the_newest_version_of_their_apis() -> None:
    """A version beyond the newest one would forbid a code for ever."""
    for code, versions in ADDED.items():
        for key, version in versions.items():
            assert code in ALLOWED[key], (code, key)
            assert version <= APIS[key].max_version, (code, key)


def test_a_request_that_only_reads_must_leave_the_state_whatever_the_answer() -> None:
    frame = encode_request(OffsetFetchRequest(group_id="g"), 3, 1, "c")
    assert is_refusal(frame, ())
    assert is_refusal(frame, (0,))
    assert not is_refusal(encode_request(CreateTopicsRequest(), 5, 1, "c"), (0,))


@pytest.mark.parametrize("code", [(), (0,)])
def test_a_request_that_is_only_validated_must_leave_the_state(code: tuple[int, ...]) -> None:
    assert is_refusal(encode_request(CreatePartitionsRequest(validate_only=True), 1, 1, "c"), code)
    assert not is_refusal(encode_request(CreatePartitionsRequest(validate_only=False), 1, 1, "c"), code)
    assert not is_refusal(encode_request(CreatePartitionsRequest(validate_only=True), 1, 1, "c")[:-1], code)


def fetch_of(max_bytes: int, partition_max_bytes: int) -> FetchRequest:
    parts = tuple(FetchPartition(partition=number, partition_max_bytes=partition_max_bytes) for number in (0, 1))
    return FetchRequest(max_bytes=max_bytes, topics=(FetchTopic(topic="t", partitions=parts),))


def records_of(*records: bytes) -> FetchResponse:
    parts = tuple(PartitionData(partition_index=number, records=data) for number, data in enumerate(records))
    return FetchResponse(responses=(FetchableTopicResponse(topic="t", partitions=parts),))


BATCH = build_batch([(1, None, b"value", ())])
SIZE = len(BATCH)


@pytest.mark.parametrize(
    ("request_", "response", "expected"),
    [
        (fetch_of(1, 1), records_of(BATCH), ""),  # the first batch, so that the consumer makes progress
        (fetch_of(2 * SIZE, SIZE), records_of(BATCH, BATCH), ""),
        (fetch_of(SIZE, SIZE), records_of(b"", BATCH), ""),
        (fetch_of(1, SIZE), records_of(BATCH, BATCH), f"{2 * SIZE} bytes of records, at most 1 are allowed, "
                                                      f"and the first batch has {SIZE}"),
        (fetch_of(9 * SIZE, SIZE), records_of(2 * BATCH), f"{2 * SIZE} bytes of records of partition 0, "
                                                          f"at most {SIZE} are allowed"),
        (fetch_of(9 * SIZE, 1), records_of(BATCH, BATCH), f"{SIZE} bytes of records of partition 1, "
                                                          "at most 1 are allowed"),
    ],
)  # fmt: skip
def test_a_fetch_exceeds_its_limits_by_the_first_batch_only(
    request_: FetchRequest, response: FetchResponse, expected: str
) -> None:
    assert excess(4, request_, response) == expected
    assert excess(3, request_, response) == ""
    frame = encode_request(request_, 4, 7, "c")
    failure, _ = judge(frame, encode_response(response, 4, 7)[4:])
    assert (failure.message if failure is not None else "") == (expected and f"Fetch v4: {expected}")


class OneAnswer:
    """A connection on which the response to ApiVersions is there at once."""

    def send_bytes(self, data: bytes) -> None: ...

    def receive_frame(self, timeout_s: float) -> bytes:
        return encode_response(ApiVersionsResponse(), 0, 2)[4:]


def test_a_replay_takes_the_next_response_for_that_of_acks_0() -> None:
    """No response is due to acks=0, so what comes belongs to the next frame of the case."""
    produce, versions = (
        encode_request(ProduceRequest(acks=0), 3, 1, "c"),
        encode_request(ApiVersionsRequest(), 0, 2, "c"),
    )
    replay, connection = Replay(cast("Any", None)), cast("Any", OneAnswer())
    failure, _ = replay._step(connection, Case(PRODUCE, 3, (produce, versions)))
    assert failure is None
    failure, _ = replay._step(connection, Case(PRODUCE, 3, (versions, produce)))
    assert failure is not None
    assert failure.oracle is Oracle.CORRELATION


def test_a_broker_may_have_fewer_versions_of_api_versions() -> None:
    """It answers the others in version 0 (KIP-511); that was once a response that does not decode."""
    frame = encode_request(ApiVersionsRequest(client_software_name="n", client_software_version="1"), 3, 7, "c")
    answer = encode_response(ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION), 0, 7)[4:]
    assert judge(frame, answer) == (None, (ErrorCode.UNSUPPORTED_VERSION,))
