"""The table at the end of a seed sweep lists the situations that occurred, and those that never did."""

import re
from collections import Counter
from pathlib import Path

from highwater.fuzz.simulator.cluster import Load
from highwater.fuzz.simulator.disk_faults import SILENT_SITUATIONS
from highwater.fuzz.simulator.findings import AMOUNTS, SITUATIONS, coverage_lines
from highwater.fuzz.simulator.invariants.loads import LOADS
from highwater.fuzz.simulator.meetings import AFTERMATH_MS, Meetings, pair_lines
from highwater.reference.wire.messages.fetch import FetchRequest
from highwater.reference.wire.messages.metadata import MetadataRequest
from highwater.reference.wire.messages.produce import ProduceRequest

SIMULATOR = Path(__file__).parents[1] / "simulator"
MUST_NOT_HAPPEN = {"unclean election"}


def test_every_situation_that_the_simulator_records_is_in_the_table() -> None:
    code = "".join(path.read_text() for path in (SIMULATOR / "faults.py", *SIMULATOR.glob("invariants/*.py")))
    recorded = set(re.findall(r'ErrorCode\.\w+: "([^"]+)"', code))
    for line in re.findall(r"situations(?:\.add\(|\[)(.*)", code):
        recorded |= set(re.findall(r'(?<!f)"([a-zA-Z0-9._ ]+)"', line))
    recorded |= LOADS.keys() | {*SILENT_SITUATIONS}  # their names are put together
    listed = {situation for group in SITUATIONS.values() for situation in group}
    assert recorded - {"duplicate"} <= listed | AMOUNTS | MUST_NOT_HAPPEN
    not_faults = {situation for name, group in SITUATIONS.items() if name != "faults" for situation in group}
    assert {situation for situation in not_faults if not situation.startswith("group ")} <= recorded


def test_the_most_frequent_situation_comes_first_and_missing_ones_are_named() -> None:
    lines = list(coverage_lines({"kill": 90, "lost tail": 120, "strange": 3, "records truncated": 7}, 1_200))
    assert lines[:3] == [
        "situations, with the number of seeds (of 1,200) in which they occurred:",
        "  faults      lost tail                     120   kill                           90",
        "  others      strange                         3",
    ]
    assert lines[3].startswith("  never occurred: pause, bounce, ")
    assert "kill" not in lines[3]
    assert len(lines) == 4


def test_missing_situations_of_a_single_seed_are_not_listed() -> None:
    assert list(coverage_lines({}, 1)) == ["situations, with the number of seeds (of 1) in which they occurred:"]


def test_a_request_meets_the_faults_that_last_and_the_clients_of_the_run() -> None:
    meetings = Meetings(Load(idempotent=1))
    meetings.requested(FetchRequest, now_ms=5)
    meetings.began("kill", now_ms=10, for_ms=2_000)
    meetings.began("bounce", now_ms=20, for_ms=0)
    meetings.requested(ProduceRequest, now_ms=20 + AFTERMATH_MS)
    meetings.requested(MetadataRequest, now_ms=2_010)
    assert meetings.pairs() == {
        ("kill", "idempotent producers"), ("bounce", "idempotent producers"), ("kill", "Produce"),
        *(("idempotent producers", api) for api in ("Fetch", "Produce", "Metadata")),
    }  # fmt: skip


def test_pairs_that_never_met_are_named() -> None:
    seen = Counter({("kill", "Fetch"): 3, ("kill", "idempotent producers"): 2, ("idempotent producers", "Fetch"): 3})
    faults, requests, clients = pair_lines(seen, ["pause", "kill", "kill"])
    assert requests == "  fault and request:    1 of 2 pairs met, never pause with Fetch"
    assert "1 of 22 pairs met, never kill with transactions; kill with a group;" in faults
    assert faults.endswith("and 9 more")
    assert clients.startswith("  clients and request:  1 of 11 pairs met")
