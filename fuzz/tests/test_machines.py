"""Every machine holds, and would not if the rule that it is about were broken."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import Phase

from highwater.fuzz.machines.all import MACHINES, count_events, run_machine
from highwater.fuzz.machines.groups import GroupMachine
from highwater.reference.replication.fetch_sessions import CachedPartition, Session
from highwater.reference.storage import cleaner
from highwater.reference.storage.leader_epochs import LeaderEpochCache
from highwater.reference.storage.producer_state import ProducerStates
from highwater.reference.store.metadata_store import MetadataStore
from highwater.reference.transactions import markers

SEED = 1

HAPPENS = {
    "log": {"truncation", "lost tail"},
    "metadata store": {"session expired", "fenced store write", "nothing of a multi"},
    "group coordinator": {"coordinator restart", "rebalance", "fenced instance", "fenced generation"},
    "transaction coordinator": {"fenced producer", "coordinator restart"},
    "fetch sessions": {"partial response"},
}


@pytest.mark.parametrize("name", MACHINES)
def test_a_machine_holds(name: str) -> None:
    with count_events() as tally:
        run_machine(name, seed=SEED)
    assert tally.keys() >= HAPPENS[name]


def _always_a_commit(*arguments: Any) -> Any:
    return replace(marker(*arguments), transaction_result=True)


marker = markers._marker
update = Session.update


def _forgets_nothing(self: Session, body: Any) -> None:
    kept = dict(self.partitions)
    update(self, body)
    self.partitions = kept | self.partitions


PLANTED = [
    pytest.param("log", LeaderEpochCache, "truncate_from_end", lambda *_: None, id="ForgetTruncatedEpochs"),
    pytest.param("log", cleaner, "_should_retain", lambda *_: False, id="compaction takes the last record of a key"),
    pytest.param("metadata store", MetadataStore, "_check_version", lambda *_: None, id="VersionCas"),
    pytest.param("metadata store", MetadataStore, "_check_all", lambda *_: None, id="a multi is not all or nothing"),
    pytest.param("group coordinator", GroupMachine, "guard_off", "FenceStaleHeartbeat", id="FenceStaleHeartbeat"),
    pytest.param("group coordinator", GroupMachine, "guard_off", "RequireMemberId", id="RequireMemberId"),
    pytest.param(
        "transaction coordinator", ProducerStates, "last_stable_offset", lambda _, high_watermark: high_watermark,
        id="LastStableOffset"),
    pytest.param("transaction coordinator", markers, "_marker", _always_a_commit, id="an abort is a commit"),
    pytest.param("fetch sessions", CachedPartition, "update_and_check", lambda _, data: bool(data.records),
        id="an update without a record"),
    pytest.param("fetch sessions", Session, "update", _forgets_nothing, id="a forgotten partition is still reported"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "owner", "attribute", "planted"), PLANTED)
def test_a_machine_sees_the_rule_broken(
    name: str, owner: Any, attribute: str, planted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, attribute, planted)
    with pytest.raises((AssertionError, KeyError)):
        run_machine(name, seed=SEED, times=3, phases=(Phase.generate,))
