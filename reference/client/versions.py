"""The versions of requests, by API key, that clients choose where the caller names none."""

from collections.abc import Mapping
from typing import Final

NEWEST_WITH_NAMES: Final[Mapping[int, int]] = {0: 12, 1: 12, 8: 9}
"""Produce, Fetch and OffsetCommit: newer versions name topics by id only (KIP-516)."""
NEWEST_OF_TOOLS: Final[Mapping[int, int]] = {**NEWEST_WITH_NAMES, 9: 7, 10: 3, 20: 5}
"""The tools read one group, coordinator or topic at a time: newer versions of OffsetFetch (KIP-709), FindCoordinator
(KIP-699) and DeleteTopics (KIP-516) have lists of them."""
NEWEST_OF_CASES: Final[Mapping[int, int]] = {**NEWEST_WITH_NAMES, 3: 8, 9: 9}
"""The suite reads lists of groups too (OffsetFetch 9 names topics). Metadata stays below its first flexible version, so
that an error in the flexible format fails the cases about Metadata only."""
OLDEST_OF_CASES: Final[Mapping[int, int]] = {0: 3, 1: 4}
"""Produce and Fetch have record batches since then (KIP-98)."""
