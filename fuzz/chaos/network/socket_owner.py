"""Finds the node that owns a socket of this machine, so that a proxy knows which link a connection belongs to."""

import contextlib
import socket
import struct
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
CLIENTS: Final = "clients"

# sock_diag(7) of Netlink finds one socket by its two ends; /proc/net/tcp would have to be read completely.
NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, NLMSG_ERROR = 4, 20, 1, 2
HEADER: Final = struct.Struct("=IHHII")
ENDS: Final = struct.Struct(">HH4s12x4s12x")  # followed by interface and cookie
REQUEST: Final = struct.Struct("=BBBxI48s")
ANSWER: Final = struct.Struct("=4x48xIIIII")
NO_COOKIE: Final = b"\0" * 4 + b"\xff" * 8
ALL_STATES: Final = 0xFFFFFFFF

End = tuple[str, int]


def find_owner(near: End, far: End, folder: Path) -> str:
    """Return the node whose process has the socket from `near` to `far`, or `clients` if there is none.

    The log of every node is in `folder`.
    """
    inode = _inode_of(near, far)
    wanted = f"socket:[{inode}]"
    for process, node in _nodes(folder) if inode else ():
        with contextlib.suppress(OSError):  # the process may just have ended
            for number in (process / "fd").iterdir():
                with contextlib.suppress(OSError):
                    if str(number.readlink()) == wanted:
                        return node
    return CLIENTS


def _inode_of(near: End, far: End) -> int:
    """Return the inode of a TCP socket, or 0 if there is no such socket."""
    ends = ENDS.pack(near[1], far[1], socket.inet_aton(near[0]), socket.inet_aton(far[0])) + NO_COOKIE
    request = REQUEST.pack(socket.AF_INET, socket.IPPROTO_TCP, 0, ALL_STATES, ends)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as kernel:
        kernel.sendall(HEADER.pack(HEADER.size + len(request), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, 1, 0) + request)
        answer = kernel.recv(4096)
    _, kind, *_ = HEADER.unpack_from(answer)
    return 0 if kind == NLMSG_ERROR else int(ANSWER.unpack_from(answer, HEADER.size)[-1])


def _nodes(folder: Path) -> list[tuple[Path, str]]:
    """Return (process folder, node) of each node process: its standard output is the log of the node."""
    found = []
    for process in PROC.iterdir():
        if process.name.isdigit():
            with contextlib.suppress(OSError):
                output = (process / "fd" / "1").readlink()
                if output.parent == folder:
                    found.append((process, output.stem))
    return found
