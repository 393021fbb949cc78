"""Apache Kafka 2.8.2 with ZooKeeper: its log is read as ZooKeeper reads it, and what is missing is counted.

The folders are those of a chaos run of 75 s with ten faults, in which all brokers were killed at once.
"""

import re
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from highwater.errors import UsageError
from highwater.fuzz.kafka_logs.check import Extraction, Judgement, PartitionTrace, check, extract, write_traces
from highwater.fuzz.kafka_logs.folders import META, Seen
from highwater.fuzz.kafka_logs.zookeeper_changes import replay_zookeeper
from highwater.fuzz.kafka_logs.zookeeper_log import VERSION_FOLDER, ZOOKEEPER_LOG, read_zookeeper
from highwater.releases import fetch_release
from highwater.soak.mutated_kafka_logs import LIVES
from highwater.toolchain import java

RELEASE = "2.8.2"
FIRST_FILE, LAST_FILE = "log.1", "log.9d"


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """The folders of brokers 1, 2 and 3, and of ZooKeeper."""
    folder = tmp_path / "cluster"
    with tarfile.open(LIVES / f"cluster-{RELEASE}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder


def read(cluster: Path) -> Extraction:
    return extract(sorted(cluster.iterdir()))


def log_file(cluster: Path, name: str) -> Path:
    return cluster / "zookeeper" / VERSION_FOLDER / name


def without_padding(path: Path) -> bytes:
    return path.read_bytes().rstrip(b"\0")


def test_a_real_cluster_is_read_whole_and_accepted(tmp_path: Path, cluster: Path) -> None:
    extraction = read(cluster)
    assert extraction.brokers == (1, 2, 3)
    assert not extraction.seen.skipped
    assert not any(trace.gaps for trace in extraction.traces)
    assert not any(group.gaps for group in extraction.groups)
    expected = {
        "ZooKeeper transactions": 284,
        "controller epochs": 5,
        "registrations": 9,
        "registrations after a session expired": 1,  # the controller was paused for longer than its session
        "orderly stops": 1,
        "states of partitions": 74,
    }
    assert {name: extraction.seen.read[name] for name in expected} == expected
    write_traces(extraction, tmp_path)
    (found,) = check(extraction, tmp_path, "hw_truncation", "__consumer_offsets-0").checked
    assert found.judgement is Judgement.ACCEPTED, found.found.reason
    assert found.guards_off == ("UncleanRestartLeavesIsr",)


def test_a_state_has_the_broker_that_wrote_it_and_the_version_of_the_znode(cluster: Path) -> None:
    seen = Seen()
    changes = replay_zookeeper(read_zookeeper(cluster / "zookeeper", seen), seen).changes["highwater", 0]
    states = [(change, change.state) for change in changes if change.state is not None]
    assert [state.partition_epoch for _, state in states] == list(range(len(states)))
    assert [state.leader_epoch for change, state in states if change.leads] == list(range(9))
    claims = {change.epoch: change.node for change in changes if change.what == "claim"}
    assert claims == {1: 3, 2: 2, 3: 3, 4: 1, 5: 3}
    assert all(claims[state.controller_epoch or 0] == change.node for change, state in states)


def test_without_the_folder_of_a_broker_it_is_not_accepted_whole(cluster: Path) -> None:
    shutil.rmtree(cluster / "3")
    assert {gap for trace in read(cluster).traces for gap in trace.gaps} == {"no log of broker 3"}


def cut(path: Path) -> None:
    path.write_bytes(without_padding(path)[:-30])


def change_a_byte(path: Path) -> None:
    data = bytearray(without_padding(path))
    data[-30] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [(cut, "an incomplete transaction"), (change_a_byte, "a transaction with a wrong checksum")],
)
def test_replicas_are_not_compared_with_a_log_whose_end_is_damaged(
    tmp_path: Path, cluster: Path, damage: Callable[[Path], None], reason: str
) -> None:
    damage(log_file(cluster, LAST_FILE))
    extraction = read(cluster)
    assert extraction.seen.skipped == {f"end of ZooKeeper's log, from {reason} on": 1}
    assert all("the end of" in trace.gaps[0] for trace in extraction.traces)
    assert not any(step.action == "Stored" for trace in extraction.traces for step in trace.steps)
    if damage is cut:
        write_traces(extraction, tmp_path)
        found = check(extraction, tmp_path, "controller_failover", "__consumer_offsets-0")
        assert found.judgement is Judgement.AS_FAR_AS_SEEN


def test_a_damaged_end_that_zookeeper_removed_when_it_started_is_harmless(cluster: Path) -> None:
    file = log_file(cluster, FIRST_FILE)
    file.write_bytes(without_padding(file) + without_padding(file)[-30:])
    assert not read(cluster).seen.skipped


def test_transactions_that_are_missing_in_the_middle_are_counted(cluster: Path) -> None:
    cut(log_file(cluster, FIRST_FILE))
    extraction = read(cluster)
    assert extraction.seen.skipped == {"ZooKeeper's log, from transactions on that are missing": 1}
    assert max(change.offset for trace in extraction.traces for change in trace.changes) < int(LAST_FILE[4:], 16)
    assert not any(step.action == "Stored" for trace in extraction.traces for step in trace.steps)


def test_a_log_that_does_not_begin_with_the_first_transaction_is_counted(cluster: Path) -> None:
    log_file(cluster, FIRST_FILE).unlink()
    extraction = read(cluster)
    assert extraction.seen.skipped["beginning of ZooKeeper's log, which is only in a snapshot"] == 1
    assert {gap for trace in extraction.traces for gap in trace.gaps} == {f"its creation is not in {ZOOKEEPER_LOG}"}


def test_a_partition_whose_controller_is_not_known_has_no_trace(cluster: Path) -> None:
    (whole,) = (trace for trace in read(cluster).traces if trace.entity == "highwater-0")
    changes = [change for change in whole.changes if (change.what, change.epoch) != ("claim", 1)]
    trace = PartitionTrace(whole.entity, changes, whole.replicas, log=whole.log)
    trace.build()
    assert trace.gaps == [f"the term of the controller that created it is not in {ZOOKEEPER_LOG}"]
    assert not trace.steps


def test_without_any_transaction_the_verdict_is_undecided(tmp_path: Path, cluster: Path) -> None:
    for name in (FIRST_FILE, LAST_FILE):
        log_file(cluster, name).unlink()
    extraction = read(cluster)
    assert extraction.seen.skipped == {"ZooKeeper's log, which has no transaction": 1}
    assert check(extraction, tmp_path, entity="highwater-0").judgement is Judgement.UNDECIDED


def test_the_folder_of_zookeeper_is_asked_for(cluster: Path) -> None:
    shutil.rmtree(cluster / "zookeeper")
    with pytest.raises(UsageError, match="__cluster_metadata-0") as error:
        read(cluster)
    assert "ZooKeeper's dataDir" in str(error.value.hint)


def test_folders_of_two_clusters_are_wrong_usage(cluster: Path) -> None:
    for node in (1, 2, 3):
        path = cluster / str(node) / META
        path.write_text(re.sub(r"cluster.id=.*", "cluster.id=another", path.read_text()))
    with pytest.raises(UsageError, match="another cluster"):
        read(cluster)


def test_two_servers_of_an_ensemble_are_wrong_usage(cluster: Path) -> None:
    shutil.copytree(cluster / "zookeeper", cluster / "zookeeper-2")
    with pytest.raises(UsageError, match="a second folder of ZooKeeper"):
        read(cluster)


@pytest.mark.parametrize("name", ["log.backup", FIRST_FILE])
def test_a_file_that_is_no_log_is_wrong_usage(cluster: Path, name: str) -> None:
    log_file(cluster, name).write_bytes(b"no log of ZooKeeper")
    with pytest.raises(UsageError, match="transaction log"):
        read(cluster)


# ZooKeeper's own tool as the oracle of the reader.

PRINTED = re.compile(r"session 0x([0-9a-f]+) cxid 0x([0-9a-f]+) zxid 0x([0-9a-f]+) (\w+) ?(.*)")


def printed(file: Path) -> list[tuple[int, int, int, str, str]]:
    """Return session, cxid, zxid, type and content of each transaction that LogFormatter prints."""
    command = [
        str(java().executable), "-cp", f"{fetch_release(RELEASE)}/*", "org.apache.zookeeper.server.LogFormatter",
        str(file),
    ]  # fmt: skip
    output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    found = [match for line in output.splitlines() if (match := PRINTED.search(line))]
    return [(*(int(match[n], 16) for n in (1, 2, 3)), match[4], match[5]) for match in found]  # type: ignore[misc]


@pytest.mark.soak
def test_the_reader_finds_the_transactions_that_zookeeper_prints(cluster: Path) -> None:
    oracle = [entry for name in (FIRST_FILE, LAST_FILE) for entry in printed(log_file(cluster, name))]
    transactions = read_zookeeper(cluster / "zookeeper", Seen()).transactions
    assert [(each.session, each.cxid, each.zxid) for each in transactions] == [entry[:3] for entry in oracle]
    for transaction, (_, _, _, kind, content) in zip(transactions, oracle, strict=True):
        if kind != "multi":
            (operation,) = transaction.operations
            assert operation.kind == kind
            assert operation.path in content
            assert operation.data.hex() in content
