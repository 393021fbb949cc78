"""Targets by name: launchers, or the address of somebody's broker."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from conformance.targets.base import Target
from spec.formats.verdict import UsageError
from spec.releases import NEWEST

KNOWN: Final = "reference[:N], apache-kafka[:VERSION][:N], librdkafka-mock[:N] or HOST:PORT[,HOST:PORT]"
ADDRESSES: Final = re.compile(r"[^,\s:]+:\d{1,5}(,[^,\s:]+:\d{1,5})*")
LAUNCHED: Final = re.compile(r"(reference|apache-kafka|librdkafka-mock)(?::(\d+(?:\.\d+)+))?(?::([1-9]))?")


def check_target(name: str) -> None:
    """UsageError for a name that is no target."""
    if not (LAUNCHED.fullmatch(name) or ADDRESSES.fullmatch(name)):
        raise UsageError("no such target", where=name, mend=f"known: {KNOWN}")


def launch_target(name: str) -> Target:
    """Start or find it; UsageError if it is unknown or cannot be reached. The caller closes it."""
    check_target(name)
    launched = LAUNCHED.fullmatch(name)
    if launched is None:
        from conformance.targets.external import ExternalTarget

        return ExternalTarget(name)
    brokers = int(launched[3] or 1)
    if launched[1] == "reference":
        from conformance.targets.reference import ReferenceTarget

        return ReferenceTarget(brokers)
    if launched[1] == "apache-kafka":
        from conformance.targets.apache_kafka import ApacheKafka

        return ApacheKafka(launched[2] or NEWEST, brokers)
    from conformance.targets.librdkafka_mock import LibrdkafkaMock

    return LibrdkafkaMock(brokers)


@contextmanager
def open_target(name: str) -> Iterator[Target]:
    """Launch it, and end it however the block ends."""
    target = launch_target(name)
    try:
        yield target
    finally:
        target.close()
