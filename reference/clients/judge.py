"""The judge of a group: no two members of its present generation have one partition (OneOwner of the group models)."""

from collections.abc import Mapping

from reference.clients.application import Application
from reference.groups.group import Group


def quarrels(applications: Mapping[str, Application], group: Group) -> list[str]:
    """One line for each partition that two members have at this moment; `group` as its coordinator has it."""
    found = []
    owners: dict[tuple[str, int], str] = {}
    for name, application in applications.items():
        member = application.member
        if member.member_id in group.members and member.generation_id == group.generation_id:
            for topic, number in sorted(member.owned):
                other = owners.setdefault((topic, number), name)
                if other != name:
                    found.append(f"{topic}-{number} of {other} and {name} in generation {group.generation_id}")
    return found
