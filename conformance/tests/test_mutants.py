"""Each kind of defect is seen by the cases that are there for it: a suite that cannot fail proves nothing."""

from collections.abc import Iterator

import pytest

from conformance.runner import Options, run_suite
from conformance.targets.reference import ReferenceTarget
from conformance.tests.mutants import MUTATIONS, MutantProxy

CAUGHT_BY = {
    "wrong correlation id": "FRM-1",
    "tags in the header of ApiVersions": "API-2",
    "Produce forgets its error": "PRD-7",
    "Produce shifts its offset": "PRD-4",
    "Fetch forgets its error": "FET-4",
    "Fetch loses the records": "FET-7",
    "ListOffsets shifts its offset": "LST-1",
    "Metadata names a stranger as leader": "MD-8",
    "Metadata forgets its error": "MD-2",
    "Heartbeat forgets its error": "GRP-11",
    "JoinGroup shifts its generation": "GRP-10",
    "SyncGroup spoils the assignment": "GRP-9",
    "OffsetFetch forgets": "OFF-1",
    "OffsetForLeaderEpoch shifts": "LST-6",
    "answers instead of disconnecting": "FRM-5",
}


@pytest.fixture(scope="module")
def reference() -> Iterator[ReferenceTarget]:
    target = ReferenceTarget(1)
    yield target
    target.close()


def test_every_mutation_has_its_clause() -> None:
    assert set(CAUGHT_BY) == set(MUTATIONS)


@pytest.mark.parametrize("name", MUTATIONS)
def test_the_clause_catches_the_mutant(reference: ReferenceTarget, name: str) -> None:
    proxy = MutantProxy(reference.bootstrap, name)
    try:
        options = Options(clauses=[CAUGHT_BY[name]], timeout_s=1.0)
        report = run_suite([proxy.address], options)
    finally:
        proxy.close()
    assert report["targets"][0]["verdicts"]["fail"] > 0, report
