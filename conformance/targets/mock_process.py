"""Run librdkafka's mock cluster until standard input ends: `python -m highwater.conformance.targets.mock_process N`."""

import sys

METADATA_TIMEOUT_S = 10.0


def main() -> None:
    """Start N brokers, print `ready HOST:PORT,...`, and wait for the end of the input."""
    from confluent_kafka import Producer

    producer = Producer({"test.mock.num.brokers": int(sys.argv[1]), "log_level": 0})
    brokers = producer.list_topics(timeout=METADATA_TIMEOUT_S).brokers
    addresses = ",".join(f"{brokers[node].host}:{brokers[node].port}" for node in sorted(brokers))
    print(f"ready {addresses}", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
