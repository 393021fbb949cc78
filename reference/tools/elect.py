"""`highwater elect`: elect preferred replicas, or live ones out of sync (kafka-leader-election.sh; KIP-460)."""

from typing import Annotated

import typer

from highwater.errors import ExitCode, UsageError
from highwater.reference.client.cluster import ClusterClient, refuse
from highwater.reference.tools.output import (
    BootstrapOption,
    CommandConfigOption,
    JsonOption,
    connect,
    print_json,
    print_table,
)
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.replicas import ElectLeadersRequest, TopicPartitions

app = typer.Typer(no_args_is_help=True)

PREFERRED, UNCLEAN = 0, 1
RequestedPartitions = tuple[TopicPartitions, ...] | None
SUCCESS_CODES = {ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED}

PartitionArgument = Annotated[
    list[str] | None, typer.Argument(help="TOPIC-PARTITION, e.g. orders-0; default: all partitions.")
]


@app.command("preferred")
def preferred_command(
    bootstrap: BootstrapOption,
    partition: PartitionArgument = None,
    json_: JsonOption = False,
    command_config: CommandConfigOption = None,
) -> None:
    """Elect the first replica of each partition as leader, if it is in sync.

    Example: highwater elect preferred orders-0 orders-1 --bootstrap-server localhost:9092
    """
    _elect(_parse_all(partition or []), connect(bootstrap, command_config), PREFERRED, json_=json_)


@app.command("unclean")
def unclean_command(
    bootstrap: BootstrapOption,
    partition: Annotated[list[str], typer.Argument(help="TOPIC-PARTITION, e.g. orders-0.")],
    json_: JsonOption = False,
    command_config: CommandConfigOption = None,
) -> None:
    """Elect a live replica as leader where no in-sync replica is alive. Acknowledged records may be lost.

    Example: highwater elect unclean orders-0 --bootstrap-server localhost:9092
    """
    _elect(_parse_all(partition), connect(bootstrap, command_config), UNCLEAN, json_=json_)


def _parse_all(partitions: list[str]) -> RequestedPartitions:
    return tuple(_parse(text) for text in partitions) or None


def _elect(requested: RequestedPartitions, client: ClusterClient, election_type: int, *, json_: bool) -> None:
    with client as cluster:
        request = ElectLeadersRequest(election_type=election_type, topic_partitions=requested)
        reply = cluster.controller().call(request)
        refuse(reply.error_code, "elect")
    results = {
        (result.topic, part.partition_id): ErrorCode(part.error_code)
        for result in reply.replica_election_results
        for part in result.partition_result
    }
    rows = [(*key, "elected" if code is ErrorCode.NONE else code.name) for key, code in sorted(results.items())]
    head = ("topic", "partition", "result")
    if json_:
        print_json({"partitions": [dict(zip(head, row, strict=True)) for row in rows]})
    else:
        print_table(head, rows)
    raise typer.Exit(ExitCode.HELD if set(results.values()) <= SUCCESS_CODES else ExitCode.VIOLATED)


def _parse(text: str) -> TopicPartitions:
    topic, _, number = text.rpartition("-")
    if not topic or not number.isdigit():
        raise UsageError("expected TOPIC-PARTITION", where=text, hint="e.g. orders-0")
    return TopicPartitions(topic=topic, partitions=(int(number),))
