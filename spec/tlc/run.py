"""Run TLC in a separate process. A time-out, a kill or a JVM that runs out of memory is `unknown`, never `valid`."""

import atexit
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from highwater.java_classes import ClassArchive
from highwater.processes import Guardian
from highwater.spec.tlc.messages import PROGRESS, Messages, TlcResult, counts_in, read_frames, to_result
from highwater.temporary import temporary_folder
from highwater.toolchain import java, tlc_jar

QUIET_JVM: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
FAST_JVM: Final = ("-XX:+UseParallelGC",)
TIMED_OUT: Final = "no result within"
"""How the reason of a result begins if the time was over."""


_running: Final[set[subprocess.Popen[str]]] = set()
_stopped: Final[set[subprocess.Popen[str]]] = set()


class StoppedError(Exception):
    """A run was stopped by `stop_all`: it has no result."""


def stop_all() -> None:
    """Kill every running TLC; `run_tlc` raises StoppedError in its thread."""
    for process in list(_running):
        _stopped.add(process)
        _kill(process)


@dataclass(frozen=True, slots=True)
class Progress:
    """Counts of states: generated, distinct, and still in the queue; `seconds` since the start."""

    generated: int
    distinct: int
    queue: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of a run of TLC.

    `simulate` = (walks, depth, seed) makes random walks instead of a search; `library`: more folders with modules;
    `small` chooses JVM flags for a run of a few seconds; `dump` writes the state graph to `<dump>.dot`.
    """

    workers: int = 1
    timeout_s: float = 600
    memory_mb: int = 2048
    deadlock: bool = False
    coverage: bool = False
    simulate: tuple[int, int, int] | None = None
    library: tuple[Path, ...] = ()
    small: bool = False
    dump: Path | None = None


def run_tlc(
    module: Path, config: Path, options: Options | None = None, *, on_progress: Callable[[Progress], None] | None = None
) -> TlcResult:
    """Check `module` with the cfg file `config`.

    Raises UsageError with file and line if they cannot be parsed or evaluated, and StoppedError after `stop_all`.
    """
    options = options or Options()
    started = time.monotonic()
    with temporary_folder("tlc-") as scratch:
        guardian = _guardian()  # before TLC: it takes a moment to start
        classes = ClassArchive("tlc", tlc_jar().sha256)
        is_first = classes.claim()
        shared = classes.writing(scratch) if is_first else classes.using()
        process = _start(module, config, options, scratch, shared)
        guardian.watch(process.pid)
        _running.add(process)
        timed_out = threading.Event()

        def stop() -> None:
            timed_out.set()
            _kill(process)

        timer = threading.Timer(options.timeout_s, stop)
        timer.start()
        try:
            messages = _read_output(process, started, on_progress)
            code = process.wait()
            if is_first and code >= 0:  # else it was killed, perhaps while it wrote
                classes.keep(scratch)
        finally:
            timer.cancel()
            _kill(process)
            guardian.forget(process.pid)
            _running.discard(process)
            classes.release()
    if process in _stopped:
        _stopped.discard(process)
        raise StoppedError
    timeout_reason = f"{TIMED_OUT} {options.timeout_s:g} s" if timed_out.is_set() else ""
    return to_result(
        messages, code, timeout_reason, module, time.monotonic() - started, simulated=options.simulate is not None
    )


@cache
def _guardian() -> Guardian:
    """Return the process that kills TLC if this one is killed; it ends with this one."""
    guardian = Guardian()
    atexit.register(guardian.close)
    return guardian


def _start(module: Path, config: Path, options: Options, scratch: Path, java_flags: list[str]) -> subprocess.Popen[str]:
    """Start TLC in its own process group, so that after a time-out all its processes can be killed."""
    # TLC names files in these folders by the second, so concurrent runs need separate folders.
    metadata, temporary = scratch / "metadata", scratch / "tmp"
    temporary.mkdir()
    folders = os.pathsep.join(str(folder.resolve()) for folder in options.library)
    library = [f"-DTLA-Library={folders}"] if folders else []
    arguments = [
        *(str(java().executable), *(QUIET_JVM if options.small else FAST_JVM), f"-Xmx{options.memory_mb}m", "-Xss16m"),
        *java_flags,
        *(f"-Djava.io.tmpdir={temporary}", *library, "-cp", str(tlc_jar().path), "tlc2.TLC", "-tool"),
        # Check liveness only at the end, with a fixed fingerprint function: otherwise the counterexample varies by run.
        *("-lncheck", "final", "-fp", "0"),
        *("-workers", str(options.workers), "-checkpoint", "0", "-metadir", str(metadata)),
        *([] if options.deadlock else ["-deadlock"]),  # TLC's flag turns the check off
        *(["-coverage", "1"] if options.coverage else []),
        *_simulation(options),
        *(["-dump", "dot,actionlabels", str(options.dump)] if options.dump else []),
        *("-config", str(config.resolve()), module.name),
    ]
    return subprocess.Popen(
        arguments,
        cwd=module.resolve().parent,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )


def _simulation(options: Options) -> list[str]:
    if options.simulate is None:
        return []
    walks, depth, seed = options.simulate
    return ["-simulate", f"num={walks}", "-depth", str(depth), "-seed", str(seed)]


def _kill(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)


def _read_output(
    process: subprocess.Popen[str], started: float, on_progress: Callable[[Progress], None] | None
) -> Messages:
    assert process.stdout is not None
    messages = Messages()
    with process.stdout as source:
        for code, text in read_frames(source):
            messages.add(code, text)
            counts = counts_in(text) if code == PROGRESS else None
            if counts and on_progress:
                on_progress(Progress(*counts, time.monotonic() - started))
    return messages
