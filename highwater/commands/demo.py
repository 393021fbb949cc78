"""Run everything once: specification, simulation, trace, conformance, fuzzing, two fault tests.

Each step writes its result into the run's folder before the next begins, so an interrupted run still gets a page.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from highwater.errors import ExitCode, Verdict
from highwater.fuzz.schedule import Fault, Schedule, write_schedule
from highwater.reports.audit import audit
from highwater.reports.report import report
from highwater.reports.verdicts import AuditResult, write_verdict
from highwater.results import new_folder, write_json

TOPIC = "highwater"
SEEDS = range(24)
TRACED_SEED = 8
FUZZ_SECONDS = 6.0
MODEL = "MCHwTruncation_elections"
HEADLINE_GUARDS = ("TruncateByEpoch", "AckAfterCommit")
QUICK_FAILOVER = {"metadata_store_session_timeout_ms": 2_000, "replica_lag_time_max_ms": 3_000}


def _fault(at_ms: int, for_ms: int, kind: str, node: str) -> Fault:
    return Fault(at_ms=at_ms, for_ms=for_ms, kind=kind, nodes=(node,))


# A leader is killed and restarted; another is paused until it is replaced, and wakes as a zombie.
KILLED_AND_PAUSED = Schedule(
    faults=(
        _fault(2_000, 2_500, "kill", f"leader({TOPIC},0)"),
        _fault(7_500, 3_000, "pause", f"leader({TOPIC},1)"),
    ),
    duration_ms=13_000,
)
# The leader loses its followers for a second and dies; they elect a leader without its latest records.
ACKNOWLEDGED_ALONE = Schedule(
    faults=(
        _fault(2_000, 1_300, "pause", f"followers({TOPIC},0)"),
        _fault(3_200, 3_800, "kill", f"leader({TOPIC},0)"),
    ),
    duration_ms=9_500,
)


@dataclass(frozen=True, slots=True)
class FaultTest:
    """One fault test of the demo, with the verdict expected from its audit."""

    folder: str
    title: str
    story: str
    guards_off: tuple[str, ...]
    schedule: Schedule
    partitions: int
    expected: Verdict
    as_expected: str
    """What is said of the expected verdict."""


FAULT_TESTS = (
    FaultTest(
        "1-all-guards-on",
        "All guards on",
        "Three brokers; one is killed, another paused, while clients write and read.",
        (),
        KILLED_AND_PAUSED,
        2,
        Verdict.VALID,
        "Nothing was found, as it should be.",
    ),
    FaultTest(
        "2-ack-after-commit-off",
        "AckAfterCommit off",
        "The leader acknowledges acks=all after its own append. Its followers are paused, it is killed, and they "
        "elect a leader without the records that only the old leader had.",
        ("AckAfterCommit",),
        ACKNOWLEDGED_ALONE,
        1,
        Verdict.INVALID,
        "The planted bug is found, as it should be.",
    ),
)


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the demo, with its usual time on two cores, and what should come out."""

    name: str
    about_s: int
    expected: str
    run: Callable[[], str]


@dataclass(slots=True)
class Demo:
    folder: Path
    console: Console
    seconds: dict[str, float] = field(default_factory=dict)
    surprises: list[str] = field(default_factory=list)

    def run(self) -> ExitCode:
        steps = self.steps()
        left_s = sum(step.about_s for step in steps)
        self.console.print(f"{len(steps)} steps, about {left_s} s on two idle cores; the last step has a planted bug.")
        interrupted = False
        for number, step in enumerate(steps, 1):
            started = time.monotonic()
            self.console.print(f"[bold]{number}/{len(steps)} {step.name}[/bold] [dim](about {left_s} s left)[/dim]")
            self.console.print(f"  expected: {step.expected}")
            try:
                outcome = step.run()
            except KeyboardInterrupt:
                self.console.print("  interrupted; what was written is kept")
                interrupted = True
                break
            left_s -= step.about_s
            self.seconds[step.name] = round(time.monotonic() - started, 1)
            self.console.print(f"  {outcome} [dim]({self.seconds[step.name]} s)[/dim]")
        write_json(self.folder / "steps.json", {"seconds": self.seconds, "surprises": self.surprises})
        self._end()
        if interrupted:
            return ExitCode.UNDECIDED
        return ExitCode.VIOLATED if self.surprises else ExitCode.HELD

    def steps(self) -> list[Step]:
        """Return the steps in their order."""
        return [
            Step("specification", 20, "the rule holds, and two models without a guard break it", self.check_spec),
            Step("simulation", 9, "no invariant is violated", self.simulate),
            Step("trace", 50, "the trace is accepted, and refused with one line dropped", self.validate_trace),
            Step("conformance", 65, "no case fails on the reference broker", self.conform),
            Step("fuzzing", 9, "no finding", self.fuzz),
            *(
                Step(each.title, 16, f"the audit says {each.expected}", partial(self.break_cluster, each))
                for each in FAULT_TESTS
            ),
        ]

    def _expect(self, good: object, surprise: str) -> None:
        if not good:
            self.surprises.append(surprise)

    # -- steps -----------------------------------------------------------------------------------

    def check_spec(self) -> str:
        from highwater.spec.check import check
        from highwater.spec.command_line import summary

        with self.console.status("TLC: checking the model with all guards, then without some"):
            results = check(models=[MODEL], guards=list(HEADLINE_GUARDS))
        result = summary(results)
        as_expected = all(result.verdict is Verdict.VALID for result in results)
        mutant = next(result for result in results if result.guard == HEADLINE_GUARDS[0])
        write_json(self.folder / "spec.json", {**result, "as_expected": as_expected, "story": mutant.counterexample()})
        self._expect(as_expected, "the specification did not give the expected results")
        states = sum(row["states"] or 0 for row in result["models"])
        broken = ", ".join(
            f"{row['guard']} off breaks {row['property']} in {row['length']} steps" for row in result["guards"]
        )
        return f"{states:,} states, the rule of KIP-320 holds; {broken}"

    def simulate(self) -> str:
        from highwater.commands.run_audit import audit_run
        from highwater.fuzz.simulator.cluster import Settings
        from highwater.fuzz.simulator.sweep import simulate

        summary = simulate(SEEDS, Settings(), audit=audit_run)
        write_json(self.folder / "simulate.json", summary)
        self._expect(not summary["findings"], "a simulated run broke an invariant")
        return (
            f"{summary['seeds']} seeds, {summary['events']:,} events, {summary['acknowledged']:,} records "
            f"acknowledged: {'violations' if summary['findings'] else 'clean'}"
        )

    def validate_trace(self) -> str:
        """Check that the spec accepts a simulator trace, and rejects it with one line dropped."""
        from highwater.fuzz.simulator.search import run_seed
        from highwater.spec.formats.trace import renumber, write_trace
        from highwater.spec.trace import validate_trace

        steps = run_seed(TRACED_SEED, tracing=True).steps
        whole, cut = self.folder / "trace.ndjson", self.folder / "trace-one-line-dropped.ndjson"
        write_trace(whole, steps)
        dropped = next(n for n, step in enumerate(steps) if step.action == "LeaderWrite" and n > len(steps) // 2)
        write_trace(cut, renumber(step for n, step in enumerate(steps) if n != dropped))
        with self.console.status("TLC: validating the traces"):
            accepted, refused = (validate_trace(trace_path, "hw_truncation") for trace_path in (whole, cut))
        words = {Verdict.VALID: "accepted", Verdict.INVALID: "refused", Verdict.UNKNOWN: "unknown"}
        at = next((entity.line for entity in refused.entities if entity.line is not None), None)
        result = {
            "steps": len(steps),
            "verdict": words[accepted.verdict],
            "dropped_verdict": words[refused.verdict],
            "dropped_at": at,
        }
        write_json(self.folder / "trace.json", result)
        self._expect(accepted.verdict is Verdict.VALID, "the spec refuses a trace of the simulator")
        self._expect(refused.verdict is Verdict.INVALID, "the spec accepts a trace with a line dropped")
        whole_run, cut_run = result["verdict"], result["dropped_verdict"]
        return f"{len(steps):,} steps {whole_run}; with line {dropped + 1} dropped {cut_run} at line {at}"

    def conform(self) -> str:
        from highwater.conformance.runner import Options, run_suite

        with self.console.status("conformance cases") as status:
            done: list[str] = []

            def on_progress(target: str, result: Any, selected: int) -> None:
                done.append(target)
                status.update(f"conformance cases: {len(done)} done")

            result = run_suite(["reference:3"], Options(no_slow=True), on_progress)
        write_json(self.folder / "conform.json", result)
        verdicts = result["targets"][0]["verdicts"]
        self._expect(not verdicts.get("fail") and not verdicts.get("error"), "the reference broker breaks a clause")
        return ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items() if count)

    def fuzz(self) -> str:
        from highwater.fuzz.wire.command_line import run_fuzz

        folder = self.folder / "fuzz"
        folder.mkdir()
        result = run_fuzz("reference", FUZZ_SECONDS, 1, folder)
        write_json(self.folder / "fuzz.json", result)
        findings = "; ".join(f"{found['id']}: {found['message']}" for found in result["findings"])
        self._expect(not findings, f"the fuzzer has findings in {folder}: {findings}")
        return f"{result['cases']:,} cases, {len(result['findings'])} findings"

    def break_cluster(self, fault_test: FaultTest) -> str:
        from highwater.conformance.targets.reference import ReferenceCluster
        from highwater.fuzz.chaos.workload.run import run_workload
        from highwater.fuzz.chaos.workload.topic import TopicLoad

        folder = self.folder / fault_test.folder
        folder.mkdir()
        write_json(
            folder / "about.json",
            {
                "title": fault_test.title,
                "story": fault_test.story,
                "guards_off": fault_test.guards_off,
                "expected": fault_test.expected,
                "as_expected": fault_test.as_expected,
            },
        )
        write_schedule(folder / "schedule.json", fault_test.schedule)
        with ReferenceCluster(3, guards_off=fault_test.guards_off, settings=dict(QUICK_FAILOVER)) as cluster:
            load = TopicLoad(partitions=fault_test.partitions)
            with self.console.status("clients write and read while brokers fail") as status:
                run_workload(cluster, cluster.bootstrap, folder, fault_test.schedule, load, say=status.update)
        result = audit(folder / "history.ndjson")
        write_verdict(folder, result)
        self._expect(
            result.verdict is fault_test.expected,
            f"{fault_test.title}: {result.verdict}, expected {fault_test.expected}",
        )
        is_expected = result.verdict is fault_test.expected
        return self._findings(result) + (f". {fault_test.as_expected}" if is_expected else "")

    def _findings(self, result: AuditResult) -> str:
        serious = [finding for finding in result.findings if finding.severity != "information"]
        found = ", ".join(f"{finding.count} {finding.name}" for finding in serious)
        return f"{result.operations:,} operations audited: {result.verdict}" + (f" ({found})" if found else "")

    # -- the end ---------------------------------------------------------------------------------

    def _end(self) -> None:
        page = report(self.folder)
        for surprise in self.surprises:
            self.console.print(f"[red]not as expected:[/red] {surprise}")
        self.console.print(f"\nPage: [bold]{page}[/bold]\n\nTry next:")
        for command in (
            f"highwater audit {self.folder / FAULT_TESTS[1].folder}",
            "highwater simulate --seeds 0:40 --guard-off AckAfterCommit",
            "highwater conform localhost:9092",
        ):
            self.console.print(f"  .venv/bin/{command}", highlight=False)


def demo(root: Path | None = None) -> ExitCode:
    """Run the demo in the folder `results/<UTC time>-demo`."""
    folder = new_folder("demo", **({"root": root} if root else {}))  # type: ignore[arg-type]
    return Demo(folder, Console(highlight=False)).run()


def demo_command() -> None:
    """Run the whole demo on its own cluster: specification, simulation, trace, conformance, fuzzing,
    a healthy cluster under faults, a broken one, their audits, and one page.

    About three minutes on two cores. Exit code 0 if every result is as expected, including that of the broken cluster.
    """
    raise typer.Exit(demo())
