"""Rules of the packet filter: their text, and that no rule outlives its run."""

import subprocess
import sys
from pathlib import Path

import pytest

from highwater.errors import UsageError
from highwater.fuzz.chaos.network.packets import drop_rules, missing_for_packets
from highwater.fuzz.chaos.run import chaos
from highwater.fuzz.schedule import Fault, Option, Schedule

PORTS = {"store": [9], "1": [11], "2": [12, 112]}
REASON = missing_for_packets()
CUT = """
import socket, subprocess
from highwater.fuzz.chaos.network.packets import Packets, own_network
from highwater.fuzz.schedule import Fault

def refused(source):
    with socket.socket() as link:
        link.settimeout(0.3)
        link.bind((source, 0))
        try:
            link.connect(server.getsockname())
        except TimeoutError:
            return True
    return False

with own_network(), socket.create_server(("127.0.0.1", 0)) as server:
    packets = Packets(lambda: {"1": [1], "2": [server.getsockname()[1]]})
    undo = packets.begin(Fault(at_ms=0, kind="cut", nodes=("2",), options={"of": "1"}), "2")
    during = [refused("127.0.1.1"), refused("127.0.1.201")]
    undo()
    print(*during, refused("127.0.1.1"))
print(subprocess.run(["nft", "list", "ruleset"], capture_output=True, text=True, check=True).stdout.count("highwater"))
"""


def rules(kind: str, node: str, **options: Option) -> list[str]:
    return list(drop_rules(Fault(at_ms=0, kind=kind, nodes=(node,), options=options), node, PORTS))


def test_a_cut_drops_requests_to_a_node_and_replies_from_one() -> None:
    assert rules("cut", "1", of="2", direction="out") == [
        "ip saddr 127.0.1.1 tcp dport 12 drop",
        "ip saddr 127.0.1.1 tcp dport 112 drop",
        "ip daddr 127.0.1.2 tcp sport 11 drop",
    ]
    both = rules("cut", "1", of="2")
    assert set(both) > set(rules("cut", "1", of="2", direction="in"))
    assert set(both) == {*rules("cut", "1", of="2", direction="in"), *rules("cut", "1", of="2", direction="out")}


def test_the_option_of_selects_the_other_ends_of_links() -> None:
    assert rules("loss", "1", of="clients", direction="in", per_mille=70) == [
        "ip saddr 127.0.1.201 tcp dport 11 numgen random mod 1000 < 70 drop"
    ]
    assert not any("201" in rule or "200" in rule for rule in rules("cut", "1", of="brokers"))
    assert any("201" in rule for rule in rules("cut", "1"))
    assert any("200" in rule for rule in rules("cut", "1"))


@pytest.mark.skipif(bool(REASON), reason=f"packets need {REASON}")
def test_packets_are_dropped_on_one_link_and_no_rule_is_left() -> None:
    run = subprocess.run([sys.executable, "-c", CUT], capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout.split() == ["True", "False", "False", "0"]


@pytest.mark.skipif(not REASON, reason="this machine supports packets")
def test_packets_without_nft_or_root_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unsupported: it needs "):
        chaos("reference:1", Schedule(duration_ms=1), tmp_path, seconds=10, seed=1, workloads="send", packets=True)
