"""Whose rules apply to a broker of which only the address is known."""

import pytest

from highwater.conformance.client.connection import OPEN
from highwater.conformance.targets.external import ExternalTarget
from highwater.conformance.targets.reference import ReferenceCluster
from highwater.conformance.targets.releases import RELEASES_OF_VERSIONS, Release, release_of, release_of_versions

KAFKA_2_8 = {0: 9, 1: 12, 2: 6, 3: 11, 8: 8, 9: 7, 11: 7, 60: 0, 61: 0}
KAFKA_3_9 = {0: 11, 1: 17, 2: 9, 3: 12, 8: 9, 9: 9, 11: 9, 60: 1, 61: 0, 65: 0}
"""What 2.8.2 and 3.9.1 advertise."""


@pytest.mark.parametrize(
    ("newest", "release"),
    [
        (KAFKA_2_8, "2.8"),
        (KAFKA_3_9, "3.9"),
        ({0: 12, 1: 4}, ""),
        ({0: 2, 1: 2}, "0.10"),
        ({}, ""),
        ({1: 13}, "3.1"),
        ({0: 3, 3: 4, 18: 3}, "2.4"),
        ({0: 3, 3: 1}, "0.11"),
    ],
)
def test_the_release_is_the_newest_of_which_a_version_is_advertised(newest: dict[int, int], release: str) -> None:
    assert release_of_versions(newest).era == release


def test_the_table_begins_with_the_newest_release() -> None:
    numbers = [[int(part) for part in release.split(".")] for _, _, release in RELEASES_OF_VERSIONS if release]
    assert numbers == sorted(numbers, reverse=True)


def test_the_report_names_the_rules_and_says_if_the_release_is_unknown() -> None:
    """Both of the latter were called `unknown`."""
    assert Release("3.9").text() == "as Kafka 3.9"
    assert release_of_versions({0: 12}).text() == "as Kafka 4.3"
    assert release_of_versions({3: 0}).text() == "as Kafka 4.3 (its release is unknown)"


def test_the_reference_is_held_to_the_newest_rules() -> None:
    with ReferenceCluster(1) as cluster:
        address = cluster.bootstrap
        assert release_of(address, OPEN) == Release("")
        assert (ExternalTarget(address).era, ExternalTarget(address).version) == ("", "as Kafka 4.3")
