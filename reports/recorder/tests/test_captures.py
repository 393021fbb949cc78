"""Captures of traffic: the same history as the recorder's of the same frames; damaged captures are unknown."""

import asyncio
import gzip
import itertools
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import dpkt
import pytest

from highwater.conformance.targets.reference import ReferenceCluster
from highwater.errors import UsageError, Verdict
from highwater.fuzz.proxy.upstream import Upstream
from highwater.reports.audit import audit
from highwater.reports.importers.formats import open_history
from highwater.reports.recorder import run
from highwater.reports.recorder.decoder import FrameDecoder, Reply
from highwater.reports.recorder.exchanges import Finish
from highwater.reports.recorder.run import Endpoints, record, start_recording
from highwater.reports.recorder.tests.captures import Flow, Wire
from highwater.reports.recorder.tests.test_clients import with_confluent
from highwater.spec.formats.history import Event

pytestmark = [pytest.mark.xdist_group("cluster"), pytest.mark.timeout(300)]
SETTINGS = {"unclean_election": False, "retention": False, "compaction": False}


def framed(frame: bytes) -> bytes:
    return len(frame).to_bytes(4, "big") + frame


class Traffic:
    """The frames that a recorder forwarded, as packets, and its history of them."""

    def __init__(self, folder: Path) -> None:
        self.wire, self.history = Wire(), folder / "history.ndjson"
        ports = itertools.count(40_000)
        wire = self.wire

        class Tapped(FrameDecoder):
            """Puts each frame on the wire before it is decoded."""

            def __init__(self, link: Any, observer: Any) -> None:
                super().__init__(link, observer)
                self._flow = Flow(wire, ("127.0.0.1", next(ports)), link.address)

            def request(self, frame: bytes) -> Finish | None:
                self._flow.data(0, framed(frame))
                return super().request(frame)

            def reply(self, frame: bytes) -> Reply | None:
                self._flow.data(1, framed(frame))
                return super().reply(frame)

            def lost(self) -> None:
                self._flow.end(0)
                super().lost()

        self.decoder = Tapped

    def record(self, bootstrap: str) -> None:
        """Run a client through a recorder."""
        host, _, port = bootstrap.split(",", maxsplit=1)[0].rpartition(":")
        endpoints = Endpoints(("127.0.0.1", 0), Upstream(((host, int(port)),)))
        loop, listening = asyncio.new_event_loop(), threading.Event()
        ended, addresses = asyncio.Event(), list[tuple[str, int]]()

        def started(address: tuple[str, int]) -> None:
            addresses.append(address)
            listening.set()

        with self.history.open("wb") as sink:
            recording = start_recording(sink)
            thread = threading.Thread(
                target=loop.run_until_complete, args=(record(endpoints, recording, ended, started),)
            )
            thread.start()
            listening.wait(60)
            with_confluent(f"127.0.0.1:{addresses[0][1]}")
            loop.call_soon_threadsafe(ended.set)
            thread.join()
            recording.finish()
        loop.close()


@pytest.fixture(scope="module")
def traffic(tmp_path_factory: pytest.TempPathFactory) -> Traffic:
    found = Traffic(tmp_path_factory.mktemp("capture"))
    with pytest.MonkeyPatch.context() as patch, ReferenceCluster(2) as cluster:
        patch.setattr(run, "FrameDecoder", found.decoder)
        found.record(cluster.bootstrap)
    return found


def events(path: Path) -> list[dict[str, Any]]:
    """Return the events without their times."""
    history = open_history(str(path))
    found: list[Event] = list(history.events)
    assert history.quarantine.count == 0, history.quarantine.lines
    return [{name: getattr(event, name) for name in Event.__struct_fields__ if name != "time_ns"} for event in found]


@pytest.mark.parametrize("name", ["traffic.pcap", "traffic.pcapng"])
def test_a_capture_gives_the_history_of_the_recorder(traffic: Traffic, tmp_path: Path, name: str) -> None:
    path = traffic.wire.write(tmp_path / name)
    found = events(path)
    assert found == events(traffic.history)
    assert len(found) > 100
    result = audit(path, overrides=SETTINGS)
    assert (result.verdict, result.format) == (Verdict.VALID, "pcap")
    config = open_history(str(path)).config
    assert (config.acks, config.idempotence, config.isolation) == ("all", True, "read_committed")


def test_segments_that_are_repeated_or_overtake_each_other_change_nothing(traffic: Traffic, tmp_path: Path) -> None:
    """Two packets of one direction of a reply of several packets may change places: both arrive before the next."""
    packets = list(traffic.wire.packets)
    for n in range(len(packets) - 1, 0, -1):
        one, two = (dpkt.ethernet.Ethernet(packets[k][1]).data for k in (n - 1, n))
        if (one.src, one.data.sport, one.data.dport) == (two.src, two.data.sport, two.data.dport):
            packets[n - 1], packets[n] = packets[n], packets[n - 1]
    packets = [each for packet in packets for each in (packet, packet)]
    assert events(traffic.wire.write(tmp_path / "a.pcap", packets)) == events(traffic.history)


def a_last_request(wire: Wire) -> list[tuple[float, bytes]]:
    """Return the packets of a connection that ends with a request without a reply: seven, of which the 5th is that."""
    flow = Flow(wire, ("10.0.0.1", 40_000), ("10.0.0.2", 9092))
    request = bytes.fromhex("0012 0000 0000 0001 ffff")
    flow.data(0, framed(request))
    flow.data(1, framed(bytes.fromhex("0000 0001 0000 0000 0000")))
    flow.data(0, framed(request[:7] + b"\x02" + request[8:]))
    flow.end(0)
    assert len(wire.packets) == 7
    return list(wire.packets)


def test_the_end_of_a_connection_may_overtake_the_data_before_it(tmp_path: Path) -> None:
    packets = a_last_request(Wire())
    packets[4], packets[5] = packets[5], packets[4]
    history = open_history(str(Wire(packets=packets).write(tmp_path / "a.pcap")))
    list(history.events)
    assert history.quarantine.count == 0, history.quarantine.lines


def test_data_that_are_lost_before_the_end_of_a_connection_are_reported(tmp_path: Path) -> None:
    packets = a_last_request(Wire())
    del packets[4]
    history = open_history(str(Wire(packets=packets).write(tmp_path / "a.pcap")))
    list(history.events)
    (lost,) = history.quarantine.lines
    assert lost.reason.endswith("14 bytes before the end are not in the capture")


def test_a_compressed_capture_from_a_pipe_is_audited(traffic: Traffic, tmp_path: Path) -> None:
    packed = gzip.compress(traffic.wire.write(tmp_path / "a.pcap").read_bytes())
    options = [f"--config={name}=false" for name in SETTINGS]
    command = [sys.executable, "-m", "highwater", "audit", "-", *options]
    result = subprocess.run(command, input=packed, capture_output=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def noticeable(packets: list[tuple[float, bytes]]) -> list[int]:
    """Return the places of packets with data that another packet of their connection follows.

    Without the last packet, a capture is one that ended earlier.
    """
    segments = [dpkt.ethernet.Ethernet(data).data.data for _, data in packets]
    connections = [frozenset((segment.sport, segment.dport)) for segment in segments]
    last = {connection: n for n, connection in enumerate(connections)}
    return [n for n, segment in enumerate(segments) if segment.data and n < last[connections[n]]]


@pytest.mark.parametrize("part", range(12))
def test_a_lost_segment_makes_the_verdict_unknown(traffic: Traffic, tmp_path: Path, part: int) -> None:
    packets = list(traffic.wire.packets)
    data = noticeable(packets)
    del packets[data[part * len(data) // 12]]
    result = audit(traffic.wire.write(tmp_path / "a.pcap", packets), overrides=SETTINGS)
    assert result.verdict is Verdict.UNKNOWN
    reasons = [line.reason for line in result.quarantine.lines]
    assert any("not in the capture" in reason or "begins in the middle" in reason for reason in reasons), reasons


@pytest.mark.parametrize("flags", [dpkt.tcp.TH_SYN, dpkt.tcp.TH_SYN | dpkt.tcp.TH_ACK])
def test_a_lost_begin_of_a_connection_makes_the_verdict_unknown(traffic: Traffic, tmp_path: Path, flags: int) -> None:
    packets = list(traffic.wire.packets)
    opening = (n for n, (_, data) in enumerate(packets) if dpkt.ethernet.Ethernet(data).data.data.flags == flags)
    del packets[next(opening)]
    assert audit(traffic.wire.write(tmp_path / "a.pcap", packets), overrides=SETTINGS).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("skipped", [3, 40, 120])
def test_a_capture_from_the_middle_of_a_connection_is_unknown(traffic: Traffic, tmp_path: Path, skipped: int) -> None:
    result = audit(traffic.wire.write(tmp_path / "a.pcap", traffic.wire.packets[skipped:]), overrides=SETTINGS)
    assert result.verdict is Verdict.UNKNOWN
    assert "begins in the middle" in result.quarantine.lines[0].reason


def test_packets_captured_in_part_make_the_verdict_unknown(traffic: Traffic, tmp_path: Path) -> None:
    packets = [(moment, data[:96]) for moment, data in traffic.wire.packets]
    result = audit(traffic.wire.write(tmp_path / "a.pcap", packets), overrides=SETTINGS)
    assert result.verdict is Verdict.UNKNOWN
    assert any("tcpdump -s 0" in line.reason for line in result.quarantine.lines)


@pytest.mark.parametrize("name", ["a.pcap", "a.pcapng"])
@pytest.mark.parametrize(("dropped", "kept_bytes"), [(1, 1), (1, 40), (2, 7), (25, 17)])
def test_a_cut_capture_makes_the_verdict_unknown(
    traffic: Traffic, tmp_path: Path, name: str, dropped: int, kept_bytes: int
) -> None:
    """The capture ends within a packet: behind a complete one nothing shows that it was cut."""
    path = tmp_path / name
    complete = len(traffic.wire.write(path, traffic.wire.packets[:-dropped]).read_bytes())
    whole = traffic.wire.write(path).read_bytes()
    path.write_bytes(whole[: complete + kept_bytes])
    result = audit(path, overrides=SETTINGS)
    assert result.verdict is Verdict.UNKNOWN
    assert "cut in the middle" in result.quarantine.lines[-1].reason


@pytest.mark.parametrize("name", ["a.pcap", "a.pcapng"])
def test_overwritten_bytes_never_end_in_a_traceback(traffic: Traffic, tmp_path: Path, name: str) -> None:
    whole = traffic.wire.write(tmp_path / name).read_bytes()
    for part in range(1, 20):
        place = part * len(whole) // 20
        (tmp_path / name).write_bytes(whole[:place] + b"\xff\xfe\x80\x00" * 3 + whole[place + 12 :])
        assert audit(tmp_path / name, overrides=SETTINGS).verdict in Verdict


def test_tls_is_named(tmp_path: Path) -> None:
    wire = Wire()
    flow = Flow(wire, ("10.0.0.1", 40_000), ("10.0.0.2", 9093))
    flow.data(0, b"\x16\x03\x01\x02\x00\x01" + bytes(200))
    flow.data(1, b"\x16\x03\x03\x00\x7a" + bytes(200))
    history = open_history(str(wire.write(tmp_path / "a.pcap")))
    assert list(history.events) == []
    reasons = [line.reason for line in history.quarantine.lines]
    assert "packet 1, connection 10.0.0.1:40000 to 10.0.0.2:9093: it is encrypted (TLS)" in reasons[0]


def test_other_protocols_in_the_capture_are_passed_over(traffic: Traffic, tmp_path: Path) -> None:
    wire = Wire(packets=list(traffic.wire.packets))
    flow = Flow(wire, ("127.0.0.1", 1_000), ("127.0.0.1", 80))
    flow.data(0, b"GET / HTTP/1.1\r\n\r\n")
    flow.data(1, b"HTTP/1.1 200 OK\r\n\r\n")
    flow.end(1)
    assert events(wire.write(tmp_path / "a.pcap")) == events(traffic.history)


def test_a_capture_of_unlike_interfaces_is_unknown(traffic: Traffic, tmp_path: Path) -> None:
    path = traffic.wire.write(tmp_path / "a.pcapng")
    loopback = dpkt.pcapng.InterfaceDescriptionBlockLE(linktype=0)
    path.write_bytes(path.read_bytes() + bytes(loopback))
    result = audit(path, overrides=SETTINGS)
    assert result.verdict is Verdict.UNKNOWN
    assert "several link types" in result.quarantine.lines[-1].reason


def test_an_empty_capture_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no packet can be read"):
        audit(Wire().write(tmp_path / "a.pcap"))
