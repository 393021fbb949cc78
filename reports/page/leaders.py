"""Who led each partition and who was in sync, as far as replies told: metadata, and the epochs that replies carry."""

from typing import NamedTuple

from highwater.reports.page.operations import Operation

CHANGES_KEPT = 400
UNKNOWN = -1


class Term(NamedTuple):
    """From `start_s` on; the leader is `UNKNOWN` where only its epoch was told, or when there was none."""

    start_s: float
    leader: int
    epoch: int


class Replicas(NamedTuple):
    """Who was in sync from `start_s` on."""

    start_s: float
    in_sync: tuple[int, ...]


class Leaders:
    def __init__(self) -> None:
        self.terms: dict[str, list[Term]] = {}
        self.in_sync: dict[str, list[Replicas]] = {}

    def take(self, operation: Operation) -> None:
        if operation.end_s is None or operation.outcome != "ok":
            return
        told = operation.told
        if operation.invoke.f == "metadata":
            for key, (leader, epoch) in (told.value or {}).items():
                self._tell(key, Term(operation.end_s, leader, epoch))
        elif operation.invoke.f == "in_sync":
            for key, brokers in (told.value or {}).items():
                self._tell_in_sync(key, Replicas(operation.end_s, tuple(sorted(brokers))))
        elif told.leader_epoch is not None and (key := operation.key) is not None:
            self._tell(key, Term(operation.end_s, UNKNOWN, told.leader_epoch))

    def _tell(self, key: str, term: Term) -> None:
        """Only what is newer: caches tell of the past."""
        terms = self.terms.get(key, [])
        last = terms[-1] if terms else Term(0.0, UNKNOWN, UNKNOWN)
        if last.epoch < term.epoch and len(terms) < CHANGES_KEPT:
            self.terms.setdefault(key, terms).append(term)
        elif terms and last.epoch == term.epoch and last.leader == UNKNOWN:
            terms[-1] = last._replace(leader=term.leader)

    def _tell_in_sync(self, key: str, replicas: Replicas) -> None:
        known = self.in_sync.setdefault(key, [])
        if len(known) < CHANGES_KEPT and (not known or known[-1].in_sync != replicas.in_sync):
            known.append(replicas)
