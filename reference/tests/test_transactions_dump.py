"""Apache Kafka's DumpLogSegments reads the transaction log, markers, index and snapshots."""

import re
from pathlib import Path

from highwater.reference.drivers.simulation.disk import SimulatedDisk
from highwater.reference.effects import broker_peer
from highwater.reference.tests.apache_kafka.programs import run_tool
from highwater.reference.tests.simulated import Simulated
from highwater.reference.tests.transactional import Producer

TOPIC = "t"


def dump(*arguments: str) -> str:
    ran = run_tool("DumpLogSegments", *arguments)
    text = ran.stdout + ran.stderr
    assert "Exception" not in text, text
    return text


def saved(disk: SimulatedDisk, folder: Path, names: list[str]) -> list[str]:
    """Write simulated files to disk and return their paths."""
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(disk.read(name, 0, disk.size(name)))
    return [str(folder / name) for name in names]


def test_apache_kafka_reads_the_files_that_transactions_write(tmp_path: Path) -> None:
    world = Simulated(transaction_state_log_num_partitions=1)
    world.create(TOPIC)
    producer = Producer(world, "tx", newest=True).init()
    for value, commit in ((b"no", False), (b"yes", True)):
        producer.write(TOPIC, value)
        producer.end(commit=commit)
    world.run(500)
    disk = world.world.hosts[broker_peer(1)].disk
    disk.write(
        "t-0/00000000000000000004.snapshot", world.broker().replicas.partitions[TOPIC, 0].log.producers.snapshot()
    )
    stem = "t-0/00000000000000000000"
    names = ["__transaction_state-0/00000000000000000000.log", f"{stem}.log", f"{stem}.txnindex"]
    state, log, index, snapshot = saved(disk, tmp_path, [*names, "t-0/00000000000000000004.snapshot"])
    decided = dump("--transaction-log-decoder", "--files", state)
    states = re.findall(r"state=(\w+)|\"transactionStatus\":(\d)", decided)
    assert len(states) == 7, decided
    records = dump("--print-data-log", "--files", log)
    assert re.findall(r"endTxnMarker: (\w+)", records) == ["ABORT", "COMMIT"]
    assert "producerId: 0 firstOffset: 0 lastOffset: 1 lastStableOffset: 2" in dump("--files", index)
    assert "producerId: 0" in dump("--files", snapshot)
