"""Run the self-test in parallel pytest processes, each with a separate cluster and a share of the cases.

On a target in virtual time there are at most as many as processor cores, because these processes never wait.
"""

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import msgspec

from highwater.conformance.runner import CASES, SUITE_INI, Options, environment
from highwater.conformance.self_test.trials import Trial, summary
from highwater.conformance.targets import runs_in_virtual_time
from highwater.errors import UsageError
from highwater.processes import python_command

TAIL: Final = 2000


def run_self_test(
    target: str, options: Options, on_progress: Callable[[], None] = lambda: None, *, cases: Path = CASES
) -> dict[str, Any]:
    """Run the self-test of the selected cases and return its summary; raises UsageError if pytest ends early."""
    cores = len(os.sched_getaffinity(0))
    jobs = min(options.jobs, cores) if runs_in_virtual_time(target) else options.jobs
    one_job = msgspec.structs.replace(options, jobs=1)

    def run(share: int) -> list[Trial]:
        trials = []
        for trial in _trials(target, one_job, f"{share}/{jobs}", cases):
            trials.append(trial)
            on_progress()
        return trials

    with ThreadPoolExecutor(jobs) as pool:
        trials = [trial for trials in pool.map(run, range(jobs)) for trial in trials]
    return dict(summary(trials))


def _trials(target: str, options: Options, share: str, cases: Path) -> Iterator[Trial]:
    reader, writer = os.pipe()
    command = python_command("-m", "pytest", "-c", str(SUITE_INI), f"--rootdir={cases.parent}", str(cases))
    command += [
        "-p",
        "highwater.conformance.plugin",
        "-p",
        "highwater.conformance.self_test.plugin",
        f"--hw-share={share}",
    ]
    command += ["--tb=native"]  # tracebacks are not read, and rendering the default style takes longer than the cases
    command += [f"--hw-target={target}", f"--hw-report-fd={writer}", *options.arguments()]
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, pass_fds=[writer],
            env=environment(),
        )  # fmt: skip
        os.close(writer)
        with os.fdopen(reader, "rb") as lines:
            for event in map(msgspec.json.decode, lines):
                if "usage" in event:
                    raise UsageError(event["usage"])
                if "trial" in event:
                    yield msgspec.convert(event["trial"], Trial)
        if process.wait() not in (0, 5):
            output.seek(0)
            tail = output.read().decode(errors="replace").strip()[-TAIL:]
            raise UsageError(f"the self-test ended: pytest exit code {process.returncode}: {tail}")
