"""Session and rebalance timeouts of classic groups: who is removed, when, and what the other members see."""

import itertools
from typing import Any

import pytest

from highwater.conformance.cases.support.committed_offsets import commit
from highwater.conformance.cases.support.members import GroupDriver, Member
from highwater.conformance.clause import clause, era
from highwater.conformance.client.broker import Topic
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import Reply, Request, defect
from highwater.conformance.expectations import expect
from highwater.conformance.failures import Unsupported
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.committed_offsets import OffsetCommitRequest
from highwater.reference.wire.messages.groups import HeartbeatRequest, JoinGroupRequest, SyncGroupRequest

pytestmark = pytest.mark.slow

SHORT_MS, LONG_MS = 1_000, 20_000


@clause("GRP-14", "rebalance")
@defect(Reply(HeartbeatRequest, "error_code", 0))
def test_an_expired_member_starts_a_rebalance(cluster: Cluster, driver: GroupDriver) -> None:
    session_ms = driver.session_ms(SHORT_MS)
    kept = driver.stable_member()
    silent = driver.send_join(session_timeout_ms=session_ms)
    kept.await_rebalance()
    kept.rejoin()
    expect("error code of the second join", 0, silent.receive_join().error_code)
    expect("error code of the leader's sync", 0, kept.sync({kept.member_id: b"a", silent.member_id: b"b"}).error_code)
    expect("error code of the second sync", 0, silent.sync_error())
    cluster.eventually(
        "REBALANCE_IN_PROGRESS", lambda: kept.heartbeat_error() == ErrorCode.REBALANCE_IN_PROGRESS,
        10 + session_ms / 1000,
    )  # fmt: skip
    kept.rejoin()
    expect("members in the reply to the leader", 1, len(kept.reply.members))


def heartbeat_for(members: list[Member], seconds: float) -> set[int]:
    """Send heartbeats of each member for some time, and return the error codes."""
    clock = members[0].broker.clock
    found, end = set[int](), clock.monotonic() + seconds
    while clock.monotonic() < end:
        found |= {member.heartbeat_error() for member in members}
        clock.sleep(0.05)
    return found


@clause("GRP-13", "longest timeout")
@defect(Request(JoinGroupRequest, "rebalance_timeout_ms", SHORT_MS))
def test_the_longest_rebalance_timeout_counts(driver: GroupDriver) -> None:
    """The member with the long timeout is still processing records, which its heartbeats show."""
    slow = driver.stable_member(rebalance_timeout_ms=LONG_MS)
    fast = driver.send_join(rebalance_timeout_ms=SHORT_MS)
    slow.await_rebalance()
    found = heartbeat_for([slow], 2.5 * SHORT_MS / 1000)
    expect("error codes during the rebalance", True, found == {ErrorCode.REBALANCE_IN_PROGRESS})
    slow.rejoin()
    expect("error code of the other join", 0, fast.receive_join().error_code)
    expect("generations", slow.generation, fast.generation)


@clause("GRP-14", "in a rebalance")
@defect(Request(HeartbeatRequest, "member_id", "unknown"))
def test_heartbeats_in_a_rebalance_extend_the_session(driver: GroupDriver) -> None:
    session_ms = driver.session_ms(SHORT_MS)
    busy = driver.stable_member(session_timeout_ms=session_ms, rebalance_timeout_ms=LONG_MS)
    other = driver.send_join(rebalance_timeout_ms=LONG_MS)
    busy.await_rebalance()
    found = heartbeat_for([busy], 2.5 * session_ms / 1000)
    expect("error codes during the rebalance", True, found == {ErrorCode.REBALANCE_IN_PROGRESS})
    busy.rejoin()
    expect("error code of the other join", 0, other.receive_join().error_code)


@clause("GRP-14", "waiting")
@defect(
    Request(JoinGroupRequest, "session_timeout_ms", 60_000),
    Reply(SyncGroupRequest, "error_code", ErrorCode.UNKNOWN_MEMBER_ID),
)
def test_a_member_that_waits_for_a_reply_is_not_removed(cluster: Cluster, driver: GroupDriver) -> None:
    """A client cannot send heartbeats on the connection on which it waits for JoinGroup or SyncGroup."""
    session_ms = driver.session_ms(SHORT_MS)
    slow = driver.stable_member(rebalance_timeout_ms=LONG_MS, session_timeout_ms=driver.session_ms(30_000))
    waiting = driver.send_join(rebalance_timeout_ms=LONG_MS, session_timeout_ms=session_ms)
    slow.await_rebalance()
    slow.rejoin()
    expect("error code of the first join", 0, waiting.receive_join().error_code)
    expect("error code of the leader's sync", 0, slow.sync({waiting.member_id: b"first"}).error_code)
    expect("first assignment", b"first", waiting.sync().assignment)
    waiting.send_rejoin(metadata=b"other")
    waiting.broker.expect_silence(2 * session_ms / 1000)
    slow.rejoin()
    expect("error code of the next join", 0, waiting.receive_join().error_code)
    expect("members in the reply to the leader", 2, len(slow.reply.members))
    waiting.send_sync()
    waiting.broker.expect_silence(2 * session_ms / 1000)
    expect("error code of the leader's sync", 0, slow.sync({waiting.member_id: b"second"}).error_code)
    answer = waiting.receive()
    expect("error code and assignment", (0, b"second"), (answer.error_code, answer.assignment))
    expect("error code of a heartbeat", 0, waiting.heartbeat_error())
    slow.await_rebalance()  # for the other member, which now sends no request


@clause("GRP-14", "commits")
@defect(Request(OffsetCommitRequest, "member_id", "unknown"))
def test_commits_extend_the_session(driver: GroupDriver, topic: Topic) -> None:
    session_ms = driver.session_ms(SHORT_MS)
    member = driver.stable_member(session_timeout_ms=session_ms)
    clock = member.broker.clock
    found, times = set[int](), [clock.monotonic()]
    while times[-1] < times[0] + 2.5 * session_ms / 1000:
        found.add(
            commit(member.broker, driver.group, topic, 1, generation=member.generation, member_id=member.member_id)
        )
        times.append(clock.monotonic())
        clock.sleep(0.05)
    longest_ms = 1000 * max(later - earlier for earlier, later in itertools.pairwise(times))
    if longest_ms >= session_ms:
        raise Unsupported(f"no commit was sent for {longest_ms:.0f} ms, longer than the session; the machine is busy")
    expect(f"error codes of the commits: {found}", True, found == {0})


@clause("GRP-14", "joined again")
@era("3.9")  # 2.8.2 keeps the session timeout of the first join
@defect(Request(JoinGroupRequest, "session_timeout_ms", 60_000))
def test_the_session_timeout_of_the_last_join_applies(cluster: Cluster, driver: GroupDriver) -> None:
    session_ms = driver.session_ms(SHORT_MS)
    member = driver.stable_member(session_timeout_ms=driver.session_ms(30_000))
    member.rejoin(session_timeout_ms=session_ms)
    expect("error code of the sync", 0, member.sync({member.member_id: b"a"}).error_code)
    cluster.eventually("an empty group", lambda: driver.state() in ("Empty", "Dead"), 10 + session_ms / 1000)


@clause("GRP-13", "static")
@defect(Reply(HeartbeatRequest, "error_code", ErrorCode.UNKNOWN_MEMBER_ID))
def test_the_rebalance_timeout_removes_no_static_member(driver: GroupDriver) -> None:
    times: dict[str, Any] = {"rebalance_timeout_ms": SHORT_MS, "session_timeout_ms": driver.session_ms(30_000)}
    static = driver.stable_member(instance="i", **times)
    other = driver.send_join(instance="j", **times)
    expect("error code of the other join", 0, other.receive_join().error_code)
    members = {member.group_instance_id for member in driver.describe().members}
    expect("instances in the description of the group", True, members == {"i", "j"})
    expect("error code of the static member", {0, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION},
           static.heartbeat_error())  # fmt: skip


@clause("GRP-13", "pending member")
@defect(Request(JoinGroupRequest, "session_timeout_ms", 30_000))
def test_a_rebalance_does_not_wait_for_a_client_that_never_joins(driver: GroupDriver) -> None:
    """The client received its member id (KIP-394) and stopped: its session timeout ends the wait for it."""
    session_ms = driver.session_ms(SHORT_MS)
    member = driver.stable_member(rebalance_timeout_ms=60_000)
    broker = driver.connect()
    version = broker.version_of(JoinGroupRequest, 4)
    first = broker.call(driver.join_request(session_timeout_ms=session_ms, rebalance_timeout_ms=60_000), version)
    expect("error code without a member id", ErrorCode.MEMBER_ID_REQUIRED, first.error_code)
    member.rejoin()
    expect("members in the reply to the leader", 1, len(member.reply.members))
