"""Whose end of a connection on this machine it is, told by its socket: so a proxy sees links between nodes."""

import contextlib
import socket
import struct
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
CLIENTS: Final = "clients"

# Netlink's sock_diag(7): one socket by its two ends, where /proc/net/tcp would have to be read whole.
NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, NLMSG_ERROR = 4, 20, 1, 2
HEADER: Final = struct.Struct("=IHHII")
ENDS: Final = struct.Struct(">HH4s12x4s12x")  # then interface and cookie
REQUEST: Final = struct.Struct("=BBBxI48s")
ANSWER: Final = struct.Struct("=4x48xIIIII")
NO_COOKIE: Final = b"\0" * 4 + b"\xff" * 8
ALL_STATES: Final = 0xFFFFFFFF

End = tuple[str, int]


def owner_of(near: End, far: End, folder: Path) -> str:
    """The node whose configuration lies in `folder` and whose process has the socket from `near` to `far`.

    `clients` when it is nobody's, or already gone.
    """
    inode = _inode_of(near, far)
    wanted = f"socket:[{inode}]"
    for process, node in _nodes(folder) if inode else ():
        with contextlib.suppress(OSError):  # it may just have ended
            for number in (process / "fd").iterdir():
                with contextlib.suppress(OSError):
                    if str(number.readlink()) == wanted:
                        return node
    return CLIENTS


def _inode_of(near: End, far: End) -> int:
    ends = ENDS.pack(near[1], far[1], socket.inet_aton(near[0]), socket.inet_aton(far[0])) + NO_COOKIE
    asked = REQUEST.pack(socket.AF_INET, socket.IPPROTO_TCP, 0, ALL_STATES, ends)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as kernel:
        kernel.sendall(HEADER.pack(HEADER.size + len(asked), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, 1, 0) + asked)
        answer = kernel.recv(4096)
    _, kind, *_ = HEADER.unpack_from(answer)
    return 0 if kind == NLMSG_ERROR else int(ANSWER.unpack_from(answer, HEADER.size)[-1])


def _nodes(folder: Path) -> list[tuple[Path, str]]:
    """Processes with the nodes that they are: their last argument is the node's file."""
    found = []
    for process in PROC.iterdir():
        if process.name.isdigit():
            with contextlib.suppress(OSError):
                last = Path((process / "cmdline").read_text().rstrip("\0").rpartition("\0")[2])
                if last.parent == folder:
                    found.append((process, last.stem))
    return found
