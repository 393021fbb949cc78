"""Responses with errors exist for every API and version, and are about what the request asked for."""

from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from highwater.fuzz.proxy.answers import error_levels, error_response
from highwater.fuzz.proxy.connection import Exchange, is_silent
from highwater.fuzz.proxy.items import items, named_ids
from highwater.reference.wire.codec import decode, encode
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.framing import decode_request_header, encode_request
from highwater.reference.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from highwater.reference.wire.messages.metadata import FindCoordinatorRequest
from highwater.reference.wire.messages.produce import ProduceRequest
from highwater.reference.wire.messages.transactions import InitProducerIdRequest
from highwater.reference.wire.registry import APIS, Api
from highwater.reference.wire.strategies import messages

CODE = 41


def codes(message: Any) -> list[int]:
    """Return every error code in a message."""
    found = []
    for field in fields(message):
        value = getattr(message, field.name)
        if field.name in ("error_code", "partition_error_code"):
            found.append(value)
        for entry in value if isinstance(value, tuple) else ():
            found += codes(entry) if is_dataclass(entry) else []
    return found


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
@settings(max_examples=30)
@given(data=st.data())
def test_every_request_can_be_answered_with_an_error(api: Api, data: st.DataObject) -> None:
    version = data.draw(st.integers(api.min_version, api.max_version), label="version")
    request = data.draw(messages(api.request, version), label="request")
    if hasattr(request, "cursor"):  # where a listing continues, which is not answered by itself
        request = replace(request, cursor=None)
    response, levels = error_response(api, version, request, CODE), error_levels(api, version)
    assert decode(api.response, version, encode(response, version)) == response
    topics = dict(named_ids(request))
    named = {item for item in items(request, topics) if item[1] is not None or "partition" not in levels}
    assert CODE in codes(response) or not named
    assert {item for item in items(response, topics) if None not in item} <= {*items(request, topics)}


@pytest.mark.parametrize(
    ("name", "request_", "stated"),
    [
        ("InitProducerId", InitProducerIdRequest(transactional_id="pay"), {"producer_id": -1, "producer_epoch": -1}),
        ("FindCoordinator", FindCoordinatorRequest(key="g"), {"node_id": -1, "host": ""}),
    ],
)
def test_what_is_unknown_is_stated_as_a_broker_does(name: str, request_: Any, stated: dict[str, Any]) -> None:
    api = next(each for each in APIS.values() if each.name == name)
    response = error_response(api, 1, request_, CODE)
    assert {field: getattr(response, field) for field in stated} == stated


def test_a_partition_with_an_error_has_no_offsets() -> None:
    request = FetchRequest(topics=(FetchTopic(topic="t", partitions=(FetchPartition(partition=1),)),))
    ((topic,), api) = (error_response(APIS[1], 12, request, CODE).responses, APIS[1])
    (entry,) = topic.partitions
    assert (topic.topic, entry.partition_index, entry.error_code) == ("t", 1, CODE)
    assert (entry.high_watermark, entry.last_stable_offset, entry.log_start_offset) == (-1, -1, -1)
    session = error_response(api, 12, request, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    assert (session.error_code, session.responses) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ())


@settings(max_examples=200)
@given(data=st.data())
def test_a_request_without_a_response_is_recognised_without_decoding_it(data: st.DataObject) -> None:
    version = data.draw(st.integers(0, APIS[0].max_version), label="version")
    message = data.draw(messages(ProduceRequest, version), label="request")
    message = replace(message, acks=data.draw(st.sampled_from([0, 1, -1, 256]), label="acks"))
    frame = encode_request(message, version, 7, data.draw(st.sampled_from([None, "", "client"])))[4:]
    header, position = decode_request_header(frame)
    assert is_silent(Exchange(APIS[0], header, frame, position)) is (message.acks == 0)
