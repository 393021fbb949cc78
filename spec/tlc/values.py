"""Convert values between TLC's text and Python.

=====================  ======================================
TLA+                   Python
=====================  ======================================
17, TRUE, "records"    int, bool, str
b1 (a model value)     ModelValue
<<a, b>>               tuple
{a, b}                 frozenset
[k |-> v], (a :> v)    Function, a hashable mapping
=====================  ======================================
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

Value = Any
TOKEN: Final = re.compile(
    r'\s*(?:(?P<string>"(?:[^"\\]|\\.)*")|(?P<number>-?\d+)|(?P<name>\w+)|(?P<mark><<|>>|\|->|:>|@@|\.\.|[\[\](){},]))'
)
LITERALS: Final = {"TRUE": True, "FALSE": False}


class ModelValue(str):
    """A constant that equals only itself, such as a broker's name."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class Function(Mapping[Value, Value]):
    """A TLA+ function or record. It is equal to any mapping with the same items."""

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[Value, Value]) -> None:
        self._items = dict(items)

    def __getitem__(self, key: Value) -> Value:
        return self._items[key]

    def __iter__(self) -> Iterator[Value]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(frozenset(self._items.items()))

    def __repr__(self) -> str:
        return to_tla(self)


class Token(NamedTuple):
    kind: str
    text: str


def parse(text: str) -> Value:
    """Parse one value as TLC prints it; raise ValueError with the position of a syntax error."""
    reader = _Reader(text)
    value = reader.value()
    reader.expect("end")
    return value


def to_tla(value: Value) -> str:
    """Return a value as TLA+ text, set elements sorted; raise TypeError for a type without TLA+ counterpart."""
    match value:
        case bool():
            return "TRUE" if value else "FALSE"
        case ModelValue() | int():
            return str(value)
        case str():
            return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
        case tuple() | list():
            return f"<<{', '.join(map(to_tla, value))}>>"
        case frozenset() | set():
            return f"{{{', '.join(sorted(map(to_tla, value)))}}}"
        case Function() if all(type(key) is str for key in value):
            return f"[{', '.join(f'{key} |-> {to_tla(value[key])}' for key in value)}]"
        case Function():
            return f"({' @@ '.join(f'{to_tla(key)} :> {to_tla(value[key])}' for key in value)})"
    raise TypeError(f"{type(value).__name__} has no counterpart in TLA+")


class _Reader:
    """A recursive-descent parser with one token of lookahead."""

    def __init__(self, text: str) -> None:
        self._text, self._position = text.rstrip(), 0
        self._next = self._read()

    def value(self) -> Value:
        token = self._take()
        match token:
            case Token("number", text):
                return self._range(int(text))
            case Token("string", text):
                return re.sub(r"\\(.)", r"\1", text[1:-1])
            case Token("name", text):
                return LITERALS.get(text, ModelValue(text))
            case Token(_, "<<"):
                return tuple(self._list(">>"))
            case Token(_, "{"):
                return self._set()
            case Token(_, "["):
                return Function(dict(self._fields()))
            case Token(_, "("):
                return Function(dict(self._pairs()))
        raise self._unexpected(token)

    def expect(self, text: str) -> None:
        token = self._take()
        if token.text != text:
            raise self._unexpected(token)

    def _range(self, low: int) -> Value:
        if self._next.text != "..":
            return low
        self._take()
        return frozenset(range(low, int(self._take().text) + 1))

    def _list(self, end: str) -> Iterator[Value]:
        while self._next.text != end:
            yield self.value()
            if self._next.text != end:
                self.expect(",")
        self._take()

    def _set(self) -> frozenset[Value]:
        return frozenset(self._list("}"))

    def _fields(self) -> Iterator[tuple[str, Value]]:
        while True:
            name = self._take().text
            self.expect("|->")
            yield name, self.value()
            if self._next.text == "]":
                break
            self.expect(",")
        self._take()

    def _pairs(self) -> Iterator[tuple[Value, Value]]:
        while True:
            key = self.value()
            self.expect(":>")
            yield key, self.value()
            if self._next.text == ")":
                break
            self.expect("@@")
        self._take()

    def _take(self) -> Token:
        token, self._next = self._next, self._read()
        return token

    def _read(self) -> Token:
        if self._position == len(self._text):
            return Token("end", "end")
        found = TOKEN.match(self._text, self._position)
        if found is None:
            raise ValueError(f"not a TLC value at {self._text[self._position : self._position + 20]!r}")
        self._position = found.end()
        kind = found.lastgroup or ""
        return Token(kind, found[kind])

    def _unexpected(self, token: Token) -> ValueError:
        return ValueError(f"unexpected {token.text!r} before {self._text[self._position : self._position + 20]!r}")
