"""The fast codec agrees with the construct description, and both refuse the same invalid bytes."""

from dataclasses import replace
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from highwater.reference.tests.wire.cases import QUICK, VERSIONS, versioned
from highwater.reference.wire import constructs as described
from highwater.reference.wire.codec import decode, decode_prefix, encode
from highwater.reference.wire.errors import (
    BufferUnderflowError,
    DecodeError,
    EncodeError,
    InvalidLengthError,
    InvalidStringError,
    InvalidTagError,
    InvalidVarintError,
    TrailingBytesError,
    UnexpectedNullError,
    UnsupportedVersionError,
    WireError,
)
from highwater.reference.wire.messages.fetch import FetchRequest, FetchTopic
from highwater.reference.wire.messages.groups import JoinGroupRequest, SyncGroupResponse
from highwater.reference.wire.messages.metadata import (
    DescribeTopicPartitionsRequest,
    MetadataRequest,
    MetadataRequestTopic,
)
from highwater.reference.wire.messages.produce import ProduceRequest
from highwater.reference.wire.schema import (
    Bool,
    Bytes,
    Float64,
    Int16,
    Int32,
    Int64,
    String,
    UInt16,
    UInt32,
    Uuid,
    message,
    nullable,
    struct,
    tagged,
    versions,
)
from highwater.reference.wire.strategies import messages


@versioned(VERSIONS)
def test_every_truncation_and_every_extra_byte_is_refused(cls: type[Any], version: int) -> None:
    written = encode(cls(), version)
    for end in range(len(written)):
        with pytest.raises(DecodeError):
            decode(cls, version, written[:end])
    with pytest.raises(TrailingBytesError):
        decode(cls, version, written + b"\0")
    assert decode_prefix(cls, version, written + b"\0") == (decode(cls, version, written), len(written))


@struct
class Inner:
    number: Int32 = 0
    text: String | None = ""


@message(versions="0-4", flexible_from=2)
class Everything:
    """A message with the field types that Kafka's messages use rarely or never."""

    unsigned: UInt16 = 0
    wide: UInt32 = 0
    real: Float64 = 0.0
    flag: Bool = False
    uuid: Uuid = bytes(16)
    uuids: tuple[Uuid, ...] = ()
    flags: tuple[Bool, ...] = ()
    names: Annotated[tuple[String, ...] | None, nullable(since=1)] = ()
    blobs: tuple[Bytes, ...] = ()
    inner: Inner = Inner(number=3)
    perhaps: Inner | None = None
    middle: Annotated[Int64, versions(1, 2)] = 7
    tag_text: Annotated[String | None, tagged(5, since=2)] = "default"
    tag_inner: Annotated[Inner, tagged(1, since=3)] = Inner(number=9)
    tag_array: Annotated[tuple[Int16, ...], tagged(300, since=2)] = ()


@pytest.mark.parametrize("version", range(5))
@given(data=st.data())
@QUICK
def test_rarely_used_types_round_trip(version: int, data: st.DataObject) -> None:
    drawn = data.draw(messages(Everything, version))
    written = encode(drawn, version)
    assert described.build(drawn, version) == written
    assert decode(Everything, version, written) == described.parse(Everything, version, written) == drawn


def test_tagged_fields_are_sorted_by_tag_and_omitted_at_their_default() -> None:
    written = encode(Everything(tag_text=None, tag_inner=Inner(number=1)), 3)
    assert written.endswith(bytes.fromhex("02  01 06 00000001 01 00  05 01 00"))
    assert encode(Everything(tag_text="default"), 3).endswith(b"\0")


def test_unknown_tags_are_skipped() -> None:
    plain = encode(MetadataRequest(topics=None), 12)
    tagged_one = plain[:-1] + bytes.fromhex("02  07 02 abcd  09 00")
    assert decode(MetadataRequest, 12, tagged_one) == MetadataRequest(topics=None)


@pytest.mark.parametrize(
    ("section", "error"),
    [
        ("02 07 00 07 00", InvalidTagError),
        ("02 09 00 07 00", InvalidTagError),
        ("01 07 02 ab", BufferUnderflowError),
        ("ff ff ff ff 0f", InvalidLengthError),
        ("ff ff ff ff ff ff", InvalidVarintError),
        ("ff ff ff ff 1f", InvalidVarintError),
        ("01 ff ff ff ff 1f 00", InvalidVarintError),
        ("80", BufferUnderflowError),
    ],
)
def test_bad_tag_sections(section: str, error: type[DecodeError]) -> None:
    plain = encode(MetadataRequest(), 12)
    with pytest.raises(error):
        decode(MetadataRequest, 12, plain[:-1] + bytes.fromhex(section))
    with pytest.raises(DecodeError):
        described.parse(MetadataRequest, 12, plain[:-1] + bytes.fromhex(section))


def test_a_known_tag_that_misstates_its_size_is_refused() -> None:
    plain = encode(FetchRequest(cluster_id="abc"), 12)
    at = plain.index(bytes.fromhex("00 04 04") + b"abc")
    for size in (3, 5):
        wrong = plain[: at + 1] + bytes([size]) + plain[at + 2 :] + b"\0" * (size > 4)
        with pytest.raises(DecodeError):
            decode(FetchRequest, 12, wrong)


@pytest.mark.parametrize(
    ("version", "data", "error"),
    [
        (0, "ffffffff", UnexpectedNullError),
        (1, "fffffffe", InvalidLengthError),
        (1, "7fffffff", InvalidLengthError),
        (1, "00000001 ffff", UnexpectedNullError),
        (1, "00000001 fffe", InvalidLengthError),
        (1, "00000001 0020 61", BufferUnderflowError),
        (1, "00000001 0001 ff", InvalidStringError),
        (9, "ffffffff0f", InvalidLengthError),
        (9, "02 00", UnexpectedNullError),
        (9, "02 ffff03 " + "61" * 65534, InvalidLengthError),
    ],
)
def test_bad_lengths(version: int, data: str, error: type[DecodeError]) -> None:
    """MetadataRequest starts with an array of topics; the first field of a topic is a string."""
    with pytest.raises(error):
        decode(MetadataRequest, version, bytes.fromhex(data) + bytes(8))
    with pytest.raises(DecodeError):
        described.parse(MetadataRequest, version, bytes.fromhex(data) + bytes(8))


@pytest.mark.parametrize(
    ("version", "data", "error"),
    [
        (0, "0000 00000004 616263", BufferUnderflowError),
        (0, "0000 fffffffe 616263", InvalidLengthError),
        (0, "0000 ffffffff", UnexpectedNullError),
        (4, "00000000 0000 05 616263", BufferUnderflowError),
        (4, "00000000 0000 00 00", UnexpectedNullError),
    ],
)
def test_bad_lengths_of_bytes(version: int, data: str, error: type[DecodeError]) -> None:
    """SyncGroupResponse ends with the assignment."""
    with pytest.raises(error):
        decode(SyncGroupResponse, version, bytes.fromhex(data))
    with pytest.raises(DecodeError):
        described.parse(SyncGroupResponse, version, bytes.fromhex(data))


def test_an_invalid_nullable_struct_marker_is_refused() -> None:
    written = encode(DescribeTopicPartitionsRequest(), 0)
    at = len(written) - 2
    assert written[at] == 0xFF
    assert decode(DescribeTopicPartitionsRequest, 0, written).cursor is None
    with pytest.raises(InvalidLengthError):
        decode(DescribeTopicPartitionsRequest, 0, written[:at] + b"\x02" + written[at + 1 :])


@pytest.mark.parametrize(
    ("bad", "version", "why"),
    [
        (FetchRequest(replica_id=3), 15, "replica_id"),
        (JoinGroupRequest(group_instance_id="x"), 4, "group_instance_id"),
        (MetadataRequest(topics=None), 0, "null"),
        (MetadataRequest(topics=(MetadataRequestTopic(name=None),)), 9, "null"),
        (MetadataRequest(topics=(MetadataRequestTopic(topic_id=b"short"),)), 12, "UUID"),
        (Everything(uuids=(b"short",)), 2, "UUID"),
        (ProduceRequest(acks=1 << 15), 3, "number"),
        (JoinGroupRequest(group_id="x" * 0x8000), 7, "32767"),
        (JoinGroupRequest(group_id="x" * 0x8000), 1, "32767"),
        (JoinGroupRequest(group_id="\ud800"), 1, "surrogates"),
    ],
)
def test_values_that_the_version_cannot_encode_are_refused(bad: object, version: int, why: str) -> None:
    with pytest.raises(EncodeError, match=why):
        encode(bad, version)
    with pytest.raises(WireError):
        described.build(bad, version)


def test_ignorable_fields_are_omitted_in_versions_without_them() -> None:
    request = FetchRequest(topics=(FetchTopic(topic="t", topic_id=bytes(range(16))),), rack_id="r")
    expected = replace(request, topics=(FetchTopic(topic="t"),), rack_id="")
    assert decode(FetchRequest, 4, encode(request, 4)) == expected


@pytest.mark.parametrize("version", [-1, 14, 100])
def test_unknown_versions_are_refused_both_ways(version: int) -> None:
    with pytest.raises(UnsupportedVersionError):
        encode(MetadataRequest(), version)
    with pytest.raises(UnsupportedVersionError):
        decode(MetadataRequest, version, b"")


def test_sites_give_the_byte_position_of_each_value() -> None:
    request = FetchRequest(cluster_id="abc", topics=(FetchTopic(topic="xyz"),))
    written = encode(request, 12)
    found = {
        (site.path, site.kind): written[site.start : site.end] for site in described.sites(FetchRequest, 12, written)
    }
    assert found["topics", "count"] == b"\x02"
    assert found["topics -> [0] -> topic", "string"] == b"\x04xyz"
    assert found["max_bytes", "int32"] == bytes.fromhex("7fffffff")
    assert any(kind == "string" and text == b"\x04abc" for (_, kind), text in found.items())
