"""The probes of rules find brokers that are wrong while something is unfinished."""

from dataclasses import replace
from typing import Any

import pytest

from highwater.fuzz.simulator.probes.rules.memberships import first_generation_ms
from highwater.fuzz.tests.wrong_brokers import Plant, expect_found, parameters
from highwater.reference import topics
from highwater.reference.controller.cluster import parse_topic
from highwater.reference.controller.reassignment import Reassignment
from highwater.reference.groups import expiry
from highwater.reference.groups.coordinator import GroupCoordinator
from highwater.reference.groups.group import Group
from highwater.reference.replication import delete_records
from highwater.reference.replication.partition import Partition
from highwater.reference.storage.producer_state import ProducerStates
from highwater.reference.wire.errors import ErrorCode


def plain_commits_remain(patch: pytest.MonkeyPatch) -> None:
    """A plain commit remains whatever a transaction has committed after it."""
    patch.setattr(Group, "_committed_later", lambda group, key, pending: key in group.offsets)


def offsets_for_ever(patch: pytest.MonkeyPatch) -> None:
    """Offsets do not expire."""
    patch.setattr(expiry, "expired_offsets", lambda group, now_ms, retention_ms: [])


def older_epochs_are_unknown(patch: pytest.MonkeyPatch) -> None:
    """An older leader epoch is answered like a newer one."""
    check = Partition.check_epoch

    def wrong(partition: Partition, epoch: int, **options: Any) -> ErrorCode:
        error = check(partition, epoch, **options)
        return ErrorCode.UNKNOWN_LEADER_EPOCH if error is ErrorCode.FENCED_LEADER_EPOCH else error

    patch.setattr(Partition, "check_epoch", wrong)


def one_wait_for_members(patch: pytest.MonkeyPatch) -> None:
    """An empty group waits once, also if another member joins meanwhile."""
    wait = GroupCoordinator._await_first_members
    patch.setattr(
        GroupCoordinator,
        "_await_first_members",
        lambda groups, group, delay_ms, left_ms: wait(groups, group, delay_ms, 0),
    )


def nothing_is_removed(patch: pytest.MonkeyPatch) -> None:
    """A reassignment lists no replica that it removes."""
    begin = Reassignment.__init__

    def wrong(reassignment: Reassignment, *given: Any) -> None:
        begin(reassignment, *given)
        reassignment.removing = ()

    patch.setattr(Reassignment, "__init__", wrong)


def deletions_without_followers(patch: pytest.MonkeyPatch) -> None:
    """DeleteRecords does not wait for the followers."""
    patch.setattr(delete_records, "_low_watermark", lambda partition: partition.log.log_start_offset)


def always_from_zero(patch: pytest.MonkeyPatch) -> None:
    """Every producer that a partition does not know must begin with sequence 0."""
    check = ProducerStates.check

    def wrong(states: ProducerStates, header: Any, guards: Any, **options: Any) -> ErrorCode:
        return check(states, header, guards, from_zero=header.base_sequence > 0)

    patch.setattr(ProducerStates, "check", wrong)


def reassignments_are_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    """CreatePartitions takes no notice of reassignments."""
    patch.setattr(topics, "parse_topic", lambda data: replace(parse_topic(data), adding={}, removing={}))


WRONG: dict[str, Plant] = {
    "partitions beside a reassignment": reassignments_are_not_looked_at,
    "kept order of commits": plain_commits_remain,
    "expiry beside transactions": offsets_for_ever,
    "leader epochs of every replica": older_epochs_are_unknown,
    "first members": one_wait_for_members,
    "reassignments that wait": nothing_is_removed,
    "deletions of records that wait": deletions_without_followers,
    "first sequences": always_from_zero,
}
"""A wrong broker for a probe of each module: none of them is a written mutant."""
QUICK = {"first members", "leader epochs of every replica"}


@pytest.mark.parametrize(("probe", "plant"), parameters(WRONG, QUICK))
def test_a_broker_that_breaks_a_rule_is_found(monkeypatch: pytest.MonkeyPatch, probe: str, plant: Plant) -> None:
    expect_found(monkeypatch, probe, plant)


@pytest.mark.parametrize(
    ("arrivals", "limit_ms", "expected_ms"),
    [
        ([0], 600, 250),
        ([0, 100], 600, 500),
        ([0, 100, 300], 600, 600),
        ([0, 100], 100, 250),
        ([0, 100, 600], 1_000, 500),
    ],
)
def test_the_first_generation_waits_as_kip_134_says(arrivals: list[int], limit_ms: int, expected_ms: int) -> None:
    assert first_generation_ms(arrivals, 250, limit_ms) == expected_ms
