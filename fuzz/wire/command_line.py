"""The commands `highwater fuzz`, `replay` and `minimise`."""

import ipaddress
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn

import typer

from highwater.fuzz.wire.verdict import ENDS, INTERRUPTED, exit_code, verdict

if TYPE_CHECKING:
    from highwater.fuzz.wire.steering.go_counters import Counters
    from highwater.fuzz.wire.target import FuzzTarget

CLIENT_DEADLINE_S: Final = 20.0
CLIENT_MEMORY_MB: Final = 512
FINDINGS: Final = Path("fuzz/findings")
TARGET_HELP: Final = (
    "reference[:N], kfake, librdkafka-mock, apache-kafka[:VERSION], tansu, nisshi, HOST:PORT or FILE.toml"
)
WALK: Final = "walk.json"
REPLAY_HELP: Final = f"{TARGET_HELP}; for a client's finding 'COMMAND {{bootstrap}}'"
OWNED_HELP: Final = "Allow a target on another machine, which you own and may crash."
OF_SELF_TEST: Final = frozenset({"seconds", "seed", "json_", "self_test", "defect", "seeds"})
OF_CLIENT: Final = frozenset({"seconds", "cases", "seed", "out", "resume", "deadline", "memory_mb", "client", "json_"})
NOT_OF_TARGET: Final = frozenset({"self_test", "defect", "seeds", "client"})
NAMED_UNEXAMINED: Final = 3


def fuzz_command(
    context: typer.Context,
    target: Annotated[str, typer.Argument(help=TARGET_HELP)] = "",
    seconds: Annotated[
        float, typer.Option(min=0.1, help="Time limit; with --self-test, for each defect and seed.")
    ] = 30.0,
    cases: Annotated[int, typer.Option(min=1, help="Maximum number of cases.")] = 10_000_000,
    rate: Annotated[float, typer.Option(min=1, help="Maximum cases per second.")] = 50_000.0,
    seed: Annotated[int, typer.Option(help="Seed of all random choices.")] = 1,
    out: Annotated[
        Path | None, typer.Option(help="Folder of findings and state (default: fuzz/findings/<target>).")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the last run into this folder.")] = False,
    deadline: Annotated[float, typer.Option(min=0.1, help="Seconds for a response that need not wait.")] = 5.0,
    memory_mb: Annotated[
        int, typer.Option(min=0, help="Allowed growth of the process in one turn, in MB (0: 256; for a JVM 1024).")
    ] = 0,
    against: Annotated[
        str, typer.Option(help="Another target, whose responses to valid read requests must be the same.")
    ] = "",
    client: Annotated[
        str, typer.Option(help="Fuzz a client instead: run 'COMMAND {bootstrap}' with mutated replies.")
    ] = "",
    self_test: Annotated[
        bool, typer.Option("--self-test", help="Measure how many planted defects of the reference are found.")
    ] = False,
    defect: Annotated[list[str] | None, typer.Option(help="With --self-test: only this defect; repeatable.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="With --self-test: number of seeds, from --seed on.")] = 1,
    owned: Annotated[bool, typer.Option("--i-own-this-host", help=OWNED_HELP)] = False,
    lines: Annotated[
        bool, typer.Option("--lines", help="Count the covered lines of reference or kfake: lines.json in --out.")
    ] = False,
    unguided: Annotated[
        bool, typer.Option("--unguided", help="Let no response and no coverage steer what is sent, for comparison.")
    ] = False,
    html: Annotated[Path | None, typer.Option(help="Also write the HTML report to this file.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")] = False,
) -> None:
    """Fuzz a broker; save a replayable finding for each crash, hang, stall, leak, wrong reply or accepted nonsense.

    Exit code 1 if there is a finding, or a failure that was seen and not examined; 3 if the run was interrupted and
    has no finding. Each finding is a folder, for highwater replay and minimise. A target that this command launches is
    restarted when it crashes, and failures are confirmed on a second instance meanwhile; a target at HOST:PORT is never
    restarted. The summary says what the oracles over the whole run covered: refuse, leak, stall and state.

    Examples: highwater fuzz reference --seconds 30 · highwater fuzz localhost:9092 --seed 7 --resume
    """
    from highwater.errors import UsageError
    from highwater.fuzz.wire.session import Bounds
    from highwater.fuzz.wire.steering.line_coverage import check_lines, count_lines, lines_summary
    from highwater.results import new_folder, write_json

    if [bool(target), bool(client), self_test].count(True) != 1:
        raise UsageError("give one of TARGET, --client and --self-test", hint="try: highwater fuzz reference")
    _refuse_ignored_options(context)
    if self_test:
        _score(defect or [], range(seed, seed + seeds), seconds, json_=json_)
    if client:
        folder = out or FINDINGS / "client"
        watched = (client, max(deadline, CLIENT_DEADLINE_S), memory_mb or CLIENT_MEMORY_MB)
        _fuzz_client(*watched, folder, seed, seconds, cases, resume=resume, json_=json_)
    folder = out or FINDINGS / _folder_name(target)
    bounds = Bounds(seconds=seconds, cases=cases, rate=rate, deadline_s=deadline, guided=not unguided)
    counters = None
    with ExitStack() as opened:
        if lines:
            check_lines(target)
            counters = opened.enter_context(count_lines(target, folder))
        fuzz_target = opened.enter_context(open_target(target, owned=owned, memory_mb=memory_mb))
        other = opened.enter_context(open_target(against, owned=owned)).address if against else ""
        results = new_folder("fuzz", target=target, seed=seed)
        summary = fuzz(fuzz_target, folder, seed, bounds, resume=resume, against=other, quiet=json_, counters=counters)
    if lines:
        summary["lines"] = lines_summary(folder)
    summary["page"] = str(html or results / "report.html")
    write_json(results / "fuzz.json", summary)
    _write_page(folder, summary, [results / "report.html", *([html] if html else [])])
    _print_summary(summary, target, json_=json_)
    raise typer.Exit(exit_code(summary))


def _refuse_ignored_options(context: typer.Context) -> None:
    """Raise UsageError for an option that the chosen kind of run would ignore."""
    from highwater.errors import UsageError

    given = {
        option.name: option.opts[-1]
        for option in context.command.params
        if option.name and str(context.get_parameter_source(option.name)).endswith("COMMANDLINE")
    }
    if "self_test" in given:
        ignored, hint = given.keys() - OF_SELF_TEST, "leave it out, or give a target instead of --self-test"
    elif "client" in given:
        ignored, hint = given.keys() - OF_CLIENT, "leave it out, or give a target instead of --client"
    else:
        ignored, hint = given.keys() & NOT_OF_TARGET, "add --self-test instead of a target, or leave it out"
    if ignored:
        raise UsageError(f"{given[min(ignored)]} has no effect in this run", hint=hint)


def _score(defects: list[str], seeds: range, seconds: float, *, json_: bool) -> NoReturn:
    """Run the self-test. Exit code 1 if any seed does not find its planted defect."""
    import msgspec

    from highwater.errors import ExitCode
    from highwater.fuzz.wire.self_test import DefectRun, self_test
    from highwater.mutants.table import WIRE, rows
    from highwater.results import new_folder, write_json

    def print_run(run: DefectRun) -> None:
        word = (
            f"{run.oracle} after {run.seconds} s ({run.processor_seconds} s of processor time), {run.frames:,} frames"
            if run.found
            else "not found"
        )
        typer.echo(f"{run.defect:<22} {word:<58} {run.bug}", err=json_)

    folder = new_folder("fuzz-self-test", target="reference", seed=seeds[0])
    report = self_test(defects or list(rows(WIRE)), list(seeds), folder, seconds, print_run)
    write_json(folder / "self-test.json", report)
    typer.echo(msgspec.json.encode(report).decode() if json_ else f"{report['found']} of {report['planted']} found")
    raise typer.Exit(ExitCode.HELD if report["found"] == report["planted"] else ExitCode.VIOLATED)


def _fuzz_client(
    command: str, deadline_s: float, memory_mb: int, folder: Path, seed: int, seconds: float, runs: int, *,
    resume: bool, json_: bool,
) -> NoReturn:  # fmt: skip
    import msgspec

    from highwater.fuzz.wire.clients.process import ClientProcess
    from highwater.fuzz.wire.clients.session import ClientSession

    summary = ClientSession(ClientProcess(command, deadline_s, memory_mb), folder, seed, seconds, runs, resume).run()
    if json_:
        typer.echo(msgspec.json.encode(summary).decode())
    else:
        for finding in summary["findings"]:
            typer.echo(f"{finding['id']}: {finding['message']}: {finding['path']}")
        exits = ", ".join(f"{count} × {code}" for code, count in summary["exits"].items())
        interrupted = f"; {INTERRUPTED}" if summary["ended"] == INTERRUPTED else ""
        sent = f"{summary['cases']} runs, {summary['spoiled']} mutated replies, exit codes: {exits}; seed {seed}"
        typer.echo(f"{sent}{interrupted}")
    raise typer.Exit(exit_code(summary))


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
    """Fuzz a target for some seconds; return the object that `--json` prints."""
    from highwater.fuzz.wire.session import Bounds

    with open_target(target) as fuzz_target:
        return fuzz(fuzz_target, folder, seed, Bounds(seconds=seconds), quiet=quiet)


def fuzz(
    fuzz_target: "FuzzTarget",
    folder: Path,
    seed: int,
    bounds: Any,
    *,
    resume: bool = False,
    against: str = "",
    quiet: bool = False,
    counters: "Counters | None" = None,
) -> dict[str, Any]:
    """Run a session, with a live view if standard error is a terminal."""
    from rich.console import Console

    from highwater.fuzz.wire.session import Session

    console = Console(stderr=True)
    session = Session(fuzz_target, folder, seed, bounds, resume=resume, against=against, counters=counters)
    if quiet or not console.is_terminal:
        return session.run()
    with console.status(f"fuzzing {fuzz_target.name}") as status:
        return session.run(lambda running: status.update(_live(running)))


def _live(session: Any) -> str:
    totals = session.totals
    rate = totals.cases / totals.seconds if totals.seconds else 0.0
    return (
        f"fuzzing {session.target.name}: {totals.seconds:.0f} of {session.bounds.seconds:.0f} s, "
        f"{totals.cases:,} cases, "
        f"{rate:,.0f} a second, coverage {len(session.coverage.points):,}, "
        f"{len(session.triage.findings)} findings, {session.target.restarts} restarts"
    )


def _print_summary(summary: dict[str, Any], target: str, *, json_: bool) -> None:
    if json_:
        import msgspec

        typer.echo(msgspec.json.encode(summary).decode())
        return
    for finding in summary["findings"]:
        typer.echo(f"{finding['id']}: {finding['message']}")
        if finding["place"]:
            typer.echo(f"  at: {finding['place']}")
        typer.echo(f"  replay: highwater replay {finding['path']} {target}")
    if lines := summary.get("lines"):
        read = summary["guidance"]["readings"]
        steered = f"; its counters were read {read:,} times" if read else ""
        typer.echo(f"lines of {target}: {lines['covered']:,} of {lines['all']:,}{steered}")
    for oracle, covered in summary["oracles"].items():
        typer.echo(f"{oracle}: {covered}")
    if earlier := summary["earlier_findings"]:
        typer.echo(
            f"{summary['folder']} also has {earlier} findings of earlier runs; with --resume the same failure is not "
            f"reported again"
        )
    if unexamined := summary["unexamined"]:
        named = "; ".join(unexamined[:NAMED_UNEXAMINED]) + "; …" * (len(unexamined) > NAMED_UNEXAMINED)
        typer.echo(
            f"seen and not examined: {len(unexamined)} failures, in {summary['unexamined_folder']}: {named}\n"
            f"  --resume examines them, and highwater replay sends one again"
        )
    typer.echo(f"page: {summary['page']}")
    typer.echo(f"wrong answers to well-formed requests in several steps: highwater explore {target}")
    sending = summary["cases"] / (summary["sending_seconds"] or 1)
    typer.echo(
        f"{summary['cases']:,} cases in {summary['seconds']} s ({summary['cases_per_second']:,.0f} a second; "
        f"{sending:,.0f} while it was sending), "
        f"coverage {summary['coverage']:,}, {summary['restarts']} restarts of the target, "
        f"at most {summary['memory_peak_mb']} MB used by the fuzzer, seed {summary['seed']}, "
        f"{ENDS[summary['ended']]}: {verdict(summary)}"
    )


def replay_command(
    file: Annotated[Path, typer.Argument(help="A finding of highwater fuzz or explore: its folder, or its JSON.")],
    target: Annotated[str, typer.Argument(help=REPLAY_HELP)],
    against: Annotated[str, typer.Option(help="The other target, for a finding of the oracle agreement.")] = "",
    owned: Annotated[bool, typer.Option("--i-own-this-host", help=OWNED_HELP)] = False,
) -> None:
    """Replay a finding: exit code 1 if the same oracle fails, 0 if none does, 3 if another one fails.

    For a client's finding, give the client's command line in place of the target.
    """
    from highwater.errors import ExitCode, UsageError
    from highwater.fuzz.wire.clients.session import replay_served
    from highwater.fuzz.wire.examination.agreement import disagreement
    from highwater.fuzz.wire.findings import read_finding
    from highwater.fuzz.wire.oracles.responses import Oracle
    from highwater.fuzz.wire.replay import replay_finding

    walk = file / WALK if file.is_dir() else file
    if walk.name == WALK and walk.exists():
        _replay_walk(walk, target)
    finding = read_finding(file)
    if (finding.oracle is Oracle.AGREEMENT) != bool(against):
        hint = "give --against OTHER if and only if the oracle is agreement"
        raise UsageError(f"the finding is of the oracle {finding.oracle}", where=str(file), hint=hint)
    if finding.served is not None:
        failure = replay_served(target, finding.served)
    else:
        with ExitStack() as opened:
            fuzz_target = opened.enter_context(open_target(target, owned=owned))
            if against:
                other = opened.enter_context(open_target(against, owned=owned)).address
                failure = disagreement(finding.cases()[0], fuzz_target.address, other)
            else:
                failure = replay_finding(fuzz_target, finding)
    if failure is None:
        typer.echo(f"does not reproduce: expected {finding.oracle} ({finding.message})")
        raise typer.Exit(ExitCode.HELD)
    if failure.oracle is not finding.oracle:
        typer.echo(f"another oracle failed: {failure.oracle}: {failure.message}; expected {finding.oracle}")
        raise typer.Exit(ExitCode.UNDECIDED)
    typer.echo(f"reproduced: {failure.oracle}: {failure.message}")
    raise typer.Exit(ExitCode.VIOLATED)


def _replay_walk(file: Path, target: str) -> NoReturn:
    """Walk a finding of `highwater explore` again; exit code as for any finding."""
    from highwater.conformance import targets
    from highwater.errors import ExitCode
    from highwater.fuzz.explore.finding import read_walk
    from highwater.fuzz.explore.ground import Ground

    finding = read_walk(file)
    with targets.open_target(target) as opened:
        walked = Ground(opened).walk(finding.program, finding.path)
    if not walked.failure:
        typer.echo(f"does not reproduce: {walked.unfit or 'each reply was as the model expects'}")
        raise typer.Exit(ExitCode.UNDECIDED if walked.unfit else ExitCode.HELD)
    same = walked.key == finding.key
    typer.echo(f"{'reproduced' if same else 'another difference'}: {walked.failure}")
    raise typer.Exit(ExitCode.VIOLATED if same else ExitCode.UNDECIDED)


def minimise_command(
    file: Annotated[Path, typer.Argument(help="A finding of highwater fuzz: its folder, or its finding.json.")],
    target: Annotated[str, typer.Argument(help=REPLAY_HELP)],
    seconds: Annotated[float, typer.Option(min=1.0, help="How long at most.")] = 60.0,
    owned: Annotated[bool, typer.Option("--i-own-this-host", help=OWNED_HELP)] = False,
) -> None:
    """Write a smaller finding that fails in the same way beside the old one. Exit code 3 if it does not reproduce."""
    from highwater.errors import ExitCode
    from highwater.fuzz.wire.clients.session import minimise_served
    from highwater.fuzz.wire.examination.minimise import minimise_finding
    from highwater.fuzz.wire.findings import read_finding

    place = file.absolute() if file == Path() else file  # the folder that has the finding's folder
    finding, folder = read_finding(file), (place if file.is_dir() else place.parent).parent
    if finding.served is not None:
        smallest = minimise_served(target, finding, folder, seconds)
    else:
        with open_target(target, owned=owned) as fuzz_target:
            smallest = minimise_finding(fuzz_target, finding, folder, seconds)
    if smallest is None:
        typer.echo(f"does not reproduce, so nothing can be left out: expected {finding.oracle} ({finding.message})")
        raise typer.Exit(ExitCode.UNDECIDED)
    path, change = smallest
    typer.echo(f"{change}: {path}")
    raise typer.Exit(ExitCode.HELD)


@contextmanager
def open_target(target: str, *, owned: bool = False, memory_mb: int = 0) -> Iterator["FuzzTarget"]:
    """Open the target, launched if necessary. UsageError for another machine without --i-own-this-host."""
    from highwater.conformance import targets
    from highwater.fuzz.wire.target import FuzzTarget

    targets.check_target(target)
    is_address = targets.ADDRESSES.fullmatch(target) is not None
    if is_address and not owned:
        _refuse_remote(target)
    with targets.open_target(target) as opened:
        if target.endswith(".toml") and not owned:
            _refuse_remote(opened.bootstrap)
        address = (target if is_address else opened.bootstrap).split(",")[0]
        launch = None if is_address or target.endswith(".toml") else lambda: targets.launch_target(target)
        with closing(FuzzTarget(address, opened, target, memory_mb, launch)) as fuzz_target:
            yield fuzz_target  # closed as well, since it may have been replaced


def _refuse_remote(addresses: str) -> None:
    from highwater.errors import UsageError

    for address in addresses.split(","):
        host, _, port = address.rpartition(":")
        try:
            found = {info[4][0] for info in socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)}
        except (OSError, OverflowError) as error:
            raise UsageError(
                f"the host does not resolve ({error})", where=address, hint="check the host name"
            ) from error
        if not all(ipaddress.ip_address(str(address_info).partition("%")[0]).is_loopback for address_info in found):
            hint = "add --i-own-this-host if you own it and may crash it"
            raise UsageError("the target is on another machine, and fuzzing may crash it", where=address, hint=hint)


def _folder_name(target: str) -> str:
    return target.replace(":", "-").replace("/", "-").replace(",", "+")
