"""Plant exactly one anomaly of each rule."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from highwater.reports.rules.rule import Rule
from highwater.reports.synth.context import Actor, SynthesisContext
from highwater.reports.synth.scenario import PlantedScenario


def inconsistent_offsets(s: PlantedScenario) -> Actor:
    a, b = s.values(2)
    other = s.process()
    s.context.event(other, "invoke", "send", **s.at(), value=b)
    yield from s.send(a, 0)
    s.context.event(other, "info", "send", **s.at(), value=b)
    yield from s.fetch(0, {0: a})
    yield from s.fetch(0, {0: b})


def duplicate(s: PlantedScenario) -> Actor:
    (a,) = s.values(1)
    yield from s.send(a, 0)
    yield from s.fetch(0, {0: a, 1: a})


def phantom_read(s: PlantedScenario) -> Actor:
    a, never_sent = s.values(2)
    yield from s.send(a, 0)
    yield from s.fetch(0, {0: a, 1: never_sent})


def lost_write(s: PlantedScenario) -> Actor:
    a, b = s.values(2)
    yield from s.sends(a, b)
    yield from s.fetch(0, {1: b})


def unseen(s: PlantedScenario) -> Actor:
    a, b = s.values(2)
    yield from s.sends(a, b)
    yield from s.fetch(0, {0: a})


def truncated_after_read(s: PlantedScenario) -> Actor:
    a, b = s.values(2)
    yield from s.sends(a, b)
    yield from s.fetch(0, {0: a, 1: b})
    yield from s.fetch(0, {1: b})


def nonmonotonic_poll(s: PlantedScenario) -> Actor:
    a, b, c = s.values(3)
    yield from s.sends(a, b, c)
    reader = s.process()
    s.assign(reader, position=0)
    yield from s.poll(reader, {0: a, 1: b})
    yield from s.poll(reader, {1: b, 2: c})


def poll_skip(s: PlantedScenario) -> Actor:
    a, b, c = s.values(3)
    yield from s.sends(a, b, c)
    reader = s.process()
    s.assign(reader, position=0)
    yield from s.poll(reader, {0: a})
    yield from s.poll(reader, {2: c})
    yield from s.fetch(0, {0: a, 1: b, 2: c})


def int_nonmonotonic_poll(s: PlantedScenario) -> Actor:
    a, b, c = s.values(3)
    yield from s.sends(a, b, c)
    yield from s.fetch(0, {0: a, 2: c, 1: b})


def nonmonotonic_send(s: PlantedScenario) -> Actor:
    a, b = s.values(2)
    process = s.process()
    yield from s.send(a, 1, by=process)
    yield from s.send(b, 0, by=process)
    yield from s.fetch(0, {0: b, 1: a})


def int_send_skip(s: PlantedScenario) -> Actor:
    a, b, c = s.values(3)
    txn = s.begin("interrupted")
    yield from s.send(a, 0, txn=txn)
    yield from s.send(b, 1)
    yield from s.send(c, 2, txn=txn)
    yield from s.end(txn)
    yield from s.committed_fetch({0: a, 1: b, 2: c})


def producer_reorder(s: PlantedScenario) -> Actor:
    values, processes = s.values(2), (s.process(), s.process())
    requests: list[dict[str, Any]] = [
        {**s.at(), "value": value, "sequence": place, "producer_id": 90_000 + s.context.value(), "producer_epoch": 0}
        for place, value in enumerate(values)
    ]
    requests[1]["producer_id"] = requests[0]["producer_id"]
    for process, fields in zip(processes, requests, strict=True):
        s.context.event(process, "invoke", "send", **fields)
    yield 1.0
    for process, fields, offset in zip(processes, requests, (1, 0), strict=True):
        s.context.event(process, "ok", "send", offset=offset, **fields)
    yield from s.fetch(0, {0: values[1], 1: values[0]})


def append_inversion(s: PlantedScenario) -> Actor:
    a, b = s.values(2)
    yield from s.send(a, 1)
    yield from s.send(b, 0)
    yield from s.fetch(0, {0: b, 1: a})


def stale_read(s: PlantedScenario) -> Actor:
    (a,) = s.values(1)
    yield from s.send(a, 0, leader_epoch=0)
    yield from s.op("list_offsets", {**s.at(), "leader_epoch": 0}, {"high_watermark": 0})
    yield from s.fetch(0, {0: a})


def future_read(s: PlantedScenario) -> Actor:
    (a,) = s.values(1)
    yield from s.fetch(0, {0: a})
    yield from s.send(a, 0)


def high_watermark_regression(s: PlantedScenario) -> Actor:
    (a,) = s.values(1)
    yield from s.send(a, 0)
    yield from s.fetch(0, {0: a}, leader_epoch=0, high_watermark=2)
    yield from s.op("list_offsets", {**s.at(), "leader_epoch": 0}, {"high_watermark": 1})


def aborted_read(s: PlantedScenario) -> Actor:
    (a,) = s.values(1)
    txn = s.begin("aborted")
    yield from s.send(a, 0, txn=txn)
    yield from s.end(txn, "abort")
    yield from s.committed_fetch({0: a})


def precommitted_read(s: PlantedScenario) -> Actor:
    (a,) = s.values(1)
    txn, process = s.begin("own"), s.process()
    yield from s.send(a, 0, txn=txn, by=process)
    s.assign(process, position=0)
    yield from s.poll(process, {0: a}, txn=txn)
    yield from s.end(txn)


def early_read(s: PlantedScenario) -> Actor:
    (a,) = s.values(1)
    txn = s.begin("open")
    yield from s.send(a, 0, txn=txn)
    yield from s.committed_fetch({0: a})
    yield from s.end(txn)


def torn_transaction(s: PlantedScenario) -> Actor:
    a, b, c = s.values(3)
    txn = s.begin("torn")
    yield from s.send(a, 0, txn=txn)
    yield from s.send(b, 0, txn=txn, partition=1)
    yield from s.end(txn, end="info")
    yield from s.send(c, 2, partition=1)
    yield from s.committed_fetch({0: a})
    yield from s.committed_fetch({2: c}, partition=1)


def g1c_cycle(s: PlantedScenario) -> Actor:
    a, b = s.values(2)
    first, second = s.begin("first"), s.begin("second")
    yield from s.send(a, 0, txn=first)
    yield from s.send(b, 0, txn=second, partition=1)
    readers = {first: (s.process(), f"{s.topic}-1", b), second: (s.process(), s.key, a)}
    for txn, (process, _, _) in readers.items():
        s.context.event(process, "invoke", "poll", txn=txn)
    for txn in readers:
        yield from s.end(txn)
    for txn, (process, key, value) in readers.items():
        s.context.event(process, "ok", "poll", txn=txn, value={key: [(0, value)]})


def double_processing(s: PlantedScenario) -> Actor:
    (a,) = s.values(1)
    yield from s.send(a, 0)
    for name in ("once", "twice"):
        txn, process = s.begin(name), s.process()
        s.assign(process, position=0)
        yield from s.poll(process, {0: a}, txn=txn, group=s.group)
        yield from s.op("send_offsets", {"txn": txn, "group": s.group, "value": {s.key: 1}}, {})
        yield from s.end(txn)


def abort_rewind(s: PlantedScenario) -> Actor:
    a, b = s.values(2)
    yield from s.sends(a, b)
    process = s.process()
    s.assign(process, position=0)
    for name, records, end in (("gone", {0: a}, "abort"), ("on", {1: b}, "commit")):
        txn = s.begin(name)
        yield from s.poll(process, records, txn=txn, group=s.group)
        yield from s.end(txn, end)


def commit_ahead(s: PlantedScenario) -> Actor:
    a, b, c = s.values(3)
    yield from s.sends(a, b, c)
    process = s.process()
    s.assign(process, position=0)
    yield from s.poll(process, {0: a})
    yield from s.commit(2, by=process)
    yield from s.fetch(0, {0: a, 1: b, 2: c})


def committed_offset_regression(s: PlantedScenario) -> Actor:
    yield from s.commit(1)
    yield from s.commit(2)
    yield from s.committed(1)


def double_ownership(s: PlantedScenario) -> Actor:
    yield from s.sync("one", 1)
    yield from s.sync("two", 1)


def zombie_commit(s: PlantedScenario) -> Actor:
    yield from s.sync("one", 5)
    yield from s.sync("two", 6)
    yield from s.commit(3, generation_id=5, member_id="one")


def epoch_safety(s: PlantedScenario) -> Actor:
    yield from s.metadata("1", 1, 3)
    yield from s.metadata("2", 2, 3)


def hanging_transaction(s: PlantedScenario) -> Actor:
    a, b, c = s.values(3)
    yield from s.send(a, 0, txn=s.begin("hanging"))
    yield from s.send(b, 1)
    yield from s.fetch(0, {0: a, 1: b}, high_watermark=2, last_stable_offset=0)
    yield 15_000
    yield from s.send(c, 2)
    yield from s.fetch(0, {0: a, 1: b, 2: c}, high_watermark=3, last_stable_offset=0)


def stuck(s: PlantedScenario) -> Actor:
    for _ in range(3):
        yield from s.op("group", {"group": s.group}, {"value": {"state": "PreparingRebalance", "members": []}})
        yield 40_000


def duplicate_producer_id(s: PlantedScenario) -> Actor:
    identity = {"producer_id": 70_000 + s.context.value(), "producer_epoch": 0}
    for _ in range(2):
        yield from s.op("init_producer", {}, identity)


def forgotten_commit(s: PlantedScenario) -> Actor:
    yield from s.commit(5)
    yield from s.committed(-1)


def silent_reset(s: PlantedScenario) -> Actor:
    values = s.values(4)
    yield from s.sends(*values)
    yield from s.fetch(0, dict(enumerate(values)))
    for records in ({0: values[0]}, {3: values[3]}):
        process = s.process()
        s.assign(process, group=s.group)
        yield from s.poll(process, records)
        yield from s.commit(max(records) + 1)
        s.context.event(process, "info", "revoke", value=[s.key], group=s.group)


def early_retention(s: PlantedScenario) -> Actor:
    a, b = s.values(2)
    yield from s.send(a, 0, timestamp_ms=0)
    yield from s.send(b, 1)
    yield from s.fetch(1, {1: b}, log_start_offset=1)


def resurrected_record(s: PlantedScenario) -> Actor:
    a, b = s.values(2)
    yield from s.send(a, 0, key="k")
    yield from s.send(None, 1, key="k")
    yield from s.send(b, 2, key="other")
    yield from s.fetch(0, {0: a, 2: b})


def replica_divergence(s: PlantedScenario) -> Actor:
    a, b = s.values(2)
    yield from s.send(a, 0)
    yield from s.send(b)
    yield from s.fetch(0, {0: a})
    for node, value in (("1", a), ("2", b)):
        held = {"value": [(0, value)], "high_watermark": 1}
        yield from s.op("log_dump", {**s.at(), "node": node, "position": 0}, held)


def aborted_offsets_visible(s: PlantedScenario) -> Actor:
    txn = s.begin("aborted")
    yield from s.op("send_offsets", {"txn": txn, "group": s.group, "value": {s.key: 7}}, {})
    yield from s.end(txn, "abort")
    yield from s.committed(7)


def topic_reborn(s: PlantedScenario) -> Actor:
    a, b = s.values(2)
    yield from s.send(a, 0)
    yield from s.fetch(0, {0: a})
    yield from s.op("delete_topic", {"topic": s.topic}, {})
    yield from s.op("create_topic", {"topic": s.topic}, {})
    yield from s.send(b, 0)
    yield from s.fetch(0, {0: b, 1: a})


def read_beyond_end(s: PlantedScenario) -> Actor:
    (a,) = s.values(1)
    yield from s.send(a, 0, leader_epoch=0)
    yield from s.fetch(0, {0: a}, leader_epoch=1, high_watermark=0)


def stable_offset_beyond_end(s: PlantedScenario) -> Actor:
    (a,) = s.values(1)
    yield from s.send(a, 0, leader_epoch=0)
    yield from s.fetch(0, {}, leader_epoch=1, high_watermark=0, last_stable_offset=1)
    yield from s.fetch(0, {0: a})


def rejected_record_read(s: PlantedScenario) -> Actor:
    (a,) = s.values(1)
    yield from s.op("send", {**s.at(), "value": a}, {}, end="fail")
    yield from s.fetch(0, {0: a})


def unexplained_offset(s: PlantedScenario) -> Actor:
    (a,) = s.values(1)
    yield from s.send(a, 1)
    yield from s.fetch(0, {1: a})


PLANTS: Final[dict[int, Callable[[PlantedScenario], Actor]]] = {
    Rule.INCONSISTENT_OFFSETS: inconsistent_offsets,
    Rule.DUPLICATE: duplicate,
    Rule.PHANTOM_READ: phantom_read,
    Rule.LOST_WRITE: lost_write,
    Rule.UNSEEN: unseen,
    Rule.TRUNCATED_AFTER_READ: truncated_after_read,
    Rule.NONMONOTONIC_POLL: nonmonotonic_poll,
    Rule.POLL_SKIP: poll_skip,
    Rule.INT_NONMONOTONIC_POLL: int_nonmonotonic_poll,
    Rule.NONMONOTONIC_SEND: nonmonotonic_send,
    Rule.INT_SEND_SKIP: int_send_skip,
    Rule.PRODUCER_REORDER: producer_reorder,
    Rule.APPEND_INVERSION: append_inversion,
    Rule.STALE_READ: stale_read,
    Rule.FUTURE_READ: future_read,
    Rule.HIGH_WATERMARK_REGRESSION: high_watermark_regression,
    Rule.ABORTED_READ: aborted_read,
    Rule.PRECOMMITTED_READ: precommitted_read,
    Rule.EARLY_READ: early_read,
    Rule.TORN_TRANSACTION: torn_transaction,
    Rule.G1C: g1c_cycle,
    Rule.DOUBLE_PROCESSING: double_processing,
    Rule.ABORT_REWIND: abort_rewind,
    Rule.COMMIT_AHEAD: commit_ahead,
    Rule.COMMITTED_OFFSET_REGRESSION: committed_offset_regression,
    Rule.DOUBLE_OWNERSHIP: double_ownership,
    Rule.ZOMBIE_COMMIT: zombie_commit,
    Rule.EPOCH_SAFETY: epoch_safety,
    Rule.HANGING_TRANSACTION: hanging_transaction,
    Rule.STUCK: stuck,
    Rule.DUPLICATE_PRODUCER_ID: duplicate_producer_id,
    Rule.FORGOTTEN_COMMIT: forgotten_commit,
    Rule.SILENT_RESET: silent_reset,
    Rule.EARLY_RETENTION: early_retention,
    Rule.RESURRECTED_RECORD: resurrected_record,
    Rule.REPLICA_DIVERGENCE: replica_divergence,
    Rule.ABORTED_OFFSETS_VISIBLE: aborted_offsets_visible,
    Rule.TOPIC_REBORN: topic_reborn,
    Rule.READ_BEYOND_END: read_beyond_end,
    Rule.STABLE_OFFSET_BEYOND_END: stable_offset_beyond_end,
    Rule.REJECTED_RECORD_READ: rejected_record_read,
    Rule.UNEXPLAINED_OFFSET: unexplained_offset,
}
"""The scenario that plants the anomaly of each rule."""

SETTINGS: Final[dict[int, dict[str, Any]]] = {
    Rule.RESURRECTED_RECORD: {"compaction": True},
    Rule.UNEXPLAINED_OFFSET: {"complete": True},
}
"""Header settings without which the planted operations are not an anomaly."""


def plant(rule: int, number: int) -> Callable[[SynthesisContext], Actor]:
    """Return an actor that plants the anomaly in its own topic and group."""
    return partial(_run_plant, rule, number)


def _run_plant(rule: int, number: int, context: SynthesisContext) -> Actor:
    return PLANTS[rule](PlantedScenario(context, number))
