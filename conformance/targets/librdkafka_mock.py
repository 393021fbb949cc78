"""librdkafka's mock cluster as a target, in a separate process, because a failed assertion aborts it.

`python -m highwater.conformance.targets.librdkafka_mock N` is that process: it serves until its standard input ends.
"""

import sys
from importlib.util import find_spec
from typing import Final

from highwater.conformance.targets.advertised import ProcessTarget
from highwater.errors import UsageError
from highwater.processes import python_command
from highwater_kafka import install_hint

METADATA_TIMEOUT_S: Final = 10.0


def librdkafka_mock(brokers: int = 1) -> ProcessTarget:
    """Start the mock cluster; raises UsageError if confluent-kafka, which contains it, is not installed."""
    if find_spec("confluent_kafka") is None:
        raise UsageError("confluent-kafka is not installed", where="librdkafka-mock", hint=install_hint("clients"))
    from confluent_kafka import libversion

    command = python_command("-m", "highwater.conformance.targets.librdkafka_mock", str(brokers))
    return ProcessTarget("librdkafka-mock", libversion()[0], command)


def serve(brokers: str) -> None:
    """Start N brokers, print `ready HOST:PORT,...`, and wait for the end of the input."""
    from confluent_kafka import Producer

    producer = Producer({"test.mock.num.brokers": int(brokers), "log_level": 0})
    found = producer.list_topics(timeout=METADATA_TIMEOUT_S).brokers
    addresses = ",".join(f"{found[node].host}:{found[node].port}" for node in sorted(found))
    print(f"ready {addresses}", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    serve(sys.argv[1])
