"""Each guard of a partition leader, on and off; a fake takes the place of the controller."""

from dataclasses import dataclass, field

import pytest

from highwater.reference.configuration.broker import BrokerConfig
from highwater.reference.context import Context
from highwater.reference.drivers.simulation.disk import SimulatedDisk
from highwater.reference.effects import Instant, Outbox
from highwater.reference.procedures import Pending
from highwater.reference.replication.isr_changes import Answer, Outcome, Proposal
from highwater.reference.replication.partition import Partition
from highwater.reference.replication.purgatory import Purgatory
from highwater.reference.replication.states import PartitionState
from highwater.reference.storage.log import Log, LogConfig
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.records import batch_headers, build_batch

LAG_MS = 1_000


@dataclass
class FakeController:
    """A fake controller: records ISR proposals and answers them when the test calls `answer`."""

    proposals: list[Proposal] = field(default_factory=list)
    answers: list[Pending[Answer]] = field(default_factory=list)

    async def propose(self, proposal: Proposal) -> Answer:
        self.proposals.append(proposal)
        self.answers.append(Pending())
        return await self.answers[-1]

    def answer(self, outcome: Outcome, isr: tuple[int, ...] = (), partition_epoch: int = -1) -> None:
        self.answers[-1].resolve(Answer(outcome, isr, partition_epoch))


class Leader:
    """A partition with leader 1, ISR (1, 2) and replicas (1, 2, 3)."""

    def __init__(self, *guards_off: str, isr: tuple[int, ...] = (1, 2), min_isr: int = 1) -> None:
        config = BrokerConfig(broker_id=1, guards_off=guards_off, replica_lag_time_max_ms=LAG_MS)
        fs, out = SimulatedDisk(), Outbox()
        self.context = Context(config, fs, out)
        self.controller, self.purgatory = FakeController(), Purgatory(self.context)
        log = Log(fs, "t-0", LogConfig())
        self.partition = Partition(self.context, self.controller, self.purgatory, "t", 0, log)
        self.partition.min_insync_replicas = lambda: min_isr
        self.partition.become_leader(PartitionState(1, 0, isr, 0, 7), (1, 2, 3))

    def append(self) -> None:
        batch = build_batch([(0, None, b"v", ())])
        ((_, header),) = batch_headers(batch)
        self.partition.append(batch, header)

    def fetched(self, replica: int, offset: int) -> None:
        self.partition.update_follower_state(replica, offset)
        self.partition.maybe_expand_isr(replica)

    def later(self, wait_ms: int) -> None:
        now = self.context.now
        self.context.now = Instant(now.monotonic_ms + wait_ms, now.wall_ms + wait_ms)
        self.partition.check_isr()


@pytest.fixture(params=["on", "off"])
def on(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "on")


def off(guard: str, on: bool) -> tuple[str, ...]:
    return () if on else (guard,)


def test_hw_waits_for_proposed(on: bool) -> None:
    leader = Leader(*off("HwWaitsForProposed", on))
    leader.fetched(3, 0)
    assert [each.isr for each in leader.controller.proposals] == [(1, 2, 3)]
    leader.append()
    leader.fetched(2, 1)
    assert leader.partition.high_watermark == (0 if on else 1)


def test_hw_needs_min_isr(on: bool) -> None:
    leader = Leader(*off("HwNeedsMinIsr", on), isr=(1,), min_isr=2)
    leader.append()
    assert leader.partition.high_watermark == (0 if on else 1)


def test_ack_needs_min_isr(on: bool) -> None:
    """If the high watermark moves although the ISR is below min.insync.replicas, the reply has an error."""
    leader = Leader("HwNeedsMinIsr", *off("AckNeedsMinIsr", on), min_isr=2)
    leader.append()
    heard: list[ErrorCode] = []
    pending = leader.partition.committed(1, 60_000)
    pending.add_done_callback(lambda: heard.append(pending._value))  # type: ignore[arg-type]
    leader.later(2 * LAG_MS)
    leader.controller.answer(Outcome.ACCEPTED, (1,), 8)
    assert heard == [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND if on else ErrorCode.NONE]


def test_one_proposal_at_a_time(on: bool) -> None:
    leader = Leader(*off("OneProposalAtATime", on))
    leader.append()
    leader.later(2 * LAG_MS)  # replica 2 lags
    leader.fetched(3, 1)  # replica 3 has caught up
    assert [each.isr for each in leader.controller.proposals] == ([(1,)] if on else [(1,), (1, 2, 3)])


def test_keep_proposal_until_answered(on: bool) -> None:
    leader = Leader(*off("KeepProposalUntilAnswered", on))
    leader.fetched(3, 0)
    leader.controller.answer(Outcome.UNKNOWN)
    assert leader.partition.maximal_isr == ((1, 2, 3) if on else (1, 2))


def test_await_state_after_conflict(on: bool) -> None:
    leader = Leader(*off("AwaitStateAfterConflict", on))
    leader.fetched(3, 0)
    leader.controller.answer(Outcome.CONFLICT)
    assert leader.partition.maximal_isr == ((1, 2, 3) if on else (1, 2))


def test_ignore_stale_state(on: bool) -> None:
    leader = Leader(*off("IgnoreStaleState", on))
    leader.fetched(3, 0)
    leader.controller.answer(Outcome.ACCEPTED, (1,), 6)
    assert (leader.partition.isr, leader.partition.partition_epoch) == (((1, 2), 7) if on else ((1,), 6))


def test_wait_only_for_eligible(on: bool) -> None:
    leader = Leader(*off("WaitOnlyForEligible", on))
    leader.partition.is_alive = lambda replica: replica != 3
    leader.fetched(3, 0)
    leader.append()
    leader.fetched(2, 1)
    assert leader.partition.high_watermark == (1 if on else 0)


def test_expand_only_caught_up(on: bool) -> None:
    leader = Leader(*off("ExpandOnlyCaughtUp", on))
    leader.append()
    leader.fetched(2, 1)
    assert leader.partition.high_watermark == 1
    leader.fetched(3, 0)
    assert bool(leader.controller.proposals) is not on


def test_expand_after_epoch_start(on: bool) -> None:
    leader = Leader(*off("ExpandAfterEpochStart", on))
    leader.append()
    leader.partition.become_leader(PartitionState(1, 1, (1, 2), 0, 8), (1, 2, 3))
    assert leader.partition.high_watermark == 0
    leader.fetched(3, 0)  # at the high watermark, but before the start of the epoch
    assert bool(leader.controller.proposals) is not on


def test_forget_truncated_epochs(on: bool) -> None:
    """KAFKA-10706: a leader without records in its epoch becomes follower and asks for an epoch unknown elsewhere."""
    leader = Leader(*off("ForgetTruncatedEpochs", on))
    leader.append()
    leader.partition.become_leader(PartitionState(1, 5, (1, 2), 0, 8), (1, 2, 3))
    leader.partition.become_follower(PartitionState(2, 6, (1, 2), 0, 9), (1, 2, 3))
    leader.partition.truncate_to(1)
    assert leader.partition.log.epochs.latest_epoch == (0 if on else 5)
