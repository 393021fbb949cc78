"""Creates the clients of a load and assigns their process numbers in the history."""

import sys
from collections.abc import Iterator
from itertools import count, repeat
from typing import Any

from highwater.fuzz.chaos.workload.observers import GroupObserver
from highwater.fuzz.chaos.workload.producers import ConfluentProducer, KafkaPythonProducer, Values
from highwater.fuzz.chaos.workload.readers import ConfluentConsumer, RawReader, Wanderer
from highwater.fuzz.chaos.workload.recorder import Recorder
from highwater.fuzz.chaos.workload.topic import GROUP, TopicLoad, consumer_names
from highwater.fuzz.chaos.workload.transactions import TransactionalWorkload

RECORDS_A_TRANSACTION = 4


def make_clients(
    bootstrap: str, recorder: Recorder, load: TopicLoad, values: Values, *, idempotence: bool
) -> list[Any]:
    """Return all producers, consumers and observers of the load, except those for transactions."""
    numbers = count()
    return [
        *_producers(bootstrap, recorder, load, values, numbers, idempotence=idempotence),
        *_consumers(bootstrap, recorder, load, numbers),
    ]


def _producers(
    bootstrap: str, recorder: Recorder, load: TopicLoad, values: Values, numbers: "count[int]", *, idempotence: bool
) -> Iterator[Any]:
    for _ in range(load.confluent_producers):
        first = next(numbers)
        slots = range(first, first + load.in_flight)
        for _ in slots[1:]:
            next(numbers)
        yield ConfluentProducer(
            bootstrap, load.topic, load.partitions, slots, values, recorder, load.acks, idempotence, load.rate,
            load.retries,
        )  # fmt: skip
    for _ in range(load.kafka_python_producers):
        yield KafkaPythonProducer(
            bootstrap, load.topic, load.partitions, next(numbers), values, recorder, load.acks, idempotence, load.rate
        )


def _consumers(bootstrap: str, recorder: Recorder, load: TopicLoad, numbers: "count[int]") -> Iterator[Any]:
    for name in consumer_names(load):
        group = GROUP if name.startswith("member") else None
        yield ConfluentConsumer(bootstrap, load.topic, load.partitions, next(numbers), recorder, group, name)
    for _ in range(load.wanderers):
        yield Wanderer(bootstrap, load.topic, load.partitions, next(numbers), recorder, None)
    for partition in range(load.partitions):
        for _ in repeat(None, load.raw_readers):
            yield RawReader(bootstrap, load.topic, partition, next(numbers), recorder)
    for _ in range(load.group_observers):
        yield GroupObserver(bootstrap, load.topic, load.partitions, next(numbers), recorder)


def make_transactional_clients(bootstrap: str, recorder: Recorder, load: TopicLoad, values: Values) -> list[Any]:
    """Return the transactional producers and a read_committed consumer, or an empty list if the load has none.

    They have a separate history, because the isolation level applies to a whole history.
    """
    reader_process, *controls = range(load.transactional_producers * RECORDS_A_TRANSACTION, sys.maxsize)[
        : load.transactional_producers + 1
    ]
    producers = [
        TransactionalWorkload(
            bootstrap,
            load.transactions_topic,
            load.partitions,
            _slots(number),
            values,
            recorder,
            f"workload-{number}",
            control,
        )
        for number, control in enumerate(controls)
    ]
    reader = committed_reader(bootstrap, recorder, load, reader_process)
    return [*producers, reader] if producers else []


def committed_reader(bootstrap: str, recorder: Recorder, load: TopicLoad, process: int) -> ConfluentConsumer:
    """Return a read_committed consumer of the topic for transactions."""
    return ConfluentConsumer(
        bootstrap, load.transactions_topic, load.partitions, process, recorder, None, isolation="read_committed"
    )


def _slots(number: int) -> range:
    return range(number * RECORDS_A_TRANSACTION, (number + 1) * RECORDS_A_TRANSACTION)
