"""ApiVersions: the advertised versions, and that a broker answers all of them."""

import struct
from dataclasses import replace
from typing import Any

import pytest

from highwater.conformance.cases.support.request_rows import HARMLESS
from highwater.conformance.clause import clause, sweep
from highwater.conformance.client.broker import Broker
from highwater.conformance.defects import Garbled, HangUp, Reply, defect, increment
from highwater.conformance.expectations import expect
from highwater.conformance.failures import TargetFailure
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.framing import decode_response_header, encode_request
from highwater.reference.wire.messages.metadata import ApiVersionsRequest, ApiVersionsResponse
from highwater.reference.wire.registry import APIS, api_of

API_VERSIONS = APIS[18]
NAMED = ApiVersionsRequest(client_software_name="highwater", client_software_version="1.0")


def add_header_tags(reply: bytes) -> bytes:
    return struct.pack(">i", len(reply) - 3) + reply[4:8] + b"\0" + reply[8:]


def append_byte(reply: bytes) -> bytes:
    return struct.pack(">i", len(reply) - 3) + reply[4:] + b"\0"


def _duplicate(keys: tuple[Any, ...]) -> tuple[Any, ...]:
    return (*keys, *keys)


def _unanswered_defects(request: type[Any]) -> pytest.MarkDecorator:
    return pytest.mark.defect(HangUp(request), Garbled(request, append_byte))


@clause("API-1")
@defect(Reply(ApiVersionsRequest, "error_code", 42), Reply(ApiVersionsRequest, "api_keys.max_version", increment))
@sweep(ApiVersionsRequest)
def test_each_version_lists_the_keys(broker: Broker, version: int) -> None:
    reply = broker.call(NAMED, version)
    expect("error code", 0, reply.error_code)
    expect("version range of ApiVersions in the reply", broker.advertised[18], ranges(reply)[18])


@clause("API-2")
@defect(Garbled(ApiVersionsRequest, add_header_tags))
@sweep(ApiVersionsRequest, 3)
def test_the_response_header_has_no_tags(broker: Broker, version: int) -> None:
    broker.need(ApiVersionsRequest, version)
    broker.send_bytes(encode_request(NAMED, version, 7, "c"))
    data = broker.receive_frame()
    expect("correlation id", 7, decode_response_header(data, 0)[0])
    expect("error code directly after the correlation id", b"\0\0", data[4:6])
    expect("the list of keys is not empty", True, data[6] > 1)


@clause("API-3")
@defect(
    Reply(ApiVersionsRequest, "error_code", 0), Reply(ApiVersionsRequest, "api_keys", ()), HangUp(ApiVersionsRequest)
)
def test_an_unsupported_version_is_answered_in_version_0(broker: Broker) -> None:
    broker.send_bytes(encode_request(NAMED, 4, 7, "c").replace(b"\0\x12\0\x04", b"\0\x12\x7f\xff", 1))
    reply = broker.receive(API_VERSIONS, 0, 7)
    expect("error code", ErrorCode.UNSUPPORTED_VERSION, reply.error_code)
    expect("version range of ApiVersions", broker.advertised[18], ranges(reply).get(18))


@clause("API-4")
@defect(Reply(ApiVersionsRequest, "error_code", 0))
@pytest.mark.parametrize("text", ["", "a b", "-a", "a/"])
@pytest.mark.parametrize("field", ["name", "version"])
def test_a_bad_name_or_version_of_the_software_is_refused(broker: Broker, field: str, text: str) -> None:
    request = replace(NAMED, **{f"client_software_{field}": text})
    expect("error code", ErrorCode.INVALID_REQUEST, broker.call(request, 3).error_code)


@clause("API-5")
@defect(Reply(ApiVersionsRequest, "api_keys", _duplicate), Reply(ApiVersionsRequest, "api_keys.min_version", increment))
def test_keys_are_unique_and_ranges_are_ranges(broker: Broker) -> None:
    reply = broker.call(ApiVersionsRequest(), 0)
    keys = [listed_api.api_key for listed_api in reply.api_keys]
    expect("number of different keys", len(keys), len(set(keys)))
    for api in reply.api_keys:
        if not 0 <= api.min_version <= api.max_version:
            raise TargetFailure(
                f"key {api.api_key}: expected a valid range, actual {api.min_version}..{api.max_version}"
            )


@clause("API-6")
@pytest.mark.parametrize(
    ("key", "version"),
    [
        pytest.param(key, version, id=f"{APIS[key].name} v{version}", marks=_unanswered_defects(type(HARMLESS[key])))
        for key in sorted(HARMLESS)
        for version in range(APIS[key].min_version, APIS[key].max_version + 1)
    ],
)
def test_what_is_advertised_is_answered(broker: Broker, key: int, version: int) -> None:
    request = HARMLESS[key]
    broker.need(type(request), version)
    reply = broker.exchange(request, version)
    expect("class of the reply", api_of(type(request)).response.__name__, type(reply).__name__)


@clause("API-9")
@defect(Reply(ApiVersionsRequest, "api_keys.min_version", increment))
def test_produce_is_advertised_from_version_0(broker: Broker) -> None:
    expect("lowest version of Produce", 0, ranges(broker.call(ApiVersionsRequest(), 0))[0][0])


def ranges(reply: ApiVersionsResponse) -> dict[int, tuple[int, int]]:
    return {api.api_key: (api.min_version, api.max_version) for api in reply.api_keys}
