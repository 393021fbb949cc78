"""The state of client runs, from which `--resume` continues: `client.json` in the folder of the findings."""

from pathlib import Path
from typing import Any, Final

import msgspec

from highwater.errors import UsageError
from highwater.results import write_json

STATE: Final = "client.json"


class ClientState(msgspec.Struct, kw_only=True):
    """Totals of all runs of one command into this folder. `seen` are the signatures of failures."""

    command: str
    runs: int = 0
    spoiled: int = 0
    seconds: float = 0.0
    exits: dict[str, int] = msgspec.field(default_factory=dict)
    seen: set[tuple[str, str]] = msgspec.field(default_factory=set)
    findings: list[dict[str, Any]] = []


def read_client_state(folder: Path, command: str, *, resume: bool) -> ClientState:
    """Return the state of earlier runs, or a new one; UsageError if it belongs to another command."""
    path = folder / STATE
    if not resume or not path.exists():
        return ClientState(command=command)
    try:
        state = msgspec.json.decode(path.read_bytes(), type=ClientState)
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(f"not the state of a client's runs: {error}", where=str(path), hint="remove it") from error
    if state.command != command:
        hint = "give the same command, or another --out"
        raise UsageError(f"the runs to resume were of {state.command!r}", where=str(path), hint=hint)
    return state


def write_client_state(folder: Path, state: ClientState) -> None:
    """UsageError if the file cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / STATE, state)
    except OSError as error:
        what = f"cannot write the state of the run ({error.strerror})"
        raise UsageError(what, where=str(folder), hint="free disk space, or give --out") from error
