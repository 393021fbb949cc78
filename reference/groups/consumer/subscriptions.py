"""What members subscribe to, resolved with the metadata of this broker."""

from collections.abc import Iterable
from hashlib import sha256
from typing import Any

import re2

from highwater.reference.groups.consumer.group import ConsumerGroup
from highwater.reference.metadata_cache import MetadataCache
from highwater.reference.refusals import RefusedRequestError
from highwater.reference.wire.errors import ErrorCode

WITHOUT_LOG = re2.Options()
WITHOUT_LOG.log_errors = False


def compile_pattern(pattern: str) -> Any:
    """Return a compiled pattern of RE2, which needs linear time; raises INVALID_REGULAR_EXPRESSION with a text."""
    try:
        return re2.compile(pattern, WITHOUT_LOG)
    except re2.error as error:
        text = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error)
        message = f"The subscribed pattern {pattern!r} is not a regular expression of RE2: {text}."
        raise RefusedRequestError(ErrorCode.INVALID_REGULAR_EXPRESSION, message) from error


def matching_topics(cache: MetadataCache, pattern: str) -> frozenset[str]:
    """Return the topics whose whole name matches; none for a stored pattern that this library cannot compile."""
    try:
        compiled = compile_pattern(pattern)
    except RefusedRequestError:
        return frozenset()
    return frozenset(name for name in cache.topics if compiled.fullmatch(name))


def topic_ids(cache: MetadataCache, names: Iterable[str]) -> dict[bytes, int]:
    """Return id -> number of partitions, of the names that are topics."""
    known = (cache.topics[name] for name in names if name in cache.topics)
    return {topic.topic_id: len(topic.partitions) for topic in known}


def metadata_hash(cache: MetadataCache, group: ConsumerGroup) -> int:
    """Return a number that changes with the subscribed topics, their ids and their numbers of partitions (KIP-1101).

    No other broker has to compute the same: a group whose hash differs after a failover is only assigned again. Apache
    Kafka uses another function, and hashes racks too, which no assignor uses since 4.1.
    """
    found = sorted(
        (name, cache.topics[name].topic_id.hex(), len(cache.topics[name].partitions))
        for name in group.all_subscribed_topics()
        if name in cache.topics
    )
    return int.from_bytes(sha256(repr(found).encode()).digest()[:8], "big", signed=True) if found else 0
