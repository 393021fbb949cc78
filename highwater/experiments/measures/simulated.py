"""The rolling bounce in virtual time, with the members and brokers of the reference: the same seed, the same pauses."""

from typing import Final

from highwater.errors import UsageError
from highwater.experiments.conditions import Condition, Found
from highwater.experiments.pauses import found_in_steps, pauses
from highwater.experiments.plans import COOPERATIVE, EAGER, NEW_PROTOCOL, STATIC
from highwater.fuzz.simulator.clients.groups import GroupCluster
from highwater.fuzz.simulator.cluster import Settings

ASSIGNORS: Final = {EAGER: ("range",), COOPERATIVE: ("cooperative-sticky",), STATIC: ("range",)}
SAMPLE_MS: Final = 5
LEAST_S: Final = 0.02
DOWN_MS: Final = 1_000
"""Below the session of a member, so that a static member is back in time."""
QUIET_MS: Final = 1_000
SETTLE_MS: Final = 30_000


def simulated_lacks(condition: Condition) -> str:
    """Return what the simulator lacks for the condition, or an empty text."""
    is_new = condition.settings["protocol"] == NEW_PROTOCOL
    return "the simulator has no members that send ConsumerGroupHeartbeat (KIP-848)" if is_new else ""


def simulated_pauses(condition: Condition, seed: int) -> Found:
    """Return the four pauses of a rolling bounce; raises UsageError if the group does not settle.

    A partition counts as consumed while a member owns it: members of the simulator poll all the time.
    """
    bounce = _Bounce(condition, seed)
    bounce.settle()
    steps = []
    for name in list(bounce.names):
        bounce.revoked, begin_s = 0, bounce.now_s
        bounce.restart(name)
        bounce.settle()
        found = pauses(bounce.received, begin_s, bounce.now_s, least_s=LEAST_S)
        steps.append({**found, "revoked": bounce.revoked, "bounce": 1e3 * (bounce.now_s - begin_s)})
    return found_in_steps(steps)


class _Bounce:
    def __init__(self, condition: Condition, seed: int) -> None:
        members, partitions = condition.number("members"), condition.number("partitions")
        self._protocol = str(condition.settings["protocol"])
        self.names = [f"member-{number}" for number in range(members)]
        settings = Settings(
            brokers=3, partitions=partitions, min_insync_replicas=1,
            broker_settings={"group_min_session_timeout_ms": 500, "group_max_size": 100},
        )  # fmt: skip
        self._cluster = GroupCluster(seed, settings)
        self._cluster.start()
        self.received: dict[int, list[float]] = {number: [] for number in range(partitions)}
        self.revoked = 0
        self._owned: dict[str, frozenset[int]] = {}
        for name in self.names:
            self._join(name)

    @property
    def now_s(self) -> float:
        return self._cluster.world.now_ms / 1e3

    def _join(self, name: str) -> None:
        instance = name if self._protocol == STATIC else None
        self._cluster.join(name, assignors=ASSIGNORS[self._protocol], group_instance_id=instance)

    def restart(self, name: str) -> None:
        """Close a member and start it again. A static member that is closed does not leave the group."""
        (self._cluster.kill if self._protocol == STATIC else self._cluster.leave)(name)
        self._owned.pop(name, None)
        self._run(DOWN_MS)
        self._join(name)

    def settle(self) -> None:
        """Run until every member has had partitions, and every partition an owner, for `QUIET_MS`."""
        quiet_ms = spent_ms = 0
        while quiet_ms < QUIET_MS:
            self._run(SAMPLE_MS)
            spent_ms += SAMPLE_MS
            quiet_ms = quiet_ms + SAMPLE_MS if self._is_settled() else 0
            if spent_ms > SETTLE_MS:
                raise UsageError(f"the simulated group did not settle within {SETTLE_MS} ms", where=self._protocol)

    def _is_settled(self) -> bool:
        shares = list(self._owned.values())
        return len(shares) == len(self.names) and all(shares) and sum(map(len, shares)) == len(self.received)

    def _run(self, milliseconds: int) -> None:
        """Run the world and look every `SAMPLE_MS` at who owns what."""
        world = self._cluster.world
        for _ in range(0, milliseconds, SAMPLE_MS):
            world.run_until(world.now_ms + SAMPLE_MS)
            for name, application in self._cluster.members.items():
                owned = frozenset(number for _, number in application.member.owned)
                self.revoked += len(self._owned.get(name, frozenset()) - owned)
                self._owned[name] = owned
                for number in owned:
                    self.received[number].append(self.now_s)
