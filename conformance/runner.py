"""Run the cases against each target in a separate pytest process and collect the verdicts as they arrive."""

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from highwater.conformance.patterns import check_patterns, natural_key
from highwater.conformance.report import stamp_now
from highwater.conformance.running.choice import Choice
from highwater.conformance.running.verdicts import (
    CaseResult,
    CaseVerdict,
    all_expectations,
    count_verdicts,
)
from highwater.errors import UsageError
from highwater.processes import python_command
from highwater.releases import check_version

SUITE_INI: Final = Path(__file__).with_name("suite.ini")
CASES: Final = Path(__file__).with_name("cases")
STOP_TIMEOUT_S: Final = 20.0
TAIL: Final = 2000
INTERRUPTED: Final = "interrupted"
ENDED: Final = (0, 1, 5)
"""pytest's exit codes for all passed, some failed, none selected."""

SPANS: Final = ("set-up", "cases", "tear-down")

OnProgress = Callable[[str, CaseResult, int], None]
"""Takes the target, a result, and the number of cases that are selected."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of `highwater conform` that decide what is run."""

    areas: Sequence[str] = ()
    clauses: Sequence[str] = ()
    excluded: Sequence[str] = ()
    since: str = ""
    until: str = ""
    expect: Path | None = None
    level: str = "may"
    kafka_version: str = ""
    dry_run: bool = False
    timeout_s: float = 5.0
    keep: bool = False
    jobs: int = 4
    clusters: int = 0
    no_slow: bool = False
    long: bool = False
    repeat: int = 1
    command_config: Path | None = None
    guards_off: Sequence[str] = ()
    values: bool = False
    audit: bool = False

    def __post_init__(self) -> None:
        """Raise UsageError for a version that is none: each case would raise it again."""
        versions = {"--kafka-version": self.kafka_version, "--since": self.since, "--until": self.until}
        for option, version in versions.items():
            if version:
                check_version(version, option)

    @property
    def choice(self) -> Choice:
        """Return the limits on clauses and cases."""
        return Choice(
            areas=self.areas, clauses=self.clauses, excluded=self.excluded, level=self.level, since=self.since,
            until=self.until,
        )  # fmt: skip

    def arguments(self) -> list[str]:
        found = [f"--hw-level={self.level}", f"--hw-timeout={self.timeout_s}"]
        found += [f"--hw-area={area}" for area in self.areas]
        found += [f"--hw-clause={clause}" for clause in self.clauses]
        found += [f"--hw-exclude={pattern}" for pattern in self.excluded]
        found += [f"--hw-since={self.since}"] if self.since else []
        found += [f"--hw-until={self.until}"] if self.until else []
        found += [f"--hw-kafka-version={self.kafka_version}"] if self.kafka_version else []
        found += [f"--hw-expect={self.expect.absolute()}"] if self.expect else []
        found += ["--hw-dry-run"] if self.dry_run else []
        found += ["--hw-keep"] if self.keep else []
        found += ["--hw-values"] if self.values else []
        found += ["--hw-audit"] if self.audit else []
        found += ["--hw-no-slow"] if self.no_slow else []
        found += ["--hw-long"] if self.long else []
        found += [f"--hw-repeat={self.repeat}"] if self.repeat > 1 else []
        found += [f"--hw-command-config={self.command_config.absolute()}"] if self.command_config else []
        found += [f"--hw-guard-off={guard}" for guard in self.guards_off]
        # Each worker captures what its cases print in memory of its own: they share all open files. No traceback is
        # read, and the default style of pytest takes longer to write than the case took.
        return [
            *found,
            f"--hw-jobs={self.jobs}",
            f"--hw-clusters={self.clusters}",
            "--capture=sys",
            "--tb=native",
            "-p",
            "pytest_timeout",
        ]


def environment() -> dict[str, str]:
    """Return the variables of a pytest that loads no plugin but those that its command line names.

    What else is installed must not change the suite; Hypothesis alone takes a second and a half to import. Sets of
    strings have the same order in every run, so that a repeatable target gets the same requests.
    """
    return {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONHASHSEED": "0"}


def run_suite(
    targets: Sequence[str], options: Options | None = None, on_progress: OnProgress | None = None
) -> dict[str, Any]:
    """Run the suite and return the object of `highwater conform --json`; `on_progress` gets each result.

    Raises UsageError for an unknown target or clause, or if the only target cannot be reached; one of several that
    cannot be reached gets an error as its result. Raises Interrupted on Ctrl-C.
    """
    from highwater.conformance.targets import check_reachable, check_target, runs_in_virtual_time

    for name in targets:
        check_target(name)
    options = options or Options()
    check_patterns(options.clauses, "clauses")
    check_patterns(options.excluded, "excluded")
    expected = {name: all_expectations(name, options.expect) for name in targets}
    report_object: dict[str, Any] = {"targets": [], "run": msgspec.to_builtins(stamp_now(options))}
    for name in targets:
        try:
            if not options.dry_run:
                check_reachable(name)
            audited = msgspec.structs.replace(options, audit=options.audit or runs_in_virtual_time(name))
            entry, is_complete = _run_target(name, audited, on_progress)
        except UsageError as error:
            if len(targets) == 1:
                raise
            entry, is_complete = _entry(name, "unknown", {}, [_suite_error(f"unsupported: {error}")]), True
        report_object["targets"].append(entry | {"expectations": msgspec.to_builtins(expected[name])})
        if not is_complete:
            raise Interrupted(report_object)
    return report_object


class Interrupted(KeyboardInterrupt):
    """Raised on Ctrl-C; `report` has the results so far."""

    def __init__(self, report: dict[str, Any]) -> None:
        super().__init__()
        self.report = report


def _run_target(name: str, options: Options, on_progress: OnProgress | None) -> tuple[dict[str, Any], bool]:
    """Run one target; return its report entry and whether the run was completed."""
    with tempfile.TemporaryFile() as output:  # pytest would block on a full pipe that is not read
        process, reader = _start(name, options, output)
        received, is_complete = Received(), True
        watch = Stopwatch()
        try:
            with os.fdopen(reader, "rb") as lines:
                for line in lines:
                    event = msgspec.json.decode(line)
                    watch.note(event)
                    result = received.add(event)
                    if result is not None and on_progress:
                        on_progress(name, result, len(received.selected or ()))
            process.wait()
        except KeyboardInterrupt:
            is_complete, received.stopped = False, INTERRUPTED
        finally:
            _end(process)
        output.seek(0)
        if not received.stopped and (process.returncode not in ENDED or received.selected is None):
            tail = output.read().decode(errors="replace").strip()[-TAIL:]
            received.stopped = f"pytest ended with exit code {process.returncode}: {tail}"
    results = sorted([*received.results, *received.remaining()], key=lambda result: natural_key(result.case))
    entry = _entry(name, received.version, received.features, results, received.left_out)
    return entry | {"seconds": watch.seconds()}, is_complete


@dataclass(slots=True)
class Received:
    """What pytest reported of a run: `selected` has every case, `stopped` why some of them were not run."""

    version: str = "unknown"
    features: dict[str, list[int]] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    selected: list[CaseResult] | None = None
    results: list[CaseResult] = field(default_factory=list)
    stopped: str = ""

    def add(self, event: Mapping[str, Any]) -> CaseResult | None:
        """Note an event; return the result of a case if it is one. Raises UsageError for an error of the caller."""
        if "usage" in event:
            raise UsageError(event["usage"])
        self.version, self.features = event.get("target", self.version), event.get("features", self.features)
        self.left_out, self.stopped = event.get("left_out", self.left_out), event.get("stopped", self.stopped)
        if "selected" in event:
            self.selected = msgspec.convert(event["selected"], list[CaseResult])
        if "unreadable" in event:
            self.results.append(_suite_error(event["unreadable"]))
        if "result" not in event:
            return None
        self.results.append(msgspec.convert(event["result"], CaseResult))
        return self.results[-1]

    def remaining(self) -> list[CaseResult]:
        """Return the cases that were not run with the reason, and an error of the suite that has it; usually none."""
        known = {result.case for result in self.results}
        reason = self.stopped.splitlines()[0] if self.stopped else ""
        not_run = [
            msgspec.structs.replace(case, message=reason) for case in self.selected or () if case.case not in known
        ]
        if not self.stopped and not not_run:
            return []
        return [*not_run, _suite_error(f"{self.stopped or 'pytest left cases out'}; {len(not_run)} cases were not run")]


class Stopwatch:
    """Takes the seconds until the target answers, from there to the last result, and from there to the end."""

    def __init__(self) -> None:
        self._began = self._opened = self._last = time.monotonic()

    def note(self, event: Mapping[str, Any]) -> None:
        now = time.monotonic()
        if "target" in event:
            self._opened = self._last = now
        elif "result" in event:
            self._last = now

    def seconds(self) -> dict[str, float]:
        ended = time.monotonic()
        spans = (self._opened - self._began, self._last - self._opened, ended - self._last)
        return dict(zip(SPANS, (round(span, 1) for span in spans), strict=True))


def _start(name: str, options: Options, output: IO[bytes]) -> "tuple[subprocess.Popen[bytes], int]":
    """Start pytest; return the process and the descriptor from which to read its events."""
    reader, writer = os.pipe()
    command = python_command("-m", "pytest", "-c", str(SUITE_INI), f"--rootdir={CASES.parent}", str(CASES))
    command += [
        "-p",
        "highwater.conformance.plugin",
        f"--hw-target={name}",
        f"--hw-report-fd={writer}",
        *options.arguments(),
    ]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
        pass_fds=[writer], start_new_session=True, env=environment(),
    )  # fmt: skip
    os.close(writer)
    return process, reader


def _entry(
    name: str, version: str, features: dict[str, list[int]], results: list[CaseResult], left_out: Sequence[str] = ()
) -> dict[str, Any]:  # fmt: skip
    return {
        "target": name,
        "version": version,
        "features": features,
        "verdicts": count_verdicts(results),
        "left_out": list(left_out),
        "cases": [msgspec.to_builtins(result) for result in results],
    }


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Interrupt pytest, which then ends the target that it launched; kill it if it does not end in time."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_TIMEOUT_S)
    if process.poll() is None:
        process.kill()
        process.wait()


def _suite_error(message: str) -> CaseResult:
    """Return an error result for a run that was cut short, which otherwise would look complete."""
    return CaseResult(case="suite", clause="", level="MUST", verdict=CaseVerdict.ERROR, message=message)
