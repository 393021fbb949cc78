"""What the plain rules found."""

from collections import defaultdict
from collections.abc import Hashable

from highwater.reports.rules.findings import Weight
from highwater.reports.rules.rule import Rule

Culprits = dict[tuple[Rule, Weight], set[Hashable]]


class Findings:
    """The culprits of each rule and weight, each with the largest certainty that was found."""

    def __init__(self) -> None:
        self._weights: dict[Rule, dict[Hashable, set[Weight]]] = defaultdict(lambda: defaultdict(set))

    def add(self, rule: Rule, weight: Weight, culprit: Hashable) -> None:
        self._weights[rule][culprit].add(weight)

    def has(self, rule: Rule, culprit: Hashable) -> bool:
        return culprit in self._weights[rule]

    def culprits(self) -> Culprits:
        """Return the culprits by rule and weight; one that is found with several weights has the smallest."""
        found: Culprits = defaultdict(set)
        for rule, weights in self._weights.items():
            for culprit, its_weights in weights.items():
                found[rule, min(its_weights)].add(culprit)
        return dict(found)
