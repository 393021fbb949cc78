"""Measure the figures of our own documents: `python -m highwater.experiments.figures [NAME...]`, all with `make bench`.

Compare figures of one machine and one run only. `highwater bench` measures brokers.
"""

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any, Final

from highwater.errors import UsageError
from highwater.experiments.figures.audits import beside_porcupine, by_size
from highwater.reports.rules.findings import Promise
from highwater.reports.rules.partition import CANDIDATES, check
from highwater.temporary import temporary_folder

SWEPT = range(10)
AUDITED = 1_000_000
EDN_OPERATIONS = 100_000
NDJSON_OPERATIONS = 100_000
FUZZ_LEARNING_S = 90.0
FUZZ_S = 30.0
TRACED_STEPS = 1_000


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
    return (
        f"{mutated['frames'] / mutated['sending_seconds']:,.0f} mutated frames/s, "
        f"{structured['cases'] / structured['sending_seconds']:,.0f} structured "
        f"cases/s while sending ({_share(mutated)} and {_share(structured)} of the time) "
        f"on kfake; {structured['memory_peak_mb']} MB"
    )


def _share(summary: dict[str, Any]) -> str:
    return f"{summary['sending_seconds'] / summary['seconds']:.0%}"


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


FIGURES: Final[dict[str, Callable[[], str]]] = {
    "audit": auditor,
    "edn": edn,
    "ndjson": ndjson,
    "scale": by_size,
    "porcupine": beside_porcupine,
    "sweep": sweep,
    "fuzz": fuzz,
    "trace": trace,
}


def main() -> None:
    unknown = [name for name in sys.argv[1:] if name not in FIGURES]
    if unknown:
        sys.exit(f"highwater: there is no figure {', '.join(unknown)}; choose from {', '.join(FIGURES)}")
    for name in sys.argv[1:] or FIGURES:
        try:
            figure = FIGURES[name]()
        except UsageError as error:  # a required tool is not installed
            figure = f"unsupported: {error}"
        print(f"{name:12} {figure}", flush=True)


if __name__ == "__main__":
    main()
