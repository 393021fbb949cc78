"""The command line: thin, and quick to start. Each package brings its own commands."""

import sys
from importlib import import_module
from typing import Final

import typer
from typer._click.exceptions import ClickException

from conformance.command_line import ConformCommand, conform_command
from conformance.diff_command import diff_command
from fuzz.wire.command_line import fuzz_command, minimise_command, replay_command
from reference.command_line import broker_command
from reports.chaos import chaos_command
from reports.command_line import audit_command, demo_command, report_command
from reports.recorder.command_line import record_command
from reports.simulate import simulate_command
from reports.synth.command_line import synth_command
from spec.command_line import doctor_command, guards_command, spec_app
from spec.formats.verdict import ExitCode, UsageError

TOOLS: Final = {
    "topics": "Create, list, describe, alter and delete topics.",
    "groups": "List and describe consumer groups, and move their offsets.",
    "reassign": "Move replicas to other brokers: propose a plan, execute it, verify it.",
    "elect": "Elect leaders: the preferred ones, or unclean where nobody leads.",
    "replicas": "Compare the copies of partitions.",
    "log": "Look into log segments on this machine.",
    "state-changes": "Merge the state-change logs of many brokers.",
}

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def root() -> None:
    """Kafka's replication and group protocols, written down and checked: specs, a broker, a harness."""


app.command("demo")(demo_command)
app.command("broker")(broker_command)
app.command("simulate")(simulate_command)
app.command("chaos")(chaos_command)
app.command("fuzz")(fuzz_command)
app.command("replay")(replay_command)
app.command("minimise")(minimise_command)
app.command("conform", cls=ConformCommand)(conform_command)
app.command("diff")(diff_command)
app.command("audit")(audit_command)
app.command("synth")(synth_command)
app.command("record")(record_command)
app.command("report")(report_command)
app.add_typer(spec_app, name="spec")
app.command("guards")(guards_command)
app.command("doctor")(doctor_command)


def mount_tools(asked: str) -> None:
    """Tools bring the whole wire with them: only the one that is asked for is loaded."""
    for name, sentence in TOOLS.items():
        if name == asked:
            tool = import_module(f"reference.tools.{name.replace('-', '_')}").app
        else:
            tool = typer.Typer()
            tool.callback()(lambda: None)
        app.add_typer(tool, name=name, help=sentence)


def main() -> None:
    """Run; every failure is one line on standard error and one of the four exit codes."""
    mount_tools(sys.argv[1] if len(sys.argv) > 1 else "")
    try:
        code = app(standalone_mode=False)  # an Exit inside comes back as its code
        sys.exit(code if isinstance(code, int) else ExitCode.HELD)
    except UsageError as error:
        _end(str(error), ExitCode.USAGE)
    except ClickException as error:
        _end(f"{error.format_message()}; see --help", ExitCode.USAGE)
    except typer.Abort:
        _end("interrupted", ExitCode.UNDECIDED)
    except KeyboardInterrupt:
        _end("interrupted", ExitCode.UNDECIDED)
    except OSError as error:
        _end(f"{error.filename or 'system'}: {error.strerror or error}", ExitCode.USAGE)


def _end(message: str, code: ExitCode) -> None:
    print(f"highwater: {message}", file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main()
