"""`highwater fuzz`, `replay` and `minimise`."""

import ipaddress
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn

import typer

if TYPE_CHECKING:
    from highwater.fuzz.wire.target import Lab

CLIENT_DEADLINE_S: Final = 20.0
CLIENT_MEMORY_MB: Final = 512
FINDINGS: Final = Path("fuzz/findings")
TARGET_HELP: Final = "reference[:N], kfake, librdkafka-mock, apache-kafka[:VERSION], nisshi, HOST:PORT or FILE.toml"
REPLAY_HELP: Final = f"{TARGET_HELP}; of a client's finding 'COMMAND {{bootstrap}}'"
OWNED_HELP: Final = "The target is on another machine, and yours to break."


def fuzz_command(
    target: Annotated[str, typer.Argument(help=TARGET_HELP)] = "",
    seconds: Annotated[float, typer.Option(min=0.1, help="How long at most; with --self-test, each.")] = 30.0,
    cases: Annotated[int, typer.Option(min=1, help="How many cases at most.")] = 10_000_000,
    rate: Annotated[float, typer.Option(min=1, help="How many cases a second at most.")] = 50_000.0,
    seed: Annotated[int, typer.Option(help="Of all choices.")] = 1,
    out: Annotated[
        Path | None, typer.Option(help="Findings and state go here (default: fuzz/findings/<target>).")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where the last run into this folder ended.")] = False,
    deadline: Annotated[float, typer.Option(min=0.1, help="Seconds for an answer that waits for nothing.")] = 5.0,
    memory_mb: Annotated[
        int, typer.Option(min=0, help="What the process may grow by at once (0: 256, of a JVM 1024).")
    ] = 0,
    against: Annotated[str, typer.Option(help="Another target that must answer sound questions alike.")] = "",
    client: Annotated[
        str, typer.Option(help="Fuzz a client instead: 'COMMAND {bootstrap}' is given hostile replies.")
    ] = "",
    self_test: Annotated[
        bool, typer.Option("--self-test", help="Score the fuzzer by the defects planted in the reference.")
    ] = False,
    defect: Annotated[list[str] | None, typer.Option(help="With --self-test, this defect only; repeatable.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="With --self-test, so many seeds from --seed on.")] = 1,
    owned: Annotated[bool, typer.Option("--i-own-this-host", help=OWNED_HELP)] = False,
    lines: Annotated[
        bool, typer.Option("--lines", help="Count the lines of the reference that are reached: lines.json, in --out.")
    ] = False,
    html: Annotated[Path | None, typer.Option(help="Write the page of the run here as well.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Send a broker sound and spoiled requests; save a replayable finding for each crash, hang, leak or lie.

    Exit code 1 if something broke. Each finding is a folder, for highwater replay and minimise. A target that we
    launched is restarted when it dies, and what killed it is not sent again.

    Examples: highwater fuzz reference --seconds 30 · highwater fuzz localhost:9092 --seed 7 --resume
    """
    from highwater.errors import ExitCode, UsageError
    from highwater.fuzz.wire.line_coverage import check_lines, counted, lines_told
    from highwater.fuzz.wire.session import Bounds
    from highwater.results import new_folder, write_json
    from highwater.signals import interruptible

    if [bool(target), bool(client), self_test].count(True) != 1:
        raise UsageError("give one of TARGET, --client and --self-test", hint="try: highwater fuzz reference")
    if self_test:
        _score(defect or [], range(seed, seed + seeds), seconds, json_=json_)
    if client:
        folder = out or FINDINGS / "client"
        watched = (client, max(deadline, CLIENT_DEADLINE_S), memory_mb or CLIENT_MEMORY_MB)
        _fuzz_client(*watched, folder, seed, seconds, cases, resume=resume, json_=json_)
    folder = out or FINDINGS / _folder_name(target)
    bounds = Bounds(seconds=seconds, cases=cases, rate=rate, deadline_s=deadline)
    with ExitStack() as opened:
        opened.enter_context(interruptible())
        if lines:
            check_lines(target)
            opened.enter_context(counted(folder))
        lab = opened.enter_context(_open_lab(target, owned=owned, memory_mb=memory_mb))
        other = opened.enter_context(_open_lab(against, owned=owned)).address if against else ""
        results = new_folder("fuzz", target=target, seed=seed)
        summary = fuzz(lab, folder, seed, bounds, resume=resume, against=other, quiet=json_)
    if lines:
        summary["lines"] = lines_told(folder)
    write_json(results / "fuzz.json", summary)
    _write_page(folder, summary, [results / "report.html", *([html] if html else [])])
    _tell(summary, target, json_=json_)
    raise typer.Exit(ExitCode.VIOLATED if summary["findings"] else ExitCode.HELD)


def _score(defects: list[str], seeds: range, seconds: float, *, json_: bool) -> NoReturn:
    """Exit code 1 when a planted defect is not found by every seed."""
    import msgspec

    from highwater.errors import ExitCode
    from highwater.fuzz.wire.defects.table import WIRE_DEFECTS
    from highwater.fuzz.wire.self_test import Hunt, self_test
    from highwater.results import new_folder, write_json

    def tell(hunt: Hunt) -> None:
        word = (
            f"{hunt.oracle} after {hunt.seconds} s ({hunt.processor_seconds} s of ours), {hunt.frames:,} frames"
            if hunt.found
            else "not found"
        )
        typer.echo(f"{hunt.defect:<22} {word:<58} {hunt.bug}", err=json_)

    folder = new_folder("fuzz-self-test", target="reference", seed=seeds[0])
    report = self_test(defects or list(WIRE_DEFECTS), list(seeds), folder, seconds, tell)
    write_json(folder / "self-test.json", report)
    typer.echo(msgspec.json.encode(report).decode() if json_ else f"{report['found']} of {report['planted']} found")
    raise typer.Exit(ExitCode.HELD if report["found"] == report["planted"] else ExitCode.VIOLATED)


def _fuzz_client(
    command: str, deadline_s: float, memory_mb: int, folder: Path, seed: int, seconds: float, runs: int, *,
    resume: bool, json_: bool,
) -> NoReturn:  # fmt: skip
    import msgspec

    from highwater.errors import ExitCode
    from highwater.fuzz.wire.clients.process import Client
    from highwater.fuzz.wire.clients.session import ClientSession
    from highwater.signals import interruptible

    with interruptible():
        summary = ClientSession(Client(command, deadline_s, memory_mb), folder, seed, seconds, runs, resume).run()
    if json_:
        typer.echo(msgspec.json.encode(summary).decode())
    else:
        for finding in summary["findings"]:
            typer.echo(f"{finding['id']}: {finding['message']}: {finding['path']}")
        exits = ", ".join(f"{count} × {code}" for code, count in summary["exits"].items())
        typer.echo(f"{summary['cases']} runs, {summary['spoiled']} spoiled replies, exit codes: {exits}; seed {seed}")
    raise typer.Exit(ExitCode.VIOLATED if summary["findings"] else ExitCode.HELD)


def _write_page(folder: Path, summary: dict[str, Any], paths: list[Path]) -> None:
    from highwater.errors import UsageError
    from highwater.fuzz.wire.page import page

    text = page(folder, summary)
    for path in paths:
        try:
            path.write_text(text)
        except OSError as error:
            raise UsageError(f"cannot write the page ({error.strerror})", where=str(path)) from error


def run_fuzz(target: str, seconds: float, seed: int, folder: Path, *, quiet: bool = False) -> dict[str, Any]:
    """Fuzz a target for some seconds; the object that `--json` prints (design.md, section 4)."""
    from highwater.fuzz.wire.session import Bounds

    with _open_lab(target) as lab:
        return fuzz(lab, folder, seed, Bounds(seconds=seconds), quiet=quiet)


def fuzz(
    lab: "Lab", folder: Path, seed: int, bounds: Any, *, resume: bool = False, against: str = "", quiet: bool = False
) -> dict[str, Any]:
    """A session with its live view, where somebody looks."""
    from rich.console import Console

    from highwater.fuzz.wire.session import Session

    console = Console(stderr=True)
    session = Session(lab, folder, seed, bounds, resume=resume, against=against)
    if quiet or not console.is_terminal:
        return session.run()
    with console.status(f"fuzzing {lab.name}") as status:
        return session.run(lambda running: status.update(_live(running)))


def _live(session: Any) -> str:
    totals = session.totals
    rate = totals.cases / totals.sending_s if totals.sending_s else 0.0
    return (
        f"fuzzing {session.lab.name}: {totals.seconds:.0f} of {session.bounds.seconds:.0f} s, {totals.cases:,} cases, "
        f"{rate:,.0f} a second, {totals.sequences:,} sequences, coverage {len(session.coverage.points):,}, "
        f"{len(session.inquest.findings)} findings, {session.lab.restarts} restarts"
    )


def _tell(summary: dict[str, Any], target: str, *, json_: bool) -> None:
    if json_:
        import msgspec

        typer.echo(msgspec.json.encode(summary).decode())
        return
    for finding in summary["findings"]:
        typer.echo(f"{finding['id']}: {finding['message']}")
        if finding["place"]:
            typer.echo(f"  at: {finding['place']}")
        typer.echo(f"  replay: highwater replay {finding['path']} {target}")
    for play, why in summary["skipped"].items():
        typer.echo(f"skipped: sequences {play}: {why}")
    if told := summary.get("lines"):
        typer.echo(f"lines of the reference: {told['covered']:,} of {told['all']:,}")
    verdict = f"{len(summary['findings'])} findings" if summary["findings"] else "clean"
    typer.echo(
        f"{summary['cases']:,} cases, {summary['cases_per_second']:,} a second, {summary['sequences']:,} sequences, "
        f"coverage {summary['coverage']:,}, {summary['restarts']} restarts, {summary['memory_peak_mb']} MB at most, "
        f"seed {summary['seed']}: {verdict}"
    )


def replay_command(
    file: Annotated[Path, typer.Argument(help="A finding of highwater fuzz: its folder, or its finding.json.")],
    target: Annotated[str, typer.Argument(help=REPLAY_HELP)],
    against: Annotated[str, typer.Option(help="The other target, for a finding of two that disagree.")] = "",
    owned: Annotated[bool, typer.Option("--i-own-this-host", help=OWNED_HELP)] = False,
) -> None:
    """Send a finding's frames again: exit code 1 if the same thing breaks, 0 if nothing does, 3 if something else.

    A client's finding is served again to the client: give its command line in place of the target.
    """
    from highwater.errors import ExitCode, UsageError
    from highwater.fuzz.wire.agreement import disagreement
    from highwater.fuzz.wire.clients.session import replay_served
    from highwater.fuzz.wire.findings import read_finding
    from highwater.fuzz.wire.oracles import Oracle
    from highwater.fuzz.wire.replay import replay_finding

    finding = read_finding(file)
    if (finding.oracle is Oracle.AGREEMENT) != bool(against):
        hint = "give --against OTHER for a finding of two that disagree, and only then"
        raise UsageError(f"a finding of the oracle {finding.oracle}", where=str(file), hint=hint)
    if finding.served is not None:
        broken = replay_served(target, finding.served)
    else:
        with ExitStack() as opened:
            lab = opened.enter_context(_open_lab(target, owned=owned))
            if against:
                other = opened.enter_context(_open_lab(against, owned=owned)).address
                broken = disagreement(finding.cases()[0], lab.address, other)
            else:
                broken = replay_finding(lab, finding)
    if broken is None:
        typer.echo(f"does not reproduce: expected {finding.oracle} ({finding.message})")
        raise typer.Exit(ExitCode.HELD)
    if broken.oracle is not finding.oracle:
        typer.echo(f"broke otherwise: {broken.oracle}: {broken.message}; expected {finding.oracle}")
        raise typer.Exit(ExitCode.UNDECIDED)
    typer.echo(f"reproduced: {broken.oracle}: {broken.message}")
    raise typer.Exit(ExitCode.VIOLATED)


def minimise_command(
    file: Annotated[Path, typer.Argument(help="A finding of highwater fuzz: its folder, or its finding.json.")],
    target: Annotated[str, typer.Argument(help=REPLAY_HELP)],
    seconds: Annotated[float, typer.Option(min=1.0, help="How long at most.")] = 60.0,
    owned: Annotated[bool, typer.Option("--i-own-this-host", help=OWNED_HELP)] = False,
) -> None:
    """Fewer and shorter frames that break the same thing, in a finding beside the old one. Exit 3 if nothing breaks."""
    from highwater.errors import ExitCode
    from highwater.fuzz.wire.clients.session import minimised_served
    from highwater.fuzz.wire.findings import read_finding
    from highwater.fuzz.wire.minimise import minimised

    finding, folder = read_finding(file), (file if file.is_dir() else file.parent).parent
    if finding.served is not None:
        least = minimised_served(target, finding, folder, seconds)
    else:
        with _open_lab(target, owned=owned) as lab:
            least = minimised(lab, finding, folder, seconds)
    if least is None:
        typer.echo(f"does not reproduce, so nothing can be left out: expected {finding.oracle} ({finding.message})")
        raise typer.Exit(ExitCode.UNDECIDED)
    path, told = least
    typer.echo(f"{told}: {path}")
    raise typer.Exit(ExitCode.HELD)


@contextmanager
def _open_lab(target: str, *, owned: bool = False, memory_mb: int = 0) -> Iterator["Lab"]:
    """The target, launched if it has to be. UsageError for another machine that nobody says to own."""
    from highwater.conformance.targets import ADDRESSES, check_target, open_target
    from highwater.fuzz.wire.target import Lab

    check_target(target)
    is_address = ADDRESSES.fullmatch(target) is not None
    if is_address and not owned:
        _refuse_strangers(target)
    with open_target(target) as opened:
        if target.endswith(".toml") and not owned:
            _refuse_strangers(opened.bootstrap)
        address = (target if is_address else opened.bootstrap).split(",")[0]
        yield Lab(address, opened, target, memory_mb)


def _refuse_strangers(addresses: str) -> None:
    from highwater.errors import UsageError

    for address in addresses.split(","):
        host, _, port = address.rpartition(":")
        try:
            found = {info[4][0] for info in socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)}
        except (OSError, OverflowError) as error:
            raise UsageError(
                f"no such host ({error})", where=address, hint="is it up, and is this its name?"
            ) from error
        if not all(ipaddress.ip_address(str(each).partition("%")[0]).is_loopback for each in found):
            hint = "add --i-own-this-host if it is yours to break"
            raise UsageError("is on another machine, and fuzzing may crash it", where=address, hint=hint)


def _folder_name(target: str) -> str:
    return target.replace(":", "-").replace("/", "-").replace(",", "+")
