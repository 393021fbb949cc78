"""Read logs of Kafka's VerifiableProducer and VerifiableConsumer: one log, or a folder of one run.

They contain acknowledgements but not the start of a send, by clocks of different machines.  So every send is assumed to
begin before all other events, and the logs are read one after the other: the audit checks the content of the log and
the order in which each consumer received it, but not real time.

A send without a known outcome is not in the producer's log.  Unless every producer reported at its end that all sends
were acknowledged, a value that was read but is in no log counts as such a send.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from highwater.errors import UsageError
from highwater.reports.importers.emitter import Emitter
from highwater.reports.importers.jepsen_shape import MAX_OFFSET
from highwater.reports.importers.quarantine import Quarantine
from highwater.reports.importers.sources import numbered_lines, read_head
from highwater.spec.formats.history import Config, Event

ENDINGS: Final = (".log", ".stdout", ".json", ".txt")
NAMES: Final = {
    "startup_complete", "shutdown_requested", "shutdown_complete", "producer_send_success", "producer_send_error",
    "tool_data", "record_data", "records_consumed", "partitions_assigned", "partitions_revoked", "offsets_committed",
}  # fmt: skip
RECORDS_OF_A_POLL: Final = 10_000_000  # records that one summary line may claim
Line = dict[str, Any]
TopicPartition = tuple[str, int]


def recognises(head: bytes) -> bool:
    for line in head.splitlines()[:50]:
        try:
            found = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        if isinstance(found, dict) and found.get("name") in NAMES and "timestamp" in found:
            return True
    return False


def logs(folder: str) -> list[str]:
    """Return the files of a folder that are such logs."""
    files = (os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name.endswith(ENDINGS))  # noqa: PTH118, PTH208
    return [path for path in files if os.path.isfile(path) and recognises(read_head(path))]  # noqa: PTH113


def read(where: str, quarantine: Quarantine) -> tuple[Config, Iterator[Event]]:
    """Read the logs. Raises UsageError if two producers wrote the same value, which makes reads ambiguous."""
    paths = logs(where) if os.path.isdir(where) else [where]  # noqa: PTH112
    log_records = LogRecords()
    for path in paths:
        for line in _lines(path, Quarantine()):
            log_records.add(path, line)
    if log_records.ambiguous:
        hint = "run each VerifiableProducer with its own --value-prefix"
        raise UsageError(f"two producers wrote the value {log_records.ambiguous!r}", where=where, hint=hint)
    return Config(source="verifiable"), _events(paths, log_records, quarantine)


def _lines(path: str, quarantine: Quarantine) -> Iterator[Line]:
    """Yield the log lines of a file; other output is skipped."""
    quarantine.line = 0
    for line in numbered_lines(path, quarantine):
        if not line.startswith(b"{"):
            continue
        try:
            found = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            quarantine.add(f"{os.path.basename(path)}: {error}")  # noqa: PTH119
            continue
        if isinstance(found, dict) and found.get("name") in NAMES:
            yield found


@dataclass(slots=True)
class LogRecords:
    """The records of all logs together."""

    acknowledged: dict[TopicPartition, dict[int, str]] = field(default_factory=dict)  # offset -> value
    read: dict[tuple[TopicPartition, str], None] = field(default_factory=dict)
    writer: dict[str, str] = field(default_factory=dict)  # value -> log
    failed: dict[str, list[str]] = field(default_factory=dict)  # topic -> values
    all_acked: dict[str, bool] = field(default_factory=dict)  # producer's log -> whether all sends were acknowledged
    partitions: dict[TopicPartition, None] = field(default_factory=dict)
    ambiguous: str | None = None

    def add(self, path: str, line: Line) -> None:
        name, place = line["name"], _place(line)
        if name == "tool_data":
            self.all_acked[path] = line.get("sent") == line.get("acked") is not None
        elif name == "producer_send_error":
            self.all_acked.setdefault(path, False)
            self.failed.setdefault(str(line.get("topic")), []).append(str(line.get("value")))
        elif place is not None and name == "producer_send_success" and _offset(line) is not None:
            self.all_acked.setdefault(path, False)
            value = str(line.get("value"))
            if self.writer.setdefault(value, path) != path:
                self.ambiguous = value
            self.partitions[place] = None
            self.acknowledged.setdefault(place, {})[line["offset"]] = value
        elif place is not None and name == "record_data":
            self.partitions[place] = None
            self.read[place, str(line.get("value"))] = None

    @property
    def complete(self) -> bool:
        return bool(self.all_acked) and all(self.all_acked.values())

    def uncertain_sends(self) -> Iterator[tuple[TopicPartition, str]]:
        """Yield sends that may have succeeded without an acknowledgement."""
        for topic, values in self.failed.items():
            for place in self.partitions:
                if place[0] == topic:
                    yield from ((place, value) for value in values)
        if not self.complete:
            known = {(place, value) for place, found in self.acknowledged.items() for value in found.values()}
            yield from (record for record in self.read if record not in known)


def _place(line: Line) -> TopicPartition | None:
    topic, partition = line.get("topic"), line.get("partition")
    if isinstance(topic, str) and type(partition) is int and 0 <= partition < 1 << 31:
        return topic, partition
    return None


def _offset(line: Line) -> int | None:
    offset = line.get("offset")
    return offset if type(offset) is int and 0 <= offset <= MAX_OFFSET else None


def _events(paths: list[str], log_records: LogRecords, quarantine: Quarantine) -> Iterator[Event]:
    emit = Emitter()
    sends = [
        (place, value, offset) for place, found in log_records.acknowledged.items() for offset, value in found.items()
    ]
    for number, ((topic, partition), value, _) in enumerate(sends):
        emit(number, "invoke", "send", topic=topic, partition=partition, value=value)
    for number, ((topic, partition), value) in enumerate(log_records.uncertain_sends(), len(sends)):
        emit(number, "invoke", "send", topic=topic, partition=partition, value=value)
    for number, ((topic, partition), _, offset) in enumerate(sends):
        emit(number, "ok", "send", topic=topic, partition=partition, offset=offset)
    yield from emit.take()
    for path in paths:
        consumer = Consumer(emit, os.path.basename(path), log_records, quarantine)  # noqa: PTH119
        for line in _lines(path, quarantine):
            consumer.take(line)
            yield from emit.take()
        consumer.flush()
        yield from emit.take()


class Consumer:
    """Converts the log of a consumer, which is one process and its own group: logs name no group."""

    def __init__(self, emit: Emitter, name: str, log_records: LogRecords, quarantine: Quarantine) -> None:
        self._emit, self._name, self._log_records, self._quarantine = emit, name, log_records, quarantine
        self._records: dict[str, list[tuple[int, str]]] = {}

    def take(self, line: Line) -> None:
        name = line["name"]
        if name == "record_data":
            self._record(line)
        elif name == "records_consumed":
            for part in _list(line, "partitions") if not self._records else ():
                self._consumed(part)
            self.flush()
        elif name in {"partitions_assigned", "partitions_revoked"}:
            keys = [key for key, _ in self._keyed(line, "partitions")]
            self._emit(self._name, "info", "assign" if name == "partitions_assigned" else "revoke", value=keys)
        elif name == "offsets_committed":
            value = {key: offset for key, part in self._keyed(line, "offsets") if (offset := _offset(part)) is not None}
            self._emit(self._name, "invoke", "commit", value=value, group=self._name)
            kind = "ok" if line.get("success") is True else "info"
            self._emit(self._name, kind, "commit", value=value, group=self._name)

    def flush(self) -> None:
        """Emit the records before a summary line as one poll."""
        if self._records:
            self._emit(self._name, "invoke", "poll")
            self._emit(self._name, "ok", "poll", value=self._records)
            self._records = {}

    def _record(self, line: Line) -> None:
        place, offset = _place(line), _offset(line)
        if place is None or offset is None:
            self._quarantine.add(f"{self._name}: a record without its place")
        else:
            self._records.setdefault(f"{place[0]}-{place[1]}", []).append((offset, str(line.get("value"))))

    def _consumed(self, part: Line) -> None:
        """Take the records of a summary (log without --verbose), if its offset range has no gaps."""
        place, first, last = _place(part), part.get("minOffset"), part.get("maxOffset")
        if place is None or type(first) is not int or type(last) is not int:
            self._quarantine.add(f"{self._name}: {str(part)[:60]} states no range of records")
        elif part.get("count") != last - first + 1 or not 0 < last - first + 1 <= RECORDS_OF_A_POLL:
            self._quarantine.add(f"{self._name}: offsets {first} to {last} have gaps; record with --verbose")
        else:
            known = self._log_records.acknowledged.get(place, {})
            records = [(offset, known[offset]) for offset in range(first, last + 1) if offset in known]
            self._records[f"{place[0]}-{place[1]}"] = records

    def _keyed(self, line: Line, name: str) -> Iterator[tuple[str, Line]]:
        for part in _list(line, name):
            place = _place(part)
            if place is None:
                self._quarantine.add(f"{self._name}: {str(part)[:60]} is no partition")
            else:
                yield f"{place[0]}-{place[1]}", part


def _list(line: Line, name: str) -> list[Line]:
    found = line.get(name)
    return [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []
