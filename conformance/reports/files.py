"""The reports that are files: which were asked for, whether they can be written, and the writing."""

from dataclasses import dataclass
from pathlib import Path

from highwater.conformance.report import Report
from highwater.conformance.reports.badge import badge
from highwater.conformance.reports.junit import junit
from highwater.conformance.reports.markdown import markdown
from highwater.conformance.reports.page import page
from highwater.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFiles:
    html: Path | None = None
    markdown: Path | None = None
    junit: Path | None = None
    badge: Path | None = None

    def check(self, targets: int) -> None:
        """Before the run, with their folders made: a result that cannot be written is minutes lost."""
        for path in (self.html, self.markdown, self.junit, self.badge):
            if path is not None:
                make_room(path)
        if self.badge is not None and targets != 1:
            raise UsageError(
                f"a badge tells of one target, not of {targets}", where="--badge", hint="run it for each alone"
            )

    def write(self, report: Report) -> None:
        for path, render in ((self.html, page), (self.markdown, markdown), (self.junit, junit)):
            if path is not None:
                path.write_text(render(report), encoding="utf-8")
        if self.badge is not None:
            self.badge.write_text(badge(report.targets[0]), encoding="utf-8")


def make_room(path: Path) -> None:
    """Makes the folder that the file goes to, as pytest does for its own reports."""
    try:
        path.absolute().parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"its folder cannot be made: {error.strerror}", where=str(path), hint="write elsewhere"
        ) from None
    if path.is_dir():
        raise UsageError("is a folder", where=str(path), hint="name the file to write")
