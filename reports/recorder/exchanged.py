"""Audit what the client of one case of the suite saw: its exchanges, recorded as the proxy records them.

A case compares the replies that it is about. The rules of the auditor see all of them: an acknowledged record that a
later read leaves out is found by a case about something else.

Deliberately absent: cases that act as a broker (markers), that take from brokers what they had acknowledged (a lost
tail), or that send bytes which are no requests. No client could have seen such a history, and it is not judged.
"""

from io import BytesIO
from typing import Final

from highwater.conformance.client.exchange import FAULT, LOST_TAIL, Event, ExchangeLog
from highwater.errors import Verdict
from highwater.reports.anomalies import Severity
from highwater.reports.audit import audit_events
from highwater.reports.importers.native import read_blocks
from highwater.reports.importers.quarantine import Quarantine
from highwater.reports.recorder.decoder import FrameDecoder
from highwater.reports.recorder.exchanges import Cluster, Link
from highwater.reports.recorder.observer import Observer
from highwater.reports.recorder.recording import Recording

OF_BROKERS: Final = frozenset({27})
"""Keys of the requests that only brokers send, and that change what clients see: WriteTxnMarkers."""
SETTINGS: Final = {
    b"compact": "compaction", b"retention": "retention", b"unclean": "unclean_election",
}  # fmt: skip
"""What a request must contain for a setting of the history to count as changed; else it has Kafka's default.

Committed offsets always expire: soon, by the settings of all targets that the suite launches.
"""
SIZE_BYTES: Final = 4


def finding_of(log: ExchangeLog) -> str:
    """Return the first violation in the exchanges with both witnesses; empty if there is none, or nothing is judged."""
    requests = [event for event in log if event.data and event.api is None]
    if any(_key(event) in OF_BROKERS or not _is_whole(event) for event in requests):
        return ""
    if any(event.address == FAULT and event.what.startswith(LOST_TAIL) for event in log):
        return ""
    changed = {name: any(text in event.data for event in requests) for text, name in SETTINGS.items()}
    config, events = read_blocks(iter([_recorded(log, changed)]), Quarantine())
    result = audit_events(config, events, "a case")
    if result.verdict is not Verdict.INVALID:
        return ""
    found = next(finding for finding in result.findings if finding.severity is Severity.VIOLATION)
    seen = found.witnesses[0]
    shown = "; ".join(f"{witness.role}: {witness.words}" for witness in seen.operations)
    return f"{found.name} in {seen.partition} at offset {seen.offset}: {shown}"


def _key(event: Event) -> int:
    return int.from_bytes(event.data[4:6])


def _is_whole(event: Event) -> bool:
    return int.from_bytes(event.data[:4]) == len(event.data) - SIZE_BYTES


def _recorded(log: ExchangeLog, changed: dict[str, bool]) -> bytes:
    """Return the history of the exchanges, as a file."""
    sink, now_s = BytesIO(), 0.0
    recording = Recording(sink, 0, lambda: round(now_s * 1e9))
    recording.update_config(offset_expiry=True, **changed)
    cluster, observer = Cluster(recording), Observer()
    decoders: dict[int, FrameDecoder] = {}
    for event in log:
        if event.address == FAULT:
            recording.nemesis(event.what.partition(" ")[0], value=event.what)
            continue
        now_s = event.at
        host, _, port = event.address.rpartition(":")
        decoder = decoders.setdefault(event.connection, FrameDecoder(Link(cluster, (host, int(port))), observer))
        if not event.data:
            decoder.lost()
        elif event.api is not None:
            decoder.reply(event.data[4:])
        elif (silent := decoder.request(event.data[4:])) is not None:
            silent(None)
    for decoder in decoders.values():
        decoder.lost()
    recording.finish()
    return sink.getvalue()
