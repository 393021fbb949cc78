"""Requests from plain data."""

import pytest

from highwater.conformance.client.requests import API_BY_NAME, build, placed, request
from highwater.reference.wire.messages.groups import JoinGroupRequest, JoinGroupRequestProtocol

OFFSETS = API_BY_NAME["ListOffsets"].request


@pytest.mark.parametrize("protocol", [
    {"name": "range", "metadata": b"m"}, {"name": "range", "metadata": "m"}, ["range", b"m"],
    JoinGroupRequestProtocol(name="range", metadata=b"m"),
])  # fmt: skip
def test_a_struct_is_given_by_name_by_position_or_as_it_is(protocol: object) -> None:
    expected = JoinGroupRequest(group_id="g", protocols=(JoinGroupRequestProtocol(name="range", metadata=b"m"),))
    assert request("JoinGroup", group_id="g", protocols=[protocol]) == expected


def test_a_struct_may_be_its_first_field_and_a_list_null() -> None:
    assert request("DescribeUserScramCredentials", users=["a"]).users[0].name == "a"
    assert request("DescribeUserScramCredentials", users=None).users is None


def test_unknown_names_and_too_many_fields_are_refused() -> None:
    with pytest.raises(ValueError, match="no API is called Join"):
        request("Join")
    with pytest.raises(ValueError, match="JoinGroupRequestProtocol has no field nam; its fields are name, metadata"):
        request("JoinGroup", protocols=[{"nam": "range"}])
    with pytest.raises(ValueError, match="JoinGroupRequestProtocol has 2 fields, not 3"):
        request("JoinGroup", protocols=[["range", b"m", 1]])
    with pytest.raises(ValueError, match="ListOffsetsRequest has no list topic"):
        placed(OFFSETS, {}, ["topic"], [{}])


@pytest.mark.parametrize(("apart", "topics"), [(False, ["a", "b", "a"]), (True, ["a", "a", "b", "a"])])
def test_items_that_follow_one_another_share_the_struct_of_their_topic(apart: bool, topics: list[str]) -> None:
    items = [{"name": name, "partition_index": number} for number, name in enumerate(["a", "a", "b", "a"])]
    built = build(OFFSETS, placed(OFFSETS, {}, ["topics", "partitions"], items, apart=apart))
    assert [topic.name for topic in built.topics] == topics
    assert [part.partition_index for topic in built.topics for part in topic.partitions] == [0, 1, 2, 3]


def test_items_extend_a_given_struct_and_may_be_numbers() -> None:
    usual = {"markers": [{"producer_id": 7}]}
    items = [{"name": "a", "partition": 1}, {"name": "a", "partition": 2}]
    kind = API_BY_NAME["WriteTxnMarkers"].request
    (marker,) = build(kind, placed(kind, usual, ["markers", "topics", "partition_indexes"], items)).markers
    assert (marker.producer_id, marker.topics[0].partition_indexes) == (7, (1, 2))
