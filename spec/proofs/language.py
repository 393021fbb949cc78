"""A small language for protocols: state, actions, invariant. `semantics.py` and `explicit.py` interpret it.

A formula is a plain Python expression over a `State`: `s.leader[p]` is a value, `s.leader.but(p, b)` the same function
with one place changed, like EXCEPT in TLA+.  Each protocol defines the sort of a parameter name once ("b is a broker"),
so `lambda s, b, p: ...` means "for every broker b and partition p".
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, TypeAlias
from typing import Protocol as Shape

import z3

# A z3 expression, or a Python value if the protocol is executed instead of proved.
Term: TypeAlias = Any
Formula: TypeAlias = Callable[..., Term]


@dataclass(frozen=True)
class Sort:
    """An uninterpreted sort of any size: brokers, members, partitions, messages."""

    name: str


@dataclass(frozen=True)
class Number(Sort):
    """Unbounded integers: epochs, offsets, versions."""


@dataclass(frozen=True)
class Choice(Sort):
    """An enumeration of named values."""

    values: tuple[str, ...]


TRUTH: Final = Sort("Truth")


@dataclass(frozen=True)
class Signature:
    """The sorts of arguments and result of a function; without arguments it is a plain value."""

    arguments: tuple[Sort, ...]
    result: Sort


def value(result: Sort) -> Signature:
    """Return the signature of a plain value."""
    return Signature((), result)


def table(*arguments: Sort, to: Sort) -> Signature:
    """Return the signature of a function."""
    return Signature(arguments, to)


def relation(*arguments: Sort) -> Signature:
    """Return the signature of a predicate."""
    return Signature(arguments, TRUTH)


@dataclass(frozen=True)
class Message(Sort):
    """A kind of message. A sent message is never removed, so it may arrive late, twice, in any order, or never."""

    fields: Mapping[str, Signature] = field(hash=False)

    @property
    def sent(self) -> str:
        return f"{self.name}_sent"

    @property
    def variables(self) -> dict[str, Signature]:
        """Return the variables for this kind: `request_sent`, and `request_epoch` for the field `epoch`."""
        fields = {
            f"{self.name}_{name}": Signature((self, *signature.arguments), signature.result)
            for name, signature in self.fields.items()
        }
        return {self.sent: relation(self), **fields}


# Logical connectives, named as in z3, that also accept Python values.


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
    """Return the minimum of two numbers."""
    return If(one <= other, one, other)


def larger(one: Term, other: Term) -> Term:
    """Return the maximum of two numbers."""
    return If(one <= other, other, one)


class Table:
    """A variable of the state that is a function."""

    def __init__(self, arity: int, read: Formula) -> None:
        self.arity, self.read = arity, read

    def __getitem__(self, key: Term) -> Term:
        return self.read(*key) if isinstance(key, tuple) else self.read(key)

    def but(self, key: Term, value: Term) -> "Table":
        """Return the function with another value at `key`.

        If `key` has fewer arguments than the function, `value` is a function of the remaining arguments.
        """
        keys = key if isinstance(key, tuple) else (key,)

        def read(*arguments: Term) -> Term:
            here = And(*(argument == key for argument, key in zip(arguments, keys, strict=False)))
            rest = arguments[len(keys) :]
            return If(here, value(*rest) if rest else value, self.read(*arguments))

        return Table(self.arity, read)


class Interpretation(Shape):
    """How to interpret formulas; implemented in `semantics.py` and `explicit.py`."""

    protocol: "Protocol"
    off: frozenset[str]

    def constant(self, name: str) -> Term: ...
    def cast(self, sort: Sort, value: Term) -> Term: ...
    def all(self, formula: Formula, parameters: tuple[str, ...] | None = None) -> Term: ...
    def some(self, formula: Formula, parameters: tuple[str, ...] | None = None) -> Term: ...


class State:
    """One state of a protocol; variables, constants and the values of choices are attributes."""

    def __init__(self, interpretation: Interpretation, variables: Mapping[str, Term]) -> None:
        self.interpretation, self.variables = interpretation, variables
        self.all, self.some = interpretation.all, interpretation.some

    def __getattr__(self, name: str) -> Any:
        if name in self.variables:
            return self.variables[name]
        return self.interpretation.constant(name)

    def on(self, guard: str) -> bool:
        """Return True if the guard is on; without it the protocol has a historical bug."""
        if guard not in self.interpretation.protocol.guards:
            raise KeyError(f"{guard} is not a guard of {self.interpretation.protocol.name}")
        return guard not in self.interpretation.off

    def guard(self, name: str, condition: Term) -> Term:
        """Return the condition if the guard is on, else True."""
        return condition if self.on(name) else True

    def send(self, kind: Message, message: Term, **fields: Term) -> dict[str, Term]:
        """Return the updates that send a message not used before."""
        if fields.keys() != kind.fields.keys():
            raise TypeError(f"a {kind.name} has the fields {', '.join(kind.fields)}")
        written = {f"{kind.name}_{name}": value for name, value in fields.items()}
        return {name: self.variables[name].but(message, new) for name, new in {**written, kind.sent: True}.items()}

    def after(self, step: "Step") -> "State":
        """Return the state after a step; variables that it does not name are unchanged."""
        signatures = self.interpretation.protocol.variables
        return State(
            self.interpretation,
            {**self.variables, **{name: self._new(signatures[name], new) for name, new in step.then.items()}},
        )

    def _new(self, signature: Signature, new: Term) -> Term:
        cast, sort = self.interpretation.cast, signature.result
        if not signature.arguments:
            return cast(sort, new)
        read = new.read if isinstance(new, Table) else new
        return Table(len(signature.arguments), lambda *arguments: cast(sort, read(*arguments)))


@dataclass(frozen=True)
class Step:
    """The conditions of an action, and the new values of the variables that it changes."""

    when: tuple[Term, ...]
    then: Mapping[str, Term]


def step(*when: Term, **then: Term) -> Step:
    """Return a step with these conditions and new values."""
    return Step(when, then)


def in_turn(s: State, first: Step, second: Callable[[State], Step]) -> Step:
    """Return the step that takes `first`, and then what `second` returns for the state after it."""
    following = second(s.after(first))
    return Step((*first.when, *following.when), {**first.then, **following.then})


@dataclass(frozen=True)
class Claim:
    """A formula with a name and a sentence that explains it."""

    name: str
    sentence: str
    formula: Formula


@dataclass(frozen=True)
class Action:
    """A function `(state, parameters...) -> Step`; its name is the TLA+ action's in snake case.

    If `without` names a guard, the action exists only while this guard is off.
    """

    run: Callable[..., Step]
    without: str = ""

    @property
    def name(self) -> str:
        return "".join(parameter.capitalize() for parameter in self.run.__name__.split("_"))

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        return parameter_names(self.run, 1)


@dataclass(frozen=True)
class Finite:
    """A finite instance: the number of elements of each sort, and the range of each kind of number."""

    sizes: Mapping[Sort, int]
    numbers: Mapping[Sort, range]


@dataclass(frozen=True)
class Drop:
    """The expected result of a protocol without a guard.

    Either the promise `breaks` is violated after `steps` steps in `instance` (default: `Protocol.small`); or the guard
    is `redundant`, for the reason in that field: then the invariant, with `more` claims, is proved without it too.
    `keeps` are claims that are proved without a guard that breaks another promise, with no other claims to help.
    """

    guard: str
    breaks: str = ""
    steps: int = 0
    instance: Finite | None = None
    redundant: str = ""
    more: tuple[Claim, ...] = ()
    keeps: tuple[str, ...] = ()


@dataclass(frozen=True)
class Protocol:
    """The definition of one protocol and of its claims.

    `parameter_sorts` has the sort of each parameter name; `ghosts` are the history variables.  `invariant` holds
    initially and is preserved by every action; `implied` follows from it; `steps` are claims about two states, before
    and after any action.  `promises` names the claims that users rely on; the others are lemmas.  `small` is the finite
    instance for search, where every action can be taken within `depth` steps; `tiny`, with initial state `start`, is
    the instance whose states are all compared with TLA+.
    """

    name: str
    variables: Mapping[str, Signature]
    parameter_sorts: Mapping[str, Sort | Signature]
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
        """Return the actions that exist while the guards in `off` are off."""
        return tuple(action for action in self.actions if not action.without or action.without in off)

    @cached_property
    def guards(self) -> frozenset[str]:
        return frozenset(drop.guard for drop in self.drops)

    @cached_property
    def claims(self) -> dict[str, Claim]:
        return {claim.name: claim for claim in (*self.invariant, *self.implied, *self.steps)}

    @cached_property
    def choices(self) -> dict[str, Choice]:
        """Return the sort of each value of an enumeration."""
        results = {signature.result for signature in self.variables.values()}
        return {value: sort for sort in results if isinstance(sort, Choice) for value in sort.values}

    def sort_of(self, parameter: str) -> Sort | Signature:
        """Return the sort or signature of a parameter name; raise KeyError if the protocol does not define it."""
        if parameter not in self.parameter_sorts:
            raise KeyError(f"{self.name}: the sort of parameter {parameter!r} is not defined")
        return self.parameter_sorts[parameter]


def parameter_names(formula: Formula, skip: int = 0) -> tuple[str, ...]:
    """Return the names of a formula's parameters, which define their sorts, without the first `skip` (states)."""
    return tuple(inspect.signature(formula).parameters)[skip:]


def hold(claim: Claim, *states: State) -> Term:
    """Return the claim about one state, or about the two states of a step, for all values of its parameters."""
    parameters = parameter_names(claim.formula, len(states))
    return states[0].interpretation.all(lambda *arguments: claim.formula(*states, *arguments), parameters)
