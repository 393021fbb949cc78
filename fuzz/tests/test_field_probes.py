"""The probes of fields find brokers that are wrong in one field, list, limit or version."""

from dataclasses import replace
from typing import Any

import pytest

from highwater.fuzz.tests.wrong_brokers import Plant, expect_found, parameters
from highwater.reference.admin import alter_configs
from highwater.reference.admin.log_dirs import LogDirs
from highwater.reference.controller import handlers
from highwater.reference.controller.election import elect_for_shutdown
from highwater.reference.effects import Request
from highwater.reference.groups import checks, coordinator
from highwater.reference.groups.offsets import OffsetsCoordinator
from highwater.reference.metadata import MetadataHandler
from highwater.reference.replication import log_maintenance, offsets
from highwater.reference.replication.fetch_sessions import Session as FetchSession
from highwater.reference.storage.cleaner import cleanable_end
from highwater.reference.topics import Topics
from highwater.reference.transactions import partitions
from highwater.reference.wire.errors import ErrorCode

HUGE = 1 << 40


def followers_without_size(patch: pytest.MonkeyPatch) -> None:
    """DescribeLogDirs returns 0 as the size of a follower."""
    describe = LogDirs.describe

    async def wrong(handler: LogDirs, request: Request) -> Any:
        answer = await describe(handler, request)
        leads = {key for key, each in handler._replicas.partitions.items() if each.role.value == "leader"}

        def part(topic: str, each: Any) -> Any:
            return each if (topic, each.partition_index) in leads else replace(each, partition_size=0)

        (result,) = answer.results
        topics = tuple(replace(t, partitions=tuple(part(t.name, p) for p in t.partitions)) for t in result.topics)
        return replace(answer, results=(replace(result, topics=topics),))

    patch.setattr(LogDirs, "describe", wrong)


def groups_without_type(patch: pytest.MonkeyPatch) -> None:
    """ListGroups leaves out groups that have no protocol type."""
    listing = OffsetsCoordinator.list

    async def wrong(handler: OffsetsCoordinator, request: Request) -> Any:
        answer = await listing(handler, request)
        return replace(answer, groups=tuple(each for each in answer.groups if each.protocol_type))

    patch.setattr(OffsetsCoordinator, "list", wrong)


def metadata_in_characters(patch: pytest.MonkeyPatch) -> None:
    """The limit of the metadata counts characters, not bytes."""
    check = OffsetsCoordinator.check_partition

    def wrong(handler: OffsetsCoordinator, key: tuple[str, int], metadata: str) -> ErrorCode:
        return check(handler, key, "m" * len(metadata))

    patch.setattr(OffsetsCoordinator, "check_partition", wrong)


def sorted_lists(patch: pytest.MonkeyPatch) -> None:
    """A list setting is sorted when it is edited."""
    edit = alter_configs._edit_list
    patch.setattr(alter_configs, "_edit_list", lambda *given: ",".join(sorted(edit(*given).split(","))))


def last_of_a_time(patch: pytest.MonkeyPatch) -> None:
    """A search by time returns the last record that is not earlier."""
    find = offsets._find

    def wrong(partition: Any, timestamp: int, end: int) -> tuple[int, int]:
        found = find(partition, timestamp, end)
        while timestamp >= 0 and found[0] >= 0 and (later := _after(partition, found[0], timestamp)) is not None:
            found = later
        return found

    def _after(partition: Any, offset: int, timestamp: int) -> tuple[int, int] | None:
        records = (r for b in partition.log.batches_from_timestamp(timestamp) for r in partition.log.decode(b)[1])
        return next(((r.offset, r.timestamp) for r in records if r.offset > offset and r.timestamp >= timestamp), None)

    patch.setattr(offsets, "_find", wrong)


def members_without_instances(patch: pytest.MonkeyPatch) -> None:
    """A static leader that restarts receives the members without their instance ids."""
    listing = checks.member_list
    patch.setattr(
        coordinator, "member_list", lambda group: tuple(replace(m, group_instance_id=None) for m in listing(group))
    )


def colliding_names(patch: pytest.MonkeyPatch) -> None:
    """The characters of a topic name are not compared with those of others."""
    plan = Topics._plan
    patch.setattr(Topics, "_plan", lambda topics, topic, existing: plan(topics, topic, {}))


def partitions_that_never_move(patch: pytest.MonkeyPatch) -> None:
    """A fetch session ignores what a later request says of partitions that it has."""
    update = FetchSession.update

    def wrong(session: FetchSession, body: Any) -> None:
        known = {name for name, _ in session.requests()}
        update(session, replace(body, topics=tuple(each for each in body.topics if each.topic not in known)))

    patch.setattr(FetchSession, "update", wrong)


def forgotten_topics(patch: pytest.MonkeyPatch) -> None:
    """A session that forgets a partition forgets the others of its topic, too."""
    update = FetchSession.update

    def wrong(session: FetchSession, body: Any) -> None:
        gone = tuple(replace(each, partitions=(0, 1, 2)) for each in body.forgotten_topics_data)
        update(session, replace(body, forgotten_topics_data=gone))

    patch.setattr(FetchSession, "update", wrong)


def brokers_without_racks(patch: pytest.MonkeyPatch) -> None:
    """DescribeCluster returns brokers without racks."""
    describe = MetadataHandler.describe_cluster

    async def wrong(handler: MetadataHandler, request: Request) -> Any:
        answer = await describe(handler, request)
        return replace(answer, brokers=tuple(replace(each, rack=None) for each in answer.brokers))

    patch.setattr(MetadataHandler, "describe_cluster", wrong)


def compacted_too_early(patch: pytest.MonkeyPatch) -> None:
    """Compaction ignores min.compaction.lag.ms."""
    patch.setattr(
        log_maintenance, "cleanable_end", lambda log, wall_ms, watermark: cleanable_end(log, wall_ms + HUGE, watermark)
    )


def latest_of_a_new_leader(patch: pytest.MonkeyPatch) -> None:
    """ListOffsets returns the high watermark of a new leader at once, although it lags (before KIP-207)."""
    look_up = offsets._look_up

    def wrong(partition: Any, *request: Any) -> Any:
        before, partition.epoch_start_offset = partition.epoch_start_offset, 0
        try:
            return look_up(partition, *request)
        finally:
            partition.epoch_start_offset = before

    patch.setattr(offsets, "_look_up", wrong)


def last_replica_leads(patch: pytest.MonkeyPatch) -> None:
    """A controlled shutdown elects the last assigned replica that is in sync."""
    patch.setattr(
        handlers, "elect_for_shutdown", lambda state, replicas, *more: elect_for_shutdown(state, replicas[::-1], *more)
    )


def errors_of_the_last_transaction(patch: pytest.MonkeyPatch) -> None:
    """AddPartitionsToTxn returns the same error for all partitions of a transaction."""
    results = partitions._results

    def wrong(topics: Any, errors: dict[Any, ErrorCode]) -> Any:
        return results(topics, dict.fromkeys(errors, list(errors.values())[-1]))

    patch.setattr(partitions, "_results", wrong)


WRONG: dict[str, Plant] = {
    "sizes of replicas": followers_without_size,
    "lists of groups": groups_without_type,
    "largest metadata": metadata_in_characters,
    "drawn settings": sorted_lists,
    "searches by time": last_of_a_time,
    "restarted static leader": members_without_instances,
    "names of topics": colliding_names,
    "moving sessions": partitions_that_never_move,
    "several transactions": errors_of_the_last_transaction,
    "sessions of several topics": forgotten_topics,
    "descriptions of the cluster": brokers_without_racks,
    "compaction by age": compacted_too_early,
    "new leader behind": latest_of_a_new_leader,
    "shutdown of a leader": last_replica_leads,
}
"""A wrong broker for a probe of each module, and for two that request faults: none of them is a written mutant."""


QUICK = {"lists of groups", "drawn settings", "several transactions"}


@pytest.mark.parametrize(("probe", "plant"), parameters(WRONG, QUICK))
def test_a_broker_that_is_wrong_in_one_field_is_found(
    monkeypatch: pytest.MonkeyPatch, probe: str, plant: Plant
) -> None:
    expect_found(monkeypatch, probe, plant)
