"""Every state machine test passes, and fails if the rule that it checks is broken."""

from typing import Any

import pytest
from hypothesis import Phase

from highwater.fuzz.machines.all import MACHINES, count_events, run_machine
from highwater.reference.storage import cleaner
from highwater.reference.storage.leader_epochs import LeaderEpochCache
from highwater.reference.store.metadata_store import MetadataStore

SEED = 1

SITUATIONS = {
    "log": {"truncation", "lost tail"},
    "metadata store": {"session expired", "fenced store write", "nothing of a multi"},
}


@pytest.mark.parametrize("name", MACHINES)
def test_a_machine_passes_and_reaches_its_situations(name: str) -> None:
    with count_events() as tally:
        run_machine(name, seed=SEED)
    assert tally.keys() >= SITUATIONS[name]


PLANTED = [
    pytest.param("log", LeaderEpochCache, "truncate_from_end", lambda *_: None, id="ForgetTruncatedEpochs"),
    pytest.param("log", cleaner, "_should_retain", lambda *_: False, id="compaction removes the last record of a key"),
    pytest.param("metadata store", MetadataStore, "_check_version", lambda *_: None, id="VersionCas"),
    pytest.param("metadata store", MetadataStore, "_check_all", lambda *_: None, id="a multi is not atomic"),
]


@pytest.mark.long
@pytest.mark.parametrize(("name", "owner", "attribute", "planted"), PLANTED)
def test_a_machine_fails_if_the_rule_is_broken(
    name: str, owner: Any, attribute: str, planted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, attribute, planted)
    with pytest.raises((AssertionError, KeyError)):
        run_machine(name, seed=SEED, times=3, phases=(Phase.generate,))
