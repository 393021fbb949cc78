"""Groups in the logs of a real cluster are accepted, and refused if they show what the protocol excludes."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from highwater.conformance.targets.apache_kafka import ApacheKafka
from highwater.fuzz.kafka_logs.check import Extraction, Judgement, check, extract, write_traces
from highwater.fuzz.kafka_logs.group_log import UNKNOWN_KEY, GroupEntry, GroupLife
from highwater.releases import NEWEST, fetch_release
from highwater.soak.mutated_kafka_groups import GROUP_MUTATIONS, applicable, judge_group, read_group
from highwater.soak.mutated_kafka_logs import LIVES
from highwater.toolchain import java

EXAMPLES = Path(__file__).parents[2] / "examples" / "clients"


def life_of(group: str) -> GroupLife:
    """Return the life of a group of Apache Kafka 4.3.1 in a chaos run of 60 s."""
    return read_group(LIVES / f"group-{NEWEST}-{group}.json")


@pytest.mark.parametrize("group", ["workload", "cooperative"])  # the first one with a tombstone and failovers
def test_a_real_group_is_accepted_with_hidden_steps(tmp_path: Path, group: str) -> None:
    (found,) = judge_group(life_of(group), tmp_path)
    assert found.judgement is Judgement.ACCEPTED, found.found.reason
    assert 0 < found.hidden.total() < found.found.steps


def test_a_commit_that_no_member_can_have_made_is_not_covered(tmp_path: Path) -> None:
    life = life_of("cooperative")
    (found,) = judge_group(replace(life, entries=[GroupEntry(0, 0, 1, None, ("t-0",)), *life.entries]), tmp_path)
    assert found.judgement is Judgement.AS_FAR_AS_SEEN


def test_a_group_without_a_model_is_not_accepted(tmp_path: Path) -> None:
    life = life_of("cooperative")
    first = next(at for at, entry in enumerate(life.entries) if entry.stored is not None and entry.stored.members)
    stored = life.entries[first].stored
    assert stored is not None
    members = (replace(stored.members[0], instance_id="one"), *stored.members[1:])
    life.entries[first] = replace(life.entries[first], stored=replace(stored, members=members))
    assert judge_group(life, tmp_path) == []


@pytest.mark.sample(4)
@pytest.mark.long
@pytest.mark.parametrize("how", GROUP_MUTATIONS)
def test_a_mutated_group_is_refused_at_a_line(tmp_path: Path, how: str) -> None:
    changed = applicable([life_of(group) for group in ("cooperative", "static")], how)
    assert changed is not None
    (found,) = judge_group(changed[0], tmp_path, explain=False)
    assert found.judgement is Judgement.REFUSED, changed[1]
    assert found.found.line is not None


@pytest.mark.soak
def test_a_partition_that_is_taken_from_its_owner_is_refused_with_the_conjunct(tmp_path: Path) -> None:
    changed = applicable([life_of("cooperative")], "a partition taken from its owner")
    assert changed is not None
    (found,) = judge_group(changed[0], tmp_path)
    assert [text.partition(": ")[2] for text in found.found.conjuncts] == ["MayAssign(call.assignment)"]


# A broker with groups of several protocols, and Apache Kafka's own tool as the oracle of the reader.


@pytest.fixture(scope="module")
def extraction(tmp_path_factory: pytest.TempPathFactory) -> tuple[Extraction, Path]:
    """What a broker wrote whose groups rebalanced for some seconds, and its folder."""
    kept = tmp_path_factory.mktemp("groups") / "1"
    cluster = ApacheKafka(NEWEST, 1)
    try:
        subprocess.run(
            [sys.executable, str(EXAMPLES / "rebalances.py"), "--seconds", "8", "--replicas", "1", "--group", "a=range",
             "--group", "b=cooperative-sticky", "--group", "static=range", "--group", "new=consumer"],
            env={**os.environ, "BOOTSTRAP": cluster.bootstrap}, check=True, timeout=120, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        cluster.kill_node(1)
        (cluster.folder / "1-data").rename(kept)
    finally:
        cluster.close()
    return extract([kept]), kept


@pytest.mark.long
def test_groups_of_apache_kafka_are_accepted_as_far_as_they_have_a_model(
    tmp_path: Path, extraction: tuple[Extraction, Path]
) -> None:
    write_traces(extraction[0], tmp_path)
    found = [check(extraction[0], tmp_path, None, group) for group in ("a", "b", "static")]
    assert [each.checked[0].judgement for each in found] == [Judgement.ACCEPTED] * 3
    assert found[0].judgement is Judgement.AS_FAR_AS_SEEN  # since the new protocol has no model
    assert any(reason.startswith(UNKNOWN_KEY) for reason in found[0].reasons)


@pytest.mark.soak
def test_the_reader_finds_the_group_records_that_apache_kafka_prints(extraction: tuple[Extraction, Path]) -> None:
    log = next((extraction[1] / extraction[0].groups[0].log).glob("*.log"))
    command = [
        str(java().executable), "-cp", f"{fetch_release(NEWEST)}/*", "org.apache.kafka.tools.DumpLogSegments",
        "--offsets-decoder", "--files", str(log),
    ]  # fmt: skip
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    for group in extraction[0].groups:
        for entry in group.life.entries:
            if entry.stored is not None:
                (line,) = [line for line in printed.splitlines() if f"offset: {entry.offset} " in line]
                assert f'"group":"{group.entity}"' in line
                assert f'"generation":{entry.stored.generation},' in line
                assert all(f'"memberId":"{member.member_id}"' in line for member in entry.stored.members)
                assert line.count('"memberId"') == len(entry.stored.members)
