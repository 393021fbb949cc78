"""Run TLC on specs of a few lines, with every possible result."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from highwater.errors import UsageError, Verdict
from highwater.spec.tlc.messages import TlcResult
from highwater.spec.tlc.parallel import in_parallel
from highwater.spec.tlc.run import Options, Progress, run_tlc

HEAD = "---- MODULE Tiny ----\nEXTENDS Naturals, Sequences, FiniteSets, TLC\nVARIABLE x\nInit == x = 0\n"
COUNT_TO_THREE = HEAD + "Next == x < 3 /\\ x' = x + 1\n"
COUNT_IN_CIRCLES = HEAD + "Next == x' = (x + 1) % 4\n"
COUNT_FOR_EVER = HEAD + "Next == x' = x + 1\n"


def run(folder: Path, text: str, cfg: str = "INIT Init\nNEXT Next\n", options: Options | None = None) -> TlcResult:
    module, config = folder / "Tiny.tla", folder / "Tiny.cfg"
    module.write_text(text + "====\n")
    config.write_text(cfg)
    return run_tlc(module, config, options or Options(small=True))


def test_holds_when_every_state_was_seen(tmp_path: Path) -> None:
    found = run(tmp_path, COUNT_TO_THREE + "Small == x < 4\n", "INIT Init\nNEXT Next\nINVARIANT Small\n")
    assert (found.verdict, found.distinct, found.queue, found.depth) == (Verdict.VALID, 4, 0, 4)
    assert "TLC" in found.version


def test_a_broken_invariant_is_named_and_shown(tmp_path: Path) -> None:
    found = run(tmp_path, COUNT_TO_THREE + "Small == x < 2\n", "INIT Init\nNEXT Next\nINVARIANT Small\n")
    assert (found.verdict, found.broken) == (Verdict.INVALID, "Small")
    assert [(state.number, state.action, state.variables) for state in found.trace] == [
        (1, "Init", {"x": 0}),
        (2, "Next", {"x": 1}),
        (3, "Next", {"x": 2}),
    ]


def test_an_invariant_may_be_broken_from_the_start(tmp_path: Path) -> None:
    found = run(tmp_path, COUNT_TO_THREE + "Large == x > 0\n", "INIT Init\nNEXT Next\nINVARIANT Large\n")
    assert (found.verdict, found.broken, [s.variables for s in found.trace]) == (Verdict.INVALID, "Large", [{"x": 0}])


def test_a_broken_action_property_is_named(tmp_path: Path) -> None:
    text = COUNT_IN_CIRCLES + "Grows == [][x' > x]_x\n"
    found = run(tmp_path, text, "INIT Init\nNEXT Next\nPROPERTY Grows\n")
    assert (found.verdict, found.broken, len(found.trace)) == (Verdict.INVALID, "Grows", 5)


def test_deadlock_is_looked_for_only_when_asked(tmp_path: Path) -> None:
    assert run(tmp_path, COUNT_TO_THREE).verdict is Verdict.VALID
    found = run(tmp_path, COUNT_TO_THREE, options=Options(small=True, deadlock=True))
    assert (found.verdict, found.broken, len(found.trace)) == (Verdict.INVALID, "Deadlock", 4)


def test_a_spec_that_stops_tlc_has_not_been_checked(tmp_path: Path) -> None:
    text = COUNT_TO_THREE + 'Stop == x < 1 \\/ TLCSet("exit", TRUE)\n'
    found = run(tmp_path, text, "INIT Init\nNEXT Next\nINVARIANT Stop\n")
    assert (found.verdict, found.reason) == (Verdict.UNKNOWN, "TLC stopped before it explored every state")


def test_a_time_out_is_unknown(tmp_path: Path) -> None:
    found = run(tmp_path, COUNT_FOR_EVER, options=Options(small=True, timeout_s=2))
    assert (found.verdict, found.reason) == (Verdict.UNKNOWN, "no result within 2 s")


def test_a_jvm_without_memory_is_named(tmp_path: Path) -> None:
    text = COUNT_TO_THREE + "Many == Cardinality({y \\in SUBSET (1 .. 22) : y # {x}}) > 0\n"
    found = run(tmp_path, text, "INIT Init\nNEXT Next\nINVARIANT Many\n", Options(small=True, memory_mb=24))
    assert (found.verdict, found.reason) == (Verdict.UNKNOWN, "the JVM ran out of memory")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("Next == x' = = 1\n", r"Tiny\.tla:5:\d+: does not parse"),
        ("Next == x' = y\n", r"Tiny\.tla:5:14: does not parse: .*Unknown operator: `y'"),
        ("Next == x' = 1 + TRUE\n", r"Tiny\.tla:5:14: cannot be evaluated: Cannot cast"),
    ],
)
def test_a_faulty_spec_is_bad_usage_with_its_place(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        run(tmp_path, HEAD + line)


def test_a_faulty_configuration_is_bad_usage(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="bad configuration"):
        run(tmp_path, COUNT_TO_THREE, "INIT Init\nNEXT Next\nINVARIANT NoSuchThing\n")


def test_coverage_counts_what_each_action_did(tmp_path: Path) -> None:
    text = HEAD + "Up == x < 3 /\\ x' = x + 1\nNever == x > 9 /\\ x' = 0\nNext == Up \\/ Never\n"
    found = run(tmp_path, text, options=Options(small=True, coverage=True))
    assert found.coverage == {"Up": 3, "Never": 0}


def test_random_walks_say_that_they_are(tmp_path: Path) -> None:
    found = run(tmp_path, COUNT_IN_CIRCLES, options=Options(small=True, simulate=(5, 10, 1)))
    assert (found.verdict, found.reason) == (Verdict.VALID, "random walks only")
    assert found.generated > 5


def test_what_the_spec_prints_and_how_far_it_is_are_heard(tmp_path: Path) -> None:
    reports: list[Progress] = []
    module, config = tmp_path / "Tiny.tla", tmp_path / "Tiny.cfg"
    module.write_text(COUNT_TO_THREE + 'Said == PrintT("at " \\o ToString(x))\n====\n')
    config.write_text("INIT Init\nNEXT Next\nINVARIANT Said\n")
    found = run_tlc(module, config, Options(small=True), on_progress=reports.append)
    assert [line for line in found.lines if "at " in line] == ['"at 0"', '"at 1"', '"at 2"', '"at 3"']
    assert reports
    assert reports[-1].distinct == 4


def test_an_interruption_stops_every_run(tmp_path: Path) -> None:
    """Nothing is taken for a result, and what was to run afterwards does not begin."""
    begun: list[int] = []

    def forever(number: int) -> TlcResult:
        begun.append(number)
        if number == 1:
            threading.Timer(3.0, os.kill, (os.getpid(), signal.SIGINT)).start()
        folder = tmp_path / str(number)
        folder.mkdir()
        return run(folder, COUNT_FOR_EVER)

    with pytest.raises(KeyboardInterrupt):
        in_parallel(forever, range(4), jobs=2)
    assert sorted(begun) == [0, 1]


def is_running(folder: Path) -> bool:
    """Return whether a TLC runs on a module of the folder."""
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if b"tlc2.TLC" in (words := line.read_bytes()) and bytes(folder) in words:
                return True
    return False


def await_that(condition: Callable[[], bool]) -> None:
    while not condition():  # the time limit of the tests ends it
        time.sleep(0.05)


def test_tlc_ends_when_its_program_is_killed(tmp_path: Path) -> None:
    code = (
        "from pathlib import Path; from highwater.spec.tlc.run import run_tlc, Options; import sys;"
        "run_tlc(Path(sys.argv[1]), Path(sys.argv[1]).with_suffix('.cfg'), Options(small=True))"
    )
    module = tmp_path / "Tiny.tla"
    module.write_text(COUNT_FOR_EVER + "====\n")
    module.with_suffix(".cfg").write_text("INIT Init\nNEXT Next\n")
    program = subprocess.Popen([sys.executable, "-c", code, str(module)])
    try:
        await_that(lambda: is_running(tmp_path))
        program.kill()
        program.wait()
        await_that(lambda: not is_running(tmp_path))
    finally:
        program.kill()
        program.wait()
