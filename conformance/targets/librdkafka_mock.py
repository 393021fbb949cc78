"""librdkafka's mock cluster as a target, in a separate process, because a failed assertion aborts it."""

from importlib.util import find_spec

from highwater.conformance.targets.advertised import ProcessTarget
from highwater.errors import UsageError
from highwater.processes import python_command
from highwater_kafka import install_hint


def librdkafka_mock(brokers: int = 1) -> ProcessTarget:
    """Start the mock cluster; raises UsageError if confluent-kafka, which contains it, is not installed."""
    if find_spec("confluent_kafka") is None:
        raise UsageError("confluent-kafka is not installed", where="librdkafka-mock", hint=install_hint("clients"))
    from confluent_kafka import libversion

    command = python_command("-m", "highwater.conformance.targets.mock_process", str(brokers))
    return ProcessTarget("librdkafka-mock", libversion()[0], command)
