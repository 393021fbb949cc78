"""Check a group: no two members of the current generation own the same partition (OneOwner of the group models)."""

from collections.abc import Mapping

from highwater.reference.clients.application import Application
from highwater.reference.groups.group import Group


def ownership_conflicts(applications: Mapping[str, Application], group: Group) -> list[str]:
    """Return one line per partition that two members own now; `group` is the coordinator's state."""
    conflicts = []
    owners: dict[tuple[str, int], str] = {}
    for name, application in applications.items():
        member = application.member
        if member.member_id in group.members and member.generation_id == group.generation_id:
            for topic, number in sorted(member.owned):
                other = owners.setdefault((topic, number), name)
                if other != name:
                    conflicts.append(f"{topic}-{number} of {other} and {name} in generation {group.generation_id}")
    return conflicts
