"""One fault test: a topic, clients that load it, a nemesis, a healed and quiet final read; one `history.ndjson`."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fuzz.processes.faults import process_faults
from fuzz.processes.nemesis import STORE, Inject, Nemesis, Processes
from fuzz.processes.producers import ConfluentProducer, KafkaPythonProducer, Values
from fuzz.processes.raw import RawClient, RawError
from fuzz.processes.readers import ConfluentConsumer, RawReader
from fuzz.processes.recorder import Recorder
from fuzz.schedule import Fault, Schedule
from reference.wire.errors import ErrorCode
from reference.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from reference.wire.messages.init_producer_id import InitProducerIdRequest
from reference.wire.registry import api_of
from spec.formats.history import Config
from spec.formats.verdict import UsageError

TOPIC, GROUP = "highwater", "workload"
CREATE_VERSION = 5
HISTORY = "history.ndjson"
SETTLE_TIMEOUT_S = 20.0
FINAL_READ_TIMEOUT_S = 20.0
JOIN_TIMEOUT_S = 15.0


@dataclass(frozen=True, slots=True)
class Load:
    """How much of which client. A process of the history is one record in flight, one consumer or one reader.

    Partition n is led by the nth broker first, so that a schedule can name brokers by id.
    """

    partitions: int = 2
    replicas: int = 3
    min_insync_replicas: int = 2
    acks: str = "all"
    confluent_producers: int = 2
    in_flight: int = 8
    kafka_python_producers: int = 1
    assigned_consumers: int = 1
    raw_readers: int = 1  # of each partition
    group_members: int = 2


@dataclass(frozen=True, slots=True)
class Workload:
    """A cluster under load: where it listens, what may be done to it, and who is told of the progress."""

    bootstrap: str
    addresses: Mapping[int, str]
    faults: Mapping[str, Inject]
    load: Load
    source: str = "reference"
    say: Callable[[str], None] = lambda line: None

    def run(self, folder: Path, schedule: Schedule, stop: threading.Event | None = None) -> Path:
        """Run it and return the path of the history, which is whole lines at any moment."""
        idempotence = self.load.acks == "all" and _has_producer_ids(self.bootstrap)
        create_topic(self.bootstrap, self.load, list(self.addresses))
        recorder = Recorder(folder / HISTORY, _config(self.load, self.source, idempotence=idempotence))
        try:
            self._run(recorder, schedule, _clients(self.bootstrap, recorder, self.load, idempotence), stop)
        finally:
            recorder.close()
        return folder / HISTORY

    def _run(self, recorder: Recorder, schedule: Schedule, clients: list[Any], stop: threading.Event | None) -> None:
        stop, done = stop or threading.Event(), threading.Event()
        threads = [threading.Thread(target=client.run, args=(done,), daemon=True) for client in clients]
        consumers = {client.name: client for client in clients if isinstance(client, ConfluentConsumer)}

        def stall(fault: Fault, name: str) -> Callable[[], None]:
            consumers[name].stalled.set()
            return consumers[name].stalled.clear

        nemesis = Nemesis(self.addresses, recorder, {**self.faults, "stall": stall}, {STORE, *consumers})
        recorder.nemesis("phase", "load")
        for thread in threads:
            thread.start()
        try:
            nemesis.run(schedule, stop)
        except BaseException:
            stop.set()
            raise
        finally:
            try:
                nemesis.heal()
                self.say("healed; waiting for the cluster to settle")
                _settle(self.bootstrap, self.load, stop)
                stop.wait(1.0)  # clients get to finish what was open
            finally:
                done.set()
                for thread in threads:
                    thread.join(JOIN_TIMEOUT_S)
        recorder.nemesis("phase", "final")
        self.say("reading every partition from its start")
        _final_read(self.bootstrap, recorder, self.load, first_process=1_000)
        recorder.nemesis("phase", "end")


def run_workload(
    cluster: Processes, bootstrap: str, folder: Path, schedule: Schedule, load: Load | None = None, *,
    say: Callable[[str], None] = lambda line: None,
) -> Path:  # fmt: skip
    """With the faults that need nothing but the processes of a cluster."""
    workload = Workload(bootstrap, cluster.addresses, process_faults(cluster), load or Load(), say=say)
    return workload.run(folder, schedule)


def consumer_names(load: Load) -> list[str]:
    """What schedules call the consumers of a load."""
    alone = [f"consumer-{number}" for number in range(1, load.assigned_consumers + 1)]
    return alone + [f"member-{number}" for number in range(1, load.group_members + 1)]


def _has_producer_ids(bootstrap: str) -> bool:
    """Since Kafka 0.11 (KIP-98)."""
    client = RawClient(bootstrap)
    try:
        return api_of(InitProducerIdRequest).key in client.newest()
    except RawError as error:
        raise UsageError(str(error), where=bootstrap, mend="is the cluster up?") from error
    finally:
        client.close()


def _config(load: Load, source: str, *, idempotence: bool) -> Config:
    return Config(
        acks=load.acks,  # type: ignore[arg-type]
        idempotence=idempotence,
        isolation="read_uncommitted",
        min_insync_replicas=load.min_insync_replicas,
        unclean_election=False,
        retention=False,
        compaction=False,
        replicas=load.replicas,
        clients=("confluent-kafka", "kafka-python", "raw"),
        source=source,
    )


def _clients(bootstrap: str, recorder: Recorder, load: Load, idempotence: bool) -> list[Any]:
    values = Values()
    clients: list[Any] = []
    process = 0
    for _ in range(load.confluent_producers):
        slots = range(process, process + load.in_flight)
        producer = ConfluentProducer(bootstrap, TOPIC, load.partitions, slots, values, recorder, load.acks, idempotence)
        clients.append(producer)
        process += load.in_flight
    for _ in range(load.kafka_python_producers):
        clients.append(
            KafkaPythonProducer(bootstrap, TOPIC, load.partitions, process, values, recorder, load.acks, idempotence)
        )
        process += 1
    for name in consumer_names(load):
        group = GROUP if name.startswith("member") else None
        clients.append(ConfluentConsumer(bootstrap, TOPIC, load.partitions, process, recorder, group, name))
        process += 1
    for partition in list(range(load.partitions)) * load.raw_readers:
        clients.append(RawReader(bootstrap, TOPIC, partition, process, recorder))
        process += 1
    return clients


def _assignments(load: Load, brokers: list[int]) -> tuple[CreatableReplicaAssignment, ...]:
    """Partition n has the nth broker as its preferred leader, and those after it as followers."""
    around = sorted(brokers) * 2
    return tuple(
        CreatableReplicaAssignment(partition_index=n, broker_ids=tuple(around[n % len(brokers) :][: load.replicas]))
        for n in range(load.partitions)
    )


def create_topic(bootstrap: str, load: Load, brokers: list[int] | None = None) -> None:
    """Create it through the controller and wait until every partition has a leader and a full ISR."""
    client = RawClient(bootstrap)
    settings = (CreatableTopicConfig(name="min.insync.replicas", value=str(load.min_insync_replicas)),)
    wanted = CreatableTopic(
        name=TOPIC, num_partitions=load.partitions, replication_factor=load.replicas, configs=settings
    )
    if brokers:
        wanted = replace(wanted, num_partitions=-1, replication_factor=-1, assignments=_assignments(load, brokers))
    request = CreateTopicsRequest(topics=(wanted,), timeout_ms=5_000)
    deadline = time.monotonic() + SETTLE_TIMEOUT_S
    error = "no controller answers"
    while time.monotonic() < deadline:
        try:
            reply, _ = client.metadata(TOPIC)
            controller = next((b for b in reply.brokers if b.node_id == reply.controller_id), None)
            if controller is not None:
                created = client.ask(f"{controller.host}:{controller.port}", request, CREATE_VERSION)
                code = created.topics[0].error_code
                if code in {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}:
                    client.close()
                    _settle(bootstrap, load, threading.Event())
                    return
                error = ErrorCode(code).name
        except RawError as failure:
            error = str(failure)
        time.sleep(0.1)
    raise UsageError(f"cannot create topic {TOPIC}: {error}", where=bootstrap, mend="is the cluster healthy?")


def _settle(bootstrap: str, load: Load, stop: threading.Event) -> bool:
    """Wait until every partition has a leader and its full ISR; False when that takes too long."""
    client = RawClient(bootstrap)
    deadline = time.monotonic() + SETTLE_TIMEOUT_S
    try:
        while time.monotonic() < deadline and not stop.is_set():
            try:
                _, leaders = client.metadata(TOPIC)
            except RawError:
                leaders = {}
            whole = [each for each in leaders.values() if each.node >= 0 and len(each.isr) == len(each.replicas)]
            if len(whole) == load.partitions:
                return True
            stop.wait(0.1)
    finally:
        client.close()
    return False


def _final_read(bootstrap: str, recorder: Recorder, load: Load, first_process: int) -> None:
    deadline = threading.Event()
    timer = threading.Timer(FINAL_READ_TIMEOUT_S, deadline.set)
    timer.start()
    try:
        for partition in range(load.partitions):
            reader = RawReader(bootstrap, TOPIC, partition, first_process + partition, recorder)
            keys = [f"{TOPIC}-{partition}"]
            recorder.record(first_process + partition, "info", "assign", value=keys, client="raw", position=0)
            reader.read_all(deadline)
    finally:
        timer.cancel()
