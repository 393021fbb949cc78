"""Write captures for tests: packets around the bytes of a connection, as tcpdump would see them."""

import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import dpkt

CHUNK = 1_400  # bytes of one segment
Address = tuple[str, int]


@dataclass
class Wire:
    """Packets with times in the order in which they passed."""

    packets: list[tuple[float, bytes]] = field(default_factory=list)
    first_sequence: int = (1 << 32) - 5_000  # soon wraps around

    def packet(self, source: Address, target: Address, sequence: int, ack: int, flags: int, data: bytes = b"") -> None:
        tcp = dpkt.tcp.TCP(
            sport=source[1], dport=target[1], seq=sequence % (1 << 32), ack=ack % (1 << 32), flags=flags, data=data
        )
        ends = {"src": socket.inet_aton(source[0]), "dst": socket.inet_aton(target[0])}
        ip = dpkt.ip.IP(**ends, p=dpkt.ip.IP_PROTO_TCP, data=tcp)
        ip.len = len(ip)
        frame = dpkt.ethernet.Ethernet(data=ip, type=dpkt.ethernet.ETH_TYPE_IP)
        self.packets.append((time.time(), bytes(frame)))

    def write(self, path: Path, packets: Sequence[tuple[float, bytes]] | None = None) -> Path:
        """Write a capture, as pcapng if the path ends so."""
        kind = dpkt.pcapng.Writer if path.suffix == ".pcapng" else dpkt.pcap.Writer
        with path.open("wb") as file:
            writer = kind(file)
            for moment, data in self.packets if packets is None else packets:
                writer.writepkt(data, ts=moment)
        return path


class Flow:
    """One connection on a wire."""

    def __init__(self, wire: Wire, client: Address, broker: Address) -> None:
        self._wire, self._ends = wire, (client, broker)
        self._next = [wire.first_sequence, 70_000]
        self._send(0, dpkt.tcp.TH_SYN, acknowledge=False)
        self._send(1, dpkt.tcp.TH_SYN)

    def _send(self, side: int, flags: int, data: bytes = b"", *, acknowledge: bool = True) -> None:
        source, target = self._ends[side], self._ends[1 - side]
        ack = self._next[1 - side] if acknowledge else 0
        flags |= dpkt.tcp.TH_ACK if acknowledge else 0
        self._wire.packet(source, target, self._next[side], ack, flags, data)
        self._next[side] += len(data) + bool(flags & (dpkt.tcp.TH_SYN | dpkt.tcp.TH_FIN))

    def data(self, side: int, data: bytes) -> None:
        """Send bytes from the client (0) or the broker (1)."""
        for start in range(0, len(data), CHUNK):
            self._send(side, dpkt.tcp.TH_PUSH, data[start : start + CHUNK])

    def end(self, side: int) -> None:
        self._send(side, dpkt.tcp.TH_FIN)
        self._send(1 - side, dpkt.tcp.TH_FIN)
