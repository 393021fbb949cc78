"""Runs a scenario of a group: one command a line, after `----` the output that it must have.

=====================================  =======================================================================
group N [key=value ...]                start N brokers and topic t; keys: partitions, guards_off (of brokers and
                                       members), or any broker setting
join A [assignors=X,Y] [instance=I]    start a member; range unless it names others
leave A / kill A                       it leaves the group / dies without a word
hang A / wake A                        its application polls no more, though it sends heartbeats / polls again
pause A / resume A                     the whole process stops / goes on as if nothing had been
hold A -> coordinator / release ...    keep what it sends to the coordinator back / let it go
commit A PARTITION OFFSET              and run until that is answered
crash coordinator / restart N          a broker
run MS                                 let MS virtual milliseconds pass
until WHAT                             run, a millisecond at a time, until WHAT (see `moments`), 10 s at most
settle                                 run until the group is stable and every partition has one member
owners                                 each member: state, generation, what it has
offsets                                what is committed, as the coordinator has it
quarrels                               what two members of the group ever had at once
=====================================  =======================================================================

Between commands is printed what members were given, revoked and lost.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from highwater.fuzz.scenarios.runner import SEED, play, split
from highwater.fuzz.simulator.clients.groups import GroupCluster
from highwater.fuzz.simulator.cluster import Settings
from highwater.reference.clients.member import MemberState
from highwater.reference.effects import broker_peer
from highwater.reference.groups.group import GroupState
from highwater.spec.formats.trace import Step

TOLD: Final = frozenset({"Assigned", "Revoked", "Lost"})

PATIENCE_MS = 10_000
CALM_MS = 1_000
SPREAD_MS = 30
"""Messages of members that do the same at once come one after the other."""


class GroupScenario:
    def __init__(self) -> None:
        self._cluster: GroupCluster | None = None
        self._lines: list[str] = []
        self._told = 0
        self._held: dict[str, str] = {}
        self._commands: dict[str, Callable[..., None]] = {
            "group": self._start,
            "join": self._join,
            "leave": lambda name, *_: self.cluster.leave(name),
            "kill": lambda name, *_: self.cluster.kill(name),
            "hang": lambda name: setattr(self.cluster.members[name], "polling", False),
            "wake": lambda name: setattr(self.cluster.members[name], "polling", True),
            "pause": lambda name, *_: self.cluster.world.pause(name),
            "resume": lambda name, *_: self.cluster.world.resume(name),
            "hold": self._hold,
            "release": lambda name, *_: self.cluster.world.release(name, self._held.pop(name)),
            "commit": self._commit,
            "crash": self._crash,
            "restart": lambda number: self.cluster.world.start(broker_peer(int(number))),
            "run": lambda ms: self.cluster.world.run_until(self.cluster.world.now_ms + int(ms)),
            "until": self._until,
            "settle": self._settle,
            "owners": self._owners,
            "offsets": self._offsets,
            "quarrels": self._quarrels,
        }

    @property
    def cluster(self) -> GroupCluster:
        assert self._cluster is not None, "a scenario of a group begins with: group N"
        return self._cluster

    def run(self, script: str) -> str:
        """The output of a script."""
        play(script, self._commands, self._lines.append, self._tell_steps)
        return "\n".join(self._lines) + "\n"

    def _say(self, line: str) -> None:
        self._tell_steps()
        self._lines.append(f"  {line}")

    def _tell_steps(self) -> None:
        steps = self.cluster.world.steps
        self._lines += [_describe(step) for step in steps[self._told :] if step.action in TOLD]
        self._told = len(steps)

    # -- commands --------------------------------------------------------------------------------

    def _start(self, size: str, *words: str) -> None:
        given = dict(word.split("=", 1) for word in words)
        settings = Settings(
            brokers=int(size),
            partitions=int(given.pop("partitions", "3")),
            min_insync_replicas=1,
            guards_off=tuple(filter(None, given.pop("guards_off", "").split(","))),
            spread_ms=SPREAD_MS,
            broker_settings={"group_min_session_timeout_ms": 500} | {key: int(value) for key, value in given.items()},
        )
        self._cluster = GroupCluster(SEED, settings, tracing=True)
        self._cluster.start()

    def _join(self, name: str, *words: str) -> None:
        given = dict(word.split("=", 1) for word in words)
        assignors = tuple(given.pop("assignors", "range").split(","))
        self.cluster.join(name, assignors=assignors, group_instance_id=given.pop("instance", None))
        assert not given, f"join knows no {', '.join(given)}"

    def _hold(self, name: str, *_: str) -> None:
        self._held[name] = broker_peer(self.cluster.coordinator)
        self.cluster.world.hold(name, self._held[name])

    def _commit(self, name: str, number: str, offset: str) -> None:
        application = self.cluster.members[name]
        known = len(application.committed)
        self.cluster.world.enter(name, lambda now: application.commit(now, {("t", int(number)): int(offset)}))
        self._run_until(lambda: len(application.committed) > known)
        self._say(application.committed[-1].name)

    def _crash(self, _: str) -> None:
        self._say(f"coordinator is {self.cluster.coordinator}")
        self.cluster.world.crash(broker_peer(self.cluster.coordinator), lose_unflushed=False)

    def moments(self) -> dict[str, Callable[[], bool]]:
        """The phases of a rebalance (kafka-0.8-principles, "Coordinator Failover"), as `until` names them."""
        preparing, completing = GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE
        return {
            "noticed": lambda: self._group_is(preparing),
            "told": lambda: self._group_is(preparing) and MemberState.STABLE not in self._states(),
            "joining": lambda: self._group_is(preparing) and 1 < self._joining() < len(self.cluster.members),
            "syncing": lambda: self._group_is(completing),
            "stored": lambda: self._group_is(completing) and self._is_writing(),
            "answered": lambda: {MemberState.STABLE, MemberState.COMPLETING_REBALANCE} <= self._states(),
        }

    def _group_is(self, state: GroupState) -> bool:
        group = self.cluster.group
        return group is not None and group.state is state

    def _states(self) -> set[MemberState]:
        return {application.member.state for application in self.cluster.members.values()}

    def _joining(self) -> int:
        group = self.cluster.group
        return 0 if group is None else sum(member.pending_join is not None for member in group.members.values())

    def _is_writing(self) -> bool:
        partition = self.cluster.offsets_log
        return partition is not None and partition.log.log_end_offset > partition.high_watermark

    def _until(self, moment: str) -> None:
        if not self._run_until(self.moments()[moment]):
            self._say("did not happen")

    def _run_until(self, condition: Callable[[], bool]) -> bool:
        world = self.cluster.world
        end_ms = world.now_ms + PATIENCE_MS
        while not condition() and world.now_ms < end_ms:
            world.run_until(world.now_ms + 1)
        return condition()

    def _settle(self) -> None:
        world = self.cluster.world
        end_ms = world.now_ms + PATIENCE_MS
        calm_since_ms = world.now_ms
        while world.now_ms - calm_since_ms < CALM_MS and world.now_ms < end_ms:
            world.run_until(world.now_ms + 10)
            if not self._is_settled():
                calm_since_ms = world.now_ms
        if not self._is_settled():
            self._say("not settled")
        self._owners()

    def _is_settled(self) -> bool:
        group, members = self.cluster.group, self.cluster.members.values()
        owned = sorted(each for application in members for each in application.member.owned)
        everything = [("t", number) for number in range(self.cluster.settings.partitions)]
        ids = {application.member.member_id for application in members}
        return group is not None and group.state is GroupState.STABLE and set(group.members) == ids and (
            owned == everything
        )  # fmt: skip

    def _owners(self) -> None:
        for name, application in sorted(self.cluster.members.items()):
            member = application.member
            shown = " ".join(f"{topic}-{number}" for topic, number in sorted(member.owned)) or "nothing"
            self._say(f"{name} {member.state} in {member.generation_id}: {shown}")

    def _offsets(self) -> None:
        group = self.cluster.group
        found = sorted((group.offsets if group else {}).items())
        self._say(" ".join(f"{topic}-{number}: {each.offset}" for (topic, number), each in found) or "none")

    def _quarrels(self) -> None:
        for each in self.cluster.ownership_conflicts or ["none"]:
            self._say(each)


def _describe(step: Step) -> str:
    partitions = " ".join(step.choices.get("partitions", ()))
    return f"  {step.node} {step.action}  {partitions}  generation {step.state.get('generation')}"


def run_file(path: Path) -> tuple[str, str]:
    """(what it printed, what it should print)."""
    script, golden = split(path.read_text())
    return GroupScenario().run(script), golden


def files() -> list[Path]:
    return sorted((Path(__file__).parent / "groups").glob("*.txt"))
