"""Hostile bytes decode to a message or raise `DecodeError`, quickly and within a memory bound."""

import tracemalloc
from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from highwater.reference.tests.wire.cases import CLASSES, FUZZ, VERSIONS
from highwater.reference.tests.wire.mutations import Mutation, mutations
from highwater.reference.wire import constructs as described
from highwater.reference.wire.codec import decode, encode
from highwater.reference.wire.errors import DecodeError
from highwater.reference.wire.framing import decode_request, encode_request
from highwater.reference.wire.messages.committed_offsets import OffsetFetchRequest
from highwater.reference.wire.messages.fetch import FetchRequest
from highwater.reference.wire.messages.groups import JoinGroupResponse, ListGroupsRequest, SyncGroupRequest
from highwater.reference.wire.messages.metadata import (
    ApiVersionsRequest,
    DescribeTopicPartitionsRequest,
    FindCoordinatorRequest,
    MetadataRequest,
    MetadataResponse,
)
from highwater.reference.wire.schema import fields_of, schema_of
from highwater.reference.wire.strategies import messages
from highwater.reference.wire.writers import write_uvarint

HUGE: Final = 1 << 20
"""Bytes of ballast behind a hostile count, so that only counting elements refuses it."""

SMALL: Final = 1 << 16
"""Bytes of honest elements: reading them under `tracemalloc` is slow."""

BYTES_PER_BYTE: Final = 64
"""What a byte of a frame may become in memory: a two-byte struct is a Python object."""


def outcome(parse: Callable[[], Any]) -> Any:
    try:
        return parse()
    except DecodeError:
        return DecodeError


@given(data=st.data(), case=st.sampled_from(VERSIONS), changes=st.lists(mutations(), min_size=1, max_size=3))
@FUZZ
def test_mutated_messages_decode_or_are_refused_and_the_description_agrees(
    data: st.DataObject, case: tuple[type[Any], int], changes: list[Mutation]
) -> None:
    cls, version = case
    mutated = encode(data.draw(messages(cls, version)), version)
    for change in changes:
        mutated = change(mutated)
    note(f"{cls.__name__} version {version}: {mutated.hex()}")
    fast = outcome(lambda: decode(cls, version, mutated))
    slow = outcome(lambda: described.parse(cls, version, mutated))
    assert repr(fast) == repr(slow)


@given(case=st.sampled_from(VERSIONS), garbage=st.binary(max_size=64))
@FUZZ
def test_garbage_is_refused_or_decodes_to_an_encodable_message(case: tuple[type[Any], int], garbage: bytes) -> None:
    cls, version = case
    read = outcome(lambda: decode(cls, version, garbage))
    if read is not DecodeError:
        assert decode(cls, version, encode(read, version)) == read


@given(changes=st.lists(mutations(), min_size=1, max_size=3), version=st.integers(0, 4))
@FUZZ
def test_mutated_request_frames(changes: list[Mutation], version: int) -> None:
    request = ApiVersionsRequest(client_software_name="n" * (version > 2), client_software_version="v" * (version > 2))
    frame = encode_request(request, version, 7, "client")[4:]
    for change in changes:
        frame = change(frame)
    outcome(lambda: decode_request(frame))


@pytest.mark.parametrize(
    ("cls", "version", "start"),
    [
        (MetadataRequest, 1, (0x7FFFFFFF).to_bytes(4, "big")),
        (MetadataRequest, 1, (HUGE * 2).to_bytes(4, "big")),
        (MetadataRequest, 9, b"\xff\xff\xff\xff\x0f"),
        (FetchRequest, 4, bytes(21) + (HUGE * 2).to_bytes(4, "big")),
        (SyncGroupRequest, 0, bytes(8) + (HUGE * 2).to_bytes(4, "big")),
        (JoinGroupResponse, 0, bytes(12) + (HUGE * 2).to_bytes(4, "big")),
        (MetadataResponse, 0, (HUGE * 2).to_bytes(4, "big")),
    ],
)
def test_a_huge_count_is_refused_before_anything_is_allocated(cls: type[Any], version: int, start: bytes) -> None:
    """KAFKA-14063: a broker allocated as much as the count sent by an unauthenticated client."""
    data = start + bytes(HUGE)
    with pytest.raises(DecodeError):
        decode(cls, version, data)  # derives the reader, which is not to be measured
    assert peak_memory(lambda: outcome(lambda: decode(cls, version, data))) < HUGE // 4


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("filling", [b"\xff", b"\x80", b"\x00", b"\x01", b"\x7f"], ids=bytes.hex)
def test_a_megabyte_of_one_repeated_byte_takes_little_memory(cls: type[Any], filling: bytes) -> None:
    """Varint bombs, deep counts and endless empty structs, on which construct's own types spend seconds."""
    version = schema_of(cls).versions.last
    assert peak_memory(lambda: outcome(lambda: decode(cls, version, filling * HUGE))) < BYTES_PER_BYTE * HUGE


@pytest.mark.parametrize(
    ("cls", "version", "head", "element", "tail"),
    [
        (FindCoordinatorRequest, 4, "00", "01", "00"),
        (DescribeTopicPartitionsRequest, 0, "", "0100", "00000000 ff 00"),
        (ListGroupsRequest, 5, "", "01", "01 00"),
        (OffsetFetchRequest, 8, "", "010100", "00 00"),
    ],
)
def test_memory_is_bounded_by_the_size_of_the_frame(
    cls: type[Any], version: int, head: str, element: str, tail: str
) -> None:
    """A frame full of the smallest elements is the worst case for memory."""
    count = SMALL // len(bytes.fromhex(element))
    data = bytearray.fromhex(head)
    write_uvarint(data, count + 1)
    data += bytes.fromhex(element) * count + bytes.fromhex(tail)
    read: list[Any] = []
    peak = peak_memory(lambda: read.append(decode(cls, version, bytes(data))))
    assert count in [len(value) for value in values_of(read[0]) if isinstance(value, tuple)]
    assert peak < BYTES_PER_BYTE * SMALL


def values_of(message: Any) -> list[Any]:
    return [getattr(message, field.name) for field in fields_of(type(message))]


def peak_memory(run: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
