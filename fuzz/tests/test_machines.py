"""Every state machine test passes, and fails if the rule that it checks is broken."""

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

SITUATIONS = {
    "log": {"truncation", "lost tail"},
    "metadata store": {"session expired", "fenced store write", "nothing of a multi"},
    "group coordinator": {"coordinator restart", "rebalance", "fenced instance", "fenced generation"},
    "transaction coordinator": {"fenced producer", "coordinator restart"},
    "fetch sessions": {"partial response"},
}


@pytest.mark.parametrize("name", MACHINES)
def test_a_machine_passes_and_reaches_its_situations(name: str) -> None:
    with count_events() as tally:
        run_machine(name, seed=SEED)
    assert tally.keys() >= SITUATIONS[name]


def _always_a_commit(*arguments: Any) -> Any:
    return replace(marker(*arguments), transaction_result=True)


marker = markers._marker
update = Session.update


def _keep_forgotten_partitions(self: Session, body: Any) -> None:
    previous = dict(self.partitions)
    update(self, body)
    self.partitions = previous | self.partitions


PLANTED = [
    pytest.param("log", LeaderEpochCache, "truncate_from_end", lambda *_: None, id="ForgetTruncatedEpochs"),
    pytest.param("log", cleaner, "_should_retain", lambda *_: False, id="compaction removes the last record of a key"),
    pytest.param("metadata store", MetadataStore, "_check_version", lambda *_: None, id="VersionCas"),
    pytest.param("metadata store", MetadataStore, "_check_all", lambda *_: None, id="a multi is not atomic"),
    pytest.param("group coordinator", GroupMachine, "guard_off", "FenceStaleHeartbeat", id="FenceStaleHeartbeat"),
    pytest.param("group coordinator", GroupMachine, "guard_off", "RequireMemberId", id="RequireMemberId"),
    pytest.param(
        "transaction coordinator", ProducerStates, "last_stable_offset", lambda _, high_watermark: high_watermark,
        id="LastStableOffset"),
    pytest.param("transaction coordinator", markers, "_marker", _always_a_commit, id="an abort is a commit"),
    pytest.param("fetch sessions", CachedPartition, "must_return", lambda _, data: bool(data.records),
        id="a partition without new records is never sent"),
    pytest.param("fetch sessions", Session, "update", _keep_forgotten_partitions,
        id="a forgotten partition is still fetched"),
]  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize(("name", "owner", "attribute", "planted"), PLANTED)
def test_a_machine_fails_if_the_rule_is_broken(
    name: str, owner: Any, attribute: str, planted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, attribute, planted)
    with pytest.raises((AssertionError, KeyError)):
        run_machine(name, seed=SEED, times=3, phases=(Phase.generate,))
