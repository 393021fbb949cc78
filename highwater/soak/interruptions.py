"""Stop every long command by each signal, and list what it leaves: `python -m highwater.soak.interruptions [NAME...]`.

What a command starts inherits a variable of its environment, so that what is left is found in /proc, also in another
session. The folder for temporary files is empty at the start. After SIGKILL files may be left: the next command that
needs a temporary folder has to remove them.
"""

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from highwater.errors import ExitCode
from highwater.processes import python_command
from highwater.temporary import TMPDIR, temporary_folder

MARK: Final = "HIGHWATER_INTERRUPTED"
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
ENDS_S: Final = 60.0
"""A command that ends later ignores the signal."""
LEAVES_S: Final = 10.0
"""Time for guardians to end what a killed command has started."""
LOCK: Final = "lock"
NEXT: Final = python_command("-c", "import highwater.temporary; highwater.temporary.make_folder()")
HISTORY: Final = "history.ndjson"
OPERATIONS: Final = 2_000_000


class Command(NamedTuple):
    """A command, the seconds after which it is stopped, and whether an interruption is its regular end."""

    arguments: str
    seconds: float
    is_endless: bool = False


COMMANDS: Final = {
    "read": Command(f"audit {HISTORY} --engine local", 4),
    "check": Command(f"audit {HISTORY} --engine local", 20),
    "spark": Command(f"audit {HISTORY} --engine spark", 15),
    "follow": Command("audit --follow .", 5, is_endless=True),
    "models": Command("spec check --fresh", 8),
    "proofs": Command("spec prove", 12),
    "simulator": Command("simulate --seeds 0:10000", 10),
    "fuzzer": Command("fuzz reference --seconds 90", 12),
    "suite": Command("conform reference:3", 20),
    "faults": Command("chaos reference --seconds 90", 15),
    "measures": Command("bench reference:3 --scale tiny", 20),
    "cluster": Command("broker --cluster 3", 8, is_endless=True),
    "demo": Command("demo", 60),
}


def main(names: list[str]) -> int:
    """Stop the commands of these names, or all; print a line for each, and return the exit code."""
    if unknown := set(names) - set(COMMANDS):
        print(f"no command {', '.join(sorted(unknown))}; one of: {', '.join(COMMANDS)}", file=sys.stderr)
        return ExitCode.USAGE
    failed = 0
    with temporary_folder("interrupted-") as folder:
        history = [*python_command("-m", "highwater"), "synth", "--ops", str(OPERATIONS), "--out", HISTORY]
        subprocess.run(history, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        for name in names or COMMANDS:
            for number in SIGNALS:
                wrong = list(stopped(COMMANDS[name], number, folder))
                failed += bool(wrong)
                print(f"{name}, {number.name}: {'; '.join(wrong) or 'leaves nothing'}", flush=True)
    print(f"{len(names or COMMANDS)} commands, {len(SIGNALS)} signals each: {failed} ends were wrong")
    return ExitCode.VIOLATED if failed else ExitCode.HELD


def stopped(command: Command, number: signal.Signals, folder: Path) -> Iterator[str]:
    """Start a command in a folder, stop it by a signal, and yield what is wrong after it."""
    mark = uuid.uuid4().hex
    with temporary_folder("temporary-") as temporary:
        environment = {**os.environ, MARK: mark, TMPDIR: str(temporary)}
        started = subprocess.Popen(
            [*python_command("-m", "highwater"), *command.arguments.split()], cwd=folder, env=environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            yield from _wrong_end(started, command, number)
            yield from _left(mark, temporary, environment, was_killed=number == signal.SIGKILL)
        finally:
            for pid, _ in marked(mark):
                os.kill(pid, signal.SIGKILL)


def _wrong_end(started: "subprocess.Popen[bytes]", command: Command, number: signal.Signals) -> Iterator[str]:
    """Send the signal, and yield what is wrong about the end: no end, another exit code, or a traceback."""
    try:
        output, _ = started.communicate(timeout=command.seconds)
    except subprocess.TimeoutExpired:
        started.send_signal(number)
    else:
        yield f"it ended by itself: {output[-200:]!r}"
        return
    try:
        output, _ = started.communicate(timeout=ENDS_S)
    except subprocess.TimeoutExpired:
        yield f"it goes on for {ENDS_S:g} s"
        return
    ends = {ExitCode.UNDECIDED, ExitCode.HELD if command.is_endless else ExitCode.UNDECIDED}
    if number != signal.SIGKILL and started.returncode not in ends:
        yield f"exit code {started.returncode}: {output[-200:]!r}"
    if b"Traceback" in output:
        yield f"a traceback: {output[-400:]!r}"


def _left(mark: str, temporary: Path, environment: dict[str, str], *, was_killed: bool) -> Iterator[str]:
    """Yield what is left: processes, mounts, and temporary files, after SIGKILL those that the next command leaves."""
    end = time.monotonic() + LEAVES_S
    while (left := marked(mark)) and time.monotonic() < end:
        time.sleep(0.2)
    yield from (f"process {pid}: {line}" for pid, line in left)
    if was_killed:
        subprocess.run(NEXT, env=environment, check=True)
    yield from (f"file {path}" for path in temporary.rglob("*") if path.is_file() and path.name != LOCK)
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    yield from (f"mount {line}" for line in mounts if str(temporary) in line)


def marked(mark: str) -> list[tuple[int, str]]:
    """Return id and command line of each running process whose environment has the mark."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            is_marked = mark.encode() in (folder / "environ").read_bytes()
            is_running = (folder / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # it has ended, or is not ours
        if is_marked and is_running:
            found.append((int(folder.name), line[:120]))
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
