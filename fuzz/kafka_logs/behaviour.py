"""A behaviour of one partition that explains what the logs have, as lines of a trace.

The metadata log has every election and every ISR, in order; the folders have only the end of each log.  What happened
in between is not in them: when a broker became leader, when the records were written, fetched and truncated.  These
are hidden steps.  They are taken as late as possible, and only those that are needed:

* a leader has written what any log has of its epoch when the epoch ends; before, what a follower needs;
* a follower fetches when it joins the ISR (up to the high watermark and the start of the epoch), and when the epoch
  ends: up to what it has in common with its `target`, the log with which it next begins to lead, or that of its folder;
* a follower whose log diverges truncates as the leader's reply says (KIP-101, 279);
* a broker is down only at the moment at which it registers again.

Late steps make the high watermark that the specification knows the smallest possible, so that they do not refuse
what another order of hidden steps would explain.  The trace modules check every line, hidden or not: a trace that they
accept is a behaviour of the specification, whatever this module does.

With eligible leader replicas (KIP-966) the ISR of the trace is the ISR and the ELR together, the brokers that may be
elected: while the ELR is not empty, the ISR is smaller than min.insync.replicas and the high watermark does not move.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from highwater.fuzz.kafka_logs.blocks import Blocks, Log, common, divide
from highwater.fuzz.kafka_logs.folders import EPOCHS, ReplicaFolder
from highwater.fuzz.kafka_logs.metadata_log import Change, State
from highwater.fuzz.kafka_logs.metadata_records import NO_LEADER
from highwater.spec.formats.trace import Step

UNKNOWN: Final = -1
HIDDEN: Final = "hidden"
"""The choice that marks a line which no log has."""


class Behaviour:
    """Builds the trace of a partition from its life in the metadata log and its replicas.

    It repeats the parts of HwTruncation that decide what a follower truncates and how far the high watermark goes.
    """

    def __init__(self, entity: str, changes: Sequence[Change], replicas: Mapping[int, ReplicaFolder]) -> None:
        self.entity, self.changes = entity, changes
        self.blocks: Blocks = divide(replicas)
        self.steps: list[Step] = []
        self.hidden: Counter[str] = Counter()
        self.state: State | None = None
        self.now = 0
        self.partition_epoch, self.at, self.term, self.controller = 0, 0, 0, NO_LEADER
        self.logs: dict[int, list[int]] = {}
        self.latest: dict[int, int] = {}
        self.role: dict[int, int] = {}
        self.high_watermark: dict[int, int] = {}
        self.isr: set[int] = set()
        self.fetched: dict[int, int] = {}
        self.epoch_start = 0
        self.leader = NO_LEADER
        self.stopped: set[int] = set()

    def build(self, *, compares: bool = True) -> list[Step]:
        """Return the lines; `compares` adds the comparison of each log with the folders."""
        for now, change in enumerate(self.changes):
            self.now, self.at = now, change.offset
            getattr(self, f"_{change.what}")(change)
        self._end_epoch()
        for node in sorted(self.blocks.logs) if compares else ():
            if self.state is not None and node in self.state.replicas:
                self._stored(node)
        return self.steps

    # -- lines -------------------------------------------------------------------------------------------

    def _line(self, action: str, node: int, choices: Mapping[str, Any], hidden: bool = True, **state: Any) -> None:
        marked = {**choices, HIDDEN: True} if hidden else dict(choices)
        self.hidden[action] += hidden
        self.steps.append(
            Step(
                seq=len(self.steps), time_ns=self.at, node=node, entity=self.entity, action=action, choices=marked,
                state=state,
            )
        )  # fmt: skip

    def _stored(self, node: int) -> None:
        """Compare the log of the specification with the segments, and with the leader epoch checkpoint if there is one.

        Fetches and truncations look up epochs in the checkpoint, so one that differs from the segments loses records.
        """
        for source, logs in (("segments", self.blocks.logs), (EPOCHS, self.blocks.by_checkpoint)):
            if node in logs:
                content = [[at, epoch] for at, epoch in enumerate(logs[node], 1)]
                choices = {"content": content, "source": source, "end": self.blocks.offset(len(content))}
                mark = self.blocks.high_watermarks[node]
                self._line("Stored", node, choices, hidden=False, high_watermark=mark)

    # -- brokers and controllers ---------------------------------------------------------------------------

    def _claim(self, change: Change) -> None:
        self.controller, self.term = change.node, change.epoch
        self._line("Claim", change.node, {"claimant": change.node}, hidden=False, controller_epoch=change.epoch)

    def _fence(self, change: Change) -> None:
        """A session has ended: which writes follow is in the metadata log."""

    _unfence = _fence

    def _stop(self, change: Change) -> None:
        self.stopped.add(change.node)

    def _register(self, change: Change) -> None:
        """The broker has restarted: its log is that before, or the specification must explain what it lost."""
        node = change.node
        if self.state is None or node not in self.logs:
            return
        if node == self.leader:
            self._end_epoch()
            self.leader = NO_LEADER
        self._line("Crash", node, {})
        choices = {"clean": not self._left(node) and (node in self.state.elr or node in self.stopped)}
        end, mark = len(self.logs[node]), self.high_watermark[node]
        self._line("Restart", node, choices, hidden=False, log_end_offset=end, high_watermark=mark)
        self._line("RegisterBroker", node, {}, hidden=False)
        self.stopped.discard(node)
        self.role[node] = UNKNOWN
        self.latest[node] = self.logs[node][-1] if self.logs[node] else UNKNOWN
        self.fetched.pop(node, None)

    def _left(self, node: int) -> bool:
        """Return whether the registration that is being explained has removed a broker from ISR and ELR.

        The controller knows whether the broker was stopped in order, and otherwise removes it (KIP-966).  Only of a
        broker outside the ELR the log does not show it: then the request for an orderly shutdown counts.
        """
        following = self.changes[self.now + 1 : self.now + 2]
        states = [change.state for change in following if change.state is not None]
        return any(node not in {*state.isr, *state.elr} for state in states)

    # -- the metadata of the partition -------------------------------------------------------------------------

    def _state(self, change: Change) -> None:
        state, before = change.state, self.state
        assert state is not None
        writer = self.controller if change.node == NO_LEADER else change.node
        if before is None:
            for node in state.replicas:
                self.logs[node], self.latest[node], self.role[node] = [], UNKNOWN, UNKNOWN
                self.high_watermark[node] = 0
        if before is None or change.leads:
            self._end_epoch()
            self.state = state
            self.partition_epoch += before is not None
            known = before is not None and state.leader in before.last_known and state.leader not in before.eligible
            self._write("ElectLeader", writer, {"last_known": True} if known else {})
            self._begin_epoch()
        elif set(state.eligible) != set(before.eligible):
            self._change_isr(state, before)
        else:
            self.state = state  # the ISR and the ELR have changed, but not which brokers may be elected

    def _write(self, action: str, node: int, choices: Mapping[str, Any] = MappingProxyType({})) -> None:
        assert self.state is not None
        self._line(
            action, node, choices, hidden=False, leader=self.state.leader, leader_epoch=self.state.leader_epoch,
            isr=sorted(self.state.eligible), partition_epoch=self.partition_epoch,
        )  # fmt: skip

    def _change_isr(self, state: State, before: State) -> None:
        joining = set(state.eligible) - set(before.eligible)
        if state.leader == NO_LEADER or joining & set(state.elr):
            self.state = state
            self.partition_epoch += 1
            self._write("ControllerShrinkIsr", self.controller)
            return
        if self.leader == NO_LEADER and state.leader in self.logs:
            self._lead_again(state.leader)
        if self.leader != NO_LEADER:
            for node in sorted(joining & self.logs.keys()):  # a broker without a replica cannot fetch
                needed = max(self.high_watermark[self.leader], self.epoch_start)
                self._follow(node)
                while self.fetched.get(node, UNKNOWN) < needed:
                    self._fetch(node, max(needed, len(self.logs[node])))
            isr = sorted(state.eligible)
            self._line("LeaderProposeIsr", self.leader, {"isr": isr})
        self.state = state
        self.partition_epoch += 1
        self._write("LeaderChangeIsr", state.leader)
        if self.leader != NO_LEADER:
            self.isr = set(isr)
            self._advance()
            self._line(
                "LeaderLearnIsr", self.leader, {"accepted": True}, isr=isr, partition_epoch=self.partition_epoch,
                high_watermark=self.high_watermark[self.leader],
            )  # fmt: skip

    # -- an epoch --------------------------------------------------------------------------------------------

    def _begin_epoch(self) -> None:
        assert self.state is not None
        leader, epoch = self.state.leader, self.state.leader_epoch
        self.leader, self.fetched = leader, {}
        if leader == NO_LEADER or leader not in self.logs:
            self.leader = NO_LEADER
            return
        self._become_leader(self.blocks.leaders_start.get((leader, epoch), self.blocks.starts.get(epoch)))

    def _become_leader(self, log_end: int | None) -> None:
        """The leader applies the state; `log_end` is where its log ends if the folders say so."""
        assert self.state is not None
        leader, epoch = self.leader, self.state.leader_epoch
        self.isr, self.epoch_start = set(self.state.eligible), len(self.logs[leader])
        self._line(
            "BecomeLeader", leader, {}, leader_epoch=epoch, controller_epoch=self._controller_epoch(),
            partition_epoch=self.partition_epoch, isr=sorted(self.isr),
            log_end_offset=self.epoch_start if log_end is None else log_end,
            high_watermark=self.high_watermark[leader],
        )  # fmt: skip
        self.role[leader], self.latest[leader] = epoch, max(self.latest[leader], epoch)

    def _lead_again(self, leader: int) -> None:
        """The leader has restarted, or its session has only expired, and no other was elected: its epoch continues.

        A controller that does not notice the new session, or a new controller, sends it the same leader epoch.
        """
        self.leader, self.fetched = leader, {}
        self._become_leader(None)

    def _controller_epoch(self) -> int:
        """Return the controller epoch under which the state was written: as ZooKeeper has it, or the last term."""
        assert self.state is not None
        return self.term if self.state.controller_epoch is None else self.state.controller_epoch

    def _end_epoch(self) -> None:
        """The leader writes what any log has of its epoch, and each follower fetches what it needs of that."""
        if self.leader == NO_LEADER or self.state is None:
            return
        leader, epoch = self.leader, self.state.leader_epoch
        end = max(len(self.logs[leader]), self.blocks.end_of(epoch))
        whole = [*self.logs[leader], *[epoch] * (end - len(self.logs[leader]))]
        for node in sorted(self.logs.keys() - {leader}):
            target = self._target(node, whole)
            if common(target, whole) > common(target, self.logs[node]):
                self._follow(node)
                self._fetch(node, common(target, whole))
        self._append(end)
        for node in sorted((self.isr & self.logs.keys()) - {leader}):
            counts = self._possible() > self.high_watermark[leader] and self.fetched.get(node, UNKNOWN) < end
            follows = self.role.get(node) == epoch or common(self._target(node, whole), whole) >= len(self.logs[node])
            if counts and follows:
                self._follow(node)
                self._fetch(node, len(self.logs[node]))
        if self._committed_end() > self.high_watermark[leader]:
            self._advance()
            self._line("LeaderAdvanceHw", leader, {}, high_watermark=self.high_watermark[leader])

    def _target(self, node: int, whole: list[int]) -> Log:
        """Return the log that a broker is known to have next: when it next begins to lead, or in its folder.

        Without its folder, it may have fetched all that the leader has, `whole`, as long as it is in the ISR.
        """
        assert self.state is not None
        for change in self.changes:
            state = change.state
            if (
                state is None
                or not change.leads
                or state.leader != node
                or state.leader_epoch <= self.state.leader_epoch
            ):
                continue
            start = self.blocks.starts.get(state.leader_epoch)
            for log in (self.blocks.logs.get(node, ()), *self.blocks.logs.values()):
                if start is not None and state.leader_epoch in log:
                    return log[:start]
        assumed = whole if node in self.isr else self.logs[node]
        return self.blocks.logs.get(node, tuple(assumed))

    # -- what leader and followers do ----------------------------------------------------------------------------

    def _append(self, end: int) -> None:
        assert self.state is not None
        count = end - len(self.logs[self.leader])
        if count > 0:
            epoch = self.state.leader_epoch
            self.logs[self.leader] += [epoch] * count
            self._line("LeaderWrite", self.leader, {"count": count}, log_end_offset=end, leader_epoch=epoch)

    def _follow(self, node: int) -> None:
        assert self.state is not None
        epoch = self.state.leader_epoch
        if self.role[node] != epoch:
            self.role[node] = epoch
            self._line(
                "BecomeFollower", node, {"follower": node}, leader_epoch=epoch, leader=self.leader,
                controller_epoch=self.term, partition_epoch=self.partition_epoch, log_end_offset=len(self.logs[node]),
            )  # fmt: skip
        while (end := self._diverging(node)) is not None:
            self._request(node, "diverging", end_offset=end)
            point = min(end, _end_of(self.logs[node], (self.logs[self.leader][:end] or [UNKNOWN])[-1]))
            del self.logs[node][point:]
            self.latest[node] = self.logs[node][-1] if self.logs[node] else UNKNOWN
            self.high_watermark[node] = min(self.high_watermark[node], point)
            self._line("TruncateToEpochEnd", node, {"offset": point}, log_end_offset=point)

    def _diverging(self, node: int) -> int | None:
        """Return the end of the follower's last epoch in the leader's log if the follower must truncate."""
        log, last = self.logs[self.leader], self.latest[node]
        end = _end_of(log, last)
        if end < len(self.logs[node]):
            return end
        differs = end > 0 and last not in {UNKNOWN, self.latest[self.leader], log[end - 1]}
        return end if differs else None

    def _request(self, node: int, result: str, **choices: Any) -> None:
        assert self.state is not None
        offset, leader = len(self.logs[node]), self.leader
        self._line(
            "SendFetch", node,
            {"leader": leader, "fetch_offset": offset, "leader_epoch": self.state.leader_epoch,
             "last_fetched_epoch": self.latest[node]},
        )  # fmt: skip
        if result == "records":
            self.fetched[node] = offset
            self._advance()
        self._line(
            "LeaderServeFetch", leader, {"follower": node, "fetch_offset": offset, "result": result, **choices},
            log_end_offset=len(self.logs[leader]), high_watermark=self.high_watermark[leader],
        )  # fmt: skip

    def _fetch(self, node: int, end: int) -> None:
        """The follower fetches, and appends up to `end`."""
        self._append(end)
        self._request(node, "records")
        log, leader = self.logs[node], self.logs[self.leader]
        count = end - len(log)
        log += leader[len(log) : end]
        self.latest[node] = log[-1] if count else self.latest[node]
        self.high_watermark[node] = max(self.high_watermark[node], min(self.high_watermark[self.leader], len(log)))
        self._line("FollowerAppend", node, {"count": count}, log_end_offset=len(log))

    def _committed_end(self) -> int:
        ends = (self.fetched.get(node, UNKNOWN) for node in self.isr - {self.leader})
        return min(len(self.logs[self.leader]), *ends) if self.isr - {self.leader} else len(self.logs[self.leader])

    def _possible(self) -> int:
        return min(common(self.logs[node], self.logs[self.leader]) for node in self.isr if node in self.logs)

    def _advance(self) -> None:
        self.high_watermark[self.leader] = max(self.high_watermark[self.leader], self._committed_end())


def _end_of(log: Log | list[int], epoch: int) -> int:
    """Return the end offset of the epochs up to `epoch` (EpochEnd)."""
    return next((end for end in range(len(log), 0, -1) if log[end - 1] <= epoch), 0)
