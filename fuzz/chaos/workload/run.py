"""Runs a workload under a nemesis: creates a topic, loads it, undoes all faults, and reads every record at the end."""

import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import msgspec

from highwater.errors import UsageError
from highwater.fuzz.chaos.nemesis import STORE, Inject, Nemesis, Processes, process_faults
from highwater.fuzz.chaos.workload.clients import committed_reader, make_clients, make_transactional_clients
from highwater.fuzz.chaos.workload.producers import Values
from highwater.fuzz.chaos.workload.raw_client import RawClient, RawError
from highwater.fuzz.chaos.workload.readers import ConfluentConsumer, RawReader
from highwater.fuzz.chaos.workload.recorder import Recorder
from highwater.fuzz.chaos.workload.topic import TopicLoad, await_isr, create_topic, free_topic, with_topic
from highwater.fuzz.proxy.run import FaultProxy
from highwater.fuzz.schedule import CLIENTS, MESSAGE, Fault, Schedule
from highwater.reference.wire.messages.transactions import InitProducerIdRequest
from highwater.reference.wire.registry import api_of
from highwater.spec.formats.history import Config

HISTORY, TRANSACTIONS = "history.ndjson", "transactions"
FINAL_READ_TIMEOUT_S = 20.0
JOIN_TIMEOUT_S = 15.0
FINAL_PROCESS = 1_000


class UserClients(Protocol):
    """Clients of the user on the same cluster."""

    def record_fault(self, f: str, value: Any, node: str | None) -> None:
        """Record an event of the nemesis."""

    def finish(self) -> None:
        """Signal that all faults are over; return when the clients have ended."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A cluster under load: its addresses, its faults, the load, and `say`, which receives progress messages.

    `proxy` is the one behind `bootstrap`, if clients connect through one that injects faults into their messages.
    """

    bootstrap: str
    addresses: Mapping[int, str]
    faults: Mapping[str, Inject]
    load: TopicLoad
    revive: Callable[[], None] = lambda: None  # starts every node that is down
    source: str = "reference"
    say: Callable[[str], None] = lambda line: None
    user_clients: UserClients | None = None
    proxy: FaultProxy | None = None

    def run(self, folder: Path, schedule: Schedule, stop: threading.Event | None = None) -> Path:
        """Run the schedule and return the path of the history, which consists of whole lines at any moment.

        Transactions have a separate topic, and a separate history in the folder `transactions`.
        """
        topics, has_producer_ids = _topics_and_producer_ids(self.bootstrap)
        topic = free_topic(topics)
        if topic == self.load.topic:
            return self._run_on_topic(folder, schedule, stop, has_producer_ids=has_producer_ids)
        self.say(f"an earlier run has left its topic {self.load.topic}; this one has {topic}")
        renamed = replace(self, load=replace(self.load, topic=topic))
        return renamed._run_on_topic(folder, with_topic(schedule, topic), stop, has_producer_ids=has_producer_ids)

    def _run_on_topic(
        self, folder: Path, schedule: Schedule, stop: threading.Event | None, *, has_producer_ids: bool
    ) -> Path:
        brokers, values = list(self.addresses), Values()
        idempotence = has_producer_ids and self.load.idempotence and self.load.acks == "all"
        transactions = idempotence and self.load.transactional_producers > 0
        create_topic(self.bootstrap, self.load, brokers, self.load.topic)
        with ExitStack() as stack:
            config = _config(self.load, self.source, idempotence=idempotence)
            recorder = stack.enter_context(closing(Recorder(folder / HISTORY, config)))
            clients = make_clients(self.bootstrap, recorder, self.load, values, idempotence=idempotence)
            if transactions:
                create_topic(self.bootstrap, self.load, brokers, self.load.transactions_topic)
                (folder / TRANSACTIONS).mkdir()
                config = msgspec.structs.replace(config, isolation="read_committed", clients=("confluent-kafka",))
                mirror = stack.enter_context(closing(Recorder(folder / TRANSACTIONS / HISTORY, config)))
                recorder.mirrors.append(mirror)
                clients += make_transactional_clients(self.bootstrap, mirror, self.load, values)
            self._run(recorder, schedule, clients, stop or threading.Event())
        return folder / HISTORY

    def _run(self, recorder: Recorder, schedule: Schedule, clients: list[Any], stop: threading.Event) -> None:
        done = threading.Event()
        threads = [threading.Thread(target=client.run, args=(done,), daemon=True) for client in clients]
        consumers = {client.name: client for client in clients if isinstance(client, ConfluentConsumer) and client.name}

        def stall(fault: Fault, name: str) -> Callable[[], None]:
            consumers[name].stalled.set()
            return consumers[name].stalled.clear

        proxy = self.proxy

        def strike_messages(fault: Fault, name: str) -> Callable[[], None]:
            assert proxy is not None, "a schedule with faults of messages has a proxy"
            armed = proxy.add(str(fault.option("line")))
            return lambda: proxy.remove(armed)

        if proxy is not None:
            proxy.listener = lambda strike: recorder.nemesis("struck", value=strike)
        faults = {**self.faults, "stall": stall, MESSAGE: strike_messages}
        nemesis = Nemesis(self.addresses, recorder, faults, {STORE, CLIENTS, *consumers})
        if self.user_clients is not None:
            recorder.listeners.append(self.user_clients.record_fault)
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
                self.say("all faults are undone; waiting until every replica is in sync")
                self._await_isr(stop, [self.load.topic, *([self.load.transactions_topic] if recorder.mirrors else [])])
                if self.user_clients is not None and not stop.is_set():
                    self.user_clients.finish()
                stop.wait(1.0)  # clients can complete their open operations
            finally:
                done.set()
                for thread in threads:
                    thread.join(JOIN_TIMEOUT_S)
        recorder.nemesis("phase", "final")
        self.say("reading every partition from its start")
        _within(FINAL_READ_TIMEOUT_S, lambda deadline: self._read_all(recorder, deadline))
        recorder.nemesis("phase", "end")

    def _await_isr(self, stop: threading.Event, topics: list[str]) -> None:
        for topic in topics:
            await_isr(self.bootstrap, self.load, stop, topic, self.revive)

    def _read_all(self, recorder: Recorder, deadline: threading.Event) -> None:
        for partition in range(self.load.partitions):
            process, keys = FINAL_PROCESS + partition, [f"{self.load.topic}-{partition}"]
            recorder.record(process, "info", "assign", value=keys, client="raw", position=0)
            RawReader(self.bootstrap, self.load.topic, partition, process, recorder).read_all(deadline)
        for mirror in recorder.mirrors:
            committed_reader(self.bootstrap, mirror, self.load, FINAL_PROCESS).read_all(deadline)


def run_workload(
    cluster: Processes, bootstrap: str, folder: Path, schedule: Schedule, load: TopicLoad | None = None, *,
    say: Callable[[str], None] = lambda line: None,
) -> Path:  # fmt: skip
    """Run a workload with the faults that need only the processes of a cluster; return the path of the history."""
    workload = Workload(bootstrap, cluster.addresses, process_faults(cluster), load or TopicLoad(), say=say)
    return workload.run(folder, schedule)


def _topics_and_producer_ids(bootstrap: str) -> tuple[set[str], bool]:
    """Return the topics of the cluster, and whether it supports InitProducerId (Kafka 0.11, KIP-98).

    Raises UsageError if the cluster does not answer.
    """
    client = RawClient(bootstrap)
    try:
        reply, _ = client.metadata(None)
        return {topic.name for topic in reply.topics}, api_of(InitProducerIdRequest).key in client.newest()
    except RawError as error:
        raise UsageError(str(error), where=bootstrap, hint="is the cluster up?") from error
    finally:
        client.close()


def _config(load: TopicLoad, source: str, *, idempotence: bool) -> Config:
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


def _within(seconds: float, work: Callable[[threading.Event], None]) -> None:
    """Run `work` with an event that is set after `seconds`."""
    deadline = threading.Event()
    timer = threading.Timer(seconds, deadline.set)
    timer.start()
    try:
        work(deadline)
    finally:
        timer.cancel()
