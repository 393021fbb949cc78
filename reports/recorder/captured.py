"""Record the Kafka traffic of captured TCP packets as the proxy records it.

The side that opened a connection is the client. Of a connection that was open before the capture, it is the side that
sends a segment which begins with a whole request. Once bytes are lost, the place where the next frame begins is not
known: requests without a reply are completed as unknown, and decoding continues with the next segment that begins with
a request, or with the reply to a pending request. Each such place is written as unrecorded, so that the verdict on what
was not seen is unknown.

A connection on which no request was decoded counts only if Kafka is spoken with the same address elsewhere, or if it is
TLS with a host that speaks Kafka: other protocols may be in the same capture.
"""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from highwater.fuzz.proxy.addresses import Address
from highwater.reference.wire.errors import DecodeError, FrameSizeError
from highwater.reference.wire.framing import FrameReader, decode_request, decode_request_header
from highwater.reference.wire.registry import APIS
from highwater.reports.recorder.decoder import FRAME_LIMIT, FrameDecoder
from highwater.reports.recorder.exchanges import Cluster, Link
from highwater.reports.recorder.observer import Observer
from highwater.reports.recorder.segments import Segments

API_VERSIONS: Final = 18
TLS: Final = (b"\x16\x03", b"\x17\x03", b"\x14\x03", b"\x15\x03")  # handshake, data, change of cipher, alert


class Packet(NamedTuple):
    """One TCP packet; `number` counts all packets of the capture from 1."""

    number: int
    source: Address
    target: Address
    sequence: int
    acknowledged: int | None
    data: bytes
    cut: int = 0  # bytes at the end of the data that were not captured
    syn: bool = False
    fin: bool = False
    rst: bool = False


@dataclass(slots=True)
class Direction:
    """The bytes of one direction; `frames` is None while it is not known where a frame begins."""

    segments: Segments
    frames: FrameReader | None
    acknowledged: int | None = None  # by the receiver, at last
    end: int | None = None  # the sequence number of its FIN, which may overtake the data before it

    @property
    def ended(self) -> bool:
        """Whether all that was sent has been seen."""
        return self.end is not None and not self.segments.lacks(self.end)


@dataclass(slots=True)
class Conversation:
    """A connection; `decoder` is None until a request was decoded."""

    client: Address
    broker: Address
    first_packet: int
    by_source: dict[Address, Direction] = field(default_factory=dict)
    syn: int | None = None
    decoder: FrameDecoder | None = None
    encrypted: bool = False
    foreign: bool = False  # its first bytes are no request
    closed: bool = False
    lacks_answer: bool = False  # to its SYN, so that lost bytes after that would not be noticed

    def __str__(self) -> str:
        return f"{_text(self.client)} to {_text(self.broker)}"


class Captured:
    """Takes packets in the order of the capture; `finish` ends the connections that are still open."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._observer = Observer()
        self._open: dict[frozenset[Address], Conversation] = {}
        self._undecoded: list[Conversation] = []
        self.brokers: set[Address] = set()

    def take(self, packet: Packet) -> None:
        key = frozenset((packet.source, packet.target))
        found = self._open.get(key)
        if packet.syn and packet.acknowledged is None and (found is None or found.syn != packet.sequence):
            if found is not None:
                self._close(found, packet.number)
            found = self._open[key] = Conversation(packet.source, packet.target, packet.number, syn=packet.sequence)
        elif found is None:
            if not packet.data:
                return
            found = self._open[key] = Conversation(packet.source, packet.target, packet.number)
        if not found.closed:
            self._packet(found, packet)

    def finish(self, number: int) -> None:
        """Close what is open after the last packet, and report the connections that could not be decoded."""
        for conversation in self._open.values():
            if not conversation.closed:
                self._close(conversation, number)
        hosts = {host for host, _ in self.brokers}
        for conversation in self._undecoded:
            ends = (conversation.client, conversation.broker)
            if conversation.encrypted and (not hosts or any(host in hosts for host, _ in ends)):
                self._unrecorded(conversation.first_packet, conversation, "it is encrypted (TLS)")
            elif self.brokers.intersection(ends):
                self._unrecorded(conversation.first_packet, conversation, "no request in it could be decoded")

    def _packet(self, conversation: Conversation, packet: Packet) -> None:
        back = conversation.by_source.get(packet.target)
        if packet.acknowledged is not None and back is not None:
            back.acknowledged = packet.acknowledged
            lost = back.segments.missing(packet.acknowledged)
            if lost:
                self._gap(conversation, back, packet.number, lost)
        here = conversation.by_source.get(packet.source)
        if here is None:
            first = packet.sequence + packet.syn
            frames = FrameReader(FRAME_LIMIT) if packet.syn else None
            conversation.lacks_answer |= not packet.syn and conversation.syn is not None
            here = conversation.by_source[packet.source] = Direction(Segments(first % (1 << 32)), frames)
        data = here.segments.feed((packet.sequence + packet.syn) % (1 << 32), packet.data)
        if data:
            self._bytes(conversation, here, packet, data)
        if packet.cut:
            why = f"{packet.cut} bytes of the packet were not captured; capture whole packets (tcpdump -s 0)"
            self._interrupt(conversation, packet.number, why)
        if packet.fin or packet.rst:
            begun = any(each.end is not None for each in conversation.by_source.values())
            if packet.source == conversation.broker and not begun:
                lives = self.cluster.lives
                lives[conversation.broker] = lives.get(conversation.broker, 0) + 1
            if packet.fin:
                here.end = (packet.sequence + packet.syn + len(packet.data)) % (1 << 32)
        if packet.rst or all(direction.ended for direction in conversation.by_source.values()):
            self._close(conversation, packet.number)

    def _gap(self, conversation: Conversation, direction: Direction, number: int, lost: int) -> None:
        """Continue after lost bytes with the segments that follow them."""
        self._interrupt(conversation, number, f"{lost} bytes before this packet are not in the capture")
        source = next(source for source, known in conversation.by_source.items() if known is direction)
        data = direction.segments.skip()
        packet = Packet(number, source, _other(conversation, source), 0, None, data)
        self._bytes(conversation, direction, packet, data)

    def _bytes(self, conversation: Conversation, direction: Direction, packet: Packet, data: bytes) -> None:
        if direction.frames is None and not self._begin(conversation, direction, packet, data):
            return
        if conversation.decoder is None and not self._is_kafka(conversation, packet, data):
            return
        assert direction.frames is not None
        is_request = packet.source == conversation.client
        try:
            frames = direction.frames.feed(data)
        except FrameSizeError as error:
            self._frames(conversation, is_request, list(error.complete))
            self._interrupt(conversation, packet.number, str(error))
            return
        try:
            self._frames(conversation, is_request, frames)
        except ConnectionError as error:
            self._interrupt(conversation, packet.number, str(error))

    def _frames(self, conversation: Conversation, is_request: bool, frames: list[bytes]) -> None:
        for frame in frames:
            if conversation.decoder is None:
                if not is_request or not _is_request(frame):
                    conversation.foreign = True
                    return
                self._found_broker(conversation)
            decoder = conversation.decoder
            assert decoder is not None
            if not is_request:
                decoder.reply(frame)
            elif (silent := decoder.request(frame)) is not None:
                silent(None)

    def _found_broker(self, conversation: Conversation) -> None:
        self.brokers.add(conversation.broker)
        conversation.decoder = FrameDecoder(Link(self.cluster, conversation.broker), self._observer)

    def _is_kafka(self, conversation: Conversation, packet: Packet, data: bytes) -> bool:
        """Return whether a connection that was seen from its start may still be Kafka's."""
        if not conversation.foreign and packet.source == conversation.client:
            direction = conversation.by_source[packet.source]
            assert direction.frames is not None
            if not direction.frames.buffered:
                conversation.encrypted = data.startswith(TLS)
                key = int.from_bytes(data[4:6], "big") if len(data) >= 6 else API_VERSIONS
                conversation.foreign = conversation.encrypted or key not in APIS
        return not conversation.foreign

    def _begin(self, conversation: Conversation, direction: Direction, packet: Packet, data: bytes) -> bool:
        """Look for the begin of a frame where it is not known; return whether this segment begins with one."""
        decoder = conversation.decoder
        size = int.from_bytes(data[:4], "big", signed=True)
        if len(data) < 12 or not 8 <= size <= FRAME_LIMIT:
            conversation.encrypted |= decoder is None and data.startswith(TLS)
            return False
        frame = data[4 : 4 + size]
        if decoder is None:
            if len(frame) < size or not _is_request(frame):
                conversation.encrypted |= data.startswith(TLS)
                return False
            conversation.client, conversation.broker = packet.source, packet.target
            self._found_broker(conversation)
            why = "the capture begins in the middle of it; what was sent before is not known"
            self._unrecorded(packet.number, conversation, why)
        elif packet.source == conversation.client:
            if not _begins_request(frame):
                return False
        elif not decoder.awaits(int.from_bytes(data[4:8], "big", signed=True)):
            return False
        direction.frames = FrameReader(FRAME_LIMIT)
        return True

    def _interrupt(self, conversation: Conversation, number: int, why: str) -> None:
        """Note that a part of a connection cannot be decoded, and look for the next frame in both directions."""
        for direction in conversation.by_source.values():
            direction.frames = None
        if conversation.decoder is not None:
            self._unrecorded(number, conversation, why)
            conversation.decoder.lost()

    def _close(self, conversation: Conversation, number: int) -> None:
        conversation.closed = True
        for direction in conversation.by_source.values():
            if lost := direction.segments.missing():
                self._gap(conversation, direction, number, lost)
            due = direction.acknowledged if direction.end is None else direction.end
            if due is not None and (lost := direction.segments.lacks(due)):
                self._interrupt(conversation, number, f"{lost} bytes before the end are not in the capture")
        if conversation.decoder is None:
            self._undecoded.append(conversation)
            return
        if conversation.lacks_answer:
            self._unrecorded(number, conversation, "the answer to its SYN is not in the capture")
        conversation.decoder.lost()

    def _unrecorded(self, number: int, conversation: Conversation, why: str) -> None:
        self.cluster.recording.unrecorded(f"packet {number}, connection {conversation}: {why}")


def _text(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _other(conversation: Conversation, source: Address) -> Address:
    return conversation.broker if source == conversation.client else conversation.client


def _begins_request(frame: bytes) -> bool:
    """Return whether bytes begin with the header of a request in a version that is known."""
    try:
        header, _ = decode_request_header(frame)
    except DecodeError:
        return False
    api = APIS[header.api_key]
    return header.api_key == API_VERSIONS or 0 <= header.api_version <= api.max_version


def _is_request(frame: bytes) -> bool:
    """Return whether a frame is a whole request; a newer ApiVersions than is known is one, too."""
    if len(frame) >= 2 and int.from_bytes(frame[:2], "big") == API_VERSIONS:
        return _begins_request(frame)
    try:
        decode_request(frame)
    except DecodeError:
        return False
    return True
