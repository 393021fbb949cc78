"""Which release of Kafka a broker follows, from what it advertises: it is held to the rules of that release."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from highwater.conformance.client.broker import advertised_versions
from highwater.conformance.client.connection import Access, Connection
from highwater.conformance.failures import TargetFailure
from highwater.reference.wire.messages.metadata import ApiVersionsRequest
from highwater.releases import NEWEST

METADATA_VERSION: Final = "metadata.version"
FEATURES_SINCE: Final = 3
RELEASES_OF_LEVELS: Final = (
    (30, ""), (28, "4.2"), (26, "4.1"), (22, "4.0"), (21, "3.9"), (20, "3.8"), (15, "3.7"), (12, "3.6"), (9, "3.5"),
    (8, "3.4"), (4, "3.3"), (3, "3.2"), (2, "3.1"), (1, "3.0"),
)  # fmt: skip
"""The first level of metadata.version of each release (Apache Kafka MetadataVersion); the newest has all rules."""
PRODUCE, FETCH, LIST_OFFSETS, JOIN_GROUP, API_VERSIONS, DESCRIBE_CLUSTER, DESCRIBE_TRANSACTIONS = (
    0,
    1,
    2,
    11,
    18,
    60,
    65,
)
RELEASES_OF_VERSIONS: Final = (
    (PRODUCE, 12, ""), (FETCH, 17, "3.9"), (FETCH, 16, "3.7"), (PRODUCE, 10, "3.7"), (FETCH, 15, "3.5"),
    (JOIN_GROUP, 9, "3.2"), (FETCH, 13, "3.1"), (DESCRIBE_TRANSACTIONS, 0, "3.0"), (DESCRIBE_CLUSTER, 0, "2.8"),
    (FETCH, 12, "2.7"), (JOIN_GROUP, 6, "2.4"), (API_VERSIONS, 3, "2.4"), (PRODUCE, 8, "2.4"), (FETCH, 11, "2.3"),
    (JOIN_GROUP, 4, "2.2"), (FETCH, 10, "2.1"), (PRODUCE, 7, "2.1"), (FETCH, 8, "2.0"), (FETCH, 7, "1.1"),
    (FETCH, 6, "1.0"), (FETCH, 4, "0.11"), (PRODUCE, 3, "0.11"), (LIST_OFFSETS, 1, "0.10.1"), (FETCH, 2, "0.10"),
)  # fmt: skip
"""An API key, a version of it, and the first release of Apache Kafka that advertises this version."""
NEWEST_RULES: Final = ".".join(NEWEST.split(".")[:2])


class Release(NamedTuple):
    """The release whose rules a broker follows, such as `3.9`; `era` is empty for the newest rules.

    They also apply to a broker that shows no release.
    """

    era: str
    is_recognised: bool = True

    def text(self) -> str:
        """Return what the report says of the broker's version."""
        return f"as Kafka {self.era or NEWEST_RULES}" + ("" if self.is_recognised else " (its release is unknown)")


UNKNOWN: Final = Release("", is_recognised=False)


def release_of(address: str, access: Access) -> Release:
    """Return the release whose rules a broker follows.

    Apache Kafka with KRaft says it by the newest metadata.version that it supports; otherwise the release is the newest
    one of which the broker advertises a version in `RELEASES_OF_VERSIONS`. Raises TargetFailure if it does not answer
    ApiVersions.
    """
    level = _supported_level(address, access)
    if level:
        return next((Release(release) for first, release in RELEASES_OF_LEVELS if level >= first), UNKNOWN)
    return release_of_versions(
        {key: newest for key, (_, newest) in advertised_versions(address, access=access).items()}
    )


def release_of_versions(newest: Mapping[int, int]) -> Release:
    """Return the newest release of which one of these versions, by API key, is known."""
    known = (Release(release) for key, first, release in RELEASES_OF_VERSIONS if newest.get(key, -1) >= first)
    return next(known, UNKNOWN)


def _supported_level(address: str, access: Access) -> int:
    """Return the newest metadata.version that the broker supports, 0 if it names none."""
    request = ApiVersionsRequest(client_software_name="highwater", client_software_version="1")
    try:
        with Connection(address, access=access) as connection:
            reply = connection.exchange(request, FEATURES_SINCE)
    except TargetFailure:
        return 0
    return max((found.max_version for found in reply.supported_features if found.name == METADATA_VERSION), default=0)
