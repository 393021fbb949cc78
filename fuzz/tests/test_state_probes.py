"""The probes of states, versions, waits, outages and clocks find brokers that are wrong in one rule."""

from dataclasses import replace
from typing import Any

import pytest

from highwater.fuzz.tests.wrong_brokers import Plant, expect_found, parameters
from highwater.reference.groups import store
from highwater.reference.groups.checks import MemberChecks
from highwater.reference.groups.offsets import OffsetsCoordinator
from highwater.reference.metadata import MetadataHandler
from highwater.reference.metadata_cache import MetadataCache
from highwater.reference.replication import fetch
from highwater.reference.storage.log import LogConfig
from highwater.reference.storage.producer_state import ProducerStates
from highwater.reference.transactions.expiry import Expiry
from highwater.reference.wire.errors import ErrorCode


def more_than_min_bytes(patch: pytest.MonkeyPatch) -> None:
    """A Fetch waits for one byte more than min_bytes."""
    complete = fetch._can_complete

    def wrong(context: Any, read_pass: Any) -> bool:
        return complete(replace(context, body=replace(context.body, min_bytes=context.body.min_bytes + 1)), read_pass)

    patch.setattr(fetch, "_can_complete", wrong)


def coordinators_backwards(patch: pytest.MonkeyPatch) -> None:
    """FindCoordinator answers the last key first."""
    find = MetadataHandler.find_coordinator

    async def wrong(handler: MetadataHandler, request: Any) -> Any:
        answer = await find(handler, request)
        return replace(answer, coordinators=answer.coordinators[::-1])

    patch.setattr(MetadataHandler, "find_coordinator", wrong)


def fenced_as_unknown(patch: pytest.MonkeyPatch) -> None:
    """A static member that was replaced gets UNKNOWN_MEMBER_ID."""
    patch.setattr(MemberChecks, "fencing_error", ErrorCode.UNKNOWN_MEMBER_ID)


def coordinator_epoch_must_rise(patch: pytest.MonkeyPatch) -> None:
    """A second marker of the same coordinator epoch is refused."""
    check = ProducerStates.check_marker

    def wrong(states: ProducerStates, header: Any, coordinator_epoch: int, *more: Any, **options: Any) -> ErrorCode:
        return check(states, header, coordinator_epoch - 1, *more, **options)

    patch.setattr(ProducerStates, "check_marker", wrong)


def early_segments(patch: pytest.MonkeyPatch) -> None:
    """A segment is closed a millisecond too early."""
    patch.setattr(LogConfig, "max_segment_ms", property(lambda config: config.segment_ms - 1))


def first_error_for_all(patch: pytest.MonkeyPatch) -> None:
    """OffsetFetch gives every group the error of the first one."""
    fetch_offsets = OffsetsCoordinator.fetch

    async def wrong(handler: OffsetsCoordinator, request: Any) -> Any:
        answer = await fetch_offsets(handler, request)
        first = answer.groups[0].error_code if answer.groups else 0
        return replace(answer, groups=tuple(replace(each, error_code=first) for each in answer.groups))

    patch.setattr(OffsetsCoordinator, "fetch", wrong)


def no_offline_replicas(patch: pytest.MonkeyPatch) -> None:
    """No replica is described as offline."""
    describe = MetadataCache.partition_fields
    patch.setattr(
        MetadataCache, "partition_fields", lambda cache, *key: {**describe(cache, *key), "offline_replicas": ()}
    )


def ids_for_ever(patch: pytest.MonkeyPatch) -> None:
    """Transactional ids do not expire."""

    async def wrong(expiry: Expiry) -> None:
        return None

    patch.setattr(Expiry, "remove_transactional_ids", wrong)


def groups_without_types(patch: pytest.MonkeyPatch) -> None:
    """A group that is read from the log has no protocol type."""
    restore = store._restore
    patch.setattr(store, "_restore", lambda group, value: restore(group, replace(value, protocol_type="")))


WRONG: dict[str, Plant] = {
    "waits by segments and limits": more_than_min_bytes,
    "coordinators of several keys": coordinators_backwards,
    "identities in each state": fenced_as_unknown,
    "markers in any order": coordinator_epoch_must_rise,
    "segments closed by time": early_segments,
    "offsets of several groups": first_error_for_all,
    "descriptions of an outage": no_offline_replicas,
    "transactional ids that expire": ids_for_ever,
    "kept states of groups": groups_without_types,
}
"""A wrong broker for a probe of each kind: none of them is a written mutant."""
QUICK = {"coordinators of several keys", "descriptions of an outage"}


@pytest.mark.parametrize(("probe", "plant"), parameters(WRONG, QUICK))
def test_a_broker_that_is_wrong_in_one_rule_is_found(monkeypatch: pytest.MonkeyPatch, probe: str, plant: Plant) -> None:
    expect_found(monkeypatch, probe, plant)
