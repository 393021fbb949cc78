"""Probe of topics whose cleanup.policy changes: what they have from before follows the new policy."""

from functools import partial
from typing import Any, Final

from highwater.fuzz.simulator.probes.client.session import EARLIEST, Session, record, stored
from highwater.fuzz.simulator.probes.fields.listings import fields
from highwater.fuzz.simulator.probes.records import HOUR_MS
from highwater.fuzz.simulator.probes.trimming import is_compacted, set_topic
from highwater.reference.wire.records import NewRecord, Record

SOON_MS: Final = 10_000
WIDE: Final = b"x" * 150
"""So large that a segment of 300 bytes has one or two batches."""


async def _append(session: Session, topic: str, *records: NewRecord) -> list[Record]:
    """Append one batch, and return its records as they are stored."""
    first = await session.append(topic, records)
    return [stored(first + number, each) for number, each in enumerate(records)]


async def _obsolete(session: Session, topic: str, written: list[Record]) -> list[int]:
    """Return the offsets of records without a key, and of those whose key has a newer one, except the newest."""
    last = {each.key: each.offset for each in written}
    found = [each for each in await session.read(topic) if each.offset < written[-2].offset]
    return [each.offset for each in found if each.key is None or each.offset < last[each.key]]


@fields("FET-36", "FET-44", "ADM-5", "ADM-28", "PRD-29")
async def policies_that_change(session: Session) -> None:
    """A topic that becomes compacted loses records without keys and older values, one that is no longer keeps all."""
    now_ms, old_ms = session.wall_ms, session.wall_ms - 5 * HOUR_MS
    options: dict[str, Any] = {"segment_bytes": 300, "min_cleanable_dirty_ratio": 0.01, "delete_retention_ms": HOUR_MS}
    topics = {
        policy: await session.create_topic(f"becomes{number}", cleanup_policy=before, retention_ms=-1, **options)
        for number, (before, policy) in enumerate(
            (("delete", "compact"), ("delete", "compact,delete"), ("compact", "delete"))
        )
    }
    written: dict[str, list[Record]] = {}
    for policy, topic in topics.items():
        keyless: list[NewRecord] = [] if policy == "delete" else [record(WIDE, None, now_ms)]
        content = written[topic] = await _append(session, topic, *keyless, record(WIDE, b"a", now_ms))
        content += await _append(session, topic, *keyless, record(b"other", b"b", now_ms), *keyless)
        content += await _append(session, topic, record(WIDE, b"a", now_ms), *keyless, record(None, b"c", now_ms))
        if keyless:
            content += await _append(session, topic, *keyless)
        await set_topic(session, topic, cleanup_policy=policy)
        # A timestamp that only retention takes into account: these expire where the policy has `delete`.
        time_ms = old_ms if policy == "delete" else now_ms
        for number in range(4):
            content += await _append(session, topic, record(WIDE + b"%d" % number, b"filler", time_ms))
    for policy, topic in topics.items():
        content = written[topic]
        if policy == "delete":
            await set_topic(session, topic, retention_ms=HOUR_MS)
            start = await session.offset(topic, EARLIEST)
            session.equal(start, 0, "the log start of a topic whose first segments are young")
            kept = [each.value for each in await session.read(topic)][-4:]
            session.equal(kept, [each.value for each in content[-4:]], "the values after compaction has ended")
            continue
        old = partial(_obsolete, session, topic, content)
        await session.until(old, [], f"the obsolete records after cleanup.policy became {policy}", SOON_MS)
        await is_compacted(session, topic, [each for each in content if each.key is not None])
