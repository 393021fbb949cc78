"""Who works on the healthy cluster. Each is a process of the history, and does one thing at a time."""

import itertools
from typing import Any

from highwater.reports.synth.cluster import Group, Log
from highwater.reports.synth.context import Actor, Stage

KEYS = 1_000
NODES = ("1", "2", "3")


def producer(stage: Stage, logs: list[Log], number: int) -> Actor:
    """An idempotent producer; now and then nobody tells it the outcome."""
    process, chance = stage.process(), stage.chance
    stage.event(process, "invoke", "init_producer")
    yield stage.delay(1)
    identity: dict[str, Any] = {"producer_id": 1_000 + number, "producer_epoch": 0}
    stage.event(process, "ok", "init_producer", **identity)
    sequences = dict.fromkeys((log.key for log in logs), 0)
    while not stage.ended():
        yield stage.delay(2)
        log, value = chance.choice(logs), stage.value()
        sent: dict[str, Any] = {
            **log.where, **identity, "value": value, "sequence": sequences[log.key],
            "key": f"k{chance.randrange(KEYS)}", "timestamp_ms": int(stage.now_ms),
        }  # fmt: skip
        sequences[log.key] += 1
        stage.event(process, "invoke", "send", **sent)
        yield stage.delay(1)
        untold = chance.random() < 0.01
        if untold and chance.random() < 0.5:
            stage.event(process, "info", "send", **sent, error="REQUEST_TIMED_OUT")
            continue
        offset, epoch = log.append(value), log.leader_epoch
        yield stage.delay(1)
        log.commit_to(offset + 1)
        told = {"error": "REQUEST_TIMED_OUT"} if untold else {"offset": offset, "leader_epoch": epoch}
        stage.event(process, "info" if untold else "ok", "send", **sent, **told)


def consumer(stage: Stage, logs: list[Log], *, committed: bool) -> Actor:
    """Assigned all of its partitions from their start; begins anew now and then."""
    process = stage.process()
    isolation = "read_committed" if committed else "read_uncommitted"
    while not stage.ended():
        positions = dict.fromkeys((log.key for log in logs), 0)
        if stage.operations > 1_000:  # a late comer begins somewhere
            positions = {log.key: max(0, log.high_watermark - 100) for log in logs}
        stage.event(process, "ok", "assign", value=list(positions), positions=positions)
        for _ in range(2_000):
            if stage.ended():
                return
            yield from _poll(stage, process, logs, positions, isolation=isolation)
            yield stage.delay(4)


def _poll(stage: Stage, process: int, logs: list[Log], positions: dict[str, int], **fields: Any) -> Actor:
    stage.event(process, "invoke", "poll", **fields)
    yield stage.delay(1)
    found = {}
    for log in logs:
        records = log.read(positions[log.key], committed=fields["isolation"] == "read_committed")
        if records:
            found[log.key] = records
            positions[log.key] = records[-1][0] + 1
    yield stage.delay(1)
    stage.event(process, "ok", "poll", value=found, **fields)


def raw_reader(stage: Stage, log: Log, node: str) -> Actor:
    """Fetches from a position of its own, and asks for the end."""
    process, position = stage.process(), 0
    for turn in itertools.count():
        if stage.ended():
            return
        yield stage.delay(3)
        asked: dict[str, Any] = {**log.where, "leader_epoch": log.leader_epoch, "node": node}
        if turn % 5 == 4:
            stage.event(process, "invoke", "list_offsets", **asked)
            yield stage.delay(0.5)
            end = log.high_watermark
            yield stage.delay(0.5)
            stage.event(process, "ok", "list_offsets", high_watermark=end, **asked)
            continue
        records = yield from fetch(stage, process, log, position, asked)
        if records:
            position = records[-1][0] + 1


def fetch(stage: Stage, process: int, log: Log, position: int, asked: dict[str, Any]) -> Any:
    stage.event(process, "invoke", "fetch", position=position, isolation="read_uncommitted", **asked)
    yield stage.delay(0.5)
    records = log.read(position, committed=False)
    ends = {"high_watermark": log.high_watermark, "last_stable_offset": log.last_stable_offset, "log_start_offset": 0}
    yield stage.delay(0.5)
    stage.event(process, "ok", "fetch", position=position, isolation="read_uncommitted", value=records, **ends, **asked)
    return records


def processor(stage: Stage, source: Log, sinks: list[Log], number: int) -> Actor:
    """Consume, transform, produce: one transaction after the other, some taken back, some of unknown outcome."""
    process, chance, group = stage.process(), stage.chance, f"app-{number}"
    stage.event(process, "invoke", "init_producer", value=group)
    yield stage.delay(1)
    identity: dict[str, Any] = {"producer_id": number, "producer_epoch": 0}
    stage.event(process, "ok", "init_producer", value=group, **identity)
    positions = {source.key: 0}
    stage.event(process, "ok", "assign", value=[source.key], position=0, group=group)
    for turn in itertools.count():
        if stage.ended():
            return
        txn, begin = f"{group}/{turn}", dict(positions)
        stage.event(process, "info", "begin_txn", txn=txn, value=group, **identity)
        yield from _poll(stage, process, [source], positions, isolation="read_committed", txn=txn, group=group)
        for log in sinks:
            yield from _send_in(stage, process, log, txn)
        yield from _offsets(stage, process, txn, group, positions)
        commit, untold = chance.random() > 0.1, chance.random() < 0.02
        ending: dict[str, Any] = {"txn": txn, "value": "commit" if commit else "abort"}
        stage.event(process, "invoke", "end_txn", **ending)
        yield stage.delay(1)
        stage.event(process, "info" if untold else "ok", "end_txn", **ending)
        yield stage.delay(1)
        for log in sinks:  # markers come later, one by one
            log.mark(txn, commit=commit)
            yield stage.delay(0.5)
        if not commit or untold:  # it goes back to where the group is
            positions = positions if commit else begin
            stage.event(process, "ok", "seek", value=[source.key], position=positions[source.key])


def _send_in(stage: Stage, process: int, log: Log, txn: str) -> Actor:
    sent: dict[str, Any] = {**log.where, "txn": txn, "value": stage.value()}
    stage.event(process, "invoke", "send", **sent)
    yield stage.delay(0.5)
    offset = log.append(sent["value"], txn)
    log.commit_to(offset + 1)
    yield stage.delay(0.5)
    stage.event(process, "ok", "send", offset=offset, leader_epoch=log.leader_epoch, **sent)


def _offsets(stage: Stage, process: int, txn: str, group: str, positions: dict[str, int]) -> Actor:
    sent: dict[str, Any] = {"txn": txn, "group": group, "value": dict(positions)}
    stage.event(process, "invoke", "send_offsets", **sent)
    yield stage.delay(0.5)
    stage.event(process, "ok", "send_offsets", **sent)


# -- a group -----------------------------------------------------------------------------------------


def member(stage: Stage, group: Group, process: int) -> Actor:
    """Takes part in rebalances between two polls, as a client does; commits what it has polled."""
    generation, positions, owned = 0, dict[str, int](), list[Log]()
    who: dict[str, Any] = {"group": group.name, "member_id": f"m{process}"}
    while not stage.ended():
        if generation != group.generation:
            if owned:
                yield from _commit(stage, process, group, positions, who)
                stage.event(process, "info", "revoke", value=[log.key for log in owned], **who)
                owned = []
            group.holders.pop(process, None)
            while group.waits() and not stage.ended():
                yield 1.0
            generation = group.generation
            who |= {"generation_id": generation}
            owned = group.owners.get(process, [])
            if owned:
                group.holders[process] = generation
            keys = [log.key for log in owned]
            stage.event(process, "invoke", "sync", **who)
            stage.event(process, "ok", "sync", value=keys, node="1", **who)
            positions = {log.key: group.committed.get(log.key, 0) for log in owned}
            stage.event(process, "info", "assign", value=keys, **who)
        yield from _poll(stage, process, owned, positions, isolation="read_uncommitted", group=group.name)
        if generation == group.generation and stage.chance.random() < 0.3:
            yield from _commit(stage, process, group, positions, who)
        yield stage.delay(3)


def _commit(stage: Stage, process: int, group: Group, positions: dict[str, int], who: dict[str, Any]) -> Actor:
    value = {key: position for key, position in positions.items() if position}
    stage.event(process, "invoke", "commit", value=value, **who)
    yield 0.3
    group.committed |= value
    yield 0.3
    stage.event(process, "ok", "commit", value=value, **who)


def conductor(stage: Stage, group: Group, members: list[int], logs: list[Log]) -> Actor:
    """Members come and go, leaders change."""
    while not stage.ended():
        count = stage.chance.randrange(1, len(members) + 1)
        group.rebalance(stage.chance.sample(members, count))
        yield 400.0
        log = stage.chance.choice(logs)
        log.leader_epoch += 1
        yield 400.0


def observer(stage: Stage, group: Group, logs: list[Log], node: str) -> Actor:
    """What the coordinator has committed, and what a broker tells of leaders."""
    process = stage.process()
    cached = {log.key: (1, 0) for log in logs}
    while not stage.ended():
        yield stage.delay(20)
        stage.event(process, "invoke", "committed", group=group.name)
        yield stage.delay(0.5)
        found = {log.key: group.committed.get(log.key, -1) for log in group.logs}
        stage.event(process, "ok", "committed", group=group.name, value=found)
        if stage.chance.random() < 0.5:  # a cache may lag
            cached = {log.key: (1 + log.leader_epoch % 3, log.leader_epoch) for log in logs}
        stage.event(process, "invoke", "metadata", node=node)
        yield stage.delay(0.5)
        stage.event(process, "ok", "metadata", node=node, value=cached)
