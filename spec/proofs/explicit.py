"""Execute a protocol: enumerate every reachable state of a small instance, as plain Python values.

States are returned in the form of the TLA+ module in the folder of the proof (`cached_leader` is `cachedLeader`): a
relation is a set, and messages are a set of records.  Messages have no identity there, so states that differ only in
the identity of messages are equal.
"""

import itertools
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from highwater.spec.proofs.language import (
    TRUTH,
    Action,
    Choice,
    Finite,
    Formula,
    Message,
    Number,
    Protocol,
    Signature,
    Sort,
    State,
    Step,
    Table,
    Term,
    parameter_names,
)
from highwater.spec.proofs.semantics import as_signature
from highwater.spec.tlc.values import Function, ModelValue

Value: TypeAlias = Any
# The values of each variable, one for each tuple of arguments ("place").
Cells: TypeAlias = tuple[tuple[Value, ...], ...]


@dataclass
class Explicit:
    """An interpretation whose terms are Python values.

    `start` has the initial values of a variable (a value, or a function of the place) that are not zero or the first
    value of the sort.  There is one more slot for messages than may be sent, so that sending again is always possible.
    """

    protocol: Protocol
    finite: Finite
    start: Mapping[str, Value] = field(default_factory=dict)
    off: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self.names = list(self.protocol.variables)
        self.places = {
            name: {place: number for number, place in enumerate(self._places(signature.arguments))}
            for name, signature in self.protocol.variables.items()
        }

    def range(self, sort: Sort) -> Sequence[Value]:
        if sort == TRUTH:
            return (False, True)
        if isinstance(sort, Choice):
            return sort.values
        if isinstance(sort, Number):
            return self.finite.numbers[sort]
        return range(self.finite.sizes[sort] + isinstance(sort, Message))

    def _places(self, sorts: Sequence[Sort]) -> Iterator[tuple[Value, ...]]:
        return itertools.product(*map(self.range, sorts))

    def constant(self, name: str) -> Value:
        return 0 if name in self.protocol.constants else self._choice(name)

    def _choice(self, name: str) -> str:
        if name not in self.protocol.choices:
            raise AttributeError(f"{self.protocol.name} has no variable, constant or choice {name}")
        return name

    def cast(self, sort: Sort, value: Term) -> Term:
        return value

    def all(self, formula: Formula, parameters: tuple[str, ...] | None = None) -> Term:
        return all(formula(*place) for place in self._places(self._sorts(formula, parameters)))

    def some(self, formula: Formula, parameters: tuple[str, ...] | None = None) -> Term:
        return any(formula(*place) for place in self._places(self._sorts(formula, parameters)))

    def _sorts(self, formula: Formula, parameters: tuple[str, ...] | None) -> list[Sort]:
        names = parameter_names(formula) if parameters is None else parameters
        return [as_signature(self.protocol.sort_of(parameter)).result for parameter in names]

    def state(self, cells: Cells) -> State:
        return State(self, {name: self._term(name, values) for name, values in zip(self.names, cells, strict=True)})

    def _term(self, name: str, values: tuple[Value, ...]) -> Term:
        signature = self.protocol.variables[name]
        if not signature.arguments:
            return values[0]
        places, other = self.places[name], self._default(signature.result)
        # A formula may read outside of the instance where the value has no effect.
        return Table(len(signature.arguments), lambda *place: values[places[place]] if place in places else other)

    def _default(self, sort: Sort) -> Value:
        return 0 if isinstance(sort, Number) else self.range(sort)[0]

    def initial(self) -> Cells:
        """Return the initial state that `start` describes; raise ValueError if `Protocol.init` does not hold there."""
        cells = tuple(
            tuple(self._initial_value(name, signature, place) for place in self.places[name])
            for name, signature in self.protocol.variables.items()
        )
        if not self.protocol.init(self.state(cells)):
            raise ValueError(f"{self.protocol.name}: this is no initial state")
        return cells

    def _initial_value(self, name: str, signature: Signature, place: tuple[Value, ...]) -> Value:
        initial = self.start.get(name, self._default(signature.result))
        return initial(*place) if callable(initial) else initial

    def successors(self, cells: Cells) -> Iterator[tuple[str, Cells]]:
        """Yield the action and the state of every possible step."""
        state = self.state(cells)
        for action in self.protocol.actions_without(self.off):
            for parameters in self._parameters(action):
                step = action.run(state, **parameters)
                after = self._after(cells, state, step) if all(step.when) else None
                if after is not None:
                    yield action.name, after

    def _parameters(self, action: Action) -> Iterator[dict[str, Value]]:
        chosen = [self._choices(as_signature(self.protocol.sort_of(parameter))) for parameter in action.parameters]
        for values in itertools.product(*chosen):
            yield dict(zip(action.parameters, values, strict=True))

    def _choices(self, signature: Signature) -> list[Value]:
        """Return all values of a sort, or all functions of a signature."""
        values = self.range(signature.result)
        if not signature.arguments:
            return list(values)
        places = {place: number for number, place in enumerate(self._places(signature.arguments))}
        return [
            Table(len(signature.arguments), lambda *place, row=row: row[places[place]])
            for row in itertools.product(values, repeat=len(places))
        ]

    def _after(self, cells: Cells, state: State, step: Step) -> Cells | None:
        """Return the state after a step, or None if it is outside of the instance."""
        after = state.after(step)
        changed = list(cells)
        for name in step.then:
            signature, term = self.protocol.variables[name], after.variables[name]
            values = tuple(term[place] for place in self.places[name]) if signature.arguments else (term,)
            if isinstance(signature.result, Number) and not all(
                number in self.range(signature.result) for number in values
            ):
                return None
            changed[self.names.index(name)] = values
        return self._without_identity(changed)

    def _without_identity(self, cells: list[tuple[Value, ...]]) -> Cells | None:
        """Sort messages and remove duplicates; return None if there are more than the instance allows."""
        for kind in self.protocol.messages:
            variables = [self.names.index(name) for name in kind.variables]
            rows = self._rows(kind, cells)
            if len(rows) > self.finite.sizes[kind]:
                return None
            slots = [*sorted(rows), *[self._blank(kind)] * (len(self.range(kind)) - len(rows))]
            for column, variable in enumerate(variables):
                cells[variable] = tuple(value for slot in slots for value in slot[column])
        return tuple(cells)

    def _rows(self, kind: Message, cells: Sequence[tuple[Value, ...]]) -> set[tuple[tuple[Value, ...], ...]]:
        """Return each message that was sent, as the values of its variables."""
        slots = len(self.range(kind))
        columns = (chunks(cells[self.names.index(name)], slots) for name in kind.variables)
        rows = zip(*columns, strict=True)
        return {row for row in rows if row[0][0]}

    def _blank(self, kind: Message) -> tuple[tuple[Value, ...], ...]:
        first = ((False,),)
        fields = ((self._default(s.result),) * len(list(self._places(s.arguments))) for s in kind.fields.values())
        return (*first, *fields)

    def reachable(self) -> Iterator[Cells]:
        """Yield every reachable state, breadth first."""
        visited = {self.initial()}
        frontier = list(visited)
        while frontier:
            yield from frontier
            found = {after for cells in frontier for _, after in self.successors(cells)} - visited
            visited |= found
            frontier = list(found)

    def sampled(self, count: int, seed: int) -> dict[Cells, list[tuple[str, Cells]]]:
        """Return so many reachable states, or all if there are fewer, each with its steps.

        The next state is always one after the kind of step that was followed least often: an action and the variables
        that it changed. So rare steps and deep states are among a few hundred.
        """
        choice = random.Random(seed)
        found: dict[Cells, list[tuple[str, Cells]]] = {}
        followed: Counter[tuple[str, ...]] = Counter({(): 0})
        unseen: dict[tuple[str, ...], list[Cells]] = {(): [self.initial()]}  # by the kind of step that leads there
        while unseen and len(found) < count:
            kind = min(sorted(unseen), key=followed.__getitem__)
            cells = unseen[kind].pop(choice.choice((-1, choice.randrange(len(unseen[kind])))))
            if not unseen[kind]:
                del unseen[kind]
            if cells in found:
                continue
            followed[kind] += 1
            found[cells] = list(self.successors(cells))
            for action, after in found[cells]:
                if after not in found:
                    changed = (
                        name for name, *values in zip(self.names, cells, after, strict=True) if values[0] != values[1]
                    )
                    unseen.setdefault((action, *changed), []).append(after)
        return found

    def as_tla(self, cells: Cells) -> Function:
        """Return a state as a TLA+ record, without history variables."""
        skipped = {*self.protocol.ghosts, *(name for kind in self.protocol.messages for name in kind.variables)}
        record = {
            camel(name): self._value(self.protocol.variables[name], values)
            for name, values in zip(self.names, cells, strict=True)
            if name not in skipped
        }
        for kind in self.protocol.messages:
            messages = (zip(kind.fields.items(), row[1:], strict=True) for row in self._rows(kind, cells))
            record[plural(kind.name)] = frozenset(
                Function({camel(name): self._value(signature, values) for (name, signature), values in message})
                for message in messages
            )
        return Function(record)

    def _value(self, signature: Signature, values: tuple[Value, ...]) -> Value:
        """Return nested functions; a relation is a set of its last argument. Domains exclude constants (`nobody`)."""
        if not signature.arguments:
            return self._name(signature.result, values[0])
        first, *rest = signature.arguments
        inner = Signature(tuple(rest), signature.result)
        elements = self.range(first)
        parts = {
            self._name(first, element): self._value(inner, part)
            for element, part in zip(elements, chunks(values, len(elements)), strict=True)
            if not (element == 0 and first in self.protocol.constants.values())
        }
        if not rest and signature.result == TRUTH:
            return frozenset(name for name, holds in parts.items() if holds)
        return Function(parts)

    def _name(self, sort: Sort, value: Value) -> Value:
        if sort == TRUTH or isinstance(sort, Number | Choice):
            return value
        named = {of: name for name, of in self.protocol.constants.items()}
        return ModelValue(named[sort] if value == 0 and sort in named else f"{sort.name.lower()}{value}")


def larger(protocol: Protocol) -> Finite:
    """Return the tiny instance with one more of each kind of number, and one more message of each kind."""
    return Finite(
        sizes={sort: size + isinstance(sort, Message) for sort, size in protocol.tiny.sizes.items()},
        numbers={sort: range(values.start, values.stop + 1) for sort, values in protocol.tiny.numbers.items()},
    )


def chunks(values: tuple[Value, ...], count: int) -> list[tuple[Value, ...]]:
    """Split the values into `count` parts of equal size."""
    size = len(values) // count
    return [values[number * size :][:size] for number in range(count)]


def plural(name: str) -> str:
    return f"{name[:-1]}ies" if name.endswith("y") else f"{name}s"


def camel(name: str) -> str:
    head, *tail = name.split("_")
    return head + "".join(word.capitalize() for word in tail)
