"""What the self-test reads off the cases: their names, their defects, and who tries which."""

import pytest

from conformance.defects import Defect, OfTheBroker


def case_name(item: pytest.Item) -> str:
    """A sweep is one case."""
    marker = item.get_closest_marker("clause")
    assert marker is not None, "the suite's own plugin has seen to it"
    clause_id, variant = marker.args
    return f"{clause_id}[{variant}]" if variant else str(clause_id)


def defects_of(item: pytest.Item) -> list[Defect]:
    return [defect for marker in item.iter_markers("defect") for defect in marker.args]


def sweep_of(item: pytest.Item) -> tuple[object, ...]:
    """The same for all versions of a case: where nobody speaks the protocol, they are one."""
    callspec = getattr(item, "callspec", None)
    parameters = callspec.params.items() if callspec else ()
    return case_name(item), *(str(value) for name, value in parameters if name != "version")


def share_of(items: list[pytest.Item], share: str) -> list[pytest.Item]:
    """Share I of N, whole cases, of `I/N`. Those that take their time are dealt first, so that nobody gets them all."""
    number, of = map(int, share.split("/"))
    quick = {case_name(item): not _takes_its_time(item) for item in items}
    mine = set(sorted(quick, key=lambda case: (quick[case], case))[number::of])
    return [item for item in items if case_name(item) in mine]


def _takes_its_time(item: pytest.Item) -> bool:
    waits = any(item.get_closest_marker(name) for name in ("slow", "cluster_fault"))
    return waits or any(isinstance(defect, OfTheBroker) for defect in defects_of(item))
