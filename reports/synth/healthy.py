"""Generate a history: a healthy cluster under load with plants, then a final read of every log."""

from collections.abc import Callable, Sequence

from highwater.reports.synth.actors import (
    NODES,
    consumer,
    fetch,
    member,
    observer,
    processor,
    producer,
    raw_reader,
    rebalancer,
)
from highwater.reports.synth.cluster import Group, Log
from highwater.reports.synth.context import Actor, SynthesisContext
from highwater.spec.formats.history import Config, Event

PARTITIONS = 4
PROCESSORS = 2
MEMBERS = 3
CONFIG = Config(
    acks="all", idempotence=True, isolation="read_committed", min_insync_replicas=2, unclean_election=False,
    retention=False, compaction=False, replicas=3, transaction_timeout_ms=10_000, patience_ms=60_000,
    offset_expiry=False, source="highwater synth",
)  # fmt: skip
Plant = Callable[[SynthesisContext], Actor]


def generate_history(seed: int, operations: int, sink: Callable[[Event], None], plants: Sequence[Plant] = ()) -> None:
    """Generate at least `operations` operations; open ones are finished, and every log is read at the end."""
    context = SynthesisContext(seed, sink)
    inputs = [Log("in", number) for number in range(PARTITIONS)]
    outputs = [[Log(f"out{number}", part) for part in range(2)] for number in range(PROCESSORS)]
    everything = [*inputs, *(log for logs in outputs for log in logs)]
    context.nemesis("phase", value="load")
    for number in range(PARTITIONS):
        context.add(producer(context, inputs, number))
    context.add(consumer(context, inputs, committed=False))
    for number, sinks in enumerate(outputs):
        context.add(processor(context, inputs[number], sinks, number))
        context.add(consumer(context, sinks, committed=True))
    for number, log in enumerate(everything):
        context.add(raw_reader(context, log, NODES[number % len(NODES)]))
    group, members = Group("workers", inputs), [context.process() for _ in range(MEMBERS)]
    context.add(rebalancer(context, group, members, inputs))
    for process in members:
        context.add(member(context, group, process), 1.0)
    for node in NODES:
        context.add(observer(context, group, inputs, node))
    for plant in plants:
        context.add(plant(context), context.delay(operations / 20))
    context.run(operations)
    context.end()
    context.nemesis("phase", value="final")
    for log in everything:
        context.add(_last_read(context, log))
    context.run()


def _last_read(context: SynthesisContext, log: Log) -> Actor:
    """Read a log from start to end, then dump every replica."""
    process, position = context.process(), 0
    while True:
        request = {**log.where, "leader_epoch": log.leader_epoch, "node": NODES[0]}
        records = yield from fetch(context, process, log, position, request)
        if not records:
            break
        position = records[-1][0] + 1
    held = list(zip(log.offsets, log.values, strict=True))
    for node in NODES:
        dump = {**log.where, "node": node, "position": 0}
        context.event(process, "invoke", "log_dump", **dump)
        yield 1.0
        context.event(process, "ok", "log_dump", value=held, high_watermark=log.high_watermark, **dump)
