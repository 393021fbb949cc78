"""The partition state in the metadata store, and the leader's state of every follower."""

from dataclasses import dataclass
from typing import Any, Protocol

from highwater.reference.context import from_json, to_json
from highwater.reference.store.messages import TraceLabel

NO_LEADER = -1


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The persisted state of one partition; `partition_epoch` is the version of its node in the store.

    `elr` lists the eligible leader replicas outside the ISR (KIP-966); only `isr_update = alter_partition` stores it.
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    partition_epoch: int = -1
    elr: tuple[int, ...] = ()

    def to_bytes(self) -> bytes:
        state = {
            "version": 1,
            "leader": self.leader,
            "leader_epoch": self.leader_epoch,
            "isr": self.isr,
            "controller_epoch": self.controller_epoch,
        }
        return to_json({**state, "elr": self.elr} if self.elr else state)

    @classmethod
    def from_bytes(cls, data: bytes, version: int) -> "PartitionState":
        found: dict[str, Any] = from_json(data)
        isr, elr = tuple(found["isr"]), tuple(found.get("elr", ()))
        return cls(found["leader"], found["leader_epoch"], isr, found["controller_epoch"], version, elr)

    def label(self, entity: str, action: str, node: int) -> TraceLabel:
        return TraceLabel(
            entity, action, node, {"leader": self.leader, "leader_epoch": self.leader_epoch, "isr": self.isr}
        )


def partition_path(topic: str, partition: int) -> str:
    return f"/brokers/topics/{topic}/partitions/{partition}"


def state_path(topic: str, partition: int) -> str:
    return f"{partition_path(topic, partition)}/state"


class FetchClock(Protocol):
    """The time of the last fetch of a fetch session, whichever partitions that fetch named."""

    used_ms: int


@dataclass(slots=True)
class Remote:
    """The leader's state of one follower; `log_end_offset` is -1 until the follower fetches in this leader epoch.

    Every fetch of `session` fetches this partition too, also a fetch that does not name it (KIP-227).
    """

    log_end_offset: int = -1
    log_start_offset: int = -1
    caught_up_ms: int = 0
    fetched_ms: int = 0
    leader_end_at_fetch: int = -1
    session: FetchClock | None = None

    def caught_up_since(self, oldest_ms: int) -> bool:
        """Return whether the follower has fetched in this leader epoch and was caught up at `oldest_ms` or later."""
        return self.log_end_offset >= 0 and self.caught_up_ms >= oldest_ms

    def update_fetch_state(self, offset: int, leader_end: int, now_ms: int) -> None:
        """Update the follower's state after a fetch at `offset`.

        At the leader's log end it is caught up now. At the log end of the previous fetch it was caught up then.
        """
        if offset >= leader_end:
            self.caught_up_ms = now_ms
        elif offset >= self.leader_end_at_fetch >= 0:
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self.log_end_offset = offset
        self.fetched_ms, self.leader_end_at_fetch = now_ms, leader_end

    def count_session_fetches(self, leader_end: int) -> None:
        """Count the session's fetches since this partition was read; call it before `leader_end` changes.

        Apache Kafka calls Partition.updateFollowerFetchState for all partitions of a session in every fetch. Here a
        follower at the leader's log end was caught up at the last fetch of its session, so that an idle partition
        costs nothing.
        """
        if self.session is not None and self.log_end_offset >= leader_end:
            self.caught_up_ms = self.fetched_ms = max(self.caught_up_ms, self.session.used_ms)
