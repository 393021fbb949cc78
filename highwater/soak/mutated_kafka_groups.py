"""Mutations of what `__consumer_offsets` has of a group, as a broken coordinator or leader could have written it.

Not among them, because no log shows it: a commit by a former member (an offset record names no member), an assignment
to a client that is no member (a group record has the assignment in the member's entry), and a group record that is
lost (some generations are never stored).
"""

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec

from highwater.fuzz.kafka_logs.check import Checked, Extraction, GroupTrace, check, write_traces
from highwater.fuzz.kafka_logs.folders import Seen
from highwater.fuzz.kafka_logs.group_log import GroupEntry, GroupLife, GroupMember, StoredGroup

Mutated = tuple[GroupLife, str]
Mutation = Callable[[random.Random, GroupLife], Mutated | None]


def read_group(path: Path) -> GroupLife:
    """Return a life that `write_group` wrote."""
    group, log, entries = msgspec.json.decode(path.read_bytes(), type=tuple[str, str, list[GroupEntry]])
    return GroupLife(group, log, entries)


def write_group(path: Path, life: GroupLife) -> None:
    """Write the life of a group, to mutate it later; the ids of members lose what differs from run to run."""
    text = msgspec.json.encode((life.group, life.log, life.entries)).decode()
    names = sorted({member.member_id for stored in life.records() for member in stored.members})
    for number, name in enumerate(names):
        text = text.replace(name, f"member-{number}")
    path.write_bytes(msgspec.json.format(text.encode(), indent=1) + b"\n")


def judge_group(life: GroupLife, folder: Path, *, explain: bool = True) -> list[Checked]:
    """Return what the model of its protocol says of a life."""
    trace = GroupTrace(life)
    trace.build()
    extraction = Extraction((), Seen(), (), (trace,))
    write_traces(extraction, folder)
    return list(check(extraction, folder, explain=explain).checked)


def _pairs(life: GroupLife) -> Iterator[tuple[int, StoredGroup, StoredGroup]]:
    """Yield the index of each group record but the first, the record before it and the record."""
    found = [(at, entry.stored) for at, entry in enumerate(life.entries) if entry.stored is not None]
    for (before_at, before), (at, stored) in itertools.pairwise(found):
        between = life.entries[before_at + 1 : at]
        if not any(entry.stored is None and not entry.committed for entry in between):  # no tombstone
            yield at, before, stored


def _with(life: GroupLife, at: int, stored: StoredGroup) -> GroupLife:
    entries = list(life.entries)
    entries[at] = replace(entries[at], stored=stored)
    return replace(life, entries=entries)


def _with_members(stored: StoredGroup, *changed: GroupMember) -> StoredGroup:
    by_id = {member.member_id: member for member in changed}
    return replace(stored, members=tuple(by_id.get(member.member_id, member) for member in stored.members))


def repeat_generation(draw: random.Random, life: GroupLife) -> Mutated | None:
    """A rebalance ends in the generation in which it began."""
    found = [
        (at, before, stored)
        for at, before, stored in _pairs(life)
        if stored.generation > before.generation and replace(stored, generation=before.generation) != before
    ]
    if not found:
        return None
    at, before, stored = draw.choice(found)
    changed = replace(stored, generation=before.generation)
    return _with(life, at, changed), f"generation {before.generation} is stored again at {life.entries[at].offset}"


def lower_generation(draw: random.Random, life: GroupLife) -> Mutated | None:
    """A generation is lower than the one before it."""
    found = [(at, before, stored) for at, before, stored in _pairs(life) if before.generation > 0]
    if not found:
        return None
    at, before, stored = draw.choice(found)
    changed = replace(stored, generation=draw.randrange(before.generation))
    return _with(life, at, changed), f"generation {changed.generation} follows {before.generation}"


def share_partition(draw: random.Random, life: GroupLife) -> Mutated | None:
    """Two members are assigned one partition in one generation."""
    found = [(at, stored) for at, _, stored in _pairs(life) if len(stored.members) > 1]
    if not found:
        return None
    at, stored = draw.choice(found)
    owner = draw.choice([member for member in stored.members if member.assignment] or list(stored.members))
    other = draw.choice([member for member in stored.members if member != owner])
    partition = draw.choice(owner.assignment) if owner.assignment else "highwater-0"
    both = (replace(other, assignment=(*other.assignment, partition)), replace(owner, assignment=(partition,)))
    text = f"{owner.member_id} and {other.member_id} are assigned {partition} in generation {stored.generation}"
    return _with(life, at, _with_members(stored, *both)), text


def foreign_leader(draw: random.Random, life: GroupLife) -> Mutated | None:
    """The leader of a generation is not a member of it."""
    found = [(at, stored) for at, _, stored in _pairs(life) if stored.members]
    if not found:
        return None
    at, stored = draw.choice(found)
    text = f"the leader of generation {stored.generation} is not a member"
    return _with(life, at, replace(stored, leader="foreign")), text


def return_with_old_id(draw: random.Random, life: GroupLife) -> Mutated | None:
    """A member that left is a member again, under the id that it had."""
    found, former = [], set[str]()
    for at, before, stored in _pairs(life):
        now = {member.member_id for member in stored.members}
        known = {member.member_id for member in before.members}
        found += [(at, new, old) for new in now - known for old in former - now - known]
        former |= known
    if not found:
        return None
    at, new, old = draw.choice(sorted(found))
    entries = list(life.entries)
    for later in range(at, len(entries)):
        entry = entries[later]
        if entry.stored is not None:
            members = tuple(
                replace(member, member_id=old) if member.member_id == new else member for member in entry.stored.members
            )
            leader = old if entry.stored.leader == new else entry.stored.leader
            entries[later] = replace(entry, stored=replace(entry.stored, members=members, leader=leader))
    return replace(life, entries=entries), f"{old} is a member again at {life.entries[at].offset}"


def take_from_owner(draw: random.Random, life: GroupLife) -> Mutated | None:
    """A cooperative leader assigns a partition that another member claims, instead of withholding it."""
    found = [
        (at, stored, owner, partition)
        for at, before, stored in _pairs(life)
        if len(stored.members) > 1 and stored.generation > before.generation
        for owner in stored.members
        for partition in set(owner.claim) & set(owner.assignment)
    ]
    if not found:
        return None
    at, stored, owner, partition = draw.choice(sorted(found, key=lambda entry: (entry[0], entry[3])))
    other = draw.choice([member for member in stored.members if member != owner])
    left = replace(owner, assignment=tuple(each for each in owner.assignment if each != partition))
    taken = replace(other, assignment=(*other.assignment, partition))
    text = f"{partition} of {owner.member_id} is assigned to {other.member_id} in generation {stored.generation}"
    return _with(life, at, _with_members(stored, left, taken)), text


def commit_foreign_partition(draw: random.Random, life: GroupLife) -> Mutated | None:
    """A commit of a partition that no member has."""
    found, stored = [], StoredGroup()
    for at, entry in enumerate(life.entries):
        if entry.committed and stored.members:
            found.append(at)
        elif not entry.committed:
            stored = entry.stored or StoredGroup()
    if not found:
        return None
    at = draw.choice(found)
    entries = list(life.entries)
    entries[at] = replace(entries[at], committed=(*entries[at].committed, "other-0"))
    return replace(life, entries=entries), f"other-0 is committed at {entries[at].offset}"


def change_assignment(draw: random.Random, life: GroupLife) -> Mutated | None:
    """A generation is stored a second time, with the assignments of two members exchanged."""
    found = [
        (at, stored, one, other)
        for at, _, stored in _pairs(life)
        for one, other in itertools.combinations(stored.members, 2)
        if one.assignment != other.assignment
    ]
    if not found:
        return None
    at, stored, one, other = draw.choice(found)
    exchanged = (replace(one, assignment=other.assignment), replace(other, assignment=one.assignment))
    entries = list(life.entries)
    entries.insert(at + 1, replace(entries[at], stored=_with_members(stored, *exchanged)))
    return replace(life, entries=entries), f"generation {stored.generation} is stored with other assignments"


def keep_replaced(draw: random.Random, life: GroupLife) -> Mutated | None:
    """A static member has returned under a new id, and the old one is still a member."""
    found = [
        (at, stored, old)
        for at, before, stored in _pairs(life)
        for old in before.members
        if old.instance_id
        and old not in stored.members
        and any(new.instance_id == old.instance_id and new.member_id != old.member_id for new in stored.members)
    ]
    if not found:
        return None
    at, stored, old = draw.choice(found)
    changed = replace(stored, members=(*stored.members, replace(old, assignment=())))
    return _with(life, at, changed), f"{old.member_id} is still a member at {life.entries[at].offset}"


GROUP_MUTATIONS: Final[dict[str, Mutation]] = {
    "a generation that repeats": repeat_generation,
    "a generation that falls": lower_generation,
    "a partition of two members": share_partition,
    "a leader that is no member": foreign_leader,
    "a member that returns with its old id": return_with_old_id,
    "a partition taken from its owner": take_from_owner,
    "a commit of a foreign partition": commit_foreign_partition,
    "an assignment that changes in its generation": change_assignment,
    "a static member under two ids": keep_replaced,
}


def mutated_group(life: GroupLife, how: str, seed: int) -> Mutated | None:
    """Return the life with one drawn mutation and its description; None if it does not apply to this life."""
    return GROUP_MUTATIONS[how](random.Random(f"{how} {seed}"), life)


def applicable(lives: Sequence[GroupLife], how: str, seed: int = 0) -> Mutated | None:
    """Return the first mutation of this kind that applies to one of the lives."""
    return next((found for life in lives if (found := mutated_group(life, how, seed))), None)
