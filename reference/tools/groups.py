"""`highwater groups`: list and describe consumer groups, reset their offsets (kafka-consumer-groups.sh)."""

import time
from typing import Annotated

import typer

from highwater.errors import UsageError
from highwater.reference.client.cluster import BrokerConnection, ClusterClient, refuse
from highwater.reference.tools.output import (
    EARLIEST,
    LATEST,
    BootstrapOption,
    CommandConfigOption,
    JsonOption,
    Offsets,
    connect,
    offsets_at,
    print_json,
    print_table,
)
from highwater.reference.wire.errors import COORDINATOR_UNAVAILABLE, DecodeError, ErrorCode
from highwater.reference.wire.messages.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
)
from highwater.reference.wire.messages.consumer_groups import decode_assignment
from highwater.reference.wire.messages.groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from highwater.reference.wire.messages.metadata import FindCoordinatorRequest

app = typer.Typer(no_args_is_help=True)

GroupArgument = Annotated[str, typer.Argument(help="Id of the group.")]
WITHOUT_MEMBERS = {"Empty", "Dead"}
COORDINATOR_WAIT_S = 20.0


@app.command("list")
def list_command(
    bootstrap: BootstrapOption, json_: JsonOption = False, command_config: CommandConfigOption = None
) -> None:
    """List the groups of all coordinators.

    Example: highwater groups list --bootstrap-server localhost:9092
    """
    rows: list[tuple[str, str, str]] = []
    with connect(bootstrap, command_config) as cluster:
        for address in cluster.addresses().values():
            reply = cluster.to(address).call(ListGroupsRequest())
            refuse(reply.error_code, address)
            rows += [(group.group_id, group.protocol_type, group.group_state) for group in reply.groups]
    head = ("group", "protocol_type", "state")
    if json_:
        print_json({"groups": [dict(zip(head, row, strict=True)) for row in sorted(rows)]})
    else:
        print_table(head, sorted(rows))


@app.command("describe")
def describe_command(
    group: GroupArgument,
    bootstrap: BootstrapOption,
    json_: JsonOption = False,
    command_config: CommandConfigOption = None,
) -> None:
    """Show the state and members of a group, and for each partition the committed offset and the lag.

    Example: highwater groups describe billing --bootstrap-server localhost:9092
    """
    with connect(bootstrap, command_config) as cluster:
        coordinator = _coordinator(cluster, group)
        found = _described(coordinator, group)
        committed = _committed(coordinator, group)
        ends = offsets_at(cluster, committed, LATEST)
    owners = {key: member for member in found.members for key in _assigned(found, member)}
    head = ("topic", "partition", "committed", "log_end_offset", "lag", "member", "client_id", "host")
    rows = []
    for key in sorted(committed.keys() | owners.keys()):
        offset, end, member = committed.get(key), ends.get(key), owners.get(key)
        lag = None if offset is None or end is None else end - offset
        owner = (None, None, None) if member is None else (member.member_id, member.client_id, member.client_host)
        rows.append((*key, offset, end, lag, *owner))
    if json_:
        partitions = [dict(zip(head, row, strict=True)) for row in rows]
        print_json({"group": group, "state": found.group_state, "members": len(found.members), "offsets": partitions})
    else:
        print(f"{group}: {found.group_state}, {len(found.members)} members, protocol {found.protocol_data or '-'}")
        print_table(head, rows)


@app.command("reset-offsets")
def reset_command(
    group: GroupArgument,
    bootstrap: BootstrapOption,
    topic: Annotated[list[str], typer.Option(help="Name of a topic, repeatable.")],
    to: Annotated[str, typer.Option(help="earliest, latest, an offset, or @TIMESTAMP in milliseconds.")],
    execute: Annotated[
        bool, typer.Option("--execute", help="Commit the offsets; without it they are only shown.")
    ] = False,
    json_: JsonOption = False,
    command_config: CommandConfigOption = None,
) -> None:
    """Set the committed offsets of a group without members.

    Examples: highwater groups reset-offsets billing --topic orders --to earliest --bootstrap-server localhost:9092
    · … --to @1760000000000 --execute
    """
    with connect(bootstrap, command_config) as cluster:
        coordinator = _coordinator(cluster, group)
        state = _described(coordinator, group, known=False).group_state
        if state not in WITHOUT_MEMBERS:
            raise UsageError(f"the group has members (state {state})", where=group, hint="stop its members first")
        metadata = cluster.metadata(*topic)
        keys = [(str(found.name), part.partition_index) for found in metadata.topics for part in found.partitions]
        targets = _targets(cluster, dict.fromkeys(keys, 0), to)
        if execute:
            _commit(coordinator, group, targets)
    head = ("topic", "partition", "new_offset")
    rows = [(*key, offset) for key, offset in sorted(targets.items())]
    if json_:
        print_json(
            {"group": group, "executed": execute, "offsets": [dict(zip(head, row, strict=True)) for row in rows]}
        )
    else:
        print_table(head, rows)
        if not execute:
            print("Nothing was changed. Add --execute to commit these offsets.")


def _coordinator(cluster: ClusterClient, group: str) -> BrokerConnection:
    deadline = time.monotonic() + COORDINATOR_WAIT_S  # the first request may create the offsets topic
    while True:
        reply = cluster.call(FindCoordinatorRequest(key=group))
        error, message = reply.error_code, reply.error_message
        if error == ErrorCode.NONE:
            coordinator = cluster.to(f"{reply.host}:{reply.port}")
            (described,) = coordinator.call(DescribeGroupsRequest(groups=(group,))).groups
            if described.error_code not in COORDINATOR_UNAVAILABLE:  # the coordinator has loaded the group
                return coordinator
            error, message = described.error_code, None
        if error not in COORDINATOR_UNAVAILABLE or time.monotonic() > deadline:
            refuse(error, group, message)
        time.sleep(0.2)


def _described(coordinator: BrokerConnection, group: str, *, known: bool = True) -> DescribedGroup:
    described: DescribedGroup
    (described,) = coordinator.call(DescribeGroupsRequest(groups=(group,))).groups
    if described.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
        refuse(described.error_code, group)
    if known and described.group_state == "Dead":
        raise UsageError("this group does not exist", where=group, hint="see highwater groups list")
    return described


def _committed(coordinator: BrokerConnection, group: str) -> Offsets:
    reply = coordinator.call(OffsetFetchRequest(group_id=group, topics=None))
    refuse(reply.error_code, group)
    return {
        (topic.name, part.partition_index): part.committed_offset
        for topic in reply.topics
        for part in topic.partitions
        if part.committed_offset >= 0
    }


def _assigned(group: DescribedGroup, member: DescribedGroupMember) -> list[tuple[str, int]]:
    if group.protocol_type != "consumer":
        return []
    try:
        assignment = decode_assignment(member.member_assignment)
    except DecodeError:
        return []  # the members use their own assignment format
    return [(topic.topic, number) for topic in assignment.assigned_partitions for number in topic.partitions]


def _targets(cluster: ClusterClient, partitions: Offsets, to: str) -> Offsets:
    """Return the new offset of every partition, limited to the range of its log."""
    first, end = offsets_at(cluster, partitions, EARLIEST), offsets_at(cluster, partitions, LATEST)
    if to in {"earliest", "latest"}:
        return first if to == "earliest" else end
    if to.startswith("@") and to[1:].isdigit():
        found = offsets_at(cluster, partitions, int(to[1:]))
        return {key: end[key] if offset < 0 else offset for key, offset in found.items()}
    if to.isdigit():
        return {key: min(max(int(to), first[key]), end[key]) for key in partitions}
    raise UsageError(f"invalid offset {to!r}", where="--to", hint="use earliest, latest, 42 or @1760000000000")


def _commit(coordinator: BrokerConnection, group: str, offsets: Offsets) -> None:
    topics = tuple(
        OffsetCommitRequestTopic(
            name=name,
            partitions=tuple(
                OffsetCommitRequestPartition(partition_index=number, committed_offset=offset)
                for (topic, number), offset in sorted(offsets.items())
                if topic == name
            ),
        )
        for name in sorted({name for name, _ in offsets})
    )
    for topic in coordinator.call(OffsetCommitRequest(group_id=group, topics=topics)).topics:
        for part in topic.partitions:
            refuse(part.error_code, f"{topic.name}-{part.partition_index}")
