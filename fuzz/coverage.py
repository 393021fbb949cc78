"""The table at the end of a sweep: which situations came up, in how many seeds, and which never did."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from fuzz.swarm import KINDS
from reference.groups.group import GroupState

SITUATIONS: Final[dict[str, tuple[str, ...]]] = {
    "faults": (*dict.fromkeys(KINDS), "lost tail"),
    "replicas": (
        "first leader", "leader change", "no leader", "isr shrink", "isr expansion", "isr of one", "truncation",
        "fenced write", "write below min ISR", "fenced fetch", "fetch ahead of a leader",
    ),
    "controller": (
        "first controller", "controller change", "fenced controller", "request to a former life", "fenced ISR change",
        "ineligible replica", "fenced store write",
    ),
    "groups": (
        *(f"group {state}" for state in GroupState if state is not GroupState.DEAD), "coordinator change",
        "rebalance during failover", "fenced generation", "fenced instance", "forgotten member", "rebalance as in 0.7",
    ),
    "producers": ("commit marker", "abort marker", "fenced producer", "sequence gap"),
}  # fmt: skip
"""What a long sweep should meet, by whom it happens to."""

AMOUNTS: Final = {"records truncated"}  # counted in something else than seeds
ENOUGH_SEEDS: Final = 100  # fewer miss much by chance
IN_A_ROW: Final = 3


def coverage_lines(seen: Mapping[str, int], seeds: int) -> Iterator[str]:
    """`seen`: of each situation the number of seeds that met it. The most frequent of a kind comes first."""
    yield f"met in so many of {seeds:,} {'seed' if seeds == 1 else 'seeds'}:"
    known = {situation for group in SITUATIONS.values() for situation in group} | AMOUNTS
    others = tuple(situation for situation in seen if situation not in known)
    for name, group in {**SITUATIONS, "others": others}.items():
        met = sorted((situation for situation in group if seen.get(situation)), key=lambda each: (-seen[each], each))
        yield from _rows(name, [f"{situation:<26}{seen[situation]:>7,}" for situation in met])
    never = [situation for group in SITUATIONS.values() for situation in group if not seen.get(situation)]
    if seeds >= ENOUGH_SEEDS:
        yield f"  never met: {', '.join(never) or 'nothing of what is looked for'}"


def _rows(name: str, cells: Sequence[str]) -> Iterator[str]:
    for start in range(0, len(cells), IN_A_ROW):
        yield f"  {'' if start else name:<12}" + "   ".join(cells[start : start + IN_A_ROW])
