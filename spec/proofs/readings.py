"""Meanings of a protocol's text: unbounded, for the proof; ground, for finite instances. `explicit.py` runs it."""

import itertools
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Final

import z3

from spec.proofs.language import (
    TRUTH,
    Action,
    And,
    Choice,
    Finite,
    Formula,
    Number,
    Or,
    Protocol,
    Reading,
    Signature,
    Sort,
    State,
    Step,
    Table,
    Term,
    words_of,
)

# Signed; wide enough for the sum of two numbers of any finite instance here.
WIDTH: Final = 5


class _Symbolic(Reading):
    """What both readings share: symbols for states and parameters."""

    def __init__(self, protocol: Protocol, off: frozenset[str] = frozenset()) -> None:
        self.protocol, self.off = protocol, off

    @abstractmethod
    def fixed(self, name: str) -> Term: ...

    @abstractmethod
    def symbol(self, name: str, signature: Signature) -> Term: ...

    @abstractmethod
    def choice(self, sort: Choice, name: str) -> Term: ...

    def constant(self, name: str) -> Term:
        if name in self.protocol.constants:
            return self.fixed(name)
        if name in self.protocol.choices:
            return self.choice(self.protocol.choices[name], name)
        raise AttributeError(f"{self.protocol.name} has no {name}")

    def state(self, tag: str) -> State:
        return State(self, {n: self.symbol(f"{n}@{tag}", each) for n, each in self.protocol.variables.items()})

    def parameters(self, action: Action, tag: str = "") -> dict[str, Term]:
        return {
            word: self.symbol(f"{action.name}.{word}@{tag}", as_signature(self.protocol.meaning(word)))
            for word in action.parameters
        }


def as_signature(meaning: Sort | Signature) -> Signature:
    return meaning if isinstance(meaning, Signature) else Signature((), meaning)


def conditions(step: Step) -> list[Term]:
    """What z3 must be told of when a step can be taken."""
    return [condition for condition in step.when if condition is not True]


class Unbounded(_Symbolic):
    """Sorts of any size, numbers without bound, quantifiers left to z3."""

    def symbol(self, name: str, signature: Signature) -> Term:
        result = _sort(signature.result)
        if not signature.arguments:
            return z3.Const(name, result)
        function = z3.Function(name, *map(_sort, signature.arguments), result)
        return Table(len(signature.arguments), function)

    def fixed(self, name: str) -> Term:
        return z3.Const(name, _sort(self.protocol.constants[name]))

    def choice(self, sort: Choice, name: str) -> Term:
        return _enumeration(sort)[1][sort.values.index(name)]

    def cast(self, sort: Sort, value: Term) -> Term:
        if isinstance(value, bool):
            return z3.BoolVal(value)
        return z3.IntVal(value) if isinstance(value, int) else value

    def all(self, formula: Formula, words: tuple[str, ...] | None = None) -> Term:
        return self._quantify(z3.ForAll, formula, words)

    def some(self, formula: Formula, words: tuple[str, ...] | None = None) -> Term:
        return self._quantify(z3.Exists, formula, words)

    def _quantify(self, quantifier: Any, formula: Formula, words: tuple[str, ...] | None) -> Term:
        sorts = {word: _sort(self.protocol.meaning(word)) for word in (words_of(formula) if words is None else words)}
        variables = [z3.FreshConst(sort, word) for word, sort in sorts.items()]
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
    """z3 takes each enumeration only once."""
    if sort not in _ENUMERATIONS:
        _ENUMERATIONS[sort] = z3.EnumSort(sort.name, sort.values)
    return _ENUMERATIONS[sort]


class Ground(_Symbolic):
    """A finite instance as tables of booleans and bit vectors: pure search, with counterexamples to look at."""

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
        elements = [self.elements(each) for each in signature.arguments]
        cells = {
            place: z3.Const(f"{name}{list(place)}", z3_sort)
            for place in itertools.product(*(range(len(each)) for each in elements))
        }
        return Table(len(elements), lambda *arguments: _look_up(cells, elements, arguments, ()))

    def fixed(self, name: str) -> Term:
        """Which element it is makes no difference."""
        return self.elements(self.protocol.constants[name])[0]

    def choice(self, sort: Choice, name: str) -> Term:
        return z3.BitVecVal(sort.values.index(name), self.width(sort))

    def cast(self, sort: Sort, value: Term) -> Term:
        if isinstance(value, bool):
            return z3.BoolVal(value)
        return z3.BitVecVal(value, self.width(sort)) if isinstance(value, int) else value

    def all(self, formula: Formula, words: tuple[str, ...] | None = None) -> Term:
        return And(*(formula(*place) for place in self._places_of(formula, words)))

    def some(self, formula: Formula, words: tuple[str, ...] | None = None) -> Term:
        return Or(*(formula(*place) for place in self._places_of(formula, words)))

    def _places_of(self, formula: Formula, words: tuple[str, ...] | None) -> Iterator[tuple[Term, ...]]:
        meanings = (
            as_signature(self.protocol.meaning(word)).result for word in (words_of(formula) if words is None else words)
        )
        return itertools.product(*(self.elements(sort) for sort in meanings))

    def within(self, sort: Sort, term: Term) -> Term:
        """The finite instance has no other values."""
        if isinstance(sort, Number):
            numbers = self.range(sort)
            return And(term >= numbers[0], term <= numbers[-1])
        full = sort == TRUTH or self._count(sort) == 1 << self.width(sort)
        return True if full else z3.ULT(term, self._count(sort))

    def bounds(self, state: State) -> list[Term]:
        return [
            self.within(signature.result, cell)
            for name, signature in self.protocol.variables.items()
            for cell in self.cells(signature, state.variables[name])
        ]

    def parameter_bounds(self, action: Action, parameters: dict[str, Term]) -> list[Term]:
        signatures = {word: as_signature(self.protocol.meaning(word)) for word in action.parameters}
        return [
            self.within(signatures[word].result, cell)
            for word, term in parameters.items()
            for cell in self.cells(signatures[word], term)
        ]

    def cells(self, signature: Signature, term: Term) -> list[Term]:
        return [term[place] for place in self.places(signature)] if signature.arguments else [term]


def _look_up(
    cells: dict[Any, Term], elements: Sequence[Any], arguments: Sequence[Term], known: tuple[int, ...]
) -> Term:
    """One cell where the arguments are known, else a choice among cells."""
    if len(known) == len(elements):
        return cells[known]
    here, argument = elements[len(known)], arguments[len(known)]
    places = list(range(len(here)))
    if isinstance(argument, int):
        argument = z3.BitVecVal(argument, here[0].size())
    if z3.is_bv_value(argument):
        places = [place for place in places if here[place].as_long() == argument.as_long()] or places[-1:]
    found = _look_up(cells, elements, arguments, (*known, places[-1]))
    for place in reversed(places[:-1]):
        found = z3.If(argument == here[place], _look_up(cells, elements, arguments, (*known, place)), found)
    return found
