"""Read captures of Kafka traffic (pcap, pcapng), as tcpdump and Wireshark write them.

The packets are decoded as `highwater record` decodes what it forwards, into a temporary history of our own format.
"""

import socket
import struct
import tempfile
from collections.abc import Callable, Iterator
from typing import IO, Any, Final

from highwater.errors import UsageError
from highwater.reports.importers import native
from highwater.reports.importers.quarantine import Quarantine
from highwater.reports.importers.sources import BLOCK, cut_of, open_bytes
from highwater.reports.recorder.captured import Captured, Packet
from highwater.reports.recorder.exchanges import Cluster
from highwater.reports.recorder.recording import Recording
from highwater.spec.formats.history import Config, Event

PCAPNG: Final = b"\n\r\r\n"
PCAP: Final = (b"\xd4\xc3\xb2\xa1", b"\xa1\xb2\xc3\xd4", b"\x4d\x3c\xb2\xa1", b"\xa1\xb2\x3c\x4d")
HEADERS: Final = {PCAPNG: 8}  # bytes that dpkt reads before each packet or block; 16 in pcap
INTERFACE: Final = (b"\1\0\0\0", b"\0\0\0\1")
SIMPLE: Final = (b"\3\0\0\0", b"\0\0\0\3")
PACKET_LIMIT: Final = 64 << 20  # bytes; a longer packet is a damaged length
NS: Final = 1_000_000_000


def recognises(head: bytes) -> bool:
    return head.startswith((PCAPNG, *PCAP))


def read(where: str, quarantine: Quarantine) -> tuple[Config, Iterator[Event]]:
    """Return the configuration as far as the traffic shows it, and the events. Raises UsageError without traffic."""
    sink = tempfile.TemporaryFile(prefix="highwater-capture-")  # noqa: SIM115  # the events are read from it later
    try:
        _decode(where, sink)
        sink.seek(0)
        return native.read_blocks(_blocks(sink), quarantine)
    except BaseException:
        sink.close()
        raise


def _blocks(sink: IO[bytes]) -> Iterator[bytes]:
    with sink:
        while block := sink.read(BLOCK):
            yield block + sink.readline()


def _decode(where: str, sink: IO[bytes]) -> None:
    clock = Clock()
    with open_bytes(where) as source:
        capture = Capture(source, where)
        captured: Captured | None = None
        for time_ns, packet in capture.packets():
            clock.now_ns = time_ns
            if captured is None:
                captured = Captured(Cluster(Recording(sink, time_ns // 1_000_000, clock)))
            if packet is not None:
                captured.take(packet)
        if captured is None:
            hint = "capture the traffic between clients and brokers, with whole packets (tcpdump -s 0)"
            raise UsageError("no packet can be read in this capture", where=where, hint=hint)
        captured.finish(capture.number)
        recording = captured.cluster.recording
        for what in (*capture.problems, *filter(None, [cut_of(source)])):
            recording.unrecorded(f"packet {capture.number}: {what}")
        if not captured.brokers:
            recording.unrecorded(
                "no connection in the capture could be decoded as Kafka's: is it TLS, or cut (tcpdump -s 0)?"
            )
    recording.finish()


class Clock:
    """The time of the current packet."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


class Whole:
    """Passes reads of dpkt on, and notes what it would pass over: an early end, and unlike parts of a pcapng."""

    def __init__(self, source: IO[bytes], header_bytes: int, *, is_pcapng: bool) -> None:
        self.name = "capture"
        self._source, self._header_bytes = source, header_bytes
        self.is_cut = False
        self._first = 2 if is_pcapng else -1  # reads of the section header; then type and body alternate
        self._kind = b""
        self._links = set[bytes]()
        self._kinds = set[bytes]()

    def read(self, size: int) -> bytes:
        """Read `size` bytes. Raises ValueError for a size that no packet has."""
        if not 0 <= size <= PACKET_LIMIT:
            raise ValueError(f"a length of {size} bytes")
        data = self._source.read(size)
        self.is_cut |= len(data) < size and (bool(data) or size != self._header_bytes)
        if self._first > 0:
            self._first -= 1
        elif self._first == 0 and not self._kind:
            self._kind = data[:4]
            self._kinds.add(self._kind)
        elif self._kind:
            if self._kind in INTERFACE:
                self._links.add(data[:2])
            self._kind = b""
        return data

    def problems(self) -> Iterator[str]:
        """Yield what of the file was not read, or not as it was meant."""
        if self.is_cut:
            yield "the capture is cut in the middle of a packet"
        if len(self._links) > 1:
            yield "the capture has interfaces of several link types; capture them in a file each"
        if self._kinds.intersection((PCAPNG, *SIMPLE)):
            yield "the capture has several sections, or packets without times, which are not read"


class Capture:
    """The packets of a file; `problems` has what could not be read once all were."""

    def __init__(self, source: IO[bytes], where: str) -> None:
        self._where = where
        magic = source.peek(4)[:4]  # type: ignore[attr-defined]
        self._is_pcapng = magic == PCAPNG
        self._source = Whole(source, HEADERS.get(magic, 16), is_pcapng=self._is_pcapng)
        self.number = 0
        self.problems: list[str] = []

    def packets(self) -> Iterator[tuple[int, Packet | None]]:
        """Yield time in nanoseconds and TCP packet, None for another protocol."""
        import dpkt

        readers: dict[bool, Callable[[Any], Any]] = {True: dpkt.pcapng.Reader, False: dpkt.pcap.Reader}
        try:
            reader = readers[self._is_pcapng](self._source)
            link = LINKS.get(reader.datalink())
            if link is None:
                hint = "capture on an Ethernet, loopback, raw IP or 'any' interface"
                raise UsageError(f"link type {reader.datalink()} is not read", where=self._where, hint=hint)
            for seconds, data in reader:
                self.number += 1
                yield int(seconds * NS), self._packet(dpkt, link(dpkt, data))
        except (ValueError, KeyError, IndexError, struct.error, dpkt.Error) as error:
            self.problems.append(f"the capture cannot be read further: {error or type(error).__name__}")
        self.problems += self._source.problems()

    def _packet(self, dpkt: Any, ip: Any) -> Packet | None:
        tcp = getattr(ip, "data", None)
        if not isinstance(ip, dpkt.ip.IP | dpkt.ip6.IP6) or not isinstance(tcp, dpkt.tcp.TCP):
            return None
        data = bytes(tcp.data)
        family = socket.AF_INET if isinstance(ip, dpkt.ip.IP) else socket.AF_INET6
        stated = _payload(dpkt, ip) - tcp.off * 4
        flags = tcp.flags
        return Packet(
            number=self.number,
            source=(socket.inet_ntop(family, ip.src), tcp.sport),
            target=(socket.inet_ntop(family, ip.dst), tcp.dport),
            sequence=tcp.seq,
            acknowledged=tcp.ack if flags & dpkt.tcp.TH_ACK else None,
            data=data if stated < 0 else data[:stated],
            cut=max(0, stated - len(data)),
            syn=bool(flags & dpkt.tcp.TH_SYN),
            fin=bool(flags & dpkt.tcp.TH_FIN),
            rst=bool(flags & dpkt.tcp.TH_RST),
        )


def _payload(dpkt: Any, ip: Any) -> int:
    """Return the bytes that IP states for TCP; negative if it states none, as a network card that splits packets."""
    if isinstance(ip, dpkt.ip.IP):
        return int(ip.len) - int(ip.hl) * 4 if ip.len else -1
    extensions = sum(len(header) for header in ip.extension_hdrs.values() if header is not None)
    return int(ip.plen) - extensions if ip.plen else -1


def _ethernet(dpkt: Any, data: bytes) -> Any:
    return _or_none(dpkt, dpkt.ethernet.Ethernet, data)


def _cooked(dpkt: Any, data: bytes) -> Any:
    return _or_none(dpkt, dpkt.sll.SLL, data)


def _cooked_2(dpkt: Any, data: bytes) -> Any:
    return _or_none(dpkt, dpkt.sll2.SLL2, data)


def _loopback(dpkt: Any, data: bytes) -> Any:
    return _raw(dpkt, data[4:])


def _raw(dpkt: Any, data: bytes) -> Any:
    version = data[0] >> 4 if data else 0
    kind = {4: dpkt.ip.IP, 6: dpkt.ip6.IP6}.get(version)
    return None if kind is None else _whole(dpkt, kind, data)


def _or_none(dpkt: Any, kind: Any, data: bytes) -> Any:
    frame = _whole(dpkt, kind, data)
    return getattr(frame, "data", None)


def _whole(dpkt: Any, kind: Any, data: bytes) -> Any:
    try:
        return kind(data)
    except dpkt.UnpackError:
        return None


LINKS: Final[dict[int, Callable[[Any, bytes], Any]]] = {
    0: _loopback, 1: _ethernet, 12: _raw, 14: _raw, 101: _raw, 108: _loopback, 113: _cooked, 228: _raw, 229: _raw,
    276: _cooked_2,
}  # fmt: skip
"""How the link types of tcpdump.org/linktypes.html contain IP."""
