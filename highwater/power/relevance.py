"""How likely a case is to kill a mutant, by the words that its clause and its name share with the mutant."""

import ast
import math
import re
from collections import Counter
from collections.abc import Mapping
from functools import cached_property

import pytest

from highwater.conformance.running.selection import case_of
from highwater.mutants.mutation import source_of
from highwater.mutants.table import NamedMutant

WORD = re.compile(r"[a-z][a-z]{2,}")


def words_of(text: str) -> set[str]:
    """Return the words of a text without endings; those joined by `_`, `.` or capitals count one by one."""
    parts = re.sub(r"([a-z])([A-Z])", r"\1 \2", text).replace("_", " ").lower()
    return {re.sub(r"(ing|ed|es|s)$", "", word) for word in WORD.findall(parts)}


class Relevance:
    """Compares mutants with cases; a word that few cases have counts more."""

    def __init__(self, items: Mapping[str, pytest.Item]) -> None:
        self._items = items

    @cached_property
    def _words(self) -> dict[str, set[str]]:
        return {case: _words_of_case(case, item) for case, item in self._items.items()}

    @cached_property
    def _weights(self) -> dict[str, float]:
        counted = Counter(word for words in self._words.values() for word in words)
        return {word: math.log(len(self._words) / count) for word, count in counted.items()}

    def of(self, mutant: NamedMutant) -> dict[str, float]:
        """Return by case the weight of the words that it shares with the mutant, by the length of its own text."""
        wanted = words_of(f"{mutant.name} {mutant.effect}" if mutant.effect else _text_around(mutant))
        return {
            case: sum(self._weights[word] for word in words & wanted) / math.sqrt(len(words) + 1)
            for case, words in self._words.items()
        }


def _words_of_case(case: str, item: pytest.Item) -> set[str]:
    return words_of(" ".join((case.partition("[")[2], item.name.partition("[")[0], case_of(item)[1].sentence)))


def _text_around(mutant: NamedMutant) -> str:
    """Return both texts of the line, and the names and docstrings of the function and the class around it."""
    found = [mutant.mutant.before, mutant.mutant.after, mutant.mutant.module.rpartition(".")[2]]
    for node in ast.walk(ast.parse(source_of(mutant.mutant.module))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and (
            node.lineno <= mutant.mutant.line <= (node.end_lineno or 0)
        ):
            found += [node.name, ast.get_docstring(node) or ""]
    return " ".join(found)
