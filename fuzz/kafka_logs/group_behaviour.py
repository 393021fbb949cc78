"""A behaviour of a group's coordinators that explains what `__consumer_offsets` has, as lines of a trace.

The log has a group only when it is stored.  What happened in between is not in it: which members asked for an id, sent
JoinGroup and SyncGroup, left or expired, and generations that ended before their assignment was stored.  These are
hidden steps.  They are taken as late as possible, just before the record that needs them:

* a member that the record has and the group lacks gets an id and joins; one that the group has and the record lacks is
  expelled, and those that stay join again;
* a generation that is in no record begins with the members of the next record, and is given up;
* a group that becomes empty without a member in the log had one, which has an invented id;
* the leader of the record syncs with the assignments of the record.

A coordinator in another leader epoch begins with the last record (Failover).  A commit is one of the member that has
the partition, because an offset record does not name its member: a commit by a former member is not visible.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from highwater.fuzz.kafka_logs.behaviour import HIDDEN
from highwater.fuzz.kafka_logs.group_log import GroupEntry, GroupLife, GroupMember, StoredGroup
from highwater.spec.formats.trace import Step

PARKED, ANSWERED = "parked", "answered"
EMPTY: Final = StoredGroup()
UNSEEN: Final = "unseen"


class GroupBehaviour:
    """Builds the trace of a group from its life in `__consumer_offsets`."""

    def __init__(self, life: GroupLife) -> None:
        self.life = life
        self.steps: list[Step] = []
        self.offset, self.epoch, self.node = 0, -1, -1
        self.generation = 0
        self.members: dict[str, GroupMember] = {}
        self.last = EMPTY
        self.invented = self.unexplained = 0
        self.lists: dict[str, set[str]] = {}
        for stored in life.records():
            for member in stored.members:
                self.lists.setdefault(member.member_id, set()).add(stored.protocol)

    def build(self) -> list[Step]:
        """Return the lines, and count commits of a group without members in `unexplained`."""
        for entry in self.life.entries:
            self.offset = entry.offset
            if entry.committed and not self.last.members:
                self.unexplained += 1
                continue
            if entry.epoch != self.epoch:
                self.epoch, self.node = entry.epoch, entry.coordinator
                self._load(hidden=False)
            if entry.committed:
                self._commit(entry)
            elif entry.stored is None:
                self._line("DeleteGroup", hidden=False)
                self.last = EMPTY
                self._load()
            else:
                self._store(entry.stored)
        return self.steps

    # -- lines -------------------------------------------------------------------------------------------

    def _line(self, action: str, *, hidden: bool = True, **choices: Any) -> None:
        state = {"generation": self.generation, "members": list(self.members)}
        self.steps.append(
            Step(
                seq=len(self.steps), time_ns=self.offset, node=self.node, entity=self.life.group, action=action,
                choices={**choices, HIDDEN: True} if hidden else choices, state=state,
            )
        )  # fmt: skip

    def _load(self, *, hidden: bool = True) -> None:
        """The coordinator begins with the last record, or without the group."""
        self.generation = self.last.generation
        self.members = {member.member_id: member for member in self.last.members}
        self._line("Failover", hidden=hidden, **_assignment(self.last))

    # -- a record ------------------------------------------------------------------------------------------

    def _store(self, stored: StoredGroup) -> None:
        rebalanced = stored.generation > self.generation
        if rebalanced:
            self._rebalance(stored)
        elif stored.generation == self.generation:
            self._return_static(stored)
        content = _assignment(stored)
        content |= {"stored_generation": stored.generation}
        content |= {"stored_members": [member.member_id for member in stored.members]}
        self._line("StoreGroup", hidden=False, **content)
        self._line("GroupStored", **content)
        if rebalanced and stored.members:
            self._line("LeaderSync", **_assignment(stored))
        self.last = stored

    def _rebalance(self, stored: StoredGroup) -> None:
        unseen = stored.generation - self.generation - 1
        if not stored.members:
            self._empty(unseen)
            return
        returned = self._returned(stored)
        joining = [member for member in stored.members if member.member_id not in self.members]
        gone = self.members.keys() - {member.member_id for member in stored.members} - returned.keys()
        replaces_all = gone == self.members.keys()
        if not replaces_all:
            self._expel(gone)
        for member in joining:
            self._join(member, returned)
        if replaces_all:
            self._expel(gone)
        known = {member.member_id for member in joining}
        for _ in range(unseen):
            self._complete(stored, known)
            known = set()
        self._complete(stored, known)
        assigned = _assignment(stored)["assignment"]
        self._line(
            "HandleSync", member_id=stored.leader, asked_generation=self.generation, result=PARKED, assignment=assigned
        )

    def _complete(self, stored: StoredGroup, joined: Iterable[str]) -> None:
        """All members that have not joined since the last generation join again, and a generation begins."""
        for member in stored.members:
            if member.member_id not in joined:
                self._join(member, {})
        self.generation += 1
        self._line("CompleteJoin", leader=stored.leader, protocol=stored.protocol)

    def _empty(self, unseen: int) -> None:
        """The last member leaves, after some generations in no record."""
        if not self.members:
            self.invented += 1
            member = GroupMember(f"{UNSEEN}-{self.invented}")
            self.lists[member.member_id] = {self.last.protocol}
            self._join(member, {})
            joined = {member.member_id}
        else:
            joined = set()
        members = tuple(self.members.values())
        for _ in range(unseen):
            self._complete(StoredGroup(0, self.last.protocol, members[0].member_id, members), joined)
            joined = set()
        self._expel([member.member_id for member in members])
        self.generation += 1
        self._line("CompleteJoin", leader="", protocol="")

    # -- members -------------------------------------------------------------------------------------------

    def _join(self, member: GroupMember, returned: Mapping[str, str]) -> None:
        """A member joins: with an id that it has just received, again, or as a static member without an id."""
        name, is_static = member.member_id, bool(member.instance_id)
        is_known = name in self.members
        if not is_known and not is_static:
            self._line("TakeMemberId", member_id=name)
        for old, new in returned.items():
            if new == name:
                self.members.pop(old)
        self.members[name] = member
        self._line("HandleJoin", **self._request(member, "" if is_static and not is_known else name, is_known))

    def _request(self, member: GroupMember, asked: str, is_known: bool, result: str = PARKED) -> dict[str, Any]:
        return {
            "member_id": member.member_id, "asked": asked, "instance_id": member.instance_id, "result": result,
            "changed": is_known, "claim": list(member.claim), "claim_generation": member.claim_generation,
            "lists": sorted(self.lists[member.member_id]),
        }  # fmt: skip

    def _expel(self, gone: Iterable[str]) -> None:
        for name in sorted(gone):
            del self.members[name]
            self._line("Expel", member_id=name)

    def _returned(self, stored: StoredGroup) -> dict[str, str]:
        """Return the old id of each static member that has another one in the record, and the new id."""
        now = {member.instance_id: member.member_id for member in stored.members if member.instance_id}
        return {
            name: now[member.instance_id]
            for name, member in self.members.items()
            if member.instance_id in now and now[member.instance_id] != name
        }

    def _return_static(self, stored: StoredGroup) -> None:
        """A static member returned to a stable group: it has a new id and keeps its partitions."""
        returned = self._returned(stored)
        for member in stored.members:
            if member.member_id in returned.values():
                for old, new in returned.items():
                    if new == member.member_id:
                        self.members.pop(old)
                self.members[member.member_id] = member
                self._line("HandleJoin", **self._request(member, "", False, ANSWERED))

    def _commit(self, entry: GroupEntry) -> None:
        """Members commit for partitions that they have: those of their assignment, or claimed and withheld ones."""
        holders = {partition: member.member_id for member in self.last.members for partition in member.claim}
        holders |= {partition: member.member_id for member in self.last.members for partition in member.assignment}
        by_member: dict[str, list[str]] = {}
        for partition in entry.committed:
            by_member.setdefault(holders.get(partition, self.last.leader), []).append(partition)
        for name, partitions in sorted(by_member.items()):
            self._line(
                "HandleCommit", hidden=False, member_id=name, asked_generation=self.generation, result="NONE",
                partitions=partitions,
            )  # fmt: skip


def _assignment(stored: StoredGroup) -> dict[str, Any]:
    pairs = [[member.member_id, partition] for member in stored.members for partition in member.assignment]
    return {"leader": stored.leader, "assignment": pairs}
