"""JUnit XML with a test suite for each target, valid for the schemas of both Ant and Jenkins."""

import re
from datetime import datetime
from typing import Final
from xml.etree import ElementTree

from highwater.conformance.report import Report, Stamp, TargetReport
from highwater.conformance.reports.matrix import features_text
from highwater.conformance.running.verdicts import BROKEN, DECIDED, CaseResult, CaseVerdict, Expectation, expected_by

FORBIDDEN: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot represent."""


def xml_text(text: str) -> str:
    """Replace characters that XML cannot represent even escaped; error messages of brokers may have them."""
    return FORBIDDEN.sub("\ufffd", text)


UNKNOWN_TIME: Final = "1970-01-01T00:00:00"
COUNTED: Final = {"failures": "failure", "errors": "error", "skipped": "skipped"}


def junit(report: Report) -> str:
    """Render the report; an expected deviation is skipped with its reason, times are in seconds."""
    root = ElementTree.Element("testsuites")
    root.extend(_suite(number, target, report.run) for number, target in enumerate(report.targets))
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _suite(number: int, target: TargetReport, run: Stamp) -> ElementTree.Element:
    expectations = target.expectations
    suite = ElementTree.Element(
        "testsuite", id=str(number), name=xml_text(target.target), package="highwater.conformance.cases",
        hostname="localhost", timestamp=_local(run.started), tests=str(len(target.cases)),
    )  # fmt: skip
    properties = ElementTree.SubElement(suite, "properties")
    suite_properties = {
        "version": target.version,
        "features": features_text(target),
        "suite": run.suite,
        "schema": run.schema,
    }
    for name, value in suite_properties.items():
        ElementTree.SubElement(properties, "property", name=name, value=xml_text(value))
    for result in target.cases:
        suite.append(_case(result, expected_by(result, expectations)))
    for name, tag in COUNTED.items():
        suite.set(name, str(len(suite.findall(f"testcase/{tag}"))))
    suite.set("time", _seconds(sum(result.seconds for result in target.cases)))
    ElementTree.SubElement(suite, "system-out")
    ElementTree.SubElement(suite, "system-err")
    return suite


def _case(result: CaseResult, known: Expectation | None) -> ElementTree.Element:
    case = ElementTree.Element(
        "testcase", classname=result.clause or "suite", name=xml_text(result.case), time=_seconds(result.seconds)
    )
    if result.verdict is CaseVerdict.PASS:
        return case
    if known is not None:
        reason = f"expected {result.verdict}: {known.reason} {known.link}".rstrip()
        ElementTree.SubElement(case, "skipped", message=xml_text(reason))
    elif result.verdict in DECIDED:
        tag = "failure" if result.verdict in BROKEN else "error"
        message = xml_text(f"{result.verdict}: {result.message}")
        ElementTree.SubElement(case, tag, type=result.verdict, message=message).text = xml_text(_failure_text(result))
    else:
        ElementTree.SubElement(case, "skipped", message=xml_text(f"{result.verdict}: {result.message}"))
    return case


def _failure_text(result: CaseResult) -> str:
    compared = [f"expected: {result.expected}", f"actual: {result.actual}"] if result.expected else []
    return "\n".join([result.full_message(), *compared, *(event.text() for event in result.exchange)])


def _seconds(value: float) -> str:
    return f"{value:.3f}"


def _local(started: str) -> str:
    """Return the UTC time without zone, as the schema requires."""
    try:
        return datetime.fromisoformat(started).strftime("%Y-%m-%dT%H:%M:%S")
    except ValueError:
        return UNKNOWN_TIME
