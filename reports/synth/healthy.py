"""The whole play: a cluster at work, plants among it, then quiet, and everything read from its start."""

from collections.abc import Callable, Sequence

from highwater.reports.synth.actors import (
    NODES,
    conductor,
    consumer,
    fetch,
    member,
    observer,
    processor,
    producer,
    raw_reader,
)
from highwater.reports.synth.cluster import Group, Log
from highwater.reports.synth.context import Actor, Stage
from highwater.spec.formats.history import Config, Event

PARTITIONS = 4
PROCESSORS = 2
MEMBERS = 3
CONFIG = Config(
    acks="all", idempotence=True, isolation="read_committed", min_insync_replicas=2, unclean_election=False,
    retention=False, compaction=False, replicas=3, transaction_timeout_ms=10_000, patience_ms=60_000,
    offset_expiry=False, source="highwater synth",
)  # fmt: skip
Plant = Callable[[Stage], Actor]


def play(seed: int, operations: int, sink: Callable[[Event], None], plants: Sequence[Plant] = ()) -> None:
    """Some more operations than asked for: what was begun is ended, and all is read at last. A plant is an actor."""
    stage = Stage(seed, sink)
    inputs = [Log("in", number) for number in range(PARTITIONS)]
    outputs = [[Log(f"out{number}", part) for part in range(2)] for number in range(PROCESSORS)]
    everything = [*inputs, *(log for logs in outputs for log in logs)]
    stage.nemesis("phase", value="load")
    for number in range(PARTITIONS):
        stage.enter(producer(stage, inputs, number))
    stage.enter(consumer(stage, inputs, committed=False))
    for number, sinks in enumerate(outputs):
        stage.enter(processor(stage, inputs[number], sinks, number))
        stage.enter(consumer(stage, sinks, committed=True))
    for number, log in enumerate(everything):
        stage.enter(raw_reader(stage, log, NODES[number % len(NODES)]))
    group, members = Group("workers", inputs), [stage.process() for _ in range(MEMBERS)]
    stage.enter(conductor(stage, group, members, inputs))
    for process in members:
        stage.enter(member(stage, group, process), 1.0)
    for node in NODES:
        stage.enter(observer(stage, group, inputs, node))
    for plant in plants:
        stage.enter(plant(stage), stage.delay(operations / 20))
    stage.play(operations)
    stage.end()
    stage.nemesis("phase", value="final")
    for log in everything:
        stage.enter(_last_read(stage, log))
    stage.play()


def _last_read(stage: Stage, log: Log) -> Actor:
    """From the start to the end, and what each replica holds."""
    process, position = stage.process(), 0
    while True:
        asked = {**log.where, "leader_epoch": log.leader_epoch, "node": NODES[0]}
        records = yield from fetch(stage, process, log, position, asked)
        if not records:
            break
        position = records[-1][0] + 1
    held = list(zip(log.offsets, log.values, strict=True))
    for node in NODES:
        dump = {**log.where, "node": node, "position": 0}
        stage.event(process, "invoke", "log_dump", **dump)
        yield 1.0
        stage.event(process, "ok", "log_dump", value=held, high_watermark=log.high_watermark, **dump)
