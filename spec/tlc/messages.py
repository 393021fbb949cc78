"""Parse the messages of TLC (`-tool`) and derive the result of a run.

A search is exhaustive only if TLC finished with an empty queue: TLC also ends with exit code 0 and the message
"success" if the spec itself stops it (`TLCSet("exit", TRUE)`).
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from highwater.errors import UsageError, Verdict
from highwater.spec.tlc.values import Value, parse

START: Final = re.compile(r"@!@!@STARTMSG (\d+):(\d) @!@!@")
END: Final = "@!@!@ENDMSG"
# Message codes of TLC, from tlc2.output.EC.
VERSION, SUCCESS, TOTALS, PROGRESS, PROGRESS_SIMULATION, DEPTH = 2262, 2193, 2199, 2200, 2209, 2194
STATE, STUTTERING, BACK_TO, COVERAGE = 2217, 2218, 2122, 2772
INVARIANT, INVARIANT_INITIALLY, ACTION_PROPERTY, TEMPORAL, DEADLOCK = 2110, 2107, 2112, 2116, 2114
PROPERTY_INITIALLY = 2108
BROKEN: Final = {
    INVARIANT: re.compile(r"Invariant (\S+) is violated"),
    INVARIANT_INITIALLY: re.compile(r"Invariant (\S+) is violated"),
    ACTION_PROPERTY: re.compile(r"Action property (.+?) is violated"),
    PROPERTY_INITIALLY: re.compile(r"[Pp]roperty (.+?) is violated"),
    TEMPORAL: re.compile(r"(Temporal properties)"),
    DEADLOCK: re.compile(r"(Deadlock)"),
}
VIOLATED_EXITS: Final = frozenset({11, 12, 13})
# Exit codes for an error in the spec or its configuration; for UNDEFINED, the input of the spec may be wrong instead.
UNDEFINED: Final = (75, 76, 77)
SPEC_FAULTS: Final = {
    10: "an assumption is false",
    14: "an Assert failed",
    150: "does not parse",
    151: "bad configuration",
    **dict.fromkeys(UNDEFINED, "cannot be evaluated"),
}
COUNTS: Final = re.compile(
    r"([\d,]+) states generated(?: \([^)]*\))?, "
    r"(-1|[\d,]+) distinct states found(?: \([^)]*\))?, (-1|[\d,]+) states left"
)
PLACE: Final = re.compile(
    r"line (\d+), col(?:umn)? (\d+)(?: to line \d+, col(?:umn)? \d+)?(?: (?:of|in) (?:module )?(\w+))?"
)
# An evaluation error lists the enclosing expressions, the innermost last.
NESTED: Final = re.compile(r"^\d+\. Line (\d+), column (\d+) to line \d+, column \d+ in (\w+)", re.MULTILINE)
NO_MEMORY: Final = re.compile(r"OutOfMemoryError|ran out of memory|Java heap space")
NOISE: Final = re.compile(
    r"^\W*$|^(Parsing file|Semantic processing|Starting|SANY finished|Computing initial|Running|TLC2|Finished)|"
    r"^Please run the Java|Errors: \d|^line \d+, col|Warning|Implied-temporal checking|Java method$|^public static|"
    r"^but it produced"
)
MODULE_FILE: Final = re.compile(r"Parsing file (\S+\.tla)")


class State(msgspec.Struct, frozen=True):
    """One state of a counterexample: its number from 1, the action that led to it, and its variables as TLC text."""

    number: int
    action: str
    text: str

    @property
    def variables(self) -> dict[str, Value]:
        return dict(parse_conjuncts(self.text))


class TlcResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a run. `distinct` states, `depth` and `queue` are -1 if TLC did not print them.

    `reason` explains `unknown`; for `invalid`, `broken` is the invariant or property, `trace` the counterexample.
    `lines` are the lines that the spec itself printed; `coverage` counts the states that each action generated.
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


@dataclass(slots=True)
class Messages:
    """The output of a run: messages (code, text), and lines outside of messages."""

    frames: list[tuple[int, str]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def add(self, code: int, text: str) -> None:
        """Add a message, or with code 0 a line outside of any message."""
        if code:
            self.frames.append((code, text))
        else:
            self.lines.append(text)

    def of(self, *codes: int) -> list[str]:
        return [text for code, text in self.frames if code in codes]

    def mention(self, pattern: re.Pattern[str]) -> bool:
        return any(pattern.search(text) for text in (*self.lines, *(text for _, text in self.frames)))


def parse_conjuncts(text: str) -> Iterator[tuple[str, Value]]:
    r"""Yield name and value of each variable of a state: `/\ name = value`; a single variable has no leading `/\`."""
    for part in re.split(r"(?:^|\n)/\\ ", text.strip()):
        name, equals, value = part.partition(" = ")
        if equals:
            yield name.strip(), parse(value)


def read_frames(source: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield (code, text) of each message, and (0, line) for lines outside; one message may interrupt another."""
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


def counts_in(text: str) -> tuple[int, int, int] | None:
    """Return the states generated, distinct and on the queue, or None; -1 where random walks do not count."""
    found = COUNTS.search(text)
    if found is None:
        return None
    generated, distinct, queue = (int(count.replace(",", "")) for count in found.groups())
    return generated, distinct, queue


class CannotEvaluateError(UsageError):
    """TLC could not evaluate an expression of the module; `lines` are those that it printed before."""

    def __init__(self, what: str, where: str, hint: str, lines: tuple[str, ...]) -> None:
        super().__init__(what, where=where, hint=hint)
        self.lines = lines


def to_result(
    messages: Messages, code: int, timeout_reason: str, module: Path, seconds: float, *, simulated: bool
) -> TlcResult:
    if code in SPEC_FAULTS and not timeout_reason and not messages.mention(NO_MEMORY):
        raise _spec_fault(messages, code, module)
    counts = [found for text in messages.of(TOTALS, PROGRESS_SIMULATION) if (found := counts_in(text))]
    generated, distinct, queue = counts[-1] if counts else (-1, -1, -1)
    verdict, reason = _verdict(messages, code, timeout_reason, queue, simulated=simulated)
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


def _verdict(messages: Messages, code: int, timeout_reason: str, queue: int, *, simulated: bool) -> tuple[Verdict, str]:
    if timeout_reason:
        return Verdict.UNKNOWN, timeout_reason
    if code and messages.mention(NO_MEMORY):
        return Verdict.UNKNOWN, "the JVM ran out of memory"
    if code in VIOLATED_EXITS:
        return Verdict.INVALID, ""
    if code == 0 and messages.of(SUCCESS) and queue == 0:
        return Verdict.VALID, ""
    if code == 0 and simulated:
        return Verdict.VALID, "random walks only"
    if code == 0:
        return Verdict.UNKNOWN, "TLC stopped before it explored every state"
    if code < 0:
        return Verdict.UNKNOWN, f"the JVM was killed by signal {-code}"
    return Verdict.UNKNOWN, f"TLC ended with exit code {code}"


def _broken(messages: Messages) -> str:
    for code, text in messages.frames:
        found = BROKEN[code].search(text) if code in BROKEN else None
        if found:
            return found[1]
    return "unknown property"


def _states(messages: Messages) -> Iterator[State]:
    """Yield the states of the counterexample. A message is `5: <Action line 1, col 2 to ...>` and the conjuncts."""
    for text in messages.of(STATE):
        head, _, body = text.partition("\n")
        found = re.match(r"(\d+): <(\w+)", head)
        if found:
            yield State(int(found[1]), "Init" if found[2] == "Initial" else found[2], body)
    # If the initial state violates an invariant, TLC prints it in that message and not as a state.
    for text in messages.of(INVARIANT_INITIALLY):
        yield State(1, "Init", text.partition("\n")[2])


def _depth(messages: Messages) -> int:
    found = [re.search(r"search is (\d+)", text) for text in messages.of(DEPTH)]
    return int(found[-1][1]) if found and found[-1] else -1


def _coverage(messages: Messages) -> dict[str, int]:
    """Return the total of each action from lines `<Action line ...>: distinct:total`; the last report counts."""
    found = (re.match(r"<(\w+) .*>: \d+:(\d+)", text) for text in messages.of(COVERAGE))
    return {match[1]: int(match[2]) for match in found if match}


def _spec_fault(messages: Messages, code: int, module: Path) -> UsageError:
    output = "\n".join(
        [*messages.lines, *(text for number, text in messages.frames if number not in {VERSION, PROGRESS})]
    )
    places = [*NESTED.finditer(output)] or [*PLACE.finditer(output)][:1]
    where = f"{_file_of(places[-1][3], messages, module)}:{places[-1][1]}:{places[-1][2]}" if places else str(module)
    what, hint = f"{SPEC_FAULTS[code]}: {_error_summary(output)}", "correct the module or its cfg"
    if code in UNDEFINED:
        return CannotEvaluateError(what, where, hint, tuple(messages.lines))
    return UsageError(what, where=where, hint=hint)


def _file_of(name: str | None, messages: Messages, module: Path) -> Path:
    """Return the file of a module; a syntax error names no module and is in the file that TLC read last."""
    parsed = [Path(path) for line in messages.lines for path in MODULE_FILE.findall(line)]
    if name:
        return next((path for path in parsed if path.stem == name), module.with_name(f"{name}.tla"))
    return parsed[-1] if parsed else module


def _error_summary(output: str) -> str:
    """Return the first three lines that are not routine output, joined."""
    return " ".join([line.strip() for line in output.splitlines() if not NOISE.search(line)][:3])
