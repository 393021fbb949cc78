"""What brokers tell of the cluster: rules 28 (leader epochs) and 31 (producer ids)."""

from collections.abc import Iterator

from reports.columns import Status
from reports.rules.told import Told, falls
from reports.tables import Step, Tables


def epoch_safety(tables: Tables) -> Iterator[Told]:
    """Rule 28. Metadata is a cache, so epochs may fall from one broker to another, but not as told by one."""
    told = [step for step in tables.of("metadata") if step.status is Status.OK and step.epoch >= 0]
    leaders: dict[tuple[str, int], Step] = {}
    blamed = set()
    for step in told:
        if step.number < 0:
            continue
        first = leaders.setdefault((step.subject, step.epoch), step)
        if first.number != step.number and (step.subject, step.epoch) not in blamed:
            blamed.add((step.subject, step.epoch))
            yield Told(28, step.subject, step.epoch, step, first)
    by_teller: dict[tuple[str, str], list[Step]] = {}
    for step in told:
        if step.node:
            by_teller.setdefault((step.node, step.subject), []).append(step)
    for mine in by_teller.values():
        for late, early in falls(mine, mine):
            yield Told(28, late.subject, late.epoch, late, early)


def duplicate_producer_ids(tables: Tables) -> Iterator[Told]:
    """Rule 31. One process may be given the same twice, when it asks again for what it was not told."""
    owners: dict[tuple[int, int], Step] = {}
    for step in sorted(tables.of("init_producer"), key=lambda step: step.returned):
        if step.status is Status.OK and step.number >= 0:
            owner = owners.setdefault((step.number, step.epoch), step)
            if owner.process != step.process:
                yield Told(31, step.subject, step.number, step, owner)
