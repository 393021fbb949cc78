"""An application with a group member: it polls on a timer and records the partitions that were revoked."""

from collections.abc import Callable, Sequence
from typing import Final

from highwater.reference.clients.member import GroupMember, MemberConfig
from highwater.reference.clients.subscriptions import Partition
from highwater.reference.effects import Effect, Instant, Outbox, Response, SetTimer, Trace
from highwater.reference.wire.errors import ErrorCode

POLL: Final = "poll"
POLL_MS: Final = 50


class Application:
    """A node with one group member; `name` is its name in traces. Without `polling` it hangs but sends heartbeats."""

    def __init__(self, name: str, bootstrap: Sequence[int], config: MemberConfig, poll_ms: int = POLL_MS) -> None:
        self.name, self.group_id, self._poll_ms = name, config.group_id, poll_ms
        self.group_instance_id = config.group_instance_id
        self._out = Outbox()
        self.committed: list[ErrorCode] = []
        self.member = GroupMember(bootstrap, config, self, self.committed.append)
        self.polling = True
        self.revoked_ever: set[Partition] = set()

    # -- rebalance listener ------------------------------------------------------------------------

    def assigned(self, partitions: frozenset[Partition]) -> None:
        self._trace("Assigned", partitions)

    def revoked(self, partitions: frozenset[Partition]) -> None:
        self.revoked_ever |= partitions
        self._trace("Revoked", partitions)

    def lost(self, partitions: frozenset[Partition]) -> None:
        self._trace("Lost", partitions)

    def _trace(self, action: str, partitions: frozenset[Partition]) -> None:
        names = [f"{topic}-{number}" for topic, number in sorted(partitions)]
        state = {"generation": self.member.generation_id}
        self._out.add(Trace(self.group_id, action, self.name, {"partitions": names}, state))

    # -- events ------------------------------------------------------------------------------------

    def start(self, now: Instant) -> list[Effect]:
        self._out.add(SetTimer(POLL, now.monotonic_ms + self._poll_ms))
        return self._call_member(lambda: self.member.start(now))

    def receive(self, now: Instant, source: str, message: Response) -> list[Effect]:
        return self._call_member(lambda: self.member.receive(now, source, message))

    def fire(self, now: Instant, timer: str) -> list[Effect]:
        if timer != POLL:
            return self._call_member(lambda: self.member.fire(now, timer))
        self._out.add(SetTimer(POLL, now.monotonic_ms + self._poll_ms))
        return self._call_member(lambda: self.member.poll(now) if self.polling else [])

    def complete(self, now: Instant, token: str) -> list[Effect]:
        return []

    def closed(self, now: Instant, peer: str) -> list[Effect]:
        return self._call_member(lambda: self.member.closed(now, peer))

    def leave(self, now: Instant) -> list[Effect]:
        return self._call_member(lambda: self.member.leave(now))

    def commit(self, now: Instant, offsets: dict[Partition, int]) -> list[Effect]:
        return self._call_member(lambda: self.member.commit(now, offsets))

    def _call_member(self, handler: Callable[[], list[Effect]]) -> list[Effect]:
        effects = handler()
        return [*self._out.drain(), *effects]
