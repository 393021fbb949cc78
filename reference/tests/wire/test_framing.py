"""Frames are split and headers encoded and decoded."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.request_header.v1.header import RequestHeader as KioHeader1
from kio.schema.request_header.v2.header import RequestHeader as KioHeader2

from highwater.reference.tests.wire import kio_oracle
from highwater.reference.tests.wire.cases import QUICK
from highwater.reference.tests.wire.definitions import from_jar, span
from highwater.reference.wire.errors import (
    BufferUnderflowError,
    DecodeError,
    EncodeError,
    FrameSizeError,
    InvalidLengthError,
    InvalidStringError,
    UnknownApiKeyError,
    UnsupportedVersionError,
)
from highwater.reference.wire.framing import (
    FrameReader,
    RequestHeader,
    decode_request,
    decode_request_header,
    decode_response,
    encode_request,
    encode_request_header,
    encode_response,
    request_header_version,
    response_header_version,
)
from highwater.reference.wire.messages.controller import ControlledShutdownRequest
from highwater.reference.wire.messages.groups import HeartbeatRequest, HeartbeatResponse
from highwater.reference.wire.messages.metadata import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest
from highwater.reference.wire.registry import APIS, Api

EVERY_VERSION = [
    pytest.param(api, version, id=f"{api.name}-{version}")
    for api in APIS.values()
    for version in range(api.min_version, api.max_version + 1)
]


@pytest.mark.parametrize(("api", "version"), EVERY_VERSION)
def test_requests_and_responses_round_trip(api: Api, version: int) -> None:
    frame = encode_request(api.request(), version, 77, "me")
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    header, request = decode_request(frame[4:])
    assert request == api.request()
    client_id = None if (api.key, version) == (7, 0) else "me"
    assert header == RequestHeader(api_key=api.key, api_version=version, correlation_id=77, client_id=client_id)
    reply = encode_response(api.response(), version, 78)
    assert int.from_bytes(reply[:4], "big") == len(reply) - 4
    assert decode_response(api, version, reply[4:]) == (78, api.response())
    assert decode_response(api.response, version, reply[4:]) == (78, api.response())


@pytest.mark.parametrize(("api", "version"), EVERY_VERSION)
def test_header_versions_agree_with_kio(api: Api, version: int) -> None:
    """kio's classes name their header version. kio has the ApiVersions response as an exception too."""
    request, response = (kio_oracle.kio_class(cls, version) for cls in (api.request, api.response))
    if request is None:
        assert api.key in (4, 5, 6, 7) or version < 4
        return
    assert request.__header_schema__.__version__ == request_header_version(api, version)
    assert response.__header_schema__.__version__ == response_header_version(api, version)


def test_two_apis_have_exceptional_header_versions() -> None:
    """The ApiVersions response (KIP-511), and ControlledShutdown version 0, which is older than client ids."""
    assert [response_header_version(APIS[18], version) for version in range(5)] == [0, 0, 0, 0, 0]
    assert [request_header_version(APIS[18], version) for version in range(5)] == [1, 1, 1, 2, 2]
    assert [request_header_version(APIS[7], version) for version in range(4)] == [0, 1, 1, 2]
    reply = encode_response(ApiVersionsResponse(), 3, 5)
    assert reply[4:] == bytes.fromhex("00000005 0000 01 00000000 00")
    assert encode_request(ControlledShutdownRequest(broker_id=3), 0, 5, "me")[4:].hex() == "000700000000000500000003"


@given(correlation_id=st.integers(-(1 << 31), (1 << 31) - 1), client_id=st.one_of(st.none(), st.text(max_size=9)))
@QUICK
def test_request_headers_are_byte_identical_to_kio(correlation_id: int, client_id: str | None) -> None:
    for version, kio in ((1, KioHeader1), (9, KioHeader2)):
        header = RequestHeader(api_key=3, api_version=version, correlation_id=correlation_id, client_id=client_id)
        theirs: Any = kio(
            request_api_key=3, request_api_version=version, correlation_id=correlation_id, client_id=client_id
        )
        assert encode_request_header(header) == kio_oracle.write(theirs)


@pytest.mark.skipif(not from_jar(), reason="the kafka-clients jar cannot be had here")
def test_only_the_client_id_keeps_its_length_in_flexible_versions() -> None:
    """It is the only field of all definitions with `flexibleVersions: none`; another one would need code here."""
    opting_out = [
        (name, field["name"])
        for name, definition in from_jar().items()
        for field in definition.get("fields", [])
        if "flexibleVersions" in field
    ]
    assert opting_out == [("RequestHeader", "ClientId")]
    assert span(from_jar()["RequestHeader"]["flexibleVersions"])[0] == 2


def test_header_tags_are_kept() -> None:
    header = RequestHeader(api_key=3, api_version=9, correlation_id=1, client_id="c", tags=((0, b"x"), (900, b"")))
    assert decode_request_header(encode_request_header(header)) == (header, len(encode_request_header(header)))


def test_a_version_beyond_the_newest_has_a_readable_header() -> None:
    """A broker answers ApiVersions of any version, so it must be able to read the correlation id."""
    header = RequestHeader(api_key=18, api_version=99, correlation_id=6, client_id="future")
    frame = encode_request_header(header) + b"whatever that version says"
    assert decode_request_header(frame)[0] == header
    with pytest.raises(UnsupportedVersionError):
        decode_request(frame)


@pytest.mark.parametrize(
    ("frame", "error"),
    [
        ("", BufferUnderflowError),
        ("0003 0009 000000", BufferUnderflowError),
        ("0003 0001 00000001 00", BufferUnderflowError),
        ("0003 0001 00000001 fffe", InvalidLengthError),
        ("0003 0001 00000001 0003 6161", InvalidLengthError),
        ("0003 0001 00000001 0001 ff", InvalidStringError),
        ("0003 0009 00000001 ffff 01", InvalidLengthError),
        ("0003 0009 00000001 ffff ff", BufferUnderflowError),
        ("0999 0001 00000001 ffff", UnknownApiKeyError),
        ("ffff 0001 00000001 ffff", UnknownApiKeyError),
        ("0003 ffff 00000001 ffff", UnsupportedVersionError),
        ("1603 0102 00010001", UnknownApiKeyError),
    ],
)
def test_bad_request_headers(frame: str, error: type[DecodeError]) -> None:
    """The last case is the start of a TLS handshake."""
    with pytest.raises(error):
        decode_request(bytes.fromhex(frame))


def test_bad_response_headers() -> None:
    for frame in (b"", b"\0\0\0", b"\0\0\0\1"):
        with pytest.raises(BufferUnderflowError):
            decode_response(HeartbeatResponse, 4, frame)


def test_a_client_id_has_a_limit() -> None:
    with pytest.raises(EncodeError):
        encode_request(MetadataRequest(), 1, 1, "c" * 0x8000)


FRAMES = [
    encode_request(HeartbeatRequest(group_id="g"), 0, 1, "c"),
    encode_request(ApiVersionsRequest(), 0, 2, None),
    (0).to_bytes(4, "big"),
    encode_request(HeartbeatRequest(group_id="h"), 4, 3, "c"),
]
STREAM = b"".join(FRAMES)
BODIES = [frame[4:] for frame in FRAMES]


def test_frames_are_reassembled_from_any_split() -> None:
    for split in range(len(STREAM) + 1):
        reader = FrameReader(1000)
        assert reader.feed(STREAM[:split]) + reader.feed(STREAM[split:]) == BODIES
    reader = FrameReader(1000)
    assert [frame for byte in STREAM for frame in reader.feed(bytes([byte]))] == BODIES
    assert FrameReader(1000).feed(STREAM) == BODIES


@given(cuts=st.lists(st.integers(0, len(STREAM)), max_size=8))
@QUICK
def test_any_splitting_gives_the_same_frames(cuts: list[int]) -> None:
    reader = FrameReader(1000)
    edges = [0, *sorted(cuts), len(STREAM)]
    pieces = [STREAM[start:end] for start, end in pairwise(edges)]
    assert [frame for piece in pieces for frame in reader.feed(piece)] == BODIES


@pytest.mark.parametrize("size", [-1, -(1 << 31), 101, (1 << 31) - 1, 352_518_912])
def test_a_bad_size_is_refused_as_soon_as_it_is_read(size: int) -> None:
    """KAFKA-4090: a client took a TLS alert for a response of 352,518,912 bytes."""
    bad = size.to_bytes(4, "big", signed=True)
    reader = FrameReader(100)
    assert reader.feed(bad[:3]) == []
    with pytest.raises(FrameSizeError):
        reader.feed(bad[3:])


def test_frames_before_a_bad_size_are_returned() -> None:
    with pytest.raises(FrameSizeError) as raised:
        FrameReader(100).feed(FRAMES[0] + FRAMES[1] + b"\xff\xff\xff\xff")
    assert list(raised.value.complete) == BODIES[:2]


def test_the_largest_frame_is_accepted() -> None:
    assert FrameReader(100).feed((100).to_bytes(4, "big") + bytes(100)) == [bytes(100)]
