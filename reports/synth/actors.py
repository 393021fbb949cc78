"""The clients of the healthy cluster. Each is one process with one open operation at a time."""

import itertools
from typing import Any

from highwater.reports.synth.cluster import Group, Log
from highwater.reports.synth.context import Actor, SynthesisContext

KEYS = 1_000
NODES = ("1", "2", "3")


def producer(context: SynthesisContext, logs: list[Log], number: int) -> Actor:
    """Run an idempotent producer; one send in a hundred has an unknown outcome."""
    process, chance = context.process(), context.chance
    context.event(process, "invoke", "init_producer")
    yield context.delay(1)
    identity: dict[str, Any] = {"producer_id": 1_000 + number, "producer_epoch": 0}
    context.event(process, "ok", "init_producer", **identity)
    sequences = dict.fromkeys((log.key for log in logs), 0)
    while not context.ended():
        yield context.delay(2)
        log, value = chance.choice(logs), context.value()
        sent: dict[str, Any] = {
            **log.where, **identity, "value": value, "sequence": sequences[log.key],
            "key": f"k{chance.randrange(KEYS)}", "timestamp_ms": int(context.now_ms),
        }  # fmt: skip
        sequences[log.key] += 1
        context.event(process, "invoke", "send", **sent)
        yield context.delay(1)
        outcome_unknown = chance.random() < 0.01
        if outcome_unknown and chance.random() < 0.5:
            context.event(process, "info", "send", **sent, error="REQUEST_TIMED_OUT")
            continue
        offset, epoch = log.append(value), log.leader_epoch
        yield context.delay(1)
        log.commit_to(offset + 1)
        result = {"error": "REQUEST_TIMED_OUT"} if outcome_unknown else {"offset": offset, "leader_epoch": epoch}
        context.event(process, "info" if outcome_unknown else "ok", "send", **sent, **result)


def consumer(context: SynthesisContext, logs: list[Log], *, committed: bool) -> Actor:
    """Run a consumer of all partitions from their start; it is reassigned every 2,000 polls."""
    process = context.process()
    isolation = "read_committed" if committed else "read_uncommitted"
    while not context.ended():
        positions = dict.fromkeys((log.key for log in logs), 0)
        if context.operations > 1_000:  # a consumer that starts late does not read the whole log
            positions = {log.key: max(0, log.high_watermark - 100) for log in logs}
        context.event(process, "ok", "assign", value=list(positions), positions=positions)
        for _ in range(2_000):
            if context.ended():
                return
            yield from _poll(context, process, logs, positions, isolation=isolation)
            yield context.delay(4)


def _poll(context: SynthesisContext, process: int, logs: list[Log], positions: dict[str, int], **fields: Any) -> Actor:
    context.event(process, "invoke", "poll", **fields)
    yield context.delay(1)
    found = {}
    for log in logs:
        records = log.read(positions[log.key], committed=fields["isolation"] == "read_committed")
        if records:
            found[log.key] = records
            positions[log.key] = records[-1][0] + 1
    yield context.delay(1)
    context.event(process, "ok", "poll", value=found, **fields)


def raw_reader(context: SynthesisContext, log: Log, node: str) -> Actor:
    """Run a raw reader: fetches from its own position, with ListOffsets for every fifth request."""
    process, position = context.process(), 0
    for turn in itertools.count():
        if context.ended():
            return
        yield context.delay(3)
        request: dict[str, Any] = {**log.where, "leader_epoch": log.leader_epoch, "node": node}
        if turn % 5 == 4:
            context.event(process, "invoke", "list_offsets", **request)
            yield context.delay(0.5)
            end = log.high_watermark
            yield context.delay(0.5)
            context.event(process, "ok", "list_offsets", high_watermark=end, **request)
            continue
        records = yield from fetch(context, process, log, position, request)
        if records:
            position = records[-1][0] + 1


def fetch(context: SynthesisContext, process: int, log: Log, position: int, request: dict[str, Any]) -> Any:
    context.event(process, "invoke", "fetch", position=position, isolation="read_uncommitted", **request)
    yield context.delay(0.5)
    records = log.read(position, committed=False)
    ends = {"high_watermark": log.high_watermark, "last_stable_offset": log.last_stable_offset, "log_start_offset": 0}
    yield context.delay(0.5)
    context.event(
        process, "ok", "fetch", position=position, isolation="read_uncommitted", value=records, **ends, **request
    )
    return records


def processor(context: SynthesisContext, source: Log, sinks: list[Log], number: int) -> Actor:
    """Run a consume-transform-produce loop in transactions: some abort, some have unknown outcomes."""
    process, chance, group = context.process(), context.chance, f"app-{number}"
    context.event(process, "invoke", "init_producer", value=group)
    yield context.delay(1)
    identity: dict[str, Any] = {"producer_id": number, "producer_epoch": 0}
    context.event(process, "ok", "init_producer", value=group, **identity)
    positions = {source.key: 0}
    context.event(process, "ok", "assign", value=[source.key], position=0, group=group)
    for turn in itertools.count():
        if context.ended():
            return
        txn, begin = f"{group}/{turn}", dict(positions)
        context.event(process, "info", "begin_txn", txn=txn, value=group, **identity)
        yield from _poll(context, process, [source], positions, isolation="read_committed", txn=txn, group=group)
        for log in sinks:
            yield from _send_in(context, process, log, txn)
        yield from _offsets(context, process, txn, group, positions)
        commit, outcome_unknown = chance.random() > 0.1, chance.random() < 0.02
        ending: dict[str, Any] = {"txn": txn, "value": "commit" if commit else "abort"}
        context.event(process, "invoke", "end_txn", **ending)
        yield context.delay(1)
        context.event(process, "info" if outcome_unknown else "ok", "end_txn", **ending)
        yield context.delay(1)
        for log in sinks:  # transaction markers are written later, one by one
            log.mark(txn, commit=commit)
            yield context.delay(0.5)
        if not commit or outcome_unknown:  # continue from the committed position of the group
            positions = positions if commit else begin
            context.event(process, "ok", "seek", value=[source.key], position=positions[source.key])


def _send_in(context: SynthesisContext, process: int, log: Log, txn: str) -> Actor:
    sent: dict[str, Any] = {**log.where, "txn": txn, "value": context.value()}
    context.event(process, "invoke", "send", **sent)
    yield context.delay(0.5)
    offset = log.append(sent["value"], txn)
    log.commit_to(offset + 1)
    yield context.delay(0.5)
    context.event(process, "ok", "send", offset=offset, leader_epoch=log.leader_epoch, **sent)


def _offsets(context: SynthesisContext, process: int, txn: str, group: str, positions: dict[str, int]) -> Actor:
    sent: dict[str, Any] = {"txn": txn, "group": group, "value": dict(positions)}
    context.event(process, "invoke", "send_offsets", **sent)
    yield context.delay(0.5)
    context.event(process, "ok", "send_offsets", **sent)


# -- a group -----------------------------------------------------------------------------------------


def member(context: SynthesisContext, group: Group, process: int) -> Actor:
    """Run a group member: rebalances between polls, and commits what it has polled."""
    generation, positions, owned = 0, dict[str, int](), list[Log]()
    member_fields: dict[str, Any] = {"group": group.name, "member_id": f"m{process}"}
    while not context.ended():
        if generation != group.generation:
            if owned:
                yield from _commit(context, process, group, positions, member_fields)
                context.event(process, "info", "revoke", value=[log.key for log in owned], **member_fields)
                owned = []
            group.holders.pop(process, None)
            while group.has_unrevoked() and not context.ended():
                yield 1.0
            generation = group.generation
            member_fields |= {"generation_id": generation}
            owned = group.owners.get(process, [])
            if owned:
                group.holders[process] = generation
            keys = [log.key for log in owned]
            context.event(process, "invoke", "sync", **member_fields)
            context.event(process, "ok", "sync", value=keys, node="1", **member_fields)
            positions = {log.key: group.committed.get(log.key, 0) for log in owned}
            context.event(process, "info", "assign", value=keys, **member_fields)
        yield from _poll(context, process, owned, positions, isolation="read_uncommitted", group=group.name)
        if generation == group.generation and context.chance.random() < 0.3:
            yield from _commit(context, process, group, positions, member_fields)
        yield context.delay(3)


def _commit(
    context: SynthesisContext, process: int, group: Group, positions: dict[str, int], member_fields: dict[str, Any]
) -> Actor:
    value = {key: position for key, position in positions.items() if position}
    context.event(process, "invoke", "commit", value=value, **member_fields)
    yield 0.3
    group.committed |= value
    yield 0.3
    context.event(process, "ok", "commit", value=value, **member_fields)


def rebalancer(context: SynthesisContext, group: Group, members: list[int], logs: list[Log]) -> Actor:
    """Rebalance the group and change leaders at intervals."""
    while not context.ended():
        count = context.chance.randrange(1, len(members) + 1)
        group.rebalance(context.chance.sample(members, count))
        yield 400.0
        log = context.chance.choice(logs)
        log.leader_epoch += 1
        yield 400.0


def observer(context: SynthesisContext, group: Group, logs: list[Log], node: str) -> Actor:
    """Observe committed offsets and the leaders in metadata."""
    process = context.process()
    cached = {log.key: (1, 0) for log in logs}
    while not context.ended():
        yield context.delay(20)
        context.event(process, "invoke", "committed", group=group.name)
        yield context.delay(0.5)
        found = {log.key: group.committed.get(log.key, -1) for log in group.logs}
        context.event(process, "ok", "committed", group=group.name, value=found)
        if context.chance.random() < 0.5:  # cached metadata may be stale
            cached = {log.key: (1 + log.leader_epoch % 3, log.leader_epoch) for log in logs}
        context.event(process, "invoke", "metadata", node=node)
        yield context.delay(0.5)
        context.event(process, "ok", "metadata", node=node, value=cached)
