"""The process that listens at a local address: its memory, its sockets and the end of its log.

All is read from /proc, so it works for every target on this machine, launched by the fuzzer or not.
"""

import os
import re
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
LISTEN: Final = "0A"
RESET_PEAK: Final = "5"
MEGABYTE: Final = 1 << 20
LOG_TAIL: Final = 64 * 1024
ERROR_WORDS: Final = re.compile(
    r"panic|fatal|assert|error|exception|killed|abort|traceback|out of memory", re.IGNORECASE
)
PLACE: Final = re.compile(
    r"^\s*(?:File \"(?P<python>[^\"]+\", line \d+)|at (?P<java>[\w.$]+\(.*\))|(?P<go>\S+\.go:\d+))"
)
RUNTIME: Final = re.compile(r"runtime/|/usr/local/go/|<frozen|/asyncio/")
VARYING: Final = re.compile(r"0x[0-9a-f]+|\d{4,}")
LINE_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class Process:
    """A local process. `log` is the file to which its standard error is redirected, or None."""

    pid: int
    log: Path | None

    @property
    def folder(self) -> Path:
        return PROC / str(self.pid)

    @property
    def is_alive(self) -> bool:
        try:
            return (self.folder / "stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
        except OSError:
            return False

    def memory(self) -> tuple[int, int]:
        """Return the resident bytes now and their peak since `forget_peak`; zeros for a process that has ended."""
        with suppress(OSError):
            status = (self.folder / "status").read_text()
            found = {
                name: int(kilobytes) * 1024 for name, kilobytes in re.findall(r"^(Vm\w+):\s+(\d+) kB", status, re.M)
            }
            return found.get("VmRSS", 0), found.get("VmHWM", 0)
        return 0, 0

    @property
    def command(self) -> str:
        """Return the name of the program, such as `java`; empty if it has ended."""
        with suppress(OSError):
            return (self.folder / "comm").read_text().strip()
        return ""

    def waited_for_processor_s(self) -> float:
        """Return how long the main thread was runnable without a processor; 0 where the kernel has no count."""
        with suppress(OSError, IndexError, ValueError):
            return int((self.folder / "schedstat").read_text().split()[1]) / 1e9
        return 0.0

    def forget_peak(self) -> None:
        with suppress(OSError):
            (self.folder / "clear_refs").write_text(RESET_PEAK)

    def sockets(self) -> int:
        """Count open sockets. Files are not counted, because a broker opens them for new topics."""
        count = 0
        with suppress(OSError):
            for name in os.listdir(self.folder / "fd"):  # noqa: PTH208 - hundreds of them, several times a minute
                with suppress(OSError):
                    count += os.readlink(f"{self.folder}/fd/{name}").startswith("socket:")  # noqa: PTH115
        return count

    def kill(self) -> None:
        with suppress(OSError):
            os.kill(self.pid, signal.SIGKILL)

    def log_size(self) -> int:
        try:
            return self.log.stat().st_size if self.log is not None else 0
        except OSError:
            return 0

    def log_since(self, position: int) -> str:
        """Return the log after that position, at most its last LOG_TAIL bytes."""
        if self.log is None:
            return ""
        with suppress(OSError), self.log.open("rb") as file:
            file.seek(max(position, self.log_size() - LOG_TAIL))
            return file.read(LOG_TAIL).decode(errors="replace")
        return ""


def place_of(log_text: str) -> str:
    """Return where the target failed: the innermost stack frame of its own code, otherwise the last error line."""
    lines = [line for line in log_text.splitlines() if line.strip()]
    frames = [match for line in lines if (match := PLACE.search(line)) and not RUNTIME.search(line)]
    if frames:
        python = [match["python"] for match in frames if match["python"]]
        inner = python[-1] if python else next(match["java"] or match["go"] for match in frames)
        return inner.rsplit("/", 1)[-1][:LINE_MAX]
    error_lines = [line for line in lines if ERROR_WORDS.search(line)]
    return VARYING.sub("#", (error_lines or lines or [""])[-1].strip())[:LINE_MAX]


def listening_process(address: str) -> Process | None:
    """Return the process that listens at the address; None if it is remote or its /proc entries are not readable."""
    port = int(address.rpartition(":")[2])
    wanted = {f"socket:[{inode}]" for inode in _inodes(port)}
    for process in PROC.iterdir() if wanted else ():
        if process.name.isdigit():
            with suppress(OSError):
                if any(str(descriptor.readlink()) in wanted for descriptor in (process / "fd").iterdir()):
                    return Process(int(process.name), _log_of(process))
    return None


def _inodes(port: int) -> list[str]:
    found = []
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in (PROC / "net" / table).read_text().splitlines()[1:]:
                columns = line.split()
                if columns[3] == LISTEN and int(columns[1].rpartition(":")[2], 16) == port:
                    found.append(columns[9])
    return found


def _log_of(process: Path) -> Path | None:
    with suppress(OSError):
        path = (process / "fd" / "2").readlink()
        if path.is_file():
            return path
    return None
