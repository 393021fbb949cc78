"""Probes of transactional producers: errors by version, repeated requests, time-outs that change."""

from functools import partial
from typing import Any, Final

from highwater.fuzz.simulator.probes.client.members import Group
from highwater.fuzz.simulator.probes.client.session import READ_COMMITTED, E, Session
from highwater.fuzz.simulator.probes.client.transactional import Transactional
from highwater.fuzz.simulator.probes.fields.listings import fields
from highwater.fuzz.simulator.probes.offsets import committed, committed_ok

FENCED: Final[dict[str, tuple[int, int, int, dict[str, Any]]]] = {
    "InitProducerId": (3, 4, 5, {"transaction_timeout_ms": 9_000}),
    "AddOffsetsToTxn": (0, 2, 3, {"group_id": "some-group"}),
    "EndTxn": (0, 2, 4, {"committed": True}),
}
"""First version that names producer id and epoch, first one with PRODUCER_FENCED (KIP-588), last one; more fields."""


@fields("TXN-1", "TXN-9")
async def errors_of_fenced_producers(session: Session) -> None:
    """A fenced producer gets PRODUCER_FENCED in every version that has it, before INVALID_PRODUCER_EPOCH."""
    topic = await session.create_topic("fenced")
    old, producer = Transactional(session), await Transactional(session).begin()
    await producer.added((topic, 0))
    await producer.write(topic, 0, b"v")
    old.producer, old.epoch = producer.producer, producer.epoch
    for _ in range(2):
        await producer.begin()
    by = {"transactional_id": old.name, "producer_id": old.producer, "producer_epoch": old.epoch}
    for api, (first, since, last, more) in FENCED.items():
        for version in range(first, last + 1):
            answer = await old.ask(api, version, **by, **more)
            expected = E.PRODUCER_FENCED if version >= since else E.INVALID_PRODUCER_EPOCH
            session.error(answer.error_code, expected, f"{api} {version} of a fenced producer")
    session.equal(await old.add((topic, 0)), {(topic, 0): E.PRODUCER_FENCED}, "AddPartitionsToTxn of a fenced producer")
    group = await Group.found(session)
    for old.v2 in (False, True):  # clients do not know PRODUCER_FENCED in these requests
        answer = await old.produce(topic, 0, [b"v"])
        session.error(answer.error_code, E.INVALID_PRODUCER_EPOCH, "a batch of a fenced producer")
        errors = await old.commit_offsets(group, {(topic, 0): 1})
        session.equal(errors, {E.INVALID_PRODUCER_EPOCH}, "the errors of TxnOffsetCommit of a fenced producer")


@fields("TXN-3", "TXN-8", "TXN-17")
async def newest_timeouts(session: Session) -> None:
    """The timeout of the newest InitProducerId ends a transaction, not that of an earlier one."""
    topic = await session.create_topic("timeouts", 2)
    for number, (first_ms, then_ms) in enumerate(((60_000, 700), (700, 60_000))):
        producer = await Transactional(session, f"t{number}", timeout_ms=first_ms).begin()
        producer.timeout_ms = then_ms
        await producer.init(producer.producer, producer.epoch)
        await producer.added((topic, number))
        await producer.write(topic, number, b"v")
        await session.sleep(700 + 600)
        stable_end = await session.offset(topic, -1, number, READ_COMMITTED)
        what = f"the last stable offset 1300 ms after a transaction with a timeout of {then_ms} ms began"
        session.equal(stable_end, 2 if then_ms < first_ms else 0, what)


@fields("TXN-10", "OFF-14", "OFF-16")
async def ended_in_turn(session: Session) -> None:
    """Of a plain commit and those of two transactions the one that was written last is valid, whatever its value."""
    topic = await session.create_topic("turn")
    group = await Group.found(session)
    first, second = [await Transactional(session, f"t{n}", v2=bool(n)).begin() for n in range(2)]
    place = (topic, 0)
    for step in range(4):
        values = [900 - 50 * step, 30 + step, 400 - step]
        await first.committed_offsets(group, {place: values[0]})
        await second.committed_offsets(group, {place: values[1]})
        if step % 2:
            await committed_ok(group, {place: values[2]})
        order = [first, second] if session.draw(2) else [second, first]
        for producer in order:
            await producer.ended(commit=True)
        expected = values[2] if step % 2 else values[1]
        await session.until(partial(_offset, group, place), expected, "the offset after two transactions", 2_500)


async def _offset(group: Group, place: tuple[str, int]) -> int:
    return (await committed(group, [place], stable=True))[place][0]
