"""`highwater diff`: what changed from one run of the suite to another."""

from pathlib import Path
from typing import Annotated

import typer


def diff_command(
    before: Annotated[Path, typer.Argument(help="What highwater conform --json printed.")],
    after: Annotated[Path, typer.Argument(help="The same, later.")],
    strict: Annotated[bool, typer.Option("--strict", help="A broken SHOULD counts.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
    markdown: Annotated[Path | None, typer.Option(help="Write what changed as Markdown here.")] = None,
) -> None:
    """Compare two runs: what broke, what was mended, what is no longer tried, what is new.

    Exit code 1 when something broke that was kept, 3 when something could not be decided.

    Example: highwater conform localhost:9092 --json > new.json; highwater diff old.json new.json
    """
    import msgspec

    from conformance.report import read_report
    from conformance.reports import comparison
    from conformance.reports.compare import compare, exit_code

    found = compare(read_report(before), read_report(after))
    if markdown:
        markdown.write_text(comparison.markdown(found), encoding="utf-8")
    if json_:
        typer.echo(msgspec.json.encode(found).decode())
    else:
        typer.echo("\n".join(comparison.lines(found)))
    raise typer.Exit(exit_code(found, strict=strict))
