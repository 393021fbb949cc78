"""Trace validation: is what a broker did a behaviour of the spec?

A trace becomes a module `Run` that holds it as a tuple of tuples; `Trace<Model>.tla` says which step of the spec each
line must be.  TLC then searches: accepted if and only if the last line was reached.  Traces are validated for each
entity (partition, group, controller) on its own.
"""

import re
import shutil
import tempfile
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from spec.formats.trace import Line, Step, out_of_order, read_lines
from spec.formats.verdict import UsageError, Verdict, worst
from spec.merged_traces import merge_lives, read_lives
from spec.models import CONTRACTS
from spec.tla_values import Function, Value, parse, to_tla
from spec.tlc import Options, run_tlc
from spec.tlc_messages import CannotEvaluateError, TlcResult

FOLDER: Final = Path(__file__).parent
UNLOGGED: Final = -2
ACCEPTED: Final = '"TRACE_ACCEPTED"'
REACHED: Final = re.compile(r'<<"REACHED", (\d+)>>')
SHOWN: Final = re.compile(r'^<< ?"SHOWN",', re.MULTILINE)
TIMEOUT_S: Final = 600
# Said by whoever starts and stops a node, of all entities at once.
EVERYWHERE: Final = ""
RUN: Final = """\
---- MODULE Run ----
EXTENDS {module}
RunMembers == {members}
RunShownLine == {shown}
{first}RunSteps == <<
{steps}
>>
RunStep(n) == RunSteps[n]
RunLength == Len(RunSteps)
====
"""


class Layout(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`trace.toml` of a model: what stands where in a line, for `Trace<Model>.tla`.

    `kind` of entity that it speaks of; `leaves_out`: fields that are empty in every trace it can judge; `first`:
    constants by name, with the action whose first line tells them and the field (TLC would look for it in each state).
    """

    kind: str
    members: tuple[str, ...]
    actions: dict[str, tuple[str, ...]]
    defaults: dict[str, Any] = {}
    leaves_out: tuple[str, ...] = ()
    first: dict[str, tuple[str, str]] = {}


@dataclass(frozen=True, slots=True)
class EntityVerdict:
    """`line` (from 1, of `file`) is the first that the spec has no step for, and `before` the state it found."""

    entity: str
    model: str
    verdict: Verdict
    steps: int
    seconds: float = 0.0
    file: str = ""
    line: int | None = None
    reason: str = ""
    before: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TraceVerdict:
    path: Path
    entities: tuple[EntityVerdict, ...]

    @property
    def verdict(self) -> Verdict:
        return worst([each.verdict for each in self.entities])


def validate_trace(
    path: Path,
    model: str | None = None,
    *,
    entity: str | None = None,
    timeout_s: float = TIMEOUT_S,
    explain: bool = True,
) -> TraceVerdict:
    """Hold every entity of a trace to the models that speak of it; UsageError: no such file or model.

    `path`: a file, or a folder of what processes wrote.

    A file whose lines are not numbered without a gap is refused before any model is asked.
    Without `explain` nothing is said of the state before a line that is refused, in half the time.
    """
    layouts = {model: read_layout(model)} if model is not None else read_layouts()
    files = read_lives(path) if path.is_dir() else [read_lines(path)]
    for file in files:
        gap = out_of_order(file)
        if gap is not None:
            return TraceVerdict(path, (_refused(path.name, "seq", len(file), *gap),))
    lines = merge_lives(files)
    entities = sorted({line.step.entity for line in lines} - {EVERYWHERE})
    chosen = [each for each in entities if entity in {None, each}]
    verdicts = [each for name in chosen for each in _judge(layouts, name, lines, timeout_s, explain)]
    if not verdicts:
        mend = f"there are {', '.join(entities)}" if entities else "record a run with tracing on"
        raise UsageError(f"holds no step of {entity or 'any entity'}", where=str(path), mend=mend)
    return TraceVerdict(path, tuple(verdicts))


def read_layouts() -> dict[str, Layout]:
    return {path.parent.name: read_layout(path.parent.name) for path in sorted(FOLDER.glob("*/trace.toml"))}


def read_layout(model: str) -> Layout:
    path = FOLDER / model / "trace.toml"
    try:
        return msgspec.convert(tomllib.loads(path.read_text()), Layout)
    except OSError as error:
        known = sorted(each.parent.name for each in FOLDER.glob("*/trace.toml"))
        raise UsageError(f"no model {model!r} for traces", mend=f"known: {', '.join(known)}") from error


def _judge(
    layouts: dict[str, Layout], entity: str, lines: Sequence[Line], timeout_s: float, explain: bool
) -> Iterable[EntityVerdict]:
    """A partition's steps are held to every model of partitions, each to its own actions among them."""
    mine = [line for line in lines if line.step.entity in {entity, EVERYWHERE}]
    named = [line for line in mine if line.step.entity == entity]
    everybody = read_layouts()
    kinds = [each.kind for line in named for each in everybody.values() if line.step.action in each.actions]
    known = {action for each in everybody.values() if each.kind in kinds[:1] for action in each.actions}
    for model, layout in layouts.items():
        if layout.kind not in (kinds[:1] or [layout.kind]) or _left_out(layout, named):
            continue
        strange = next((line for line in named if line.step.action not in known), None)
        if strange is not None:
            yield _refused(entity, model, len(named), strange, f"the spec has no action {strange.step.action}")
        else:
            yield _validate(model, layout, entity, mine, timeout_s, explain)


def _refused(entity: str, model: str, steps: int, line: Line, reason: str) -> EntityVerdict:
    return EntityVerdict(entity, model, Verdict.INVALID, steps, file=line.file, line=line.number, reason=reason)


def _left_out(layout: Layout, lines: Iterable[Line]) -> bool:
    return any(_look_up(line.step, path) for line in lines for path in layout.leaves_out)


def _validate(
    model: str, layout: Layout, entity: str, lines: Sequence[Line], timeout_s: float, explain: bool
) -> EntityVerdict:
    mine = [line for line in lines if line.step.action in layout.actions]
    named = [(member, line) for line in mine for member in _members(layout, line.step)]
    strange = next((line for member, line in named if type(member) is not type(named[0][0])), None)
    if strange is not None:
        return _refused(entity, model, len(mine), strange, f"not all members are alike in {describe(strange.step)}")
    members = frozenset(member for member, _ in named)
    mine = [line for line in mine if line.step.entity != EVERYWHERE or line.step.node in members]
    run = partial(_run, model, _module(layout, [line.step for line in mine], members), len(mine), timeout_s)
    try:
        result = run(0)
    except CannotEvaluateError as error:
        strange = mine[_reached(error.lines) - 1]
        return _refused(entity, model, len(mine), strange, f"the spec has no meaning for {describe(strange.step)}")
    told = partial(EntityVerdict, entity, model, steps=len(mine), seconds=result.seconds)
    if ACCEPTED in result.lines:
        return told(Verdict.VALID)
    if result.verdict is not Verdict.VALID:
        return told(Verdict.UNKNOWN, reason=result.reason or f"{result.broken} is violated")
    reached = _reached(result.lines)
    refused = mine[reached - 1]
    before = _shown(run(reached).lines) if explain else ()
    reason = f"no step of the spec is {describe(refused.step)}"
    return told(Verdict.INVALID, file=refused.file, line=refused.number, reason=reason, before=tuple(before))


def _reached(lines: Iterable[str]) -> int:
    return max((int(found[1]) for line in lines if (found := REACHED.match(line))), default=1)


def _members(layout: Layout, step: Step) -> Iterable[Value]:
    for path in layout.members:
        found = _look_up(step, path)
        yield from found if isinstance(found, list) else [] if found is None else [found]


def _look_up(step: Step, path: str) -> Any:
    part, _, name = path.partition(".")
    return {"choices": step.choices, "state": step.state}[part].get(name)


def _row(layout: Layout, step: Step) -> Value:
    """Action, node, high watermark, then what the layout lists."""
    fields = [_look_up(step, path) for path in layout.actions[step.action]]
    defaults = [layout.defaults.get(path, UNLOGGED) for path in layout.actions[step.action]]
    told = [default if found is None else found for found, default in zip(fields, defaults, strict=True)]
    high_watermark = step.state.get("high_watermark", UNLOGGED)
    return (step.action, step.node, high_watermark, *map(_as_value, told))


def _as_value(told: Any) -> Value:
    """A list is a set; in it, a list is a tuple."""
    if not isinstance(told, list):
        return told
    return frozenset(tuple(each) if isinstance(each, list) else each for each in told)


def _module(layout: Layout, steps: Sequence[Step], members: frozenset[Value]) -> partial[str]:
    """The text of `Run`, but for the name of the module that it extends and the line to be shown."""
    first = ""
    for name, (action, path) in layout.first.items():
        told = next((_look_up(step, path) for step in steps if step.action == action), None)
        first += f"{name} == {to_tla(layout.defaults[path] if told is None else told)}\n"
    rows = ",\n".join(to_tla(_row(layout, step)) for step in steps)
    return partial(RUN.format, members=to_tla(members), first=first, steps=rows)


def _run(model: str, text: partial[str], length: int, timeout_s: float, shown: int) -> TlcResult:
    module = _trace_module(model)
    with tempfile.TemporaryDirectory(prefix="highwater-trace-") as folder:
        run = Path(folder) / "Run.tla"
        run.write_text(text(module=module.stem, shown=shown))
        config = shutil.copy(module.with_suffix(".cfg"), folder)
        options = Options(timeout_s=timeout_s, library=(module.parent, CONTRACTS), small=length < 2000)
        return run_tlc(run, Path(config), options)


def _trace_module(model: str) -> Path:
    return next((FOLDER / model).glob("Trace*.tla"))


def _shown(lines: Sequence[str]) -> Iterable[str]:
    """What `Show` printed, one text for the store and one for each broker; a value may span several lines."""
    text = "\n".join(lines)
    starts = [found.start() for found in SHOWN.finditer(text)]
    seen = set()
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        _, who, *what = parse(_balanced(text[start:end]))
        line = f"{who}: {', '.join(_plain(each) for each in what)}"
        if line not in seen:
            seen.add(line)
            yield line


def _balanced(text: str) -> str:
    """The tuple that `text` begins with; TLC's own lines may follow."""
    depth = 0
    for mark in re.finditer(r"<<|>>", text):
        depth += 1 if mark[0] == "<<" else -1
        if depth == 0:
            return text[: mark.end()]
    return text


def _plain(value: Value) -> str:
    if isinstance(value, Function):
        return ", ".join(f"{name} {to_tla(each)}" for name, each in value.items())
    return to_tla(value)


def describe(step: Step) -> str:
    told = {**step.choices, **step.state}
    return (
        f"{step.action} of {step.node} with {', '.join(f'{name} {value}' for name, value in told.items()) or 'nothing'}"
    )
