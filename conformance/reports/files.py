"""Report files: HTML, Markdown, JUnit XML and badge."""

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
    """Paths of the requested report files."""

    html: Path | None = None
    markdown: Path | None = None
    junit: Path | None = None
    badge: Path | None = None

    def check(self, targets: int) -> None:
        """Create the folders and raise UsageError for a path that cannot be written, before the run takes minutes."""
        for path in (self.html, self.markdown, self.junit, self.badge):
            if path is not None:
                make_parent_folder(path)
        if self.badge is not None and targets != 1:
            raise UsageError(
                f"a badge shows one target, not {targets}", where="--badge", hint="run each target separately"
            )

    def write(self, report: Report) -> list[Path]:
        """Write the files and return their paths."""
        files = ((self.html, page), (self.markdown, markdown), (self.junit, junit), (self.badge, _badge))
        written = [(path, render) for path, render in files if path is not None]
        for path, render in written:
            path.write_text(render(report), encoding="utf-8")
        return [path for path, _ in written]


def _badge(report: Report) -> str:
    return badge(report.targets[0])


def make_parent_folder(path: Path) -> None:
    """Create the parent folder of a report, as pytest does for its reports; raises UsageError if that fails."""
    try:
        path.absolute().parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"the folder cannot be created: {error.strerror}", where=str(path), hint="choose another path"
        ) from None
    if path.is_dir():
        raise UsageError("the path is a folder", where=str(path), hint="give the path of a file")
