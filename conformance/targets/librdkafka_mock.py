"""librdkafka's mock cluster as a target, in a process of its own, since a target may abort."""

import sys
from importlib.util import find_spec

from highwater.conformance.targets.advertised import SpokenTarget
from highwater.errors import UsageError


def librdkafka_mock(brokers: int = 1) -> SpokenTarget:
    """UsageError where confluent-kafka, which carries it, is missing."""
    if find_spec("confluent_kafka") is None:
        raise UsageError("confluent-kafka is missing", where="librdkafka-mock", hint="pip install 'highwater[clients]'")
    from confluent_kafka import libversion

    command = [sys.executable, "-m", "highwater.conformance.targets.mock_process", str(brokers)]
    return SpokenTarget("librdkafka-mock", libversion()[0], command)
