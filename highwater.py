"""The command line: thin, and quick to start. Each package brings its own commands."""

import sys

import typer
from typer._click.exceptions import ClickException

from conformance.command_line import conform_command
from fuzz.command_line import fuzz_command, minimise_command, replay_command, simulate_command
from reference.command_line import broker_command
from reports.command_line import audit_command, demo_command, report_command
from spec.command_line import doctor_command, guards_command, spec_app
from spec.formats.verdict import ExitCode, UsageError

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
app.command("fuzz")(fuzz_command)
app.command("replay")(replay_command)
app.command("minimise")(minimise_command)
app.command("conform")(conform_command)
app.command("audit")(audit_command)
app.command("report")(report_command)
app.add_typer(spec_app, name="spec")
app.command("guards")(guards_command)
app.command("doctor")(doctor_command)


def main() -> None:
    """Run; every failure is one line on standard error and one of the four exit codes."""
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
