"""One fault test: a topic, clients that load it, a nemesis, a healed and quiet final read; one `history.ndjson`."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fuzz.processes.nemesis import Nemesis, Processes
from fuzz.processes.producers import ConfluentProducer, KafkaPythonProducer, Values
from fuzz.processes.raw import RawClient, RawError
from fuzz.processes.readers import ConfluentConsumer, RawReader
from fuzz.processes.recorder import Recorder
from reference.wire.errors import ErrorCode
from reference.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from spec.formats.history import Config
from spec.formats.schedule import Schedule
from spec.formats.verdict import UsageError

TOPIC = "highwater"
CREATE_VERSION = 5
HISTORY = "history.ndjson"
SETTLE_TIMEOUT_S = 20.0
FINAL_READ_TIMEOUT_S = 20.0
JOIN_TIMEOUT_S = 15.0


@dataclass(frozen=True, slots=True)
class Load:
    """How much of which client. A process of the history is one record in flight, one consumer or one reader."""

    partitions: int = 2
    replicas: int = 3
    min_insync_replicas: int = 2
    acks: str = "all"
    confluent_producers: int = 2
    in_flight: int = 8
    kafka_python_producers: int = 1
    assigned_consumers: int = 1
    group_members: int = 2


def run_workload(
    cluster: Processes, bootstrap: str, folder: Path, schedule: Schedule, load: Load | None = None, *,
    source: str = "reference", stop: threading.Event | None = None, say: Callable[[str], None] = lambda line: None,
) -> Path:  # fmt: skip
    """Run it and return the path of the history, which is whole lines at any moment."""
    load = load or Load()
    stop = stop or threading.Event()
    config = Config(
        acks=load.acks,  # type: ignore[arg-type]
        idempotence=load.acks == "all",
        isolation="read_uncommitted",
        min_insync_replicas=load.min_insync_replicas,
        unclean_election=False,
        retention=False,
        compaction=False,
        replicas=load.replicas,
        clients=("confluent-kafka", "kafka-python", "raw"),
        source=source,
    )
    create_topic(bootstrap, load)
    recorder = Recorder(folder / HISTORY, config)
    try:
        _run(cluster, bootstrap, recorder, schedule, load, stop, say)
    finally:
        recorder.close()
    return folder / HISTORY


def _run(
    cluster: Processes, bootstrap: str, recorder: Recorder, schedule: Schedule, load: Load, stop: threading.Event,
    say: Callable[[str], None],
) -> None:  # fmt: skip
    clients = _clients(bootstrap, recorder, load)
    done = threading.Event()
    threads = [threading.Thread(target=client.run, args=(done,), daemon=True) for client in clients]
    nemesis = Nemesis(cluster, recorder, TOPIC)
    recorder.nemesis("phase", "load")
    for thread in threads:
        thread.start()
    try:
        nemesis.run(schedule, stop)
        nemesis.heal()
        say("healed; waiting for the cluster to settle")
        _settle(bootstrap, load, stop)
        stop.wait(1.0)  # clients get to finish what was open
    finally:
        done.set()
        for thread in threads:
            thread.join(JOIN_TIMEOUT_S)
    recorder.nemesis("phase", "final")
    say("reading every partition from its start")
    _final_read(bootstrap, recorder, load, first_process=1_000)
    recorder.nemesis("phase", "end")


def _clients(bootstrap: str, recorder: Recorder, load: Load) -> list[Any]:
    values = Values()
    clients: list[Any] = []
    process = 0
    for _ in range(load.confluent_producers):
        slots = range(process, process + load.in_flight)
        clients.append(ConfluentProducer(bootstrap, TOPIC, load.partitions, slots, values, recorder, load.acks))
        process += load.in_flight
    for _ in range(load.kafka_python_producers):
        clients.append(KafkaPythonProducer(bootstrap, TOPIC, load.partitions, process, values, recorder, load.acks))
        process += 1
    for group in [None] * load.assigned_consumers + ["workload"] * load.group_members:
        clients.append(ConfluentConsumer(bootstrap, TOPIC, load.partitions, process, recorder, group))
        process += 1
    for partition in range(load.partitions):
        clients.append(RawReader(bootstrap, TOPIC, partition, process, recorder))
        process += 1
    return clients


def create_topic(bootstrap: str, load: Load) -> None:
    """Create it through the controller and wait until every partition has a leader and a full ISR."""
    client = RawClient(bootstrap)
    settings = (CreatableTopicConfig(name="min.insync.replicas", value=str(load.min_insync_replicas)),)
    wanted = CreatableTopic(
        name=TOPIC, num_partitions=load.partitions, replication_factor=load.replicas, configs=settings
    )
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
