"""Run a scenario of a consumer group: a file with one command on each line and, after `----`, the golden output.

=====================================  =======================================================================
group N [key=value ...]                start N brokers and topic t; keys: partitions, guards_off (of brokers and
                                       members), or any broker setting
join A [assignors=X,Y] [instance=I]    start a member, with the assignor `range` by default
leave A / kill A                       it leaves the group / crashes without LeaveGroup
hang A / wake A                        its application stops polling, but heartbeats continue / polls again
pause A / resume A                     the process stops / continues
hold A -> coordinator / release ...    hold its messages to the coordinator / deliver them
commit A PARTITION OFFSET              commit, and run until the response
crash coordinator / restart N          a broker
run MS                                 let MS virtual milliseconds pass
until PHASE                            run in steps of 1 ms until PHASE (see `phases`), at most 10 s
settle                                 run until the group is stable and every partition has one owner
owners                                 each member: state, generation, owned partitions
offsets                                the committed offsets on the coordinator
quarrels                               each partition that two members owned at once
=====================================  =======================================================================

After each command the runner prints which partitions members were assigned, revoked and lost.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from highwater.fuzz.scenarios.runner import SEED, run_script, split
from highwater.fuzz.simulator.clients.groups import GroupCluster
from highwater.fuzz.simulator.cluster import Settings
from highwater.reference.clients.member import MemberState
from highwater.reference.effects import broker_peer
from highwater.reference.groups.group import GroupState
from highwater.spec.formats.trace import Step

PRINTED_ACTIONS: Final = frozenset({"Assigned", "Revoked", "Lost"})

PATIENCE_MS = 10_000
STABLE_MS = 1_000
SPREAD_MS = 30
"""Messages that members send at the same time arrive at different times."""


class GroupScenario:
    """Runs the commands of one script on a cluster with group members and collects the output."""

    def __init__(self) -> None:
        self._cluster: GroupCluster | None = None
        self._lines: list[str] = []
        self._printed_steps = 0
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
            "settle": self._run_until_stable,
            "owners": self._owners,
            "offsets": self._offsets,
            "quarrels": self._ownership_conflicts,
        }

    @property
    def cluster(self) -> GroupCluster:
        """Return the cluster; raises AssertionError before the command `group`."""
        assert self._cluster is not None, "a scenario of a group begins with: group N"
        return self._cluster

    def run(self, script: str) -> str:
        """Run a script and return its output."""
        run_script(script, self._commands, self._lines.append, self._print_steps)
        return "\n".join(self._lines) + "\n"

    def _print(self, line: str) -> None:
        self._print_steps()
        self._lines.append(f"  {line}")

    def _print_steps(self) -> None:
        steps = self.cluster.world.steps
        self._lines += [_describe(step) for step in steps[self._printed_steps :] if step.action in PRINTED_ACTIONS]
        self._printed_steps = len(steps)

    # -- commands --------------------------------------------------------------------------------

    def _start(self, size: str, *words: str) -> None:
        options = dict(word.split("=", 1) for word in words)
        settings = Settings(
            brokers=int(size),
            partitions=int(options.pop("partitions", "3")),
            min_insync_replicas=1,
            guards_off=tuple(filter(None, options.pop("guards_off", "").split(","))),
            spread_ms=SPREAD_MS,
            broker_settings={"group_min_session_timeout_ms": 500} | {key: int(value) for key, value in options.items()},
        )
        self._cluster = GroupCluster(SEED, settings, tracing=True)
        self._cluster.start()

    def _join(self, name: str, *words: str) -> None:
        options = dict(word.split("=", 1) for word in words)
        assignors = tuple(options.pop("assignors", "range").split(","))
        self.cluster.join(name, assignors=assignors, group_instance_id=options.pop("instance", None))
        assert not options, f"join has no option {', '.join(options)}"

    def _hold(self, name: str, *_: str) -> None:
        self._held[name] = broker_peer(self.cluster.coordinator)
        self.cluster.world.hold(name, self._held[name])

    def _commit(self, name: str, number: str, offset: str) -> None:
        application = self.cluster.members[name]
        known = len(application.committed)
        self.cluster.world.enter(name, lambda now: application.commit(now, {("t", int(number)): int(offset)}))
        self._run_until(lambda: len(application.committed) > known)
        self._print(application.committed[-1].name)

    def _crash(self, _: str) -> None:
        self._print(f"coordinator is {self.cluster.coordinator}")
        self.cluster.world.crash(broker_peer(self.cluster.coordinator), lose_unflushed=False)

    def phases(self) -> dict[str, Callable[[], bool]]:
        """Return a condition for each phase of a rebalance that `until` accepts.

        The phases are those of kafka-0.8-principles, "Coordinator Failover".
        """
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

    def _until(self, phase: str) -> None:
        if not self._run_until(self.phases()[phase]):
            self._print("did not happen")

    def _run_until(self, condition: Callable[[], bool]) -> bool:
        world = self.cluster.world
        end_ms = world.now_ms + PATIENCE_MS
        while not condition() and world.now_ms < end_ms:
            world.run_until(world.now_ms + 1)
        return condition()

    def _run_until_stable(self) -> None:
        world = self.cluster.world
        end_ms = world.now_ms + PATIENCE_MS
        stable_since_ms = world.now_ms
        while world.now_ms - stable_since_ms < STABLE_MS and world.now_ms < end_ms:
            world.run_until(world.now_ms + 10)
            if not self._is_stable():
                stable_since_ms = world.now_ms
        if not self._is_stable():
            self._print("not settled")
        self._owners()

    def _is_stable(self) -> bool:
        group, members = self.cluster.group, self.cluster.members.values()
        owned = sorted(partition for application in members for partition in application.member.owned)
        all_partitions = [("t", number) for number in range(self.cluster.settings.partitions)]
        ids = {application.member.member_id for application in members}
        return group is not None and group.state is GroupState.STABLE and set(group.members) == ids and (
            owned == all_partitions
        )  # fmt: skip

    def _owners(self) -> None:
        for name, application in sorted(self.cluster.members.items()):
            member = application.member
            shown = " ".join(f"{topic}-{number}" for topic, number in sorted(member.owned)) or "nothing"
            self._print(f"{name} {member.state} in {member.generation_id}: {shown}")

    def _offsets(self) -> None:
        group = self.cluster.group
        found = sorted((group.offsets if group else {}).items())
        self._print(" ".join(f"{topic}-{number}: {committed.offset}" for (topic, number), committed in found) or "none")

    def _ownership_conflicts(self) -> None:
        for conflict in self.cluster.ownership_conflicts or ["none"]:
            self._print(conflict)


def _describe(step: Step) -> str:
    partitions = " ".join(step.choices.get("partitions", ()))
    return f"  {step.node} {step.action}  {partitions}  generation {step.state.get('generation')}"


def run_file(path: Path) -> tuple[str, str]:
    """Run a scenario file; return its output and its golden output."""
    script, golden = split(path.read_text())
    return GroupScenario().run(script), golden


def files() -> list[Path]:
    """Return the scenario files, sorted by name."""
    return sorted((Path(__file__).parent / "groups").glob("*.txt"))
