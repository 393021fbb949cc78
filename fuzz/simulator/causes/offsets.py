"""Follow an offset of a partition: who wrote it, which replicas have it and count it as committed, who has read it.

Of the steps of the brokers only those are shown that change something about the offset: whether a replica has it,
whether its high watermark is beyond it, and role, leader epoch and ISR of the replica.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from highwater.fuzz.simulator.causes.lines import Line, by_time
from highwater.fuzz.simulator.causes.words import line_of
from highwater.fuzz.simulator.exchanges import SimulatedExchange, partitions_of
from highwater.reference.effects import STORE
from highwater.reference.wire.messages.fetch import FetchRequest
from highwater.reference.wire.messages.produce import ProduceRequest
from highwater.reference.wire.records import batch_headers
from highwater.spec.formats.trace import Step

ROLES: Final = {"BecomeLeader": "leader", "BecomeFollower": "follower", "Crash": "down"}
OF_THE_CLUSTER: Final = ""
"""The entity of steps that concern all partitions: crashes and elections of a controller."""
OF_THE_STORE: Final = {"ElectLeader", "ControllerShrinkIsr", "LeaderChangeIsr"}
"""Steps that take effect in the metadata store, not on the broker that asked for them."""
CHANGES: Final = ("DeleteRecords", "DeleteTopics", "AlterPartitionReassignments", "ElectLeaders", "StopReplica")
"""Requests that change a partition as a whole; they are shown if they name it."""


@dataclass(slots=True)
class ReplicaLife:
    """What the steps have said about one replica so far; -1 is unknown."""

    role: str = ""
    leader_epoch: int = -1
    log_end_offset: int = -1
    high_watermark: int = -1
    isr: tuple[int, ...] = ()

    def update(self, step: Step) -> None:
        """Take the state after a step."""
        self.role = ROLES.get(step.action, self.role)
        for name in ("leader_epoch", "log_end_offset", "high_watermark", "isr"):
            if name in step.state:
                setattr(self, name, step.state[name])

    def about(self, offset: int) -> tuple[Any, ...]:
        """Return what changes when something happens to the offset."""
        return self.role, self.leader_epoch, self.isr, self.log_end_offset > offset, self.high_watermark > offset

    def __str__(self) -> str:
        parts = [
            f"epoch {self.leader_epoch}" if self.leader_epoch >= 0 else "",
            f"log end {self.log_end_offset}" if self.log_end_offset >= 0 else "",
            f"high watermark {self.high_watermark}" if self.high_watermark >= 0 else "",
            f"ISR {','.join(map(str, self.isr))}" if self.isr else "",
        ]
        return ", ".join(filter(None, parts))


@dataclass(slots=True)
class PartitionLife:
    """The replicas of one partition while steps are read."""

    partition: str
    offset: int
    replicas: dict[int | str, ReplicaLife] = field(default_factory=dict)

    def lines(self, steps: Iterable[Step]) -> Iterator[Line]:
        """Yield a line for each step that changes something about the offset."""
        for step in steps:
            if step.entity == OF_THE_CLUSTER:
                yield from self._of_the_cluster(step)
            elif step.entity == self.partition and step.action in OF_THE_STORE:
                isr = ",".join(map(str, step.state["isr"]))
                leader, epoch = step.state["leader"], step.state["leader_epoch"]
                what = f"{self.partition} {step.action} by {step.node}: leader {leader}, epoch {epoch}, ISR {isr}"
                yield Line(step.time_ns // 1_000_000, STORE, what)
            elif step.entity == self.partition:
                replica = self.replicas.setdefault(step.node, ReplicaLife())
                before = replica.about(self.offset)
                replica.update(step)
                if replica.about(self.offset) != before or step.action == "TruncateToEpochEnd":
                    choices = " ".join(f"{name}={value}" for name, value in step.choices.items())
                    what = f"{self.partition} {step.action} {choices}".rstrip()
                    yield Line(step.time_ns // 1_000_000, self._title(step.node), f"{what}: {replica}")

    def _of_the_cluster(self, step: Step) -> Iterator[Line]:
        at_ms = step.time_ns // 1_000_000
        if step.action == "Claim":
            yield Line(at_ms, f"broker:{step.node}", f"is the controller of epoch {step.state['controller_epoch']}")
        elif step.action == "Crash" and (replica := self.replicas.get(step.node)) is not None:
            replica.role = ROLES[step.action]
            yield Line(at_ms, f"broker:{step.node}", f"stops; {self.partition} was at {replica}")

    def _title(self, node: int | str) -> str:
        return f"broker:{node} {self.replicas[node].role}".rstrip()

    def last_lines(self, at_ms: int) -> list[Line]:
        """Return the state of each replica, as far as the steps say it."""
        return [
            Line(at_ms, self._title(node), f"{self.partition} at the end: {replica}")
            for node, replica in sorted(self.replicas.items(), key=str)
        ]


def lines_of_offset(
    partition: str, offset: int, node: str, exchanges: Iterable[SimulatedExchange], steps: Iterable[Step], at_ms: int
) -> list[Line]:
    """Return the lines about an offset (-1: the whole partition) by time; `node` is a client whose reads are shown."""
    life = PartitionLife(partition, offset)
    lines = [
        *life.lines(steps),
        *(line_of(each, partition) for each in exchanges if _concerns(each, partition, offset, node)),
    ]
    return [*by_time(lines), *life.last_lines(at_ms)]


def _concerns(exchange: SimulatedExchange, partition: str, offset: int, node: str) -> bool:
    if isinstance(exchange.body, FetchRequest):
        return offset in _read(exchange, partition)  # an incremental request of a fetch session names no partition
    if exchange.name in CHANGES:
        return partition in exchange.partitions or partition.rpartition("-")[0] in exchange.topics
    if partition not in exchange.partitions:
        return False
    if isinstance(exchange.body, ProduceRequest):
        return offset in _written(exchange, partition)
    return exchange.source == node


def _written(exchange: SimulatedExchange, partition: str) -> range:
    """Return the offsets that a response to Produce names; empty if it is an error or missing."""
    asked = dict(partitions_of(exchange.body))[partition]
    answered = dict(partitions_of(exchange.answer)).get(partition) if exchange.answer is not None else None
    if answered is None or answered.base_offset < 0:
        return range(0)
    count = sum(header.record_count for _, header in batch_headers(bytes(asked.records or b"")))
    return range(answered.base_offset, answered.base_offset + count)


def _read(exchange: SimulatedExchange, partition: str) -> range:
    """Return the offsets that a Fetch returned."""
    answered = dict(partitions_of(exchange.answer)).get(partition) if exchange.answer is not None else None
    headers = [header for _, header in batch_headers(bytes(answered.records or b""))] if answered is not None else []
    return range(headers[0].base_offset, headers[-1].last_offset + 1) if headers else range(0)
