"""Probes of topic settings: a model of the stored ones under drawn changes, and their effect on timestamps."""

from functools import partial
from typing import Any, Final

from highwater.fuzz.simulator.probes.client.node import Unexpected
from highwater.fuzz.simulator.probes.client.requests import request
from highwater.fuzz.simulator.probes.client.session import E, Session, batches_of, record
from highwater.fuzz.simulator.probes.fields.listings import fields
from highwater.fuzz.simulator.probes.records import HOUR_MS
from highwater.fuzz.simulator.probes.topics import APPEND, DELETE, SUBTRACT
from highwater.fuzz.simulator.probes.trimming import SET, TOPIC_RESOURCE
from highwater.reference.wire.records import build_batch

OF_TOPIC: Final = 1
"""The source of a setting of the topic itself (KIP-226)."""
VALUES: Final[dict[str, tuple[str, ...]]] = {
    "retention.ms": ("-1", "86400000"),
    "segment.bytes": ("4096", "1048576"),
    "max.message.bytes": ("100000", "200000"),
    "cleanup.policy": ("delete", "compact", "compact,delete"),
    "leader.replication.throttled.replicas": ("0:1", "0:1,0:2,0:3", "1:1,0:2"),
    "follower.replication.throttled.replicas": ("0:2,1:3", "2:1"),
}
ELEMENTS: Final[dict[str, tuple[str, ...]]] = {
    "cleanup.policy": ("delete", "compact"),
    "leader.replication.throttled.replicas": ("0:1", "0:2", "0:3", "1:1"),
    "follower.replication.throttled.replicas": ("0:2", "1:3", "2:1", "0:1"),
}
"""Settings that are lists, with elements to append and to subtract."""
INVALID: Final[tuple[tuple[str, int, str | None, E], ...]] = (
    ("retention.ms", SET, "soon", E.INVALID_CONFIG), ("segment.bytes", SET, "-4", E.INVALID_CONFIG),
    ("no.such.setting", SET, "1", E.INVALID_CONFIG), ("cleanup.policy", APPEND, "shred", E.INVALID_CONFIG),
    ("retention.ms", APPEND, "1", E.INVALID_CONFIG), ("retention.ms", SET, None, E.INVALID_REQUEST),
    ("retention.ms", 9, "1", E.INVALID_REQUEST),
)  # fmt: skip
Described = dict[str, tuple[str, int, tuple[tuple[str, str, int], ...]]]


class SettingsModel:
    """A model of the settings of a topic: its own ones, and those of a topic without any, to which it falls back."""

    def __init__(self, session: Session, topic: str, fallback: Described) -> None:
        self.session, self.topic, self.fallback = session, topic, fallback
        self.own: dict[str, str] = {}

    def change(self, name: str, how: int, value: str | None) -> None:
        """Apply a valid change."""
        before = [each for each in self.own.get(name, self.fallback[name][0]).split(",") if each]
        elements = (value or "").split(",")
        match how:
            case 0:
                self.own[name] = value or ""
            case 1:
                self.own.pop(name, None)
            case 2:
                self.own[name] = ",".join([*before, *(each for each in elements if each not in before)])
            case _:
                self.own[name] = ",".join(each for each in before if each not in elements)

    async def check(self, what: str) -> None:
        """Each broker describes every setting with its value, its source and all its synonyms (ADM-21, ADM-23)."""
        expected = dict(self.fallback)
        for name, value in self.own.items():
            synonyms = ((name, value, OF_TOPIC), *self.fallback[name][2])
            expected[name] = value, OF_TOPIC, synonyms
        asked = partial(describe, self.session, self.topic)
        wanted = {name: expected[name] for name in sorted(expected)}
        for broker_id in self.session.brokers:
            different = partial(_differences, asked, broker_id, wanted)
            await self.session.until(different, {}, f"the wrong settings at broker {broker_id} after {what}", 1_500)


async def _differences(asked: Any, broker_id: int, wanted: Described) -> dict[str, Any]:
    found = await asked(broker_id)
    return {name: found.get(name) for name in {*found, *wanted} if found.get(name) != wanted.get(name)}


async def describe(session: Session, topic: str, broker_id: int) -> Described:
    """Return value, source and synonyms of all settings of a topic."""
    resource = {"resource_type": TOPIC_RESOURCE, "resource_name": topic, "configuration_keys": None}
    answer = await session.ask(broker_id, request("DescribeConfigs", resources=[resource], include_synonyms=True))
    session.ok(answer.results[0].error_code, f"DescribeConfigs of {topic}")
    return {
        each.name: (each.value, each.config_source, tuple((s.name, s.value, s.source) for s in each.synonyms))
        for each in answer.results[0].configs
    }


@fields("ADM-5", "ADM-21", "ADM-23", "ADM-26", "ADM-28", "ADM-47")
async def drawn_settings(session: Session) -> None:
    """A topic has exactly the settings that the accepted changes have left, however they were requested."""
    other = await session.create_topic("other")
    topic = await session.create_topic("drawn")
    model = SettingsModel(session, topic, await describe(session, other, 1))
    for _ in range(16):
        changes, error = _drawn_changes(session)
        replaces, validate_only = session.draw(5) == 0, session.draw(3) == 0
        if replaces:
            changes = [change for change in changes if change[1] == SET and change[2] is not None]
            error = E.INVALID_CONFIG if any(_is_invalid(*change) for change in changes) else E.NONE
        found = await _alter(session, topic, changes, replaces=replaces, validate_only=validate_only)
        what = f"{changes} with replaces={replaces}, validate_only={validate_only}"
        session.error(found, error, what)
        if error is E.NONE and not validate_only:
            if replaces:
                model.own.clear()
            for change in changes:
                model.change(*change)
        await model.check(what)


@fields("ADM-28", "ADM-47")
async def drawn_lists(session: Session) -> None:
    """APPEND adds each value that the list lacks, SUBTRACT removes each that it has, also several at once."""
    other, topic = [await session.create_topic(name) for name in ("other", "lists")]
    model = SettingsModel(session, topic, await describe(session, other, 1))
    for step in range(4):
        whole, some = {}, {}
        for name, elements in ELEMENTS.items():
            order = sorted(elements, key=lambda each: (session.draw(1 << 20), each))
            whole[name], some[name] = ",".join(order), ",".join(order[: len(order) // 2])
        for how, values in ((SET, whole), (SUBTRACT, some), (APPEND, (whole, some)[step % 2]), (SUBTRACT, some)):
            changes: list[tuple[str, int, str | None]] = [(name, how, value) for name, value in values.items()]
            error = await _alter(session, topic, changes, replaces=False, validate_only=False)
            session.ok(error, f"IncrementalAlterConfigs with {changes}")
            for change in changes:
                model.change(*change)
            await model.check(f"{changes}")


def _drawn_changes(session: Session) -> tuple[list[tuple[str, int, str | None]], E]:
    """Return changes of different settings, one in four of them with an invalid one, and the error to expect."""
    changes: dict[str, tuple[str, int, str | None]] = {}
    for _ in range(1 + session.draw(3)):
        name = session.one_of(*VALUES)
        how = session.one_of(SET, SET, DELETE, APPEND, SUBTRACT) if name in ELEMENTS else session.one_of(SET, DELETE)
        value: str | None = None if how == DELETE else session.one_of(*VALUES[name])
        if how in {APPEND, SUBTRACT}:
            value = ",".join(dict.fromkeys(session.one_of(*ELEMENTS[name]) for _ in range(1 + session.draw(3))))
        if (name, how) == ("cleanup.policy", SUBTRACT):
            value = "compact"  # a policy may not be empty here: `delete` is the default
            how = APPEND
        changes[name] = name, how, value
    if session.draw(4):
        return list(changes.values()), E.NONE
    *invalid, error = session.one_of(*INVALID)
    changes[invalid[0]] = (invalid[0], invalid[1], invalid[2])
    return list(changes.values()), error


def _is_invalid(name: str, how: int, value: str | None) -> bool:
    return any((name, how, value) == each[:3] for each in INVALID)


async def _alter(
    session: Session, topic: str, changes: list[tuple[str, int, str | None]], *, replaces: bool, validate_only: bool
) -> int:
    configs: list[dict[str, Any]] = [{"name": name, "value": value} for name, _, value in changes]
    if not replaces:
        configs = [{**each, "config_operation": how} for each, (_, how, _) in zip(configs, changes, strict=True)]
    resource = {"resource_type": TOPIC_RESOURCE, "resource_name": topic, "configs": configs}
    api = "AlterConfigs" if replaces else "IncrementalAlterConfigs"
    answer = await session.ask_any(request(api, resources=[resource], validate_only=validate_only))
    return int(answer.responses[0].error_code)


# -- effects on timestamps ---------------------------------------------------------------------------------------------

LATE, EARLY = "message.timestamp.before.max.ms", "message.timestamp.after.max.ms"
BOTH: Final = "message.timestamp.difference.max.ms"


@fields("PRD-15", "PRD-16")
async def limits_of_timestamps(session: Session) -> None:
    """A timestamp may differ from the broker's as far as the newer settings allow, else the older one."""
    for number, settings in enumerate(
        ({LATE: 2}, {EARLY: 2}, {BOTH: 2}, {LATE: 3, EARLY: 1}, {BOTH: 1, LATE: 3}, {BOTH: 1, EARLY: 3})
    ):
        hours: dict[str, Any] = {name.replace(".", "_"): count * HOUR_MS for name, count in settings.items()}
        by_client = await session.create_topic(f"client{number}", **hours)
        by_broker = await session.create_topic(f"broker{number}", message_timestamp_type="LogAppendTime", **hours)
        before, after = settings.get(LATE, settings.get(BOTH)), settings.get(EARLY, settings.get(BOTH))
        for shift in (-9, -5, -3, -1, 1, 3, 5, 9):  # half hours
            outside = shift / 2 < -before if shift < 0 and before else bool(shift > 0 and after and shift / 2 > after)
            if shift > 2 and not after:
                continue  # by default a record may be an hour early at most, or without limit, as the release has it
            batch = build_batch([record(b"v", None, session.wall_ms + shift * HOUR_MS // 2)])
            what = f"a timestamp {shift} half hours from now with {settings}"
            answer = await session.produce(by_client, batch)
            session.error(answer.error_code, E.INVALID_TIMESTAMP if outside else E.NONE, what)
            answer = await session.produce(by_broker, batch)
            session.ok(answer.error_code, f"{what} and LogAppendTime")
            session.expect(answer.log_append_time_ms >= 0, f"{what} and LogAppendTime has no append time")
        untimed = build_batch([record(b"v", None, -1)])
        answer = await session.produce(by_client, untimed)
        session.ok(answer.error_code, f"a record without a timestamp with {settings}")
        data = await session.fetch(by_client, int(answer.base_offset))
        if not batches_of(data):
            raise Unexpected(f"a record without a timestamp is not there with {settings}")
