"""A progress bar for work that takes longer than two seconds; nothing is shown without a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(what: str, total: int, *, quiet: bool = False) -> Iterator[Callable[[], None]]:
    """Show a progress bar, and yield a function to call after each of `total` steps."""
    if quiet or not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda: bar.advance(task)
