"""What a JoinGroup states replaces what was stated before: by the member itself, in its former life, or by another."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from highwater.conformance.cases.groups.test_timeouts import LONG_MS, SHORT_MS, heartbeat_for
from highwater.conformance.cases.support.committed_offsets import commit
from highwater.conformance.cases.support.group_walks.refusals import subscription
from highwater.conformance.cases.support.members import GroupDriver, Member
from highwater.conformance.clause import clause, era
from highwater.conformance.client.broker import Topic
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import Reply, Request, defect
from highwater.conformance.expectations import expect, only
from highwater.reference.wire.messages.groups import DescribeGroupsRequest, JoinGroupRequest

pytestmark = pytest.mark.slow

RETURNS, JOINS_AGAIN, FOLLOWS = "returns", "joins again", "follows another"
TRIALS: Final = list(itertools.product((True, False), repeat=3))
"""Whether the time-out is the short one, whether it is that of the session, and whether the first metadata stays."""
Stated = Mapping[str, Any]


@dataclass
class StatedMember:
    """The only member of a group, which states all of its fields again; `life` says as whom."""

    driver: GroupDriver
    life: str
    member: Member | None = None
    client_ids: set[str] = field(default_factory=set)

    def state(self, stated: Stated) -> None:
        """Join with these fields, on a connection of its own, and take an assignment."""
        broker, before = self.driver.connect(), self.member
        broker.client_id = stated["client_id"]
        self.client_ids.add(broker.client_id)
        if before is not None and self.life == FOLLOWS:
            expect("error code of LeaveGroup", 0, before.leave_error())
        again = before.member_id if before is not None and self.life == JOINS_AGAIN else ""
        self.member = self.driver.send_join(
            again, broker, instance="static" if self.life == RETURNS else None, protocol_type=stated["type"],
            protocols=[(name, stated[name]) for name in ("range", "sticky")],
            session_timeout_ms=stated["session"], rebalance_timeout_ms=stated["rebalance"],
        )  # fmt: skip
        expect("error code of JoinGroup", 0, self.member.receive_join().error_code)
        named = {"protocol_type": stated["type"], "protocol_name": "range"}
        expect("error code of SyncGroup", 0, self.member.sync({self.member.member_id: b"a"}, **named).error_code)

    def check(self, stated: Stated) -> None:
        """Compare what is described with what was stated last; Apache Kafka keeps the first client id of a member."""
        group = self.driver.describe()
        found = only(group.members)
        expect("type and metadata", (stated["type"], stated["range"]), (group.protocol_type, found.member_metadata))
        known = {stated["client_id"]} if self.life == FOLLOWS else self.client_ids
        expect("client id", known, found.client_id)

    def check_session(self, stated: Stated) -> None:
        """Be silent for longer than the short time-out: only the long one keeps the member in the group.

        Apache Kafka 4.3.1 measures the time up to the first heartbeat of a static member by its former time-out.
        """
        assert self.member is not None
        expect("error code of a heartbeat", 0, self.member.heartbeat_error())
        self.member.broker.clock.sleep(2 * self.short_ms / 1000)
        expect("members after a silence", int(stated["session"] > self.short_ms), len(self.driver.describe().members))

    def check_rebalance(self, stated: Stated) -> None:
        """Let another member join: it waits for the time-out of the first one, which only sends heartbeats."""
        assert self.member is not None
        comer = self.driver.send_join(
            protocols=[("sticky", subscription(b"comer"))], protocol_type=stated["type"],
            session_timeout_ms=self.driver.session_ms(30_000), rebalance_timeout_ms=self.short_ms,
        )  # fmt: skip
        heartbeat_for([self.member], 2 * self.short_ms / 1000)
        if stated["rebalance"] > self.short_ms:
            comer.broker.expect_silence(0.2)
            return
        expect("error code of the other JoinGroup", 0, comer.receive_join().error_code)
        known = {each.group_instance_id: each.metadata for each in comer.reply.members}
        if self.life == RETURNS:  # a dynamic member that has not joined is removed
            expect("metadata for the other protocol", stated["sticky"], known.get("static"))

    @property
    def short_ms(self) -> int:
        return self.driver.session_ms(SHORT_MS)


@clause("GRP-72")
@pytest.mark.parametrize("life", [RETURNS, JOINS_AGAIN, FOLLOWS])
@era("3.9")
@defect(
    Request(JoinGroupRequest, "session_timeout_ms", 60_000),
    Request(JoinGroupRequest, "rebalance_timeout_ms", 60_000),
    Reply(DescribeGroupsRequest, "groups.members.client_id", "another"),
)
def test_the_last_join_counts(cluster: Cluster, topic: Topic, life: str) -> None:
    """A group with an offset remains when its only member leaves."""
    chance = cluster.draws.generator(23)
    for number in cluster.draws.steps(len(TRIALS), chance):
        is_short, is_session, metadata_stays = TRIALS[number]
        stated = StatedMember(GroupDriver(cluster, cluster.group()), life)
        expect("error code of OffsetCommit", 0, commit(stated.driver.connect(), stated.driver.group, topic, 1))
        long_ms = {"session": stated.driver.session_ms(30_000), "rebalance": LONG_MS}
        tried = "session" if is_session else "rebalance"
        first, last = (long_ms | {tried: value} for value in times(stated.short_ms, long_ms[tried], is_short=is_short))
        names = chance.sample(("one", "two", "three"), 2)
        stated.state(first | described_fields(names[0], stays=metadata_stays, kind="consumer"))
        final = last | described_fields(
            names[1], stays=metadata_stays, kind="connect" if life == FOLLOWS else "consumer"
        )
        stated.state(final)
        stated.check(final)
        (stated.check_session if is_session else stated.check_rebalance)(final)


def times(short_ms: int, long_ms: int, *, is_short: bool) -> tuple[int, int]:
    """Return the time-out that is stated first, and the one that is stated last."""
    return (long_ms, short_ms) if is_short else (short_ms, long_ms)


def described_fields(name: str, *, stays: bool, kind: str) -> dict[str, Any]:
    """Return the fields that are described, each with the name in it, except metadata that stays."""
    first = subscription(b"same" if stays else name.encode())
    return {"type": kind, "client_id": name, "range": first, "sticky": subscription(name.encode())}
