"""`highwater spec trace`: validate traces, and the logs of an Apache Kafka cluster, against the models."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from highwater.errors import EXIT_OF_VERDICT, UsageError
from highwater.spec.command_line import JsonOption, print_json, spec_app

if TYPE_CHECKING:
    from highwater.fuzz.kafka_logs.check import Checked, ForeignVerdict, GroupTrace, PartitionTrace
    from highwater.spec.trace import EntityVerdict, TraceVerdict

__all__ = ["spec_app"]


@spec_app.command("trace")
def trace_command(
    file: Annotated[
        list[Path],
        typer.Argument(help="A trace.ndjson, or a folder with one trace file per process; see --from-kafka."),
    ],
    model: Annotated[
        str | None, typer.Option(help="The model to validate against; every matching one if not given.")
    ] = None,
    entity: Annotated[str | None, typer.Option(help="The partition (t-0) or group; all if not given.")] = None,
    from_kafka: Annotated[
        bool,
        typer.Option(
            "--from-kafka",
            help="FILE... are the data folders of Apache Kafka's brokers, and of ZooKeeper before KRaft.",
        ),
    ] = False,
    json_: JsonOption = False,
) -> None:
    """Validate traces: check that what brokers did is a behaviour of the spec, and print the first line that is not.

    With --from-kafka the trace is built from what a cluster of Apache Kafka wrote: its metadata log (before KRaft the
    transaction log of a ZooKeeper server), the segments, leader epochs and high watermarks of all brokers, and the
    groups in __consumer_offsets. Stop the brokers, or copy their folders. Steps that no log has are hidden: they are
    added where the logs need one, checked like the others, and counted. Give the folders of all brokers; without one,
    or with anything skipped, logs are accepted at most as far as seen, and the exit code is 3.

    Examples: highwater simulate --seeds 3:4 --trace run.ndjson; highwater spec trace run.ndjson
    · highwater broker --cluster 3 --trace traces; highwater spec trace traces
    · highwater spec trace --from-kafka /data/1 /data/2 /data/3 --entity orders-0
    · highwater spec trace --from-kafka /data/1 /data/2 /data/3 /zookeeper
    """
    if from_kafka:
        raise typer.Exit(EXIT_OF_VERDICT[_from_kafka(file, model, entity, json=json_).verdict])
    if len(file) > 1:
        raise UsageError("more than one file", where=str(file[1]), hint="give one, or folders with --from-kafka")
    from highwater.spec.trace import validate_trace

    found = validate_trace(file[0], model, entity=entity)
    if json_:
        print_json(_trace_summary(found))
    else:
        for verdict in found.entities:
            typer.echo(_entity_text(verdict))
    raise typer.Exit(EXIT_OF_VERDICT[found.verdict])


def _trace_summary(found: "TraceVerdict") -> dict[str, Any]:
    return {"verdict": found.verdict, "entities": [_entity_summary(each) for each in found.entities]}


def _entity_summary(entity: "EntityVerdict") -> dict[str, Any]:
    fields = ("entity", "model", "verdict", "steps", "file", "line", "reason", "conjuncts")
    return {name: getattr(entity, name) for name in fields}


def _entity_text(entity: "EntityVerdict") -> str:
    words = {"valid": "accepted", "invalid": "rejected"}.get(entity.verdict, "unknown")
    head = f"{entity.entity} {entity.model}: {words}, {entity.steps} steps in {entity.seconds:.1f} s"
    return "\n".join([head, *_refusal(entity)])


def _refusal(entity: "EntityVerdict") -> list[str]:
    """Return the line that is refused, why, and the state before it."""
    head = []
    if entity.line is not None:
        head = [f"  {entity.file}, line {entity.line}: {entity.reason}"]
    elif entity.reason:
        head = [f"  {entity.reason}"]
    conjuncts = (f"  would be a step without {each}" for each in entity.conjuncts)
    return [*head, *conjuncts, *(f"  before: {line}" for line in entity.before)]


# Apache Kafka's own logs.


def _from_kafka(folders: list[Path], model: str | None, entity: str | None, *, json: bool) -> "ForeignVerdict":
    from highwater.fuzz.kafka_logs.check import check, extract, write_traces
    from highwater.results import new_folder

    extraction = extract(folders)
    traces = new_folder("trace", target=" ".join(map(str, folders)))
    write_traces(extraction, traces)
    found = check(extraction, traces, model, entity)
    if json:
        print_json(foreign_summary(found, traces))
    else:
        typer.echo(foreign_text(found, traces))
    return found


def foreign_summary(found: "ForeignVerdict", traces: Path) -> dict[str, Any]:
    """Return the object that `--json` prints for the logs of Apache Kafka."""
    return {
        "verdict": found.verdict,
        "judgement": found.judgement,
        "brokers": found.extraction.brokers,
        "read": found.extraction.seen.read,
        "reasons": found.reasons,
        "traces": str(traces),
        "steps": sum(each.found.steps for each in found.checked),
        "hidden_steps": sum(each.hidden.total() for each in found.checked),
        "lives": [_life(trace) for trace in found.extraction.traces],
        "groups": [_group_life(trace) for trace in found.extraction.groups],
        "entities": [
            {
                **_entity_summary(each.found),
                "judgement": each.judgement,
                "hidden": each.hidden,
                "log": each.log,
                "offset": each.offset,
                "guards_off": each.guards_off,
            }
            for each in found.checked
        ],
    }


def _life(trace: "PartitionTrace") -> dict[str, Any]:
    """Return the leaders, epochs and ISRs of a partition by metadata offset, and its replicas."""
    states = ((change.offset, change.state) for change in trace.changes if change.state is not None)
    return {
        "partition": trace.entity,
        "states": [
            {
                "offset": offset,
                "leader": state.leader,
                "leader_epoch": state.leader_epoch,
                "isr": state.isr,
                "elr": state.elr,
                "partition_epoch": state.partition_epoch,
            }
            for offset, state in states
        ],
        "replicas": [
            {
                "broker": node,
                "end": replica.end,
                "high_watermark": replica.high_watermark,
                "epochs": replica.runs,
            }
            for node, replica in sorted(trace.replicas.items())
        ],
    }


def _group_life(trace: "GroupTrace") -> dict[str, Any]:
    """Return the group records by offset; `stored` is None for a tombstone."""
    records = [entry for entry in trace.life.entries if not entry.committed]
    fields = ("offset", "epoch", "coordinator", "stored")
    return {
        "group": trace.entity,
        "log": trace.log,
        "records": [{name: getattr(entry, name) for name in fields} for entry in records],
    }


def foreign_text(found: "ForeignVerdict", traces: Path) -> str:
    """Return what was read and skipped, and the verdict of each specification."""
    seen, brokers = found.extraction.seen, ", ".join(map(str, found.extraction.brokers))
    counted = f"{len(found.extraction.traces)} partitions, {len(found.extraction.groups)} groups"
    lines = [f"read from brokers {brokers}: {counted}"]
    lines += [f"  {count:,} {kind}" for kind, count in sorted(seen.read.items()) if count]
    lines += ["not seen:", *(f"  {reason}" for reason in found.reasons)] if found.reasons else ["skipped: nothing"]
    for each in found.checked:
        lines += _checked_lines(each)
    lacking = sorted({(each.found.model, guard) for each in found.checked for guard in each.guards_off})
    lines += [f"{model} without the guard {guard}, which no release with ZooKeeper has" for model, guard in lacking]
    steps = sum(each.found.steps for each in found.checked)
    hidden = sum((each.hidden for each in found.checked), Counter[str]())
    by_action = ", ".join(f"{count:,} {action}" for action, count in hidden.most_common())
    lines.append(
        f"{found.judgement}: {steps:,} steps, of which {hidden.total():,} hidden"
        + (f" ({by_action})" if by_action else "")
    )
    lines.append(f"traces: {traces}")
    return "\n".join(lines)


def _checked_lines(each: "Checked") -> list[str]:
    found = each.found
    text = f"{found.entity} {found.model}: {each.judgement}, {found.steps} steps, {each.hidden.total()} hidden"
    place = [] if each.offset is None else [f"  after offset {each.offset} of {each.log}:"]
    return [text, *place, *_refusal(found)]
