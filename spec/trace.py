"""Trace validation: check with TLC that the steps of a broker are a behaviour of the spec.

A trace is written to a module `Run` as a tuple of tuples; `Trace<Model>.tla` defines which step of the spec each line
must be.  The trace is accepted if and only if TLC reaches the last line.  Each entity (partition, group, controller) is
validated separately.
"""

import re
import tomllib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import merge
from pathlib import Path
from typing import Any, Final

import msgspec

from highwater.errors import UsageError, Verdict, worst
from highwater.spec.formats.trace import Line, Step, out_of_order, read_lines
from highwater.spec.models import CONTRACTS, with_constants
from highwater.spec.refusal import Conjunct, false_conjuncts
from highwater.spec.tlc.messages import CannotEvaluateError, TlcResult
from highwater.spec.tlc.run import Options, run_tlc
from highwater.spec.tlc.values import Function, Value, parse, to_tla
from highwater.temporary import temporary_folder

# --------------------------------------------------------------------------------------------------
# Merge the traces of a cluster's processes, `NODE.LIFE.ndjson` in one folder, by the host's monotonic clock.
#
# A life is one process of a node, from its start to its end, numbered from 0.  The time of a line is taken before any
# message of its step is sent, and all processes share one clock, so every consequence of a step has a later time.
# Concurrent steps may appear in either order.  The lines of each file are numbered from 0.


FILE_NAME: Final = re.compile(r"(\w+)\.(\d+)\.ndjson")


def read_process_traces(folder: Path) -> list[list[Line]]:
    """Return the lines of every life; raise UsageError for a file with another name, and for a missing life."""
    lives: dict[str, dict[int, list[Line]]] = defaultdict(dict)
    for path in sorted(folder.glob("*.ndjson")):
        match = FILE_NAME.fullmatch(path.name)
        if match is None:
            raise UsageError("not a trace of a process", where=str(path), hint="its name must be NODE.LIFE.ndjson")
        lives[match[1]][int(match[2])] = read_lines(path, of_process=True)
    for node, numbered in lives.items():
        missing = set(range(max(numbered))) - set(numbered)
        if missing:
            raise UsageError("a life of this node is missing", where=str(folder / f"{node}.{min(missing)}.ndjson"))
    return [lines for numbered in lives.values() for lines in numbered.values()]


def merge_process_traces(lives: Iterable[list[Line]]) -> list[Line]:
    """Merge the lines by time, and add the crash that ended each earlier life of a node."""
    crashes = [[_crash(lines[0])] for lines in lives if lines and not lines[0].file.endswith(".0.ndjson")]
    return list(merge(*crashes, *lives, key=lambda line: line.step.time_ns))


def _crash(first: Line) -> Line:
    """Return a Crash step just before the first line of the next life; a killed process cannot record it itself."""
    node = first.file.partition(".")[0]
    step = Step(
        seq=0,
        time_ns=first.step.time_ns,
        node=int(node) if node.isdigit() else node,
        entity="",
        action="Crash",
        choices={"killed": True},
    )
    return Line(first.file, first.number, step)


FOLDER: Final = Path(__file__).parent
UNLOGGED: Final = -2
ACCEPTED: Final = '"TRACE_ACCEPTED"'
BROKEN: Final = re.compile(r'<<"BROKEN", (\d+), "(\w+)">>')
PROMISES: Final = "PromisesKept"
STEPS: Final = "StepsOfModule"
GUARDS_OFF: Final = "GuardsOff"
REACHED: Final = re.compile(r'<<"REACHED", (\d+)>>')
SHOWN: Final = re.compile(r'^<< ?"SHOWN",', re.MULTILINE)
TIMEOUT_S: Final = 600
# The entity of steps that concern all entities: a node starts or stops.
ALL_ENTITIES: Final = ""
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


class Numbering(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Fields whose names are numbered from 1, because the module compares them; with `digits` "2" is before "10"."""

    fields: tuple[str, ...]
    digits: bool = False


class Layout(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`trace.toml` of a model: the order of the fields in a line, for `Trace<Model>.tla`.

    `kind`: the kind of entity that the model describes; `leaves_out`: fields that the model does not have, so that a
    trace with one of them is skipped; `first`: constants by name, each with an action and a field: the value is that of
    the first line with this action (computed here, because TLC would search for it in every state); `numbered`:
    constants by name, each the sequence of names that are replaced by their numbers; `everywhere`: actions whose lines
    concern every entity, whatever node they name.
    """

    kind: str
    members: tuple[str, ...]
    actions: dict[str, tuple[str, ...]]
    defaults: dict[str, Any] = {}
    leaves_out: tuple[str, ...] = ()
    first: dict[str, tuple[str, str]] = {}
    numbered: dict[str, Numbering] = {}
    everywhere: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EntityVerdict:
    """The result for one entity: `line` (from 1, in `file`) is the first rejected one, `before` the state before.

    `conjuncts` are those of the action without any one of which the spec would have such a step.
    """

    entity: str
    model: str
    verdict: Verdict
    steps: int
    seconds: float = 0.0
    file: str = ""
    line: int | None = None
    reason: str = ""
    before: tuple[str, ...] = ()
    conjuncts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TraceVerdict:
    """The results for all entities of a trace."""

    path: Path
    entities: tuple[EntityVerdict, ...]

    @property
    def verdict(self) -> Verdict:
        return worst([entity.verdict for entity in self.entities])


def validate_trace(
    path: Path,
    model: str | None = None,
    *,
    entity: str | None = None,
    timeout_s: float = TIMEOUT_S,
    explain: bool = True,
    guards_off: Collection[str] = (),
) -> TraceVerdict:
    """Validate every entity of a trace against the models for its kind; raise UsageError for an unknown file or model.

    `path` is a trace file, or a folder with one file per process (see `read_process_traces`).  A file with a gap in its
    line numbers is rejected before TLC runs.  `explain` adds the state before a rejected line, and the conjuncts that
    reject it, with a run of TLC for each conjunct of the action. `guards_off` are guards of the model that the brokers
    lack, by their names in guards.toml.
    """
    layouts = {model: read_layout(model)} if model is not None else read_layouts()
    files = read_process_traces(path) if path.is_dir() else [read_lines(path)]
    for file in files:
        gap = out_of_order(file)
        if gap is not None:
            return TraceVerdict(path, (_rejected(path.name, "seq", len(file), *gap),))
    lines = merge_process_traces(files)
    entities = sorted({line.step.entity for line in lines} - {ALL_ENTITIES})
    chosen = [name for name in entities if entity in {None, name}]
    tlc = partial(_run, timeout_s, frozenset(guards_off))
    verdicts = [verdict for name in chosen for verdict in _validate_entity(layouts, name, lines, tlc, explain)]
    if not verdicts:
        hint = f"there are {', '.join(entities)}" if entities else "record a run with tracing on"
        raise UsageError(f"contains no step of {entity or 'any entity'}", where=str(path), hint=hint)
    return TraceVerdict(path, tuple(verdicts))


def read_layouts() -> dict[str, Layout]:
    """Return the layouts of all models that have a `trace.toml`, by model."""
    return {path.parent.name: read_layout(path.parent.name) for path in sorted(FOLDER.glob("*/trace.toml"))}


def read_layout(model: str) -> Layout:
    """Return the layout of one model; raise UsageError with the known models if it has none."""
    path = FOLDER / model / "trace.toml"
    try:
        return msgspec.convert(tomllib.loads(path.read_text()), Layout)
    except OSError as error:
        known = sorted(path.parent.name for path in FOLDER.glob("*/trace.toml"))
        raise UsageError(f"no model {model!r} for traces", hint=f"known: {', '.join(known)}") from error


def encoded_for(model: str, steps: Iterable[Step]) -> bytes:
    """Return what a model reads of the steps: traces of one entity for which it is the same have the same result."""
    layout = read_layout(model)
    rows = (
        (step.action, step.node, step.state.get("high_watermark"), [_field(step, path) for path in paths])
        for step in steps
        if (paths := layout.actions.get(step.action)) is not None
    )
    return msgspec.json.encode(list(rows))


def _validate_entity(
    layouts: dict[str, Layout], entity: str, lines: Sequence[Line], tlc: Callable[..., TlcResult], explain: bool
) -> Iterable[EntityVerdict]:
    """Validate an entity against every model of its kind; each model considers only the actions that it has."""
    entity_lines = [line for line in lines if line.step.entity in {entity, ALL_ENTITIES}]
    named = [line for line in entity_lines if line.step.entity == entity]
    all_layouts = read_layouts()
    kinds = [other.kind for line in named for other in all_layouts.values() if line.step.action in other.actions]
    known = {action for other in all_layouts.values() if other.kind in kinds[:1] for action in other.actions}
    for model, layout in layouts.items():
        if layout.kind not in (kinds[:1] or [layout.kind]) or _has_excluded_field(layout, named):
            continue
        unknown_line = next((line for line in named if line.step.action not in known), None)
        if unknown_line is not None:
            yield _rejected(
                entity, model, len(named), unknown_line, f"the spec has no action {unknown_line.step.action}"
            )
        else:
            yield _validate_against(model, layout, entity, entity_lines, tlc, explain)


def _rejected(entity: str, model: str, steps: int, line: Line, reason: str) -> EntityVerdict:
    return EntityVerdict(entity, model, Verdict.INVALID, steps, file=line.file, line=line.number, reason=reason)


def _has_excluded_field(layout: Layout, lines: Iterable[Line]) -> bool:
    return any(_field(line.step, path) for line in lines for path in layout.leaves_out)


def _validate_against(
    model: str, layout: Layout, entity: str, lines: Sequence[Line], tlc: Callable[..., TlcResult], explain: bool
) -> EntityVerdict:
    entity_lines = [line for line in lines if line.step.action in layout.actions]
    orders = {name: _names_in_order(numbering, entity_lines) for name, numbering in layout.numbered.items()}
    named = [(member, line) for line in entity_lines for member in _members(layout, line.step)]
    unknown_line = next((line for member, line in named if type(member) is not type(named[0][0])), None)
    if unknown_line is not None:
        return _rejected(
            entity,
            model,
            len(entity_lines),
            unknown_line,
            f"the types of members differ in {describe(unknown_line.step)}",
        )
    members = frozenset(member for member, _ in named)
    entity_lines = [
        line
        for line in entity_lines
        if line.step.entity != ALL_ENTITIES or line.step.node in members or line.step.action in layout.everywhere
    ]
    steps = [line.step for line in entity_lines]
    run = partial(tlc, model, _module(layout, steps, members, orders), len(entity_lines))
    try:
        result = run(0)
    except CannotEvaluateError as error:
        unknown_line = entity_lines[_reached(error.lines) - 1]
        return _rejected(
            entity, model, len(entity_lines), unknown_line, f"the spec cannot evaluate {describe(unknown_line.step)}"
        )
    verdict = partial(EntityVerdict, entity, model, steps=len(entity_lines), seconds=result.seconds)
    if result.broken == PROMISES:
        number, promise = next(found.groups() for line in result.lines if (found := BROKEN.match(line)))
        last = entity_lines[int(number) - 1]
        reason = f"the steps are those of the spec, but after {describe(last.step)} the promise {promise} does not hold"
        return verdict(Verdict.INVALID, file=last.file, line=last.number, reason=reason)
    if result.broken == STEPS:
        last = entity_lines[_reached(result.lines) - 2]  # TLC compares a step after it has reached its state
        reason = f"{describe(last.step)} is explained by a step that the module does not have"
        return verdict(Verdict.INVALID, file=last.file, line=last.number, reason=reason)
    if ACCEPTED in result.lines:
        return verdict(Verdict.VALID)
    if result.verdict is not Verdict.VALID:
        return verdict(Verdict.UNKNOWN, reason=result.reason or f"{result.broken} is violated")
    reached = _reached(result.lines)
    rejected = entity_lines[reached - 1]
    reason = f"no step of the spec is {describe(rejected.step)}"
    verdict = partial(verdict, Verdict.INVALID, file=rejected.file, line=rejected.number, reason=reason)
    if not explain:
        return verdict()
    before = _printed_states(run(reached).lines)
    up_to = partial(tlc, model, _module(layout, steps[:reached], members, orders), reached, 0)
    conjuncts = false_conjuncts(_trace_module(model), rejected.step.action, partial(_accepts, up_to, reached))
    return verdict(before=tuple(before), conjuncts=tuple(conjuncts))


def _accepts(up_to: Callable[..., TlcResult], number: int, conjunct: Conjunct) -> bool:
    """Return whether line `number`, the last, is a step without a conjunct, or evaluated further than with it.

    That step may break what the conjunct protects: an election outside the ISR loses records.
    """
    try:
        result = up_to(changed=(conjunct.module.name, conjunct.without))
    except CannotEvaluateError:
        return True
    broken = (int(found[1]) for line in result.lines if (found := BROKEN.match(line)))
    return ACCEPTED in result.lines or number in broken


def _reached(lines: Iterable[str]) -> int:
    return max((int(found[1]) for line in lines if (found := REACHED.match(line))), default=1)


def _members(layout: Layout, step: Step) -> Iterable[Value]:
    for path in layout.members:
        yield from _listed(_field(step, path))


def _field(step: Step, path: str) -> Any:
    part, _, name = path.partition(".")
    return {"choices": step.choices, "state": step.state}[part].get(name)


def _names_in_order(numbering: Numbering, lines: Iterable[Line]) -> list[str]:
    found = {name for line in lines for path in numbering.fields for name in _listed(_field(line.step, path))}
    return sorted(found, key=_by_digits if numbering.digits else None)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _by_digits(name: str) -> list[tuple[int, str]]:
    """Return a sort key that compares runs of digits as numbers."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def _numbers(layout: Layout, orders: dict[str, list[str]], step: Step, path: str) -> Any:
    """Return a field with its names replaced by their numbers, if the layout says so."""
    value = _field(step, path)
    for name, numbering in layout.numbered.items():
        if path in numbering.fields and value is not None:
            numbers = [orders[name].index(each) + 1 for each in _listed(value)]
            return numbers if isinstance(value, list) else numbers[0]
    return value


def _row(layout: Layout, orders: dict[str, list[str]], step: Step) -> Value:
    """Return a line as a tuple: action, node, high watermark, then the fields of the layout."""
    fields = [_numbers(layout, orders, step, path) for path in layout.actions[step.action]]
    defaults = [layout.defaults.get(path, UNLOGGED) for path in layout.actions[step.action]]
    values = [default if found is None else found for found, default in zip(fields, defaults, strict=True)]
    high_watermark = step.state.get("high_watermark", UNLOGGED)
    return (step.action, step.node, high_watermark, *map(_as_value, values))


def _as_value(value: Any) -> Value:
    """Convert a JSON list to a set, and lists inside it to tuples."""
    if not isinstance(value, list):
        return value
    return frozenset(tuple(item) if isinstance(item, list) else item for item in value)


def _module(
    layout: Layout, steps: Sequence[Step], members: frozenset[Value], orders: dict[str, list[str]]
) -> partial[str]:
    """Return the text of `Run` as a function of `module` (the module to extend) and `shown` (the line to explain)."""
    first = ""
    for name, (action, path) in layout.first.items():
        value = next((_field(step, path) for step in steps if step.action == action), None)
        first += f"{name} == {to_tla(layout.defaults[path] if value is None else value)}\n"
    for name, order in orders.items():
        first += f"{name} == {to_tla(tuple(order))}\n"
    rows = ",\n".join(to_tla(_row(layout, orders, step)) for step in steps)
    return partial(RUN.format, members=to_tla(members), first=first, steps=rows)


def _run(
    timeout_s: float, guards_off: frozenset[str], model: str, text: partial[str], length: int, shown: int,
    changed: tuple[str, str] | None = None,
) -> TlcResult:  # fmt: skip
    """Run TLC on a trace; `changed` is the name and the text of a module to use instead of the one of the project."""
    module = _trace_module(model)
    with temporary_folder("trace-") as folder:
        run = folder / "Run.tla"
        run.write_text(text(module=module.stem, shown=shown))
        config = folder / module.with_suffix(".cfg").name
        constants = {GUARDS_OFF: to_tla(guards_off)}
        config.write_text(with_constants(module.with_suffix(".cfg").read_text(), constants, where=model))
        if changed:
            (folder / changed[0]).write_text(changed[1])
        options = Options(timeout_s=timeout_s, library=(module.parent, CONTRACTS), small=length < 2000)
        return run_tlc(run, config, options)


def _trace_module(model: str) -> Path:
    return next((FOLDER / model).glob("Trace*.tla"))


def _printed_states(lines: Sequence[str]) -> Iterable[str]:
    """Yield the states that `Show` printed: one text for the store and one for each broker."""
    text = "\n".join(lines)
    starts = [match.start() for match in SHOWN.finditer(text)]
    printed = set()
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        _, actor, *values = parse(_balanced(text[start:end]))
        line = f"{actor}: {', '.join(_plain(each) for each in values)}"
        if line not in printed:
            printed.add(line)
            yield line


def _balanced(text: str) -> str:
    """Return the tuple at the start of `text`; other lines of TLC may follow."""
    depth = 0
    for mark in re.finditer(r"<<|>>", text):
        depth += 1 if mark[0] == "<<" else -1
        if depth == 0:
            return text[: mark.end()]
    return text


def _plain(value: Value) -> str:
    if isinstance(value, Function):
        return ", ".join(f"{name} {to_tla(item)}" for name, item in value.items())
    return to_tla(value)


def describe(step: Step) -> str:
    """Return a step as text: action, node, and all values."""
    values = {**step.choices, **step.state}
    text = ", ".join(f"{name} {value}" for name, value in values.items()) or "nothing"
    return f"{step.action} of {step.node} with {text}"
