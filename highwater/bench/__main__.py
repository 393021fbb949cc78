"""Measure every figure of the README (`make bench`). Compare figures of one machine and one run only."""

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from highwater.errors import UsageError
from highwater.reports.columns import NEVER, Kind, Operations
from highwater.reports.rules.findings import Promise
from highwater.reports.rules.partition import CANDIDATES, check
from highwater.temporary import temporary_folder

RECORDS = 200_000
PARTITIONS = 1_000
SEEDS = range(24)
SWEPT = range(10)
OPERATIONS = 2_000_000
AUDITED = 1_000_000
EDN_OPERATIONS = 100_000
NDJSON_OPERATIONS = 100_000
RECOVERED_RECORDS = 3_000_000
FUZZ_LEARNING_S = 90.0
FUZZ_S = 30.0
TRACED_STEPS = 1_000


def codec() -> str:
    """Parse a Metadata v12 reply of 1,000 partitions."""
    from highwater.reference.wire.codec import decode, encode
    from highwater.reference.wire.messages.metadata import (
        MetadataResponse,
        MetadataResponseBroker,
        MetadataResponsePartition,
        MetadataResponseTopic,
    )

    partitions = tuple(
        MetadataResponsePartition(partition_index=n, leader_id=1, replica_nodes=(1, 2, 3), isr_nodes=(1, 2, 3))
        for n in range(PARTITIONS)
    )
    topic = MetadataResponseTopic(name="t", partitions=partitions)
    data = encode(MetadataResponse(brokers=(MetadataResponseBroker(node_id=1, host="h"),), topics=(topic,)), 12)
    rounds, started = 100, time.perf_counter()
    for _ in range(rounds):
        decode(MetadataResponse, 12, data)
    seconds = time.perf_counter() - started
    return f"{rounds * len(data) / seconds / 1e6:.1f} MB/s parsing a Metadata reply of {len(data):,} bytes"


def kernel() -> str:
    """Check two million correct sends and reads in one partition."""
    half = OPERATIONS // 2
    rows = np.arange(OPERATIONS)
    send = rows % 2 == 0
    offset = rows // 2
    unknown = np.full(OPERATIONS, -1)
    operations = Operations(
        invoked=rows * 2, returned=rows * 2 + 1, process=rows % 2, run=np.zeros(OPERATIONS, np.int64),
        kind=np.where(send, Kind.SEND, Kind.READ).astype(np.int64), status=np.zeros(OPERATIONS, np.int64),
        offset=np.where(send, offset, -1), value=np.where(send, offset, -1), position=np.where(send, -1, offset),
        high_watermark=np.where(send, -1, offset + 1), leader_epoch=unknown, quiet=np.zeros(OPERATIONS, np.int64),
        record_count=np.where(send, 0, 1), record_offset=np.arange(half), record_value=np.arange(half),
    )  # fmt: skip
    assert int(operations.returned.max()) < NEVER
    started = time.process_time()  # CPU time, independent of other load
    found = check(operations, Promise())
    seconds = time.process_time() - started
    assert not found
    return f"{OPERATIONS / seconds / 1e6:.1f} M operations/s through the audit kernel, CPU time"


def edn() -> str:
    """Convert a Jepsen history of the Kafka workload to events."""
    from highwater.reports.execution.reading import garbage_collection_paused
    from highwater.reports.importers.formats import open_history
    from highwater.reports.importers.tests.jepsen_runs import healthy, lines

    with tempfile.NamedTemporaryFile(suffix=".edn") as file:
        file.write(data := lines(healthy(EDN_OPERATIONS).ops))
        file.flush()
        started = time.process_time()
        history = open_history(file.name)
        with garbage_collection_paused():  # as an audit reads
            events = sum(1 for _ in history.events)
        seconds = time.process_time() - started
    assert events >= 2 * EDN_OPERATIONS
    assert not history.quarantine.count
    return (
        f"{2 * EDN_OPERATIONS / seconds:,.0f} lines/s of EDN imported ({len(data) / seconds / 1e6:.1f} MB/s): "
        f"{EDN_OPERATIONS / seconds:,.0f} operations/s with both their halves, one core"
    )


def auditor() -> str:
    """Audit a generated history of a million operations in memory: every rule, one core."""
    from highwater.reports.audit import audit_history
    from highwater.reports.ingest.events import Ingest
    from highwater.reports.synth.healthy import CONFIG, generate_history

    reading, promise = Ingest(), Promise.of(CONFIG)
    generate_history(1, AUDITED, reading.take)
    history = reading.ingested(CONFIG)
    started = time.process_time()
    found = [(key, findings) for key, ops in history.partitions.items() for findings in check(ops, promise)]
    by_partition = time.process_time() - started
    assert {findings.rule for _, findings in found} <= CANDIDATES
    started = time.process_time()
    result = audit_history(history, "bench")
    seconds = time.process_time() - started
    assert not result.findings
    return (
        f"{history.operations / by_partition / 1e6:.1f} M operations/s through the rules by partition, "
        f"{history.operations / seconds / 1e6:.2f} M through all rules, {history.operations:,} operations, CPU time"
    )


def ndjson() -> str:
    """Read a generated history from NDJSON, and audit it from the command line with all rules."""
    from highwater.reports.execution.reading import ingest
    from highwater.reports.synth.write import synth

    with temporary_folder("bench-") as folder:
        path = folder / "history.ndjson"
        synth(path, operations=NDJSON_OPERATIONS, seed=1, planted={})
        started = time.process_time()
        operations = ingest(path).operations
        reading = time.process_time() - started
        before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run([sys.executable, "-m", "highwater", "audit", str(path)], capture_output=True, check=True)
        seconds, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return (
        f"{operations / reading:,.0f} operations/s of NDJSON read, one core; {operations:,} operations from the "
        f"command line to the verdict in {seconds:.1f} s, {cpu_s:.1f} CPU s"
    )


def simulator() -> str:
    """Simulate three brokers, producers and members, about 100 appends a second, with all invariants."""
    from highwater.fuzz.schedule import Schedule
    from highwater.fuzz.simulator.cluster import Load, Settings
    from highwater.fuzz.simulator.search import sweep_parallel

    scenario = Settings(partitions=3, load=Load(producers=3, members=("cooperative-sticky",) * 3))
    quiet = Schedule(duration_ms=6_000)
    one, both = (sweep_parallel(SEEDS, scenario, schedule=quiet, jobs=jobs) for jobs in (1, 0))
    assert not one.findings
    simulated = sum(result.simulated_ms for result in one.results) / 1000
    return (
        f"{one.events_per_second:,.0f} simulated events/s on one core, {both.events_per_second:,.0f} on all; "
        f"{simulated / one.seconds:,.0f} simulated seconds a second"
    )


def sweep() -> str:
    """Simulate seeds as `highwater simulate` draws them: faults, all invariants and the audit.

    The figure is in processor time, so that a loaded machine changes it little.
    """
    from highwater.commands.run_audit import audit_run
    from highwater.fuzz.simulator.cluster import Settings
    from highwater.fuzz.simulator.search import run_seed

    drawn = Settings(swarm=True)
    run_seed(SWEPT.stop, drawn, audit=audit_run)  # imports
    started = time.process_time()
    results = [run_seed(seed, drawn, audit=audit_run) for seed in SWEPT]
    seconds = time.process_time() - started
    assert not any(result.violation for result in results)
    events = sum(result.events for result in results)
    return f"{events / seconds:,.0f} events per CPU second, {events:,} events of {len(SWEPT)} seeds with everything on"


def broker(brokers: int, acks: str) -> str:
    """Produce with confluent-kafka and its default batching: records of 100 bytes, one partition."""
    from confluent_kafka import Producer

    from highwater.bench.many_partitions import resident_mb
    from highwater.conformance.targets.reference import ReferenceCluster
    from highwater.fuzz.chaos.workload.producers import silent_logger
    from highwater.fuzz.chaos.workload.topic import TOPIC, Load, create_topic

    with ReferenceCluster(brokers) as cluster:
        create_topic(cluster.bootstrap, Load(partitions=1, replicas=brokers, min_insync_replicas=min(brokers, 2)))
        producer = Producer(
            {"bootstrap.servers": cluster.bootstrap, "acks": acks, "queue.buffering.max.messages": 2 * RECORDS},
            logger=silent_logger(),
        )
        failed: list[object] = []
        value = bytes(100)
        started = time.perf_counter()
        for number in range(RECORDS):
            producer.produce(TOPIC, value, on_delivery=lambda error, _: failed.append(error) if error else None)
            if number % 1_000 == 0:
                producer.poll(0)
        assert producer.flush(120) == 0
        seconds = time.perf_counter() - started
        assert not failed, failed[0]
        memory = max(resident_mb(cluster.pid(node)) for node in cluster.addresses)
    rate = RECORDS / seconds
    return f"{rate:,.0f} records/s of 100 B, {brokers} brokers, acks={acks}; at most {memory:.0f} MB each"


def recovery() -> str:
    """Recover a log after an unclean stop: once entirely, once with everything flushed."""
    from highwater.reference.drivers.files import Disk
    from highwater.reference.storage.log import Log, LogConfig
    from highwater.reference.wire.records import batch_headers, build_batch

    batch = build_batch([(0, None, bytes(100), ())] * 150)
    ((_, header),) = batch_headers(batch)
    config = LogConfig(segment_bytes=64 << 20)
    with temporary_folder("bench-") as folder:
        disk = Disk(folder)
        log = Log(disk, "t-0", config)
        while log.log_end_offset < RECOVERED_RECORDS:
            log.append_as_leader(batch, header, leader_epoch=0)
        disk.flush_all()
        seconds = []
        for recovery_point in (0, log.log_end_offset):
            started = time.perf_counter()
            again = Log(disk, "t-0", config, recovery_point=recovery_point, clean=False)
            seconds.append(time.perf_counter() - started)
            assert again.log_end_offset == log.log_end_offset
        size = sum(path.stat().st_size for path in folder.rglob("*.log"))
        disk.close()
    whole, trusted = seconds
    return (
        f"{whole / size * 1e9:.1f} s for each GB to recover a log, in batches of {len(batch) / 1000:.0f} KB; "
        f"{trusted:.2f} s for {size / 1e6:.0f} MB when all was flushed"
    )


def many_partitions() -> str:
    """Produce with acks=all while the cluster has more and more partitions, then leave it idle."""
    from highwater.bench.many_partitions import curve

    return _printed(curve())


def failover() -> str:
    """Measure how long partitions are without a leader, and draw it."""
    from highwater.bench.failover import measure

    return _printed(measure())


def proxy() -> str:
    """Produce directly and through the proxy for faults of messages, in turn."""
    from highwater.bench.proxied import measure

    return _printed(measure())


def _printed(lines: Iterable[str]) -> str:
    """Print the lines as they come, since all of them take minutes; return what is to be printed after them."""
    for line in lines:
        print(line, flush=True)
    return ""


def fuzz() -> str:
    """Fuzz kfake with all oracles: learn first which inputs crash it, then measure each rate."""
    from highwater.conformance.targets import launch_target, open_target
    from highwater.fuzz.wire.session import Bounds, Session
    from highwater.fuzz.wire.target import FuzzTarget

    with open_target("kfake") as target, temporary_folder("bench-") as folder:
        # With a second instance, as `highwater fuzz kfake` has: failures are confirmed while the run goes on.
        address, name = target.bootstrap.split(",")[0], "kfake"
        fuzz_target = FuzzTarget(address, target, name, launch=lambda: launch_target(name))
        results: list[dict[str, Any]] = []
        for seconds, sound_share in ((FUZZ_LEARNING_S, 0.0), (FUZZ_S, 0.0), (FUZZ_S, 1.0)):
            bounds = Bounds(seconds, shrink_s=0, deadline_s=1.0, sound_share=sound_share)
            results.append(Session(fuzz_target, folder, 1, bounds, resume=bool(results)).run())
            fuzz_target.restart()
        _, mutated, structured = results
    sequences = mutated["sequences"] + structured["sequences"]
    sequence_s = mutated["sequence_seconds"] + structured["sequence_seconds"]
    return (
        f"{mutated['frames'] / mutated['sending_seconds']:,.0f} mutated frames/s, "
        f"{structured['cases'] / structured['sending_seconds']:,.0f} structured "
        f"cases/s while sending ({_share(mutated)} and {_share(structured)} of the time), "
        f"{sequences / (sequence_s or 1):,.0f} sequences/s on kfake; {structured['memory_peak_mb']} MB"
    )


def closed() -> str:
    """Send single frames to kfake without generating or judging any: no fuzzer can send more on this machine."""
    from highwater.bench.closed_connections import measure

    return measure()


def _share(summary: dict[str, Any]) -> str:
    return f"{summary['sending_seconds'] / summary['seconds']:.0%}"


def audit_by_size() -> str:
    """Audit Parquet datasets of one, ten and thirty million operations."""
    from highwater.bench.auditor import by_size

    return "\n" + by_size()


def audit_beside_porcupine() -> str:
    """Compare the auditor and Porcupine on the same histories."""
    from highwater.bench.auditor import beside_porcupine

    return "\n" + beside_porcupine()


def trace() -> str:
    """Validate a thousand trace lines of steered runs against each model."""
    from highwater.errors import Verdict
    from highwater.fuzz.simulator.steered import steps_for
    from highwater.spec.formats.trace import write_trace
    from highwater.spec.trace import read_layouts, validate_trace

    lines = []
    with temporary_folder("bench-") as folder:
        for model in read_layouts():
            path = folder / "trace.ndjson"
            write_trace(path, steps_for(model, TRACED_STEPS))
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            (found,) = validate_trace(path, model).entities
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            assert (found.verdict, found.steps) == (Verdict.VALID, TRACED_STEPS), (model, found.steps, found.reason)
            busy = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            lines.append(f"{model} {found.seconds:.1f} s ({busy:.1f} s of processor time)")
    return f"{TRACED_STEPS:,} lines: {'; '.join(lines)}"


def second_start() -> str:
    """Measure the start of the command line."""
    started = time.perf_counter()
    subprocess.run([sys.executable, "-m", "highwater", "--help"], capture_output=True, check=True)
    return f"{time.perf_counter() - started:.2f} s to start the command line"


BENCHES: dict[str, Callable[[], str]] = {
    "codec": codec,
    "kernel": kernel,
    "audit": auditor,
    "edn": edn,
    "ndjson": ndjson,
    "scale": audit_by_size,
    "porcupine": audit_beside_porcupine,
    "simulator": simulator,
    "sweep": sweep,
    "broker": lambda: broker(1, "1"),
    "replicated": lambda: broker(3, "all"),
    "recovery": recovery,
    "fuzz": fuzz,
    "closed": closed,
    "trace": trace,
    "start": second_start,
    "partitions": many_partitions,
    "failover": failover,
    "proxy": proxy,
}


def main() -> None:
    unknown = [name for name in sys.argv[1:] if name not in BENCHES]
    if unknown:
        sys.exit(f"highwater: there is no figure {', '.join(unknown)}; choose from {', '.join(BENCHES)}")
    for name in sys.argv[1:] or BENCHES:
        try:
            figure = BENCHES[name]()
        except UsageError as error:  # a required tool is not installed
            figure = f"unsupported: {error}"
        print(f"{name:12} {figure}", flush=True)


if __name__ == "__main__":
    main()
