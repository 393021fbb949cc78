"""Audit what the client of one case of the suite saw: its exchanges, recorded as the proxy records them.

A case compares the replies that it is about. The rules of the auditor see all of them: an acknowledged record that a
later read leaves out is found by a case about something else.

Deliberately absent: cases that act as a broker (markers), that take from brokers what they had acknowledged (a lost
tail), or that send bytes which are no requests. No client could have seen such a history, and it is not judged.
"""

from io import BytesIO
from typing import Final, NamedTuple

from highwater.conformance.client.exchange import LOST_TAIL, NO_CONNECTION, Event, ExchangeLog
from highwater.reports.audit import audit_events
from highwater.reports.importers.native import read_blocks
from highwater.reports.importers.quarantine import Quarantine
from highwater.reports.recorder.decoder import FrameDecoder
from highwater.reports.recorder.exchanges import Cluster, Link
from highwater.reports.recorder.observer import Observer
from highwater.reports.recorder.recording import Recording
from highwater.reports.verdicts import first_violation

OF_BROKERS: Final = frozenset({27})
"""Keys of the requests that only brokers send, and that change what clients see: WriteTxnMarkers."""
SETTINGS: Final = {
    b"compact": "compaction", b"retention": "retention", b"unclean": "unclean_election",
}  # fmt: skip
"""What a request must contain for a setting of the history to count as changed; else it has Kafka's default.

Committed offsets always expire: soon, by the settings of all targets that the suite launches.
"""
SIZE_BYTES: Final = 4


class CaseAudit(NamedTuple):
    """How many operations of a case were audited, 0 if it is not judged, and the first violation or an empty string."""

    operations: int
    violation: str = ""


def audit_case(log: ExchangeLog) -> CaseAudit:
    """Audit the exchanges of a case."""
    requests = [event for event in log if event.data and event.api is None]
    if any(_key(event) in OF_BROKERS or not _is_whole(event) for event in requests):
        return CaseAudit(0)
    if any(event.what == LOST_TAIL for event in log):
        return CaseAudit(0)
    config, events = read_blocks(iter([recorded(log)]), Quarantine())
    result = audit_events(config, events, "a case")
    violation = first_violation(result)
    return CaseAudit(result.operations, violation.text if violation else "")


def _key(event: Event) -> int:
    return int.from_bytes(event.data[4:6])


def _is_whole(event: Event) -> bool:
    return int.from_bytes(event.data[:4]) == len(event.data) - SIZE_BYTES


def recorded(log: ExchangeLog) -> bytes:
    """Return the history of the exchanges, as the proxy would have written its file."""
    sink, now_s = BytesIO(), 0.0
    requests = [event.data for event in log if event.data and event.api is None]
    changed = {name: any(text in data for data in requests) for text, name in SETTINGS.items()}
    recording = Recording(sink, 0, lambda: round(now_s * 1e9))
    recording.update_config(offset_expiry=True, **changed)
    cluster, observer = Cluster(recording), Observer()
    decoders: dict[int, FrameDecoder] = {}
    for event in log:
        if event.connection == NO_CONNECTION:
            recording.nemesis(event.what, node=event.address.removeprefix("broker "))
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
