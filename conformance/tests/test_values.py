"""Values in the replies of two brokers are compared, after replacing what may differ."""

from typing import Any

from highwater.conformance.client.exchange import Event
from highwater.conformance.running.verdicts import CaseResult, CaseVerdict
from highwater.conformance.values import ValueComparison, compare_values, lines, replies_of
from highwater.errors import ExitCode
from highwater.reference.wire.framing import encode_request, encode_response
from highwater.reference.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from highwater.reference.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from highwater.reference.wire.records import build_batch
from highwater.reference.wire.registry import api_of

MINE, OTHER = "hw-0123456789", "hw-abcdef0123"
VERSION = 8


def framed(data: bytes) -> bytes:
    return data if int.from_bytes(data[:4], "big") == len(data) - 4 else len(data).to_bytes(4, "big") + data


def exchange(request: Any, reply: Any, version: int = VERSION, number: int = 1) -> list[Event]:
    api = api_of(type(request))
    asked, answer = encode_request(request, version, number, "c"), encode_response(reply, version, number)
    return [Event("a:1", "<- request", framed(asked)), Event("a:1", "-> reply", framed(answer), api, version)]


def metadata(prefix: str = MINE, *topics: str, error: int = 0, port: int = 1, times: int = 1) -> list[Event]:
    wanted = MetadataRequest(topics=(MetadataRequestTopic(name=f"{prefix}-t1"),))
    found = tuple(MetadataResponseTopic(name=name, error_code=error) for name in topics or (f"{prefix}-t1",))
    reply = MetadataResponse(brokers=(MetadataResponseBroker(node_id=port, host="h", port=port),), topics=found)
    return [event for number in range(times) for event in exchange(wanted, reply, number=number)]


def fetched(value: bytes) -> list[Event]:
    wanted = FetchRequest(topics=(FetchTopic(topic="t", partitions=(FetchPartition(partition=0),)),))
    data = PartitionData(partition_index=0, records=build_batch([(1, None, value, ())]))
    return exchange(wanted, FetchResponse(responses=(FetchableTopicResponse(topic="t", partitions=(data,)),)), 11)


def compared(here: list[Event], there: list[Event], prefix: str = MINE) -> ValueComparison:
    one, other = (
        CaseResult(case="MD-1", clause="MD-1", level="MUST", verdict=CaseVerdict.PASS, replies=replies_of(events, own))
        for events, own in ((here, MINE), (there, prefix))
    )
    return compare_values("one", "other", [one], [other])


def test_names_addresses_and_ids_may_differ() -> None:
    found = compared(metadata(MINE, port=1), metadata(OTHER, port=2), OTHER)
    assert (found.differences, found.replies, found.unpaired, found.exit_code) == ([], 1, 0, ExitCode.HELD)
    assert found.values > 3


def test_another_value_is_reported_with_its_field() -> None:
    found = compared(metadata(error=3), metadata(error=5))
    (difference,) = found.differences
    assert (difference.field, difference.here, difference.there) == ("topics[hw].error_code", "3", "5")
    assert found.exit_code is ExitCode.VIOLATED
    assert next(lines(found)) == "Metadata v8 topics[hw].error_code: 3, not 5 (MD-1)"


def test_an_element_that_only_one_has_is_reported_once() -> None:
    found = compared(metadata(MINE, f"{MINE}-t1", "more"), metadata(MINE, f"{MINE}-t1"))
    assert [(each.field, each.here, each.there) for each in found.differences] == [
        ("topics[more]", "an element", "absent")
    ]
    assert next(lines(found)) == "Metadata v8 topics[more]: only one has it (MD-1)"
    other = compared(metadata(MINE, f"{MINE}-t1"), metadata(MINE, f"{MINE}-t1", "more"))
    assert next(lines(other)) == "Metadata v8 topics[more]: only other has it (MD-1)"


def test_topics_of_other_cases_are_left_out() -> None:
    assert compared(metadata(MINE, f"{MINE}-t1", f"{OTHER}-t1"), metadata()).differences == []


def test_records_are_compared_by_their_content() -> None:
    found = compared(fetched(b"a"), fetched(b"b"))
    assert [each.field for each in found.differences] == ["responses[t].partitions[0].records"]
    assert compared(fetched(b"a"), fetched(b"a")).differences == []


def test_a_request_that_was_repeated_counts_once() -> None:
    found = compared(metadata(times=3), metadata())
    assert (found.replies, found.unpaired, found.differences) == (1, 0, [])


def test_without_a_common_case_nothing_was_compared() -> None:
    failed = CaseResult(case="MD-1", clause="MD-1", level="MUST", verdict=CaseVerdict.FAIL)
    found = compare_values("one", "other", [failed], [failed])
    assert (found.cases, found.left_out, found.exit_code) == (0, 1, ExitCode.UNDECIDED)
