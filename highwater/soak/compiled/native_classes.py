"""Rewrite dataclasses in the source of a module so that mypyc makes native classes of them.

mypyc makes no native class of a class with a decorator that it does not know, nor of a dataclass with slots; and the
constructor that `dataclass` generates is interpreted. So each dataclass becomes a plain class with a constructor, an
equality and a hash as `dataclass` would write them, and `fields_of_native.register` adds the rest. A class that cannot
be rewritten (`_reason_to_keep`) stays as it is, as a class of Python with compiled methods.

Only the copy that is compiled is rewritten. Native classes are not frozen, which `mypy` has checked in the original.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

DATACLASS, FROZEN = "dataclass", "frozen"
MESSAGES: Final = frozenset({"struct", "message"})
DECORATORS: Final = frozenset({DATACLASS, FROZEN}) | MESSAGES
RUNTIME: Final = "highwater.soak.compiled.fields_of_native"
KEEP: Final = "@mypyc_attr(native_class=False)"
REPLACE_IMPORT: Final = re.compile(r"(?m)^from dataclasses import (.*\breplace\b.*)$")

Edit = tuple[int, int, list[str]]
"""First and last line to replace, counted from 1, and the new lines; an insertion has the last before the first."""


class Field(NamedTuple):
    """One field: the source of its annotation, and of its default or of the factory of its default."""

    name: str
    annotation: str
    default: str = ""
    factory: str = ""
    is_constant: bool = True

    @property
    def made_inside(self) -> bool:
        """Return whether the constructor evaluates the default, because it is a call or a member of an enumeration."""
        return bool(self.factory) or (not self.is_constant and "None" not in self.annotation)

    @property
    def parameter(self) -> str:
        if self.made_inside:
            return f'{self.name}: "{self.annotation.replace(chr(34), "")} | None" = None'
        return f"{self.name}: {self.annotation}" + (f" = {self.default}" if self.default else "")

    @property
    def assignment(self) -> str:
        made = f"{self.factory}()" if self.factory else self.default
        value = f"{made} if {self.name} is None else {self.name}" if self.made_inside else self.name
        return f"self.{self.name} = {value}"

    @property
    def description(self) -> str:
        """Return the argument of `register`: the annotation and the default."""
        return f"{self.name!r}: ({self.annotation!r}, {self.default or '_NONE'})"


@dataclass(frozen=True)
class Declared:
    """A dataclass in a module, with its decorator."""

    node: ast.ClassDef
    decorator: ast.expr
    kind: str

    def option(self, name: str, otherwise: bool) -> bool:
        keywords = self.decorator.keywords if isinstance(self.decorator, ast.Call) else []
        values = [word.value for word in keywords if word.arg == name]
        return bool(values[0].value) if values and isinstance(values[0], ast.Constant) else otherwise

    @property
    def is_frozen(self) -> bool:
        return self.option("frozen", self.kind != DATACLASS)

    @property
    def only_keywords(self) -> bool:
        return self.option("kw_only", self.kind in MESSAGES)

    @property
    def annotated(self) -> list[ast.AnnAssign]:
        return [part for part in self.node.body if isinstance(part, ast.AnnAssign)]

    def defines(self, method: str) -> bool:
        return any(isinstance(part, ast.FunctionDef) and part.name == method for part in self.node.body)


def rewritten(source: str) -> str:
    """Return the source of a module with its dataclasses as plain classes; the source if it has none."""
    tree = ast.parse(source)
    edits: list[Edit] = []
    for declared in _declared(tree):
        edits += _keep(declared) if _reason_to_keep(declared) else _class_edits(declared, source)
    lines = source.split("\n")
    for first, last, new in sorted(edits, key=lambda edit: -edit[0]):
        lines[first - 1 : last] = new
    changed = "\n".join(lines)
    changed = REPLACE_IMPORT.sub(_without_replace, changed)
    if changed == source:
        return source
    first_import = next(part.lineno for part in tree.body if isinstance(part, ast.Import | ast.ImportFrom))
    lines = changed.split("\n")
    lines[first_import - 1 : first_import - 1] = _imports(changed)
    return "\n".join(lines)


def _imports(text: str) -> list[str]:
    found = [] if KEEP not in text else ["from mypy_extensions import mypyc_attr"]
    names = [
        f"{name} as _{alias}"
        for name, alias in (("NONE", "NONE"), ("declare", "declare"), ("register", "register"))
        if re.search(rf"\b_{alias}\b", text)
    ]
    return [*found, f"from {RUNTIME} import {', '.join(names)}"] if names else found


def _without_replace(match: re.Match[str]) -> str:
    """Return the import with the `replace` that also takes native classes, which mypy would refuse otherwise."""
    others = [name for name in match[1].split(", ") if name != "replace"]
    kept = f"from dataclasses import {', '.join(others)}\n" if others else ""
    return f"{kept}from {RUNTIME} import replace"


def _declared(tree: ast.Module) -> Iterator[Declared]:
    for node in ast.walk(tree):
        for decorator in node.decorator_list if isinstance(node, ast.ClassDef) else ():
            called = decorator.func if isinstance(decorator, ast.Call) else decorator
            if isinstance(node, ast.ClassDef) and isinstance(called, ast.Name) and called.id in DECORATORS:
                yield Declared(node, decorator, called.id)


def _reason_to_keep(declared: Declared) -> str:
    """Return why the class stays a class of Python, or an empty string."""
    if any(not ast.unparse(base).startswith("Generic[") for base in declared.node.bases):
        return "the fields of its base class are in another place"
    if any(isinstance(part.value, ast.Lambda) for part in declared.annotated):
        return "mypy takes a function as default for a method"
    if any("init=False" in ast.unparse(part.value) for part in declared.annotated if part.value):
        return "a field is set by __post_init__"
    return ""


def _keep(declared: Declared) -> list[Edit]:
    return [(declared.decorator.lineno, declared.decorator.lineno - 1, [" " * declared.node.col_offset + KEEP])]


def _class_edits(declared: Declared, source: str) -> list[Edit]:
    """Return the edits of one class; of two insertions at the same line the first one goes last."""
    node, indent = declared.node, " " * declared.node.col_offset
    assert node.end_lineno is not None
    assert declared.decorator.end_lineno is not None
    fields = [_field(part, source) for part in declared.annotated]
    head = [part for part in node.body if isinstance(part, ast.AnnAssign | ast.Expr)][-1:] if fields else node.body[:1]
    after = (declared.annotated or head)[-1].end_lineno
    assert after is not None
    described = ", ".join(field.description for field in fields)
    after_class = [f"{indent}_register({node.name}, {{{described}}})"]
    if declared.kind == "message":
        arguments = ast.unparse(declared.decorator).partition("(")[2]
        after_class.append(f"{indent}_declare({node.name}, {arguments}")
    edits: list[Edit] = [
        (declared.decorator.lineno, declared.decorator.end_lineno, []),
        (node.end_lineno + 1, node.end_lineno, after_class),
        (after + 1, after, _methods(declared, fields, indent + "    ")),
    ]
    for part, field in zip(declared.annotated, fields, strict=True):
        assert part.end_lineno is not None
        edits.append((part.lineno, part.end_lineno, [f"{indent}    {field.name}: {field.annotation}"]))
    return edits


def _field(part: ast.AnnAssign, source: str) -> Field:
    assert isinstance(part.target, ast.Name)
    annotation, default = _segment(source, part.annotation), part.value
    if isinstance(default, ast.Call) and isinstance(default.func, ast.Name) and default.func.id == "field":
        (factory,) = (word.value for word in default.keywords if word.arg == "default_factory")
        return Field(part.target.id, annotation, factory=f"({ast.unparse(factory)})")
    constant = default is None or isinstance(default, ast.Constant | ast.UnaryOp | ast.Tuple | ast.Name)
    return Field(part.target.id, annotation, _segment(source, default) if default else "", is_constant=constant)


def _segment(source: str, node: ast.expr) -> str:
    return " ".join((ast.get_source_segment(source, node) or "").split())


def _methods(declared: Declared, fields: list[Field], indent: str) -> list[str]:
    names, name = [field.name for field in fields], declared.node.name
    parameters = ["self", *(["*"] if declared.only_keywords and fields else []), *(field.parameter for field in fields)]
    body = [field.assignment for field in fields] or ["pass"]
    if declared.defines("__post_init__"):
        body.append("self.__post_init__()")
    lines = [f"def __init__({', '.join(parameters)}) -> None:", *(f"    {line}" for line in body)]
    if declared.option("eq", otherwise=True) and not declared.defines("__eq__"):
        lines += [
            "def __eq__(self, other: object) -> bool:",
            f"    if not isinstance(other, {name}):",
            "        return NotImplemented",
            f"    return {' and '.join(f'self.{each} == other.{each}' for each in names) or 'True'}",
        ]
        if declared.is_frozen:
            values = "".join(f"self.{each}, " for each in names)
            lines += ["def __hash__(self) -> int:", f"    return hash(({values}))"]
    return [indent + line for line in lines]
