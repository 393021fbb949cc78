"""The mutants of a proof: every way to change one expression of its actions, once each.

A proof is Python, so the changes are those of its syntax tree: functions that return a `Step`, or the updates of one.
What a guard switches off is not dropped again, since `highwater spec prove --drops` does that.
"""

import ast
import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from highwater.spec.mutation.changes import Change

Edit = Callable[[ast.AST], None]
ACTIONS: Final = frozenset({"Step", "dict[str, Term]"})
"""What the functions return that are, or belong to, an action."""
INSTEAD: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}
OTHER: Final = {"all": "some", "some": "all", "smaller": "larger", "larger": "smaller"}
PARTS: Final = {"And": "conjunct", "Or": "disjunct", "step": "condition"}


def proof_changes(path: Path) -> list[Change]:
    """Return the mutants of the actions in a proof's module, in the order of its text."""
    statements = ast.parse(path.read_text()).body
    texts = [ast.unparse(statement) for statement in statements]
    found: dict[str, Change] = {"\n\n".join(texts): Change("", "", 0, "", "", "")}
    for place, statement in enumerate(statements):
        for function in ast.walk(statement):
            if not isinstance(function, ast.FunctionDef) or _returns(function) not in ACTIONS:
                continue
            for number, node in enumerate(ast.walk(function)):
                for what, old, edit in _edits(node):
                    changed = _edited(statement, function, number, edit)
                    text = "\n\n".join([*texts[:place], changed, *texts[place + 1 :]])
                    line = getattr(node, "lineno", function.lineno)
                    found.setdefault(text, Change(path.parent.name, function.name, line, what, ast.unparse(old), text))
    return list(found.values())[1:]


def _returns(function: ast.FunctionDef) -> str:
    return ast.unparse(function.returns) if function.returns else ""


def _edited(statement: ast.stmt, function: ast.FunctionDef, number: int, edit: Edit) -> str:
    """Return the text of a statement of the module after an edit of the node with this number in a function in it."""
    changed = copy.deepcopy(statement)
    same = next(
        node for node in ast.walk(changed) if isinstance(node, ast.FunctionDef) and node.lineno == function.lineno
    )
    edit(list(ast.walk(same))[number])
    return ast.unparse(changed)


def _edits(node: ast.AST) -> Iterator[tuple[str, ast.AST, Edit]]:
    """Yield what is done, to which expression, and the edit of that node in another copy of the tree."""
    if isinstance(node, ast.Call):
        yield from _edits_of_call(node, _name(node))
    elif isinstance(node, ast.Dict):
        for place, key in enumerate(node.keys):
            if key is not None:
                yield "keep the variable", key, lambda other, place=place: _drop_key(other, place)  # type: ignore[misc]
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in INSTEAD:
        instead = INSTEAD[type(node.ops[0])]
        yield f"{instead.__name__} instead", node, lambda other: setattr(other, "ops", [instead()])
    elif isinstance(node, ast.BinOp) and isinstance(node.right, ast.Constant) and node.right.value == 1:
        yield "0 instead of 1", node, lambda other: setattr(other, "right", ast.Constant(0))


def _edits_of_call(call: ast.Call, name: str) -> Iterator[tuple[str, ast.AST, Edit]]:
    if name in PARTS:
        for place, part in enumerate(call.args):
            if (name == "step" or len(call.args) > 1) and not _is_guard(part):
                yield f"drop the {PARTS[name]}", part, lambda other, place=place: _drop_argument(other, place)  # type: ignore[misc]
    if name == "step":
        for place, keyword in enumerate(call.keywords):
            if keyword.arg:
                yield "keep the variable", keyword, lambda other, place=place: _drop_keyword(other, place)  # type: ignore[misc]
    if name == "but" and isinstance(call.args[1], ast.Constant) and isinstance(call.args[1].value, bool):
        opposite = not call.args[1].value
        yield f"{opposite} instead", call, lambda other: _set_argument(other, 1, opposite)
    if name == "If":
        yield "always the first", call, lambda other: _set_argument(other, 0, True)
        yield "always the second", call, lambda other: _set_argument(other, 0, False)
    if name == "Implies":
        yield "without the premise", call.args[0], lambda other: _set_argument(other, 0, True)
    if name == "Not":
        yield "without the negation", call, lambda other: setattr(other, "func", ast.Name("And"))
    if name in OTHER:
        yield f"{OTHER[name]} instead", call, lambda other: _rename(other, OTHER[name])


def _name(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")


def _is_guard(part: ast.AST) -> bool:
    return isinstance(part, ast.Call) and _name(part) == "guard"


def _drop_argument(node: ast.AST, place: int) -> None:
    assert isinstance(node, ast.Call)
    del node.args[place]


def _drop_keyword(node: ast.AST, place: int) -> None:
    assert isinstance(node, ast.Call)
    del node.keywords[place]


def _drop_key(node: ast.AST, place: int) -> None:
    assert isinstance(node, ast.Dict)
    del node.keys[place], node.values[place]


def _set_argument(node: ast.AST, place: int, value: bool) -> None:
    assert isinstance(node, ast.Call)
    node.args[place] = ast.Constant(value)


def _rename(node: ast.AST, name: str) -> None:
    assert isinstance(node, ast.Call)
    if isinstance(node.func, ast.Name):
        node.func.id = name
    else:
        assert isinstance(node.func, ast.Attribute)
        node.func.attr = name
