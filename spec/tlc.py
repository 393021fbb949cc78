"""Runs TLC in a process of its own and reads its `-tool` frames.

Only a search that ended by itself with an empty queue is exhaustive: exit code 0 and the message "success" come also
when a spec stops TLC.  A time-out, a kill or a JVM without memory is `unknown`, never `valid`.
"""

import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from spec.formats.verdict import UsageError, Verdict
from spec.tla_values import Value, parse
from spec.toolchain import java, tlc_jar

START: Final = re.compile(r"@!@!@STARTMSG (\d+):(\d) @!@!@")
END: Final = "@!@!@ENDMSG"
# Messages by what they say. TLC's numbers: tlc2.output.EC.
VERSION, SUCCESS, TOTALS, PROGRESS, PROGRESS_SIMULATION, DEPTH = 2262, 2193, 2199, 2200, 2209, 2194
STATE, STUTTERING, BACK_TO, COVERAGE = 2217, 2218, 2122, 2772
INVARIANT, INVARIANT_INITIALLY, ACTION_PROPERTY, TEMPORAL, DEADLOCK = 2110, 2107, 2112, 2116, 2114
BROKEN: Final = {
    INVARIANT: re.compile(r"Invariant (\S+) is violated"),
    INVARIANT_INITIALLY: re.compile(r"Invariant (\S+) is violated"),
    ACTION_PROPERTY: re.compile(r"Action property (\S+) is violated"),
    TEMPORAL: re.compile(r"(Temporal properties)"),
    DEADLOCK: re.compile(r"(Deadlock)"),
}
VIOLATED_EXITS: Final = frozenset({11, 12, 13})
# Exit codes that mean the spec or its configuration is at fault.
SPEC_FAULTS: Final = {
    10: "an assumption is false",
    14: "an Assert failed",
    150: "does not parse",
    151: "bad configuration",
    **dict.fromkeys((75, 76, 77), "cannot be evaluated"),
}
COUNTS: Final = re.compile(
    r"([\d,]+) states generated(?: \([^)]*\))?, "
    r"(-1|[\d,]+) distinct states found(?: \([^)]*\))?, (-1|[\d,]+) states left"
)
PLACE: Final = re.compile(
    r"line (\d+), col(?:umn)? (\d+)(?: to line \d+, col(?:umn)? \d+)?(?: (?:of|in) (?:module )?(\w+))?"
)
# An evaluation error lists the expressions it was in, the innermost last.
NESTED: Final = re.compile(r"^\d+\. Line (\d+), column (\d+) to line \d+, column \d+ in (\w+)", re.MULTILINE)
NO_MEMORY: Final = re.compile(r"OutOfMemoryError|ran out of memory|Java heap space")
NOISE: Final = re.compile(
    r"^\W*$|^(Parsing file|Semantic processing|Starting|SANY finished|Computing initial|Running|TLC2|Finished)|"
    r"^Please run the Java|Errors: \d|^line \d+, col|Warning|Java method$|^public static|^but it produced"
)
MODULE_FILE: Final = re.compile(r"Parsing file (\S+\.tla)")
QUIET_JVM: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
FAST_JVM: Final = ("-XX:+UseParallelGC",)


class State(msgspec.Struct, frozen=True):
    """One state of a counterexample: its number from 1, the action that led there, and its variables as TLC text."""

    number: int
    action: str
    text: str

    @property
    def variables(self) -> dict[str, Value]:
        return dict(parse_conjuncts(self.text))


class TlcResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a run said. `distinct` states, `depth` and `queue` are -1 where TLC did not say.

    `reason` explains `unknown`; `broken` names the invariant or property of `invalid`, and `trace` shows how.
    `lines` is what the spec itself printed; `coverage` counts the states that each action generated.
    """

    verdict: Verdict
    reason: str = ""
    broken: str = ""
    trace: tuple[State, ...] = ()
    generated: int = -1
    distinct: int = -1
    queue: int = -1
    depth: int = -1
    seconds: float = 0.0
    version: str = ""
    lines: tuple[str, ...] = ()
    coverage: dict[str, int] = {}


@dataclass(frozen=True, slots=True)
class Progress:
    generated: int
    distinct: int
    queue: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to run.

    `simulate` = (walks, depth, seed) walks at random; `library` holds modules beside those in the root's folder;
    `small` starts the JVM for a run of a few seconds.
    """

    workers: int = 1
    timeout_s: float = 600
    memory_mb: int = 2048
    deadlock: bool = False
    coverage: bool = False
    simulate: tuple[int, int, int] | None = None
    library: Path | None = None
    small: bool = False


@dataclass(slots=True)
class _Messages:
    """Everything a run said, frame by frame."""

    frames: list[tuple[int, str]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def of(self, *codes: int) -> list[str]:
        return [text for code, text in self.frames if code in codes]

    def mention(self, pattern: re.Pattern[str]) -> bool:
        return any(pattern.search(text) for text in (*self.lines, *(text for _, text in self.frames)))


def run_tlc(
    module: Path, config: Path, options: Options | None = None, *, on_progress: Callable[[Progress], None] | None = None
) -> TlcResult:
    """Check `module` under `config`.

    Raises UsageError with file and line when they do not parse or cannot be evaluated.
    """
    options = options or Options()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="highwater-tlc-") as scratch:
        process = _start(module, config, options, Path(scratch))
        timed_out = threading.Event()

        def stop() -> None:
            timed_out.set()
            _kill(process)

        timer = threading.Timer(options.timeout_s, stop)
        timer.start()
        try:
            messages = _listen(process, started, on_progress)
            code = process.wait()
        finally:
            timer.cancel()
            _kill(process)
    late = f"no end within {options.timeout_s:g} s" if timed_out.is_set() else ""
    return _judge(messages, code, late, module, time.monotonic() - started, simulated=options.simulate is not None)


def parse_conjuncts(text: str) -> Iterator[tuple[str, Value]]:
    r"""The variables of a state: `/\ name = value` each; a lone variable comes without the first mark."""
    for part in re.split(r"(?:^|\n)/\\ ", text.strip()):
        name, equals, value = part.partition(" = ")
        if equals:
            yield name.strip(), parse(value)


def _start(module: Path, config: Path, options: Options, scratch: Path) -> subprocess.Popen[str]:
    """A process group of its own, so that a time-out leaves nothing behind."""
    # Names inside these folders collide within a second, so each run has fresh ones.
    metadata, temporary = scratch / "metadata", scratch / "tmp"
    temporary.mkdir()
    library = [f"-DTLA-Library={options.library.resolve()}"] if options.library else []
    arguments = [
        *(str(java().executable), *(QUIET_JVM if options.small else FAST_JVM), f"-Xmx{options.memory_mb}m", "-Xss16m"),
        *(f"-Djava.io.tmpdir={temporary}", *library, "-cp", str(tlc_jar().path), "tlc2.TLC", "-tool"),
        *("-workers", str(options.workers), "-checkpoint", "0", "-metadir", str(metadata)),
        *([] if options.deadlock else ["-deadlock"]),  # TLC's flag turns the check off
        *(["-coverage", "1"] if options.coverage else []),
        *_simulation(options),
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


def _listen(
    process: subprocess.Popen[str], started: float, on_progress: Callable[[Progress], None] | None
) -> _Messages:
    assert process.stdout is not None
    messages = _Messages()
    with process.stdout as source:
        for code, text in _frames(source):
            if code == 0:
                messages.lines.append(text)
                continue
            messages.frames.append((code, text))
            counts = COUNTS.search(text) if code == PROGRESS else None
            if counts and on_progress:
                generated, distinct, queue = map(_number, counts.groups())
                on_progress(Progress(generated, distinct, queue, time.monotonic() - started))
    return messages


def _frames(source: Iterable[str]) -> Iterator[tuple[int, str]]:
    """(code, text) of each message, and (0, line) for what stands outside; one message may interrupt another."""
    open_frames: list[tuple[int, list[str]]] = []
    for line in source:
        start = START.search(line)
        if start:
            open_frames.append((int(start[1]), []))
        elif line.startswith(END) and open_frames:
            code, body = open_frames.pop()
            yield code, "".join(body).strip()
        elif open_frames:
            open_frames[-1][1].append(line)
        else:
            yield 0, line.rstrip("\n")


def _number(text: str) -> int:
    return int(text.replace(",", ""))


def _judge(messages: _Messages, code: int, late: str, module: Path, seconds: float, *, simulated: bool) -> TlcResult:
    if code in SPEC_FAULTS and not late and not messages.mention(NO_MEMORY):
        raise _spec_fault(messages, code, module)
    counts = [
        tuple(map(_number, found.groups()))
        for text in messages.of(TOTALS, PROGRESS_SIMULATION)
        if (found := COUNTS.search(text))
    ]
    generated, distinct, queue = counts[-1] if counts else (-1, -1, -1)
    verdict, reason = _verdict(messages, code, late, queue, simulated=simulated)
    return TlcResult(
        verdict=verdict,
        reason=reason,
        broken=_broken(messages) if verdict is Verdict.INVALID else "",
        trace=tuple(_states(messages)) if verdict is Verdict.INVALID else (),
        generated=generated,
        distinct=distinct,
        queue=queue,
        depth=_depth(messages),
        seconds=seconds,
        version=next(iter(messages.of(VERSION)), ""),
        lines=tuple(messages.lines),
        coverage=_coverage(messages),
    )


def _verdict(messages: _Messages, code: int, late: str, queue: int, *, simulated: bool) -> tuple[Verdict, str]:
    if late:
        return Verdict.UNKNOWN, late
    if code and messages.mention(NO_MEMORY):
        return Verdict.UNKNOWN, "the JVM ran out of memory"
    if code in VIOLATED_EXITS:
        return Verdict.INVALID, ""
    if code == 0 and messages.of(SUCCESS) and queue == 0:
        return Verdict.VALID, ""
    if code == 0 and simulated:
        return Verdict.VALID, "random walks only"
    if code == 0:
        return Verdict.UNKNOWN, "TLC stopped before it had seen every state"
    if code < 0:
        return Verdict.UNKNOWN, f"the JVM was killed by signal {-code}"
    return Verdict.UNKNOWN, f"TLC ended with exit code {code}"


def _broken(messages: _Messages) -> str:
    for code, text in messages.frames:
        found = BROKEN[code].search(text) if code in BROKEN else None
        if found:
            return found[1]
    return "unknown property"


def _states(messages: _Messages) -> Iterator[State]:
    """`5: <Action line 1, col 2 to ...>` and the conjuncts; an initial state is called Init."""
    for text in messages.of(STATE):
        head, _, body = text.partition("\n")
        found = re.match(r"(\d+): <(\w+)", head)
        if found:
            yield State(int(found[1]), "Init" if found[2] == "Initial" else found[2], body)
    # A trace that violates an invariant initially has no frame of its own.
    for text in messages.of(INVARIANT_INITIALLY):
        yield State(1, "Init", text.partition("\n")[2])


def _depth(messages: _Messages) -> int:
    found = [re.search(r"search is (\d+)", text) for text in messages.of(DEPTH)]
    return int(found[-1][1]) if found and found[-1] else -1


def _coverage(messages: _Messages) -> dict[str, int]:
    """`<Action line ...>: distinct:total`, the last report."""
    found = (re.match(r"<(\w+) .*>: \d+:(\d+)", text) for text in messages.of(COVERAGE))
    return {each[1]: int(each[2]) for each in found if each}


def _spec_fault(messages: _Messages, code: int, module: Path) -> UsageError:
    said = "\n".join(
        [*messages.lines, *(text for number, text in messages.frames if number not in {VERSION, PROGRESS})]
    )
    places = [*NESTED.finditer(said)] or [*PLACE.finditer(said)][:1]
    where = f"{_file_of(places[-1][3], messages, module)}:{places[-1][1]}:{places[-1][2]}" if places else str(module)
    return UsageError(f"{SPEC_FAULTS[code]}: {_gist(said)}", where=where, mend="correct the module or its cfg")


def _file_of(name: str | None, messages: _Messages, module: Path) -> Path:
    """The place names a module; a syntax error only says where in the file that was read last."""
    parsed = [Path(path) for line in messages.lines for path in MODULE_FILE.findall(line)]
    if name:
        return next((path for path in parsed if path.stem == name), module.with_name(f"{name}.tla"))
    return parsed[-1] if parsed else module


def _gist(said: str) -> str:
    """The first lines that say something."""
    return " ".join([line.strip() for line in said.splitlines() if not NOISE.search(line)][:3])
