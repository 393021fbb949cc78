"""A small language for protocols: state, actions, invariant. `readings.py` gives it meaning, in four ways.

A formula is a plain Python expression over a `State`: `s.leader[p]` is a value, `s.leader.but(p, b)` the same function
with one place changed, as TLA+'s EXCEPT.  What a word stands for ("b is a broker") is told once for each protocol, so
`lambda s, b, p: ...` means "for every broker b and partition p".
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, TypeAlias
from typing import Protocol as Shape

import z3

# A z3 expression, or a Python value when the text is run instead of proved.
Term: TypeAlias = Any
Formula: TypeAlias = Callable[..., Term]


@dataclass(frozen=True)
class Sort:
    """Things of one kind, as many as you like: brokers, members, partitions, messages."""

    name: str


@dataclass(frozen=True)
class Number(Sort):
    """Epochs, offsets, versions: integers without bound."""


@dataclass(frozen=True)
class Choice(Sort):
    """One of a few named values."""

    values: tuple[str, ...]


TRUTH: Final = Sort("Truth")


@dataclass(frozen=True)
class Signature:
    """What a function takes and gives; without arguments it is a plain value."""

    arguments: tuple[Sort, ...]
    result: Sort


def value(result: Sort) -> Signature:
    return Signature((), result)


def table(*arguments: Sort, to: Sort) -> Signature:
    return Signature(arguments, to)


def relation(*arguments: Sort) -> Signature:
    return Signature(arguments, TRUTH)


@dataclass(frozen=True)
class Message(Sort):
    """A kind of message. Once sent it stays: so it may arrive late, twice, in any order, or never."""

    fields: Mapping[str, Signature] = field(hash=False)

    @property
    def sent(self) -> str:
        return f"{self.name}_sent"

    @property
    def variables(self) -> dict[str, Signature]:
        """`request_sent`, and `request_epoch` for the field `epoch`."""
        fields = {
            f"{self.name}_{name}": Signature((self, *signature.arguments), signature.result)
            for name, signature in self.fields.items()
        }
        return {self.sent: relation(self), **fields}


# Connectives that also work on Python values. Their names are those of z3 and of logic.


def And(*terms: Term) -> Term:
    symbolic = [term for term in terms if not isinstance(term, bool)]
    if any(term is False for term in terms):
        return False
    return z3.And(*symbolic) if symbolic else True


def Or(*terms: Term) -> Term:
    symbolic = [term for term in terms if not isinstance(term, bool)]
    if any(term is True for term in terms):
        return True
    return z3.Or(*symbolic) if symbolic else False


def Not(term: Term) -> Term:
    return not term if isinstance(term, bool) else z3.Not(term)


def Implies(premise: Term, conclusion: Term) -> Term:
    return Or(Not(premise), conclusion) if isinstance(premise, bool) else z3.Implies(premise, conclusion)


def If(condition: Term, then: Term, otherwise: Term) -> Term:
    if isinstance(condition, bool):
        return then if condition else otherwise
    return z3.If(condition, then, otherwise)


def smaller(one: Term, other: Term) -> Term:
    return If(one <= other, one, other)


class Table:
    """A function of the state."""

    def __init__(self, arity: int, read: Formula) -> None:
        self.arity, self.read = arity, read

    def __getitem__(self, key: Term) -> Term:
        return self.read(*key) if isinstance(key, tuple) else self.read(key)

    def but(self, key: Term, value: Term) -> "Table":
        """The same except at `key`. A key of fewer places than the function has takes a function of the others."""
        keys = key if isinstance(key, tuple) else (key,)

        def read(*arguments: Term) -> Term:
            here = And(*(given == wanted for given, wanted in zip(arguments, keys, strict=False)))
            rest = arguments[len(keys) :]
            return If(here, value(*rest) if rest else value, self.read(*arguments))

        return Table(self.arity, read)


class Reading(Shape):
    """What `readings.py` gives to the text."""

    protocol: "Protocol"
    off: frozenset[str]

    def constant(self, name: str) -> Term: ...
    def cast(self, sort: Sort, value: Term) -> Term: ...
    def all(self, formula: Formula, words: tuple[str, ...] | None = None) -> Term: ...
    def some(self, formula: Formula, words: tuple[str, ...] | None = None) -> Term: ...


class State:
    """One state of a protocol: its variables, constants and the names of choices, as attributes."""

    def __init__(self, reading: Reading, variables: Mapping[str, Term]) -> None:
        self.reading, self.variables = reading, variables
        self.all, self.some = reading.all, reading.some

    def __getattr__(self, name: str) -> Any:
        if name in self.variables:
            return self.variables[name]
        return self.reading.constant(name)

    def on(self, guard: str) -> bool:
        """A guard that is off is a historical bug."""
        if guard not in self.reading.protocol.guards:
            raise KeyError(f"{guard} is no guard of {self.reading.protocol.name}")
        return guard not in self.reading.off

    def guard(self, name: str, condition: Term) -> Term:
        return condition if self.on(name) else True

    def send(self, kind: Message, message: Term, **fields: Term) -> dict[str, Term]:
        """The updates that send a fresh message."""
        if fields.keys() != kind.fields.keys():
            raise TypeError(f"a {kind.name} has the fields {', '.join(kind.fields)}")
        written = {f"{kind.name}_{name}": value for name, value in fields.items()}
        return {name: self.variables[name].but(message, new) for name, new in {**written, kind.sent: True}.items()}

    def after(self, step: "Step") -> "State":
        """The state that a step leads to; what it does not name stays."""
        signatures = self.reading.protocol.variables
        return State(
            self.reading,
            {**self.variables, **{name: self._new(signatures[name], new) for name, new in step.then.items()}},
        )

    def _new(self, signature: Signature, new: Term) -> Term:
        cast, sort = self.reading.cast, signature.result
        if not signature.arguments:
            return cast(sort, new)
        read = new.read if isinstance(new, Table) else new
        return Table(len(signature.arguments), lambda *arguments: cast(sort, read(*arguments)))


@dataclass(frozen=True)
class Step:
    """When an action can be taken, and what the named variables are afterwards."""

    when: tuple[Term, ...]
    then: Mapping[str, Term]


def step(*when: Term, **then: Term) -> Step:
    return Step(when, then)


@dataclass(frozen=True)
class Claim:
    """A formula with a name and, in one sentence, what it says."""

    name: str
    says: str
    formula: Formula


@dataclass(frozen=True)
class Action:
    """A function `(state, parameters...) -> Step`; its name is Kafka's in snake case, its docstring what happens.

    What nobody does while the guard `without` is on is no action of the protocol.
    """

    run: Callable[..., Step]
    without: str = ""

    @property
    def name(self) -> str:
        return "".join(word.capitalize() for word in self.run.__name__.split("_"))

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        return words_of(self.run, 1)


@dataclass(frozen=True)
class Finite:
    """A finite instance: how many of each sort, and which numbers."""

    sizes: Mapping[Sort, int]
    numbers: Mapping[Sort, range]


@dataclass(frozen=True)
class Drop:
    """What is left of a protocol without a guard.

    Either a promise `breaks`, after so many `steps` in an instance (that of the protocol, if none is given); or the
    guard is `redundant`, for the reason given: then the invariant, with `more` claims, is proved without it too.
    """

    guard: str
    breaks: str = ""
    steps: int = 0
    instance: Finite | None = None
    redundant: str = ""
    more: tuple[Claim, ...] = ()


@dataclass(frozen=True)
class Protocol:
    """All that is said about one protocol.

    `invariant` holds at the start and is kept by every action; `implied` follows from it; `steps` are claims about two
    states, before and after any action.  `promises` names the claims that users are after, the rest is how to get
    there.  `small` is the finite instance for search, where every action can be taken within `depth` steps; `tiny`,
    begun at `start`, is the one whose every state is compared with TLA+.
    """

    name: str
    variables: Mapping[str, Signature]
    words: Mapping[str, Sort | Signature]
    init: Formula
    actions: tuple[Action, ...]
    invariant: tuple[Claim, ...]
    promises: tuple[str, ...]
    small: Finite
    tiny: Finite
    start: Mapping[str, Any]
    drops: tuple[Drop, ...]
    depth: int = 10
    implied: tuple[Claim, ...] = ()
    steps: tuple[Claim, ...] = ()
    constants: Mapping[str, Sort] = field(default_factory=dict)
    messages: tuple[Message, ...] = ()
    ghosts: tuple[str, ...] = ()

    def actions_without(self, off: frozenset[str]) -> tuple[Action, ...]:
        return tuple(action for action in self.actions if not action.without or action.without in off)

    @cached_property
    def guards(self) -> frozenset[str]:
        return frozenset(drop.guard for drop in self.drops)

    @cached_property
    def claims(self) -> dict[str, Claim]:
        return {claim.name: claim for claim in (*self.invariant, *self.implied, *self.steps)}

    @cached_property
    def choices(self) -> dict[str, Choice]:
        """Each named value and the sort that it belongs to."""
        results = {signature.result for signature in self.variables.values()}
        return {value: sort for sort in results if isinstance(sort, Choice) for value in sort.values}

    def meaning(self, word: str) -> Sort | Signature:
        if word not in self.words:
            raise KeyError(f"{self.name}: nobody said what {word!r} stands for")
        return self.words[word]


def words_of(formula: Formula, skip: int = 0) -> tuple[str, ...]:
    """The names of a formula's parameters, which tell what they range over; the first `skip` are states."""
    return tuple(inspect.signature(formula).parameters)[skip:]


def hold(claim: Claim, *states: State) -> Term:
    """The claim about one state, or about the two of a step."""
    words = words_of(claim.formula, len(states))
    return states[0].reading.all(lambda *arguments: claim.formula(*states, *arguments), words)
