"""What the faults of a proxy did, in words: a line for each strike, and a table at the end."""

from collections.abc import Iterator

from highwater.errors import ExitCode
from highwater.fuzz.proxy.faults import ACTIONS, FILTERS, MessageFault
from highwater.fuzz.proxy.matching import Armed, Faults
from highwater.fuzz.proxy.reach import carries
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.registry import APIS


def strike_line(fault: MessageFault, subject: str) -> str:
    """Return the line that is printed when a fault strikes a message."""
    return f"{subject}: {fault.action}{f' {fault.ms} ms' if fault.ms >= 0 else ''}{_error(fault)}"


def _error(fault: MessageFault) -> str:
    if not fault.error:
        return ""
    return f" {ErrorCode(fault.error).name if fault.error in set(ErrorCode) else fault.error}"


def table(faults: Faults) -> Iterator[str]:
    """Yield a line for each fault: how many messages it matched and struck, and why others were undecided."""
    for armed in (*faults.removed, *faults.lines):
        yield f"{armed.struck:>6} of {armed.matched} matching messages: {armed.fault}"
        yield from (f"{number:>6} more not struck: {why}" for why, number in armed.undecided.items())
        if not armed.matched and not armed.undecided:
            yield f"       never matched: {_why(armed, faults)}"
        elif armed.matched and not armed.struck:
            yield "       never struck: too few messages matched"


def _why(armed: Armed, faults: Faults) -> str:
    seen = [name for name in armed.fault.apis if faults.seen[name]]
    if seen:
        counts = ", ".join(f"{faults.seen[name]} {name}" for name in seen)
        return f"{counts} passed, but not with this side, version and filters"
    most = ", ".join(f"{name} {number}" for name, number in faults.seen.most_common(8))
    return f"no such request passed; there were: {most or 'none at all'}"


def exit_code(faults: Faults) -> ExitCode:
    """Return UNDECIDED if a fault struck nothing: what it was to show is not shown."""
    return ExitCode.HELD if all(armed.struck for armed in faults.lines) else ExitCode.UNDECIDED


def listing() -> Iterator[str]:
    """Yield what a line may consist of."""
    yield "LINE:  API[,API…] [request|response] [v12|v9-13] [FILTER=VALUE]…: ACTION [WHEN]…"
    yield ""
    yield "Filters (a value may contain * and ?):"
    yield from (f"  {name:12} {what}" for name, what in FILTERS.items())
    yield ""
    yield "Actions:"
    for name, action in ACTIONS.items():
        takes = {"ms": " N ms", "ms or none": " [N ms]", "error": " ERROR"}.get(action.takes, "")
        sides = "" if len(action.sides) > 1 else f" ({action.sides[0]}s only)"
        yield f"  {name + takes:16} {action.does}{sides}"
    yield ""
    yield "When: once · 3 times · nth 2 · every 5 · 10 % · nothing: each message that matches"
    yield ""
    yield "APIs, with the known versions, and those in which a request has what a filter is about (in brackets: only"
    yield "its response has it; `client` is in all):"
    yield from (f"  {api.name:30} {api.min_version} to {api.max_version}{carries(api)}" for api in APIS.values())
    yield ""
    yield "Errors:"
    yield from (f"  {code.value:>4} {code.name}" for code in ErrorCode if code)
