"""`highwater reassign`: move replicas as a plan says (kafka-reassign-partitions.sh; KIP-455)."""

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from highwater.errors import ExitCode, UsageError
from highwater.reference.client.cluster import ClusterClient, refuse
from highwater.reference.tools.output import (
    BootstrapOption,
    CommandConfigOption,
    JsonOption,
    connect,
    numbers,
    print_json,
    print_table,
)
from highwater.reference.tools.plans import Key, Plan, plan_json, propose, read_plan, to_text
from highwater.reference.wire.messages.replicas import (
    AlterPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)

app = typer.Typer(no_args_is_help=True)

METADATA_LAG_S = 2.0
POLL_S = 0.2
PlanArgument = Annotated[Path, typer.Argument(help="A plan file, JSON as for kafka-reassign-partitions.sh.")]
EXIT_OF_STATE = {"done": ExitCode.HELD, "moving": ExitCode.UNDECIDED, "elsewhere": ExitCode.VIOLATED}


@app.command("generate")
def generate_command(
    topic: Annotated[list[str], typer.Argument(help="Topics to move.")],
    bootstrap: BootstrapOption,
    brokers: Annotated[str, typer.Option(help="Ids of the brokers to move them to, e.g. 4,5,6.")],
    json_: JsonOption = False,
    command_config: CommandConfigOption = None,
) -> None:
    """Propose a plan. Save the current assignment, which is printed too: execute it to undo the plan.

    Example: highwater reassign generate orders --brokers 4,5,6 --bootstrap-server localhost:9092
    """
    broker_ids = numbers(brokers, "--brokers")
    with connect(bootstrap, command_config) as cluster:
        metadata = cluster.metadata(*topic)
        racks = {broker.node_id: broker.rack for broker in metadata.brokers}
        current = _assigned(metadata)
    missing = sorted(set(broker_ids) - set(racks))
    if missing:
        raise UsageError(f"brokers {missing} are not alive", where="--brokers", hint=f"alive: {sorted(racks)}")
    proposed = propose(current, {broker: racks[broker] for broker in broker_ids})
    if json_:
        print_json({"current": plan_json(current), "proposed": plan_json(proposed)})
    else:
        print(f"Current partition replica assignment\n{to_text(current)}\n")
        print(f"Proposed partition reassignment configuration\n{to_text(proposed)}")


def _assigned(metadata: Any) -> Plan:
    return {
        (str(topic.name), part.partition_index): tuple(part.replica_nodes)
        for topic in metadata.topics
        for part in topic.partitions
    }


@app.command("execute")
def execute_command(
    plan_file: PlanArgument,
    bootstrap: BootstrapOption,
    wait_s: Annotated[float, typer.Option("--wait", help="Seconds to wait for completion; 0: do not wait.")] = 0,
    command_config: CommandConfigOption = None,
) -> None:
    """Start to move replicas as the plan says.

    Example: highwater reassign execute plan.json --wait 60 --bootstrap-server localhost:9092
    """
    plan = read_plan(plan_file)
    with connect(bootstrap, command_config) as cluster:
        reply = cluster.controller().call(AlterPartitionReassignmentsRequest(topics=_as_request(plan)))
        refuse(reply.error_code, str(plan_file), reply.error_message)
        for topic in reply.responses:
            for part in topic.partitions:
                refuse(part.error_code, f"{topic.name}-{part.partition_index}", part.error_message)
        states = _wait_for_states(cluster, plan, wait_s, final_states={"done"})
        _print(states, json_=False)
        if wait_s:
            _exit(states.values())


def _as_request(plan: Plan) -> tuple[ReassignableTopic, ...]:
    return tuple(
        ReassignableTopic(
            name=topic,
            partitions=tuple(
                ReassignablePartition(partition_index=number, replicas=replicas)
                for (name, number), replicas in sorted(plan.items())
                if name == topic
            ),
        )
        for topic in sorted({name for name, _ in plan})
    )


@app.command("verify")
def verify_command(
    plan_file: PlanArgument,
    bootstrap: BootstrapOption,
    json_: JsonOption = False,
    command_config: CommandConfigOption = None,
) -> None:
    """Check whether a plan is complete. Exit code 0: done; 3: still moving; 1: replicas are elsewhere.

    Example: highwater reassign verify plan.json --bootstrap-server localhost:9092
    """
    plan = read_plan(plan_file)
    with connect(bootstrap, command_config) as cluster:
        states = _wait_for_states(cluster, plan, METADATA_LAG_S, final_states={"done", "moving"})
    _print(states, json_=json_)
    _exit(states.values())


def _wait_for_states(cluster: ClusterClient, plan: Plan, wait_s: float, *, final_states: set[str]) -> dict[Key, str]:
    """Return the states when all are in `final_states`, or after `wait_s` seconds.

    A broker's metadata may lag behind the controller, so "elsewhere" is final only after the wait.
    """
    deadline = time.monotonic() + wait_s
    while True:
        states = _states(cluster, plan)
        if set(states.values()) <= final_states or time.monotonic() >= deadline:
            return states
        time.sleep(POLL_S)


def _states(cluster: ClusterClient, plan: Plan) -> dict[Key, str]:
    """Return the state of every partition.

    ListPartitionReassignments is sent before Metadata: a move that completes in between is reported as done.
    """
    reply = cluster.controller().call(ListPartitionReassignmentsRequest(topics=None))
    refuse(reply.error_code, "reassignments", reply.error_message)
    moving = {(topic.name, part.partition_index) for topic in reply.topics for part in topic.partitions}
    assigned = _assigned(cluster.metadata(*sorted({name for name, _ in plan})))
    return {
        key: "moving" if key in moving else "done" if assigned.get(key) == replicas else "elsewhere"
        for key, replicas in sorted(plan.items())
    }


def _print(states: dict[Key, str], *, json_: bool) -> None:
    if json_:
        print_json({"partitions": [{"topic": t, "partition": p, "state": state} for (t, p), state in states.items()]})
    else:
        print_table(("topic", "partition", "state"), [(*key, state) for key, state in states.items()])


def _exit(states: Iterable[str]) -> None:
    found = set(states)
    worst = next(state for state in ("elsewhere", "moving", "done") if state in found)
    raise typer.Exit(EXIT_OF_STATE[worst])
