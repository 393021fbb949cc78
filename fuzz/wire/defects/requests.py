"""Defects of a request handler: valid requests that it does not expect."""

import asyncio
import sys
from pathlib import Path
from typing import Final

from highwater.fuzz.wire.defects.harm import crash, key_of, read
from highwater.reference.wire.errors import DecodeError
from highwater.reference.wire.framing import decode_request_header
from highwater.reference.wire.messages.consumer_groups import decode_subscription

PRODUCE, FETCH, LIST_OFFSETS, FIND_COORDINATOR, JOIN_GROUP, CREATE_TOPICS, SASL_AUTHENTICATE = 0, 1, 2, 10, 11, 19, 36
EARLIEST_LOCAL: Final = -4
POISON_S: Final = 0.05
POISONED: Final = "the stored topic has no partitions"


def fetch_of_topics(frame: bytes) -> bytes:
    request = read(frame, FETCH)
    if request is not None and len(request[1].topics) > 1:
        crash("Assertion `topics.size() == 1' failed at fetch.cc:180")
    return frame


def unknown_coordinator(frame: bytes) -> bytes | None:
    request = read(frame, FIND_COORDINATOR)
    if request is not None and request[1].key_type > 1:
        return None
    return frame


def unknown_tag(frame: bytes) -> bytes:
    """Fail on tagged fields in the request header instead of skipping them (KIP-482)."""
    try:
        header, _ = decode_request_header(frame)
    except DecodeError:
        return frame
    if header.tags:
        raise DecodeError("tags in the header")
    return frame


def raising(frame: bytes) -> bytes:
    """Raise an exception for a timestamp below the known special values."""
    request = read(frame, LIST_OFFSETS)
    for topic in request[1].topics if request is not None else ():
        for part in topic.partitions:
            if part.timestamp < EARLIEST_LOCAL:
                raise ArithmeticError(f"no bucket for timestamp {part.timestamp}")
    return frame


def no_partitions(frame: bytes) -> bytes:
    request = read(frame, PRODUCE)
    if request is not None and any(not topic.partition_data for topic in request[1].topic_data):
        crash("index out of range [0] with length 0 at produce.go:54")
    return frame


def negative_partition(frame: bytes) -> bytes:
    request = read(frame, FETCH)
    if request is not None and any(part.partition < 0 for topic in request[1].topics for part in topic.partitions):
        crash("index out of range [-1] at fetch.go:88")
    return frame


def member_metadata(frame: bytes) -> bytes:
    """Parse the metadata in JoinGroup, and crash if it is no subscription (librdkafka before 1.9)."""
    request = read(frame, JOIN_GROUP)
    for protocol in request[1].protocols if request is not None else ():
        try:
            decode_subscription(protocol.metadata)
        except DecodeError:
            crash("Assertion `metadata' failed at assignor.c:95")
    return frame


def token_first(frame: bytes) -> bytes:
    """Crash on SaslAuthenticate without a preceding SaslHandshake."""
    if key_of(frame) == SASL_AUTHENTICATE:
        crash("nil pointer dereference at sasl_session.go:12")
    return frame


def topic_that_poisons(frame: bytes) -> bytes:
    """Store a topic of 0 partitions, which ends the broker after its response, and at every start with its data."""
    request = read(frame, CREATE_TOPICS)
    if request is not None and any(topic.num_partitions == 0 for topic in request[1].topics):
        poison_of(Path(sys.argv[sys.argv.index("--config") + 1])).touch()
        asyncio.get_running_loop().call_later(POISON_S, crash, POISONED)
    return frame


def crash_if_poisoned(config: Path) -> None:
    """End the node if it has stored what it cannot read; `config` is the file that names its data."""
    if poison_of(config).exists():
        crash(POISONED)


def poison_of(config: Path) -> Path:
    """Return the file that exists once the data cannot be read; it is beside them, and removed with them."""
    return config.with_suffix(".poisoned")
