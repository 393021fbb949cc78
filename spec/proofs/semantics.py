"""Interpretations of a protocol in z3: unbounded for the proof, ground for finite instances; see explicit.py too."""

import itertools
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Final

import z3

from highwater.spec.proofs.language import (
    TRUTH,
    Action,
    And,
    Choice,
    Finite,
    Formula,
    Interpretation,
    Number,
    Or,
    Protocol,
    Signature,
    Sort,
    State,
    Step,
    Table,
    Term,
    parameter_names,
)

# Width of signed bit vectors, enough for the sum of two numbers of any finite instance here.
WIDTH: Final = 5
z3.set_param("ctrl_c", False)  # z3 would end its search, and Python would not always learn of the interruption


class _Symbolic(Interpretation):
    """The common part of both interpretations: symbols for states and parameters."""

    def __init__(self, protocol: Protocol, off: frozenset[str] = frozenset()) -> None:
        self.protocol, self.off = protocol, off

    @abstractmethod
    def named_constant(self, name: str) -> Term: ...

    @abstractmethod
    def symbol(self, name: str, signature: Signature) -> Term: ...

    @abstractmethod
    def choice(self, sort: Choice, name: str) -> Term: ...

    def constant(self, name: str) -> Term:
        if name in self.protocol.constants:
            return self.named_constant(name)
        if name in self.protocol.choices:
            return self.choice(self.protocol.choices[name], name)
        raise AttributeError(f"{self.protocol.name} has no variable, constant or choice {name}")

    def state(self, tag: str) -> State:
        variables = self.protocol.variables.items()
        return State(self, {name: self.symbol(f"{name}@{tag}", signature) for name, signature in variables})

    def parameters(self, action: Action, tag: str = "") -> dict[str, Term]:
        return {
            parameter: self.symbol(f"{action.name}.{parameter}@{tag}", as_signature(self.protocol.sort_of(parameter)))
            for parameter in action.parameters
        }


def as_signature(sort: Sort | Signature) -> Signature:
    """Return a sort as the signature of a plain value."""
    return sort if isinstance(sort, Signature) else Signature((), sort)


def conditions(step: Step) -> list[Term]:
    """Return the conditions of a step that are not trivially true."""
    return [condition for condition in step.when if condition is not True]


class Unbounded(_Symbolic):
    """Sorts of any size, numbers without bound, quantifiers left to z3."""

    def symbol(self, name: str, signature: Signature) -> Term:
        result = _sort(signature.result)
        if not signature.arguments:
            return z3.Const(name, result)
        function = z3.Function(name, *map(_sort, signature.arguments), result)
        return Table(len(signature.arguments), function)

    def named_constant(self, name: str) -> Term:
        return z3.Const(name, _sort(self.protocol.constants[name]))

    def choice(self, sort: Choice, name: str) -> Term:
        return _enumeration(sort)[1][sort.values.index(name)]

    def cast(self, sort: Sort, value: Term) -> Term:
        if isinstance(value, bool):
            return z3.BoolVal(value)
        return z3.IntVal(value) if isinstance(value, int) else value

    def all(self, formula: Formula, parameters: tuple[str, ...] | None = None) -> Term:
        return self._quantify(z3.ForAll, formula, parameters)

    def some(self, formula: Formula, parameters: tuple[str, ...] | None = None) -> Term:
        return self._quantify(z3.Exists, formula, parameters)

    def _quantify(self, quantifier: Any, formula: Formula, parameters: tuple[str, ...] | None) -> Term:
        sorts = {
            parameter: _sort(self.protocol.sort_of(parameter))
            for parameter in (parameter_names(formula) if parameters is None else parameters)
        }
        variables = [z3.FreshConst(sort, parameter) for parameter, sort in sorts.items()]
        body = formula(*variables)
        return quantifier(variables, body) if variables and not isinstance(body, bool) else body


def _sort(sort: Sort | Signature) -> Any:
    if isinstance(sort, Number):
        return z3.IntSort()
    if isinstance(sort, Choice):
        return _enumeration(sort)[0]
    return z3.BoolSort() if sort == TRUTH else z3.DeclareSort(sort.name)  # type: ignore[union-attr]


_ENUMERATIONS: Final[dict[Choice, Any]] = {}


def _enumeration(sort: Choice) -> Any:
    """Return the z3 sort of a choice, created once because z3 rejects a second enumeration of the same name."""
    if sort not in _ENUMERATIONS:
        _ENUMERATIONS[sort] = z3.EnumSort(sort.name, sort.values)
    return _ENUMERATIONS[sort]


class Ground(_Symbolic):
    """A finite instance as tables of booleans and bit vectors: decidable, with readable counterexamples."""

    def __init__(self, protocol: Protocol, finite: Finite, off: frozenset[str] = frozenset()) -> None:
        self.finite = finite
        super().__init__(protocol, off)

    def width(self, sort: Sort) -> int:
        return WIDTH if isinstance(sort, Number) else max(1, (self._count(sort) - 1).bit_length())

    def _count(self, sort: Sort) -> int:
        return len(sort.values) if isinstance(sort, Choice) else self.finite.sizes[sort]

    def range(self, sort: Sort) -> range:
        return self.finite.numbers[sort] if isinstance(sort, Number) else range(self._count(sort))

    def elements(self, sort: Sort) -> list[Term]:
        if sort == TRUTH:
            return [z3.BoolVal(False), z3.BoolVal(True)]
        return [z3.BitVecVal(number, self.width(sort)) for number in self.range(sort)]

    def places(self, signature: Signature) -> Iterator[tuple[Term, ...]]:
        return itertools.product(*(self.elements(sort) for sort in signature.arguments))

    def symbol(self, name: str, signature: Signature) -> Term:
        sort = signature.result
        z3_sort = z3.BoolSort() if sort == TRUTH else z3.BitVecSort(self.width(sort))
        if not signature.arguments:
            return z3.Const(name, z3_sort)
        elements = [self.elements(sort) for sort in signature.arguments]
        cells = {
            place: z3.Const(f"{name}{list(place)}", z3_sort)
            for place in itertools.product(*(range(len(values)) for values in elements))
        }
        return Table(len(elements), lambda *arguments: _select_cell(cells, elements, arguments, ()))

    def named_constant(self, name: str) -> Term:
        """Return the value of a constant: element 0 without loss of generality."""
        return self.elements(self.protocol.constants[name])[0]

    def choice(self, sort: Choice, name: str) -> Term:
        return z3.BitVecVal(sort.values.index(name), self.width(sort))

    def cast(self, sort: Sort, value: Term) -> Term:
        if isinstance(value, bool):
            return z3.BoolVal(value)
        return z3.BitVecVal(value, self.width(sort)) if isinstance(value, int) else value

    def all(self, formula: Formula, parameters: tuple[str, ...] | None = None) -> Term:
        return And(*(formula(*place) for place in self._places_of(formula, parameters)))

    def some(self, formula: Formula, parameters: tuple[str, ...] | None = None) -> Term:
        return Or(*(formula(*place) for place in self._places_of(formula, parameters)))

    def _places_of(self, formula: Formula, parameters: tuple[str, ...] | None) -> Iterator[tuple[Term, ...]]:
        meanings = (
            as_signature(self.protocol.sort_of(parameter)).result
            for parameter in (parameter_names(formula) if parameters is None else parameters)
        )
        return itertools.product(*(self.elements(sort) for sort in meanings))

    def bounds_of(self, sort: Sort, term: Term) -> Term:
        """Return the condition that a term has a value of the finite instance."""
        if isinstance(sort, Number):
            numbers = self.range(sort)
            return And(term >= numbers[0], term <= numbers[-1])
        full = sort == TRUTH or self._count(sort) == 1 << self.width(sort)
        return True if full else z3.ULT(term, self._count(sort))

    def bounds(self, state: State) -> list[Term]:
        return [
            self.bounds_of(signature.result, cell)
            for name, signature in self.protocol.variables.items()
            for cell in self.cells(signature, state.variables[name])
        ]

    def parameter_bounds(self, action: Action, parameters: dict[str, Term]) -> list[Term]:
        signatures = {parameter: as_signature(self.protocol.sort_of(parameter)) for parameter in action.parameters}
        return [
            self.bounds_of(signatures[parameter].result, cell)
            for parameter, term in parameters.items()
            for cell in self.cells(signatures[parameter], term)
        ]

    def cells(self, signature: Signature, term: Term) -> list[Term]:
        return [term[place] for place in self.places(signature)] if signature.arguments else [term]


def _select_cell(
    cells: dict[Any, Term], elements: Sequence[Any], arguments: Sequence[Term], known: tuple[int, ...]
) -> Term:
    """Return one cell if the arguments are known, else an if-then-else term over all cells."""
    if len(known) == len(elements):
        return cells[known]
    candidates, argument = elements[len(known)], arguments[len(known)]
    places = list(range(len(candidates)))
    if isinstance(argument, int):
        argument = z3.BitVecVal(argument, candidates[0].size())
    if z3.is_bv_value(argument):
        places = [place for place in places if candidates[place].as_long() == argument.as_long()] or places[-1:]
    found = _select_cell(cells, elements, arguments, (*known, places[-1]))
    for place in reversed(places[:-1]):
        found = z3.If(argument == candidates[place], _select_cell(cells, elements, arguments, (*known, place)), found)
    return found
