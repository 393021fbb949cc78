"""`highwater topics`: create, list, describe, alter and delete topics of any cluster (kafka-topics.sh)."""

from typing import Annotated, Any

import typer

from highwater.errors import UsageError
from highwater.reference.client.cluster import ClusterClient, refuse
from highwater.reference.tools.output import (
    BootstrapOption,
    CommandConfigOption,
    JsonOption,
    connect,
    numbers,
    pairs,
    print_json,
    print_table,
)
from highwater.reference.wire.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from highwater.reference.wire.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)

app = typer.Typer(no_args_is_help=True)

TOPIC_RESOURCE = 2
TOPIC_SOURCES = (1,)  # DescribeConfigs: the config_source of values set on the topic
SET, DELETE = 0, 1
TIMEOUT_MS = 20_000

TopicArgument = Annotated[str, typer.Argument(help="Name of the topic.")]


@app.command("create")
def create_command(
    topic: TopicArgument,
    bootstrap: BootstrapOption,
    partitions: Annotated[int, typer.Option(help="-1: the broker's default.")] = -1,
    replication_factor: Annotated[int, typer.Option(help="-1: the broker's default.")] = -1,
    replica_assignment: Annotated[
        str | None, typer.Option(help="Brokers of each partition, e.g. 1:2,2:3; the first is preferred.")
    ] = None,
    config: Annotated[list[str] | None, typer.Option(help="KEY=VALUE, repeatable.")] = None,
    command_config: CommandConfigOption = None,
) -> None:
    """Create a topic.

    Example: highwater topics create orders --partitions 3 --replication-factor 3 --config cleanup.policy=compact
    --bootstrap-server localhost:9092
    """
    assigned: tuple[CreatableReplicaAssignment, ...] = ()
    if replica_assignment is not None:
        lists = [numbers(part.replace(":", ","), "--replica-assignment") for part in replica_assignment.split(",")]
        assigned = tuple(CreatableReplicaAssignment(partition_index=n, broker_ids=ids) for n, ids in enumerate(lists))
    creatable_topic = CreatableTopic(
        name=topic,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=assigned,
        configs=tuple(CreatableTopicConfig(name=k, value=v) for k, v in pairs(config, "--config").items()),
    )
    with connect(bootstrap, command_config) as cluster:
        reply = cluster.controller().call(CreateTopicsRequest(topics=(creatable_topic,), timeout_ms=TIMEOUT_MS))
        for result in reply.topics:
            refuse(result.error_code, topic, result.error_message)
    print(f"created {topic}")


@app.command("list")
def list_command(
    bootstrap: BootstrapOption, json_: JsonOption = False, command_config: CommandConfigOption = None
) -> None:
    """List all topics.

    Example: highwater topics list --bootstrap-server localhost:9092
    """
    with connect(bootstrap, command_config) as cluster:
        names = sorted(str(topic.name) for topic in cluster.metadata().topics)
    if json_:
        print_json({"topics": names})
    else:
        print("\n".join(names))


@app.command("describe")
def describe_command(
    bootstrap: BootstrapOption,
    topic: Annotated[list[str] | None, typer.Argument(help="Topics; default: all.")] = None,
    under_replicated: Annotated[
        bool, typer.Option("--under-replicated", help="Show only partitions with a replica outside the ISR.")
    ] = False,
    json_: JsonOption = False,
    command_config: CommandConfigOption = None,
) -> None:
    """Show leader, replicas, ISR and offline replicas of each partition, and the settings that differ from the default.

    Example: highwater topics describe orders --bootstrap-server localhost:9092
    """
    with connect(bootstrap, command_config) as cluster:
        found = sorted(cluster.metadata(*(topic or [])).topics, key=lambda described: str(described.name))
        rows = [
            (
                str(described.name),
                part.partition_index,
                part.leader_id,
                part.leader_epoch,
                part.replica_nodes,
                part.isr_nodes,
                part.offline_replicas,
            )
            for described in found
            for part in sorted(described.partitions, key=lambda part: part.partition_index)
            if not under_replicated or len(part.isr_nodes) < len(part.replica_nodes)
        ]
        settings = {str(described.name): _settings(cluster, str(described.name)) for described in found}
    head = ("topic", "partition", "leader", "leader_epoch", "replicas", "isr", "offline")
    if json_:
        print_json({"partitions": [dict(zip(head, row, strict=True)) for row in rows], "configs": settings})
        return
    for name, values in settings.items():
        if values:
            print(f"{name}: {', '.join(f'{key}={value}' for key, value in values.items())}")
    print_table(head, rows)


def _settings(cluster: ClusterClient, topic: str) -> dict[str, str | None]:
    resource = DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=None)
    (result,) = cluster.call(DescribeConfigsRequest(resources=(resource,))).results
    refuse(result.error_code, topic, result.error_message)
    return {entry.name: entry.value for entry in result.configs if entry.config_source in TOPIC_SOURCES}


@app.command("alter")
def alter_command(
    topic: TopicArgument,
    bootstrap: BootstrapOption,
    partitions: Annotated[int | None, typer.Option(help="The new number of partitions; it can only grow.")] = None,
    config: Annotated[list[str] | None, typer.Option(help="Set KEY=VALUE, repeatable.")] = None,
    delete_config: Annotated[list[str] | None, typer.Option(help="Reset KEY to the default, repeatable.")] = None,
    command_config: CommandConfigOption = None,
) -> None:
    """Add partitions to a topic, or change its settings.

    Example: highwater topics alter orders --partitions 6 --config retention.ms=3600000
    --bootstrap-server localhost:9092
    """
    changes = [
        IncrementalAlterableConfig(name=k, config_operation=SET, value=v) for k, v in pairs(config, "--config").items()
    ]
    changes += [
        IncrementalAlterableConfig(name=key, config_operation=DELETE, value=None) for key in delete_config or []
    ]
    if partitions is None and not changes:
        raise UsageError("nothing to alter", where=topic, hint="give --partitions, --config or --delete-config")
    with connect(bootstrap, command_config) as cluster:
        replies: list[Any] = []
        if partitions is not None:
            enlarged_topic = CreatePartitionsTopic(name=topic, count=partitions, assignments=None)
            request = CreatePartitionsRequest(topics=(enlarged_topic,), timeout_ms=TIMEOUT_MS)
            replies += cluster.controller().call(request).results
        if changes:
            resource = IncrementalAlterConfigsResource(
                resource_type=TOPIC_RESOURCE, resource_name=topic, configs=tuple(changes)
            )
            replies += cluster.controller().call(IncrementalAlterConfigsRequest(resources=(resource,))).responses
        for result in replies:
            refuse(result.error_code, topic, result.error_message)
    print(f"altered {topic}")


@app.command("delete")
def delete_command(
    topic: Annotated[list[str], typer.Argument(help="Topics to delete, with all their records.")],
    bootstrap: BootstrapOption,
    command_config: CommandConfigOption = None,
) -> None:
    """Delete topics.

    Example: highwater topics delete orders --bootstrap-server localhost:9092
    """
    with connect(bootstrap, command_config) as cluster:
        request = DeleteTopicsRequest(topic_names=tuple(topic), timeout_ms=TIMEOUT_MS)
        for result in cluster.controller().call(request).responses:
            refuse(result.error_code, str(result.name), result.error_message)
    for name in topic:
        print(f"deleted {name}")
