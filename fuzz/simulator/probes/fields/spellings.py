"""Probes of values of settings with blanks and capitals: they are accepted, and have the effect of the plain ones."""

from functools import partial
from typing import Any, Final

from highwater.fuzz.simulator.probes.client.session import EARLIEST, E, Session, batches_of, record
from highwater.fuzz.simulator.probes.fields.listings import fields
from highwater.fuzz.simulator.probes.fields.parts import shuffled
from highwater.fuzz.simulator.probes.records import HOUR_MS
from highwater.fuzz.simulator.probes.topics import APPEND, SUBTRACT
from highwater.fuzz.simulator.probes.trimming import SET, alter, delete_records, set_topic
from highwater.reference.wire.compression import Compression
from highwater.reference.wire.records import build_batch

POLICIES: Final[tuple[tuple[str, frozenset[str]], ...]] = tuple(
    (text, frozenset(each.strip() for each in text.split(",")))
    for text in (
        "compact, delete", "delete ,compact", " compact , delete ", " delete", "compact ", "delete,compact", " compact",
    )
)  # fmt: skip
"""Spellings of cleanup.policy, and the policies that they mean (ConfigDef.parseType of a list)."""


@fields("ADM-5", "ADM-28", "ADM-29", "ADM-30", "FET-44", "PRD-14")
async def policies_with_blanks(session: Session) -> None:
    """A list of policies has the same effects with blanks: at the creation of a topic and after each kind of change."""
    changed = await session.create_topic("changed", segment_bytes=200, retention_ms=-1)
    for number, (text, policies) in enumerate(shuffled(session, POLICIES)[:5]):
        topic = await session.create_topic(f"p{number}", cleanup_policy=text, segment_bytes=200, retention_ms=-1)
        await _has_policies(session, topic, policies, repr(text))
        session.ok(await alter(session, changed, ("cleanup.policy", SET, text)), f"cleanup.policy {text!r}")
        await _refuses_keyless(session, changed, policies, f"cleanup.policy was set to {text!r}")
    edits: tuple[tuple[int, str, frozenset[str]], ...] = (
        (SET, "delete", frozenset({"delete"})), (APPEND, "compact", frozenset({"compact", "delete"})),
        (SUBTRACT, "delete", frozenset({"compact"})), (APPEND, "delete", frozenset({"compact", "delete"})),
    )  # fmt: skip
    for how, text, policies in edits:
        session.ok(await alter(session, changed, ("cleanup.policy", how, text)), f"operation {how} with {text!r}")
        await _refuses_keyless(session, changed, policies, f"operation {how} with {text!r}")
    await _has_policies(session, changed, frozenset({"compact", "delete"}), "appended policies")


async def _refuses_keyless(session: Session, topic: str, policies: frozenset[str], what: str) -> None:
    """A topic that is compacted refuses a record without a key, and no other topic does."""
    batch = build_batch([record(b"v", None, session.wall_ms)])

    async def error() -> int:
        return int((await session.produce(topic, batch)).error_code)

    expected = int(E.INVALID_RECORD if "compact" in policies else E.NONE)
    await session.until(error, expected, f"the error of a record without a key after {what}", 1_500)


async def _has_policies(session: Session, topic: str, policies: frozenset[str], what: str) -> None:
    """Check what each policy does: DeleteRecords, retention, and that records need keys."""
    await _refuses_keyless(session, topic, policies, what)
    old = session.wall_ms - 5 * HOUR_MS
    if "delete" in policies:  # a younger record would keep those behind it
        session.equal((await delete_records(session, topic, -1))[0], E.NONE, f"DeleteRecords with {what}")
    start = await session.offset(topic, EARLIEST)
    for number in range(6):
        await session.append(topic, [record(b"v" * 90, b"key %d" % number, old)])
    error, _ = await delete_records(session, topic, start + 1)
    expected = E.NONE if "delete" in policies else E.POLICY_VIOLATION
    session.error(error, expected, f"DeleteRecords of a topic with {what}")
    await set_topic(session, topic, retention_ms=HOUR_MS)
    first = partial(session.offset, topic, EARLIEST)
    if "delete" not in policies:
        await session.sleep(700)
        session.equal(await first(), start, f"the log start of a topic with {what}")
        return

    async def expires() -> bool:
        return await first() >= start + 4

    await session.until(expires, True, f"whether records expire in a topic with {what}", 3_000)


def _named(name: str, value: str) -> dict[str, Any]:
    return {name.replace(".", "_"): value}


@fields("ADM-5", "PRD-13", "PRD-16", "PRD-31", "PRD-15")
async def values_with_blanks(session: Session) -> None:
    """Numbers, names and booleans with blanks or capitals are those without."""
    small = build_batch([record(b"x" * 300, b"k", session.wall_ms)])
    late = build_batch([record(b"v", b"k", session.wall_ms - 3 * HOUR_MS)])
    plain = build_batch([record(b"y" * 200, b"k", session.wall_ms)] * 3)
    for number, (name, text, batch, error) in enumerate((
        ("max.message.bytes", f" {len(small)} ", small, E.NONE),
        ("max.message.bytes", f" {len(small) - 1}", small, E.MESSAGE_TOO_LARGE),
        ("message.timestamp.before.max.ms", f" {2 * HOUR_MS}  ", late, E.INVALID_TIMESTAMP),
        ("message.timestamp.before.max.ms", f"{4 * HOUR_MS} ", late, E.NONE),
        ("message.timestamp.type", " LogAppendTime", plain, E.NONE), ("compression.type", " gzip ", plain, E.NONE),
        ("unclean.leader.election.enable", " TRUE", plain, E.NONE), ("preallocate", "False ", plain, E.NONE),
    )):  # fmt: skip
        topic = await session.create_topic(f"b{number}", **_named(name, text))
        answer = await session.produce(topic, batch)
        session.error(answer.error_code, error, f"a batch to a topic with {name}={text!r}")
        if name == "message.timestamp.type":
            session.expect(answer.log_append_time_ms > 0, f"{name}={text!r} has no effect")
        if name == "compression.type":
            header = batches_of(await session.fetch(topic, 0))[0]
            session.equal(header.attributes & 7, int(Compression.GZIP), f"the codec with {name}={text!r}")
    topic = await session.create_topic("invalid")
    for name, text in (
        ("max.message.bytes", "1 0"), ("retention.ms", ""), ("unclean.leader.election.enable", "yes"),
        ("cleanup.policy", "compact;delete"), ("cleanup.policy", "compact, remove"), ("compression.type", "gzip lz4"),
    ):  # fmt: skip
        session.error(await alter(session, topic, (name, SET, text)), E.INVALID_CONFIG, f"{name}={text!r}")
