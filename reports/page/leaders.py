"""Collect leaders and in-sync replicas of partitions from Metadata and the epochs in replies."""

from typing import NamedTuple

from highwater.reports.page.operations import Operation

CHANGES_KEPT = 400
UNKNOWN = -1


class Term(NamedTuple):
    """A leader term from `start_s` on; the leader is `UNKNOWN` if absent or if only the epoch is known."""

    start_s: float
    leader: int
    epoch: int


class Replicas(NamedTuple):
    """The in-sync replicas from `start_s` on."""

    start_s: float
    in_sync: tuple[int, ...]


class Leaders:
    def __init__(self) -> None:
        self.terms: dict[str, list[Term]] = {}
        self.in_sync: dict[str, list[Replicas]] = {}

    def take(self, operation: Operation) -> None:
        if operation.end_s is None or operation.outcome != "ok":
            return
        completion = operation.completion
        if operation.invoke.f == "metadata":
            for key, (leader, epoch) in (completion.value or {}).items():
                self._add_term(key, Term(operation.end_s, leader, epoch))
        elif operation.invoke.f == "in_sync":
            for key, brokers in (completion.value or {}).items():
                self._add_in_sync(key, Replicas(operation.end_s, tuple(sorted(brokers))))
        elif completion.leader_epoch is not None and (key := operation.key) is not None:
            self._add_term(key, Term(operation.end_s, UNKNOWN, completion.leader_epoch))

    def _add_term(self, key: str, term: Term) -> None:
        """Add a term if its epoch is newer: cached metadata may be stale."""
        terms = self.terms.get(key, [])
        last = terms[-1] if terms else Term(0.0, UNKNOWN, UNKNOWN)
        if last.epoch < term.epoch and len(terms) < CHANGES_KEPT:
            self.terms.setdefault(key, terms).append(term)
        elif terms and last.epoch == term.epoch and last.leader == UNKNOWN:
            terms[-1] = last._replace(leader=term.leader)

    def _add_in_sync(self, key: str, replicas: Replicas) -> None:
        known = self.in_sync.setdefault(key, [])
        if len(known) < CHANGES_KEPT and (not known or known[-1].in_sync != replicas.in_sync):
            known.append(replicas)
