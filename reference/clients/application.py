"""An application around a group member: it polls at its own pace, and remembers what it had to give up."""

from collections.abc import Callable, Sequence
from typing import Final

from reference.clients.member import GroupMember, MemberConfig
from reference.clients.subscriptions import Partition
from reference.effects import Effect, Outbox, SetTimer, Trace
from reference.events import Instant, Response
from reference.wire.errors import ErrorCode

POLL: Final = "poll"
POLL_MS: Final = 50


class Application:
    """A node that contains one: `name` names it in traces. Without `polling` it hangs, while its heartbeats go on."""

    def __init__(self, name: str, bootstrap: Sequence[int], config: MemberConfig, poll_ms: int = POLL_MS) -> None:
        self.name, self._group_id, self._poll_ms = name, config.group_id, poll_ms
        self._out = Outbox()
        self.committed: list[ErrorCode] = []
        self.member = GroupMember(bootstrap, config, self, self.committed.append)
        self.polling = True
        self.revoked_ever: set[Partition] = set()

    # -- what the member tells ---------------------------------------------------------------------

    def assigned(self, partitions: frozenset[Partition]) -> None:
        self._trace("Assigned", partitions)

    def revoked(self, partitions: frozenset[Partition]) -> None:
        self.revoked_ever |= partitions
        self._trace("Revoked", partitions)

    def lost(self, partitions: frozenset[Partition]) -> None:
        self._trace("Lost", partitions)

    def _trace(self, action: str, partitions: frozenset[Partition]) -> None:
        named = [f"{topic}-{number}" for topic, number in sorted(partitions)]
        state = {"generation": self.member.generation_id}
        self._out.add(Trace(self._group_id, action, self.name, {"partitions": named}, state))

    # -- entrances -------------------------------------------------------------------------------

    def start(self, now: Instant) -> list[Effect]:
        self._out.add(SetTimer(POLL, now.monotonic_ms + self._poll_ms))
        return self._with(lambda: self.member.start(now))

    def receive(self, now: Instant, source: str, message: Response) -> list[Effect]:
        return self._with(lambda: self.member.receive(now, source, message))

    def fire(self, now: Instant, timer: str) -> list[Effect]:
        if timer != POLL:
            return self._with(lambda: self.member.fire(now, timer))
        self._out.add(SetTimer(POLL, now.monotonic_ms + self._poll_ms))
        return self._with(lambda: self.member.poll(now) if self.polling else [])

    def complete(self, now: Instant, token: str) -> list[Effect]:
        return []

    def closed(self, now: Instant, peer: str) -> list[Effect]:
        return self._with(lambda: self.member.closed(now, peer))

    def leave(self, now: Instant) -> list[Effect]:
        return self._with(lambda: self.member.leave(now))

    def commit(self, now: Instant, offsets: dict[Partition, int]) -> list[Effect]:
        return self._with(lambda: self.member.commit(now, offsets))

    def _with(self, entrance: Callable[[], list[Effect]]) -> list[Effect]:
        effects = entrance()
        return [*self._out.drain(), *effects]
