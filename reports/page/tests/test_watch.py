"""One pass over a history keeps a bounded sample that always includes the witnesses."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from highwater.reports.audit import audit
from highwater.reports.page.charts import leaders_chart
from highwater.reports.page.interests import Interests
from highwater.reports.page.lanes import LANES
from highwater.reports.page.outages import Outages
from highwater.reports.page.series import FIRST_WIDTH_S, SLOTS, Latencies, Sample, Series
from highwater.reports.page.watch import Watched, watch
from highwater.reports.tests.histories import History
from highwater.reports.tests.test_kernel import healthy, lost
from highwater.reports.verdicts import AuditResult
from highwater.spec.formats.history import NEMESIS, Event

S = 1_000_000_000


def watched(tmp_path: Path, history: History, limit: int = 1_000) -> tuple[AuditResult, Watched]:
    result = audit(history.write(tmp_path / "history.ndjson"))
    return result, watch(history.events[1:], Interests(result), limit)


def sends(*times: tuple[float, float, str], key: tuple[str, int] = ("t", 0)) -> list[Event]:
    """Return events of sends, each (begin, end, outcome) by a separate process."""
    events = []
    for process, (begin, end, outcome) in enumerate(times):
        for at, kind in ((begin, "invoke"), (end, outcome)):
            events.append((at, process, kind))
    events.sort(key=lambda event: event[0])
    return [
        Event(index=n, time_ns=round(at * S), process=process, type=kind, f="send", topic=key[0], partition=key[1])  # type: ignore[arg-type]
        for n, (at, process, kind) in enumerate(events, 1)
    ]


def over(events: list[Event]) -> Outages:
    return watch(events, Interests(NOTHING_FOUND), 100).outages


NOTHING_FOUND = audit(Path("examples/histories/kip101-apache-kafka-1.1.1.ndjson.gz"))


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 5_000), st.integers(1, 300))
def test_a_sample_has_every_nth_item_and_at_most_its_limit(offered: int, limit: int) -> None:
    sample = Sample[int](limit)
    for item in range(offered):
        if sample.wants():
            sample.keep(item)
        assert len(sample) <= limit
    assert list(sample) == list(range(0, offered, sample.stride))
    assert sample.offered == offered


def test_witnesses_are_never_sampled_away(tmp_path: Path) -> None:
    history = healthy()
    lost(history)
    for value in range(1_000, 3_000):
        history.send(value, value)
    result, found = watched(tmp_path, history, limit=40)
    witnesses = {w.invoked for finding in result.findings for each in finding.witnesses for w in each.operations}
    assert witnesses
    assert {block.invoked for block in found.witnesses} == witnesses == found.interests.invoked
    assert len(found.good) + len(found.bad) <= 40
    assert found.operations > 2_000


def test_a_thousand_processes_share_lanes(tmp_path: Path) -> None:
    history = History()
    for process in range(1_000):
        history.send(process, process, process=process)
    _, found = watched(tmp_path, history)
    assert len(found.lanes.lanes) == LANES
    assert found.lanes.shared
    assert sum(len(lane.processes) for lane in found.lanes.lanes) == 1_000


def test_an_operation_without_completion_is_kept(tmp_path: Path) -> None:
    history = healthy()
    history.begin(7, "send", value=99)
    _, found = watched(tmp_path, history)
    (left,) = [block for block in found.bad if block.end_s is None]
    assert (left.process, left.outcome) == (7, "info")


# -- time without a successful send ------------------------------------------------------------------


def test_an_outage_lasts_from_the_last_success_to_the_next() -> None:
    found = over(sends((0, 1, "ok"), (0.5, 9, "info"), (2, 8, "ok"), (8.5, 8.6, "ok"))).longest()
    assert found is not None
    assert (found.partition, found.gap.start_s, found.gap.end_s, found.gap.recovered) == ("t-0", 1, 8, True)


def test_time_without_attempts_is_not_an_outage() -> None:
    found = over(sends((0, 1, "ok"), (60, 60.2, "ok"))).longest()
    assert found is not None
    assert found.gap.seconds == pytest.approx(1)


def test_an_outage_without_end_lasts_until_the_last_attempt() -> None:
    found = over(sends((0, 1, "ok"), (1, 5, "fail"), (6, 12, "info"))).longest()
    assert found is not None
    assert (found.gap.start_s, found.gap.end_s, found.gap.recovered) == (1, 12, False)


def test_each_fault_has_the_longest_outage_that_overlaps_it() -> None:
    events = sends((0, 1, "ok"), (1, 4, "ok"), (4, 4.1, "ok"), (4.1, 10, "ok"))
    kill = Event(index=90, time_ns=2 * S, process=NEMESIS, type="info", f="kill", node="1")
    restart = Event(index=91, time_ns=3 * S, process=NEMESIS, type="info", f="restart", node="1")
    found = watch([*events, kill, restart], Interests(NOTHING_FOUND), 100)
    ((outage,),) = [found.outages.during(found.windows)]
    assert ([each.words for each in outage.windows], outage.gap.start_s, outage.gap.end_s) == (["broker 1 down"], 1, 4)


def test_an_outage_around_two_faults_is_reported_once() -> None:
    faults = [
        Event(index=90 + at, time_ns=at * S, process=NEMESIS, type="info", f="kill", node=str(at)) for at in (2, 3)
    ]
    found = watch([*sends((0, 1, "ok"), (1, 9, "ok")), *faults], Interests(NOTHING_FOUND), 100)
    ((outage,),) = [found.outages.during(found.windows)]
    assert [each.words for each in outage.windows] == ["broker 2 down", "broker 3 down"]


# -- numbers over time -------------------------------------------------------------------------------


@settings(deadline=None, max_examples=60)
@given(st.lists(st.floats(0.02, 60_000), min_size=1, max_size=60), st.sampled_from([0.5, 0.99, 1.0]))
def test_a_quantile_is_exact_to_a_tenth(values: list[float], share: float) -> None:
    latencies = Latencies()
    for value in values:
        latencies.add(value)
    due = max(1, -(-round(share * len(values) * 1e6) // 1_000_000))
    found = latencies.quantile(share)
    assert found is not None
    assert found == pytest.approx(sorted(values)[due - 1], rel=0.1)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.floats(0, 20), st.floats(0, 5)), max_size=40), st.floats(1, 1e6))
def test_slots_count_every_operation_for_any_duration(pairs: list[tuple[float, float]], stretch: float) -> None:
    events = sends(*((begin * stretch, (begin + length) * stretch, "ok") for begin, length in pairs))
    series = watch(events, Interests(NOTHING_FOUND), 10).series
    assert len(series.slots) <= SLOTS
    assert sum(slot.sends.count for slot in series.slots) == len(pairs)
    assert series.width_s * len(series.slots) >= max((event.time_ns / S for event in events), default=0)


@pytest.mark.parametrize("end", [SLOTS * FIRST_WIDTH_S + part for part in (-0.005, 0.0, 0.005)])
def test_an_event_at_the_end_of_the_slots_is_counted(end: float) -> None:
    series = watch(sends((0, 0.001, "ok"), (0, end, "ok")), Interests(NOTHING_FOUND), 10).series
    assert len(series.slots) <= SLOTS
    assert series.slots[0].sends.count == series.slots[-1].sends.count == 1


def test_the_plot_of_sends_counts_nothing_else() -> None:
    events = sends((0, 1, "ok"), (1, 2, "fail"), (2, 3, "info"))
    assign = Event(index=90, time_ns=4 * S, process=7, type="info", f="assign")
    poll = Event(index=91, time_ns=5 * S, process=8, type="invoke", f="poll")
    failed = Event(index=92, time_ns=6 * S, process=8, type="fail", f="poll")
    slots = watch([*events, assign, poll, failed], Interests(NOTHING_FOUND), 10).series.slots
    assert (sum(slot.sends.count for slot in slots), sum(slot.sends_not_ok for slot in slots)) == (1, 2)


def test_lag_is_how_far_the_last_reader_is_behind_the_end(tmp_path: Path) -> None:
    history = History()
    for value in range(10):
        history.send(value, value)
    history.poll((0, 0), (1, 1), (2, 2))
    history.send(10, 10)
    series: Series = watched(tmp_path, history)[1].series
    assert series.slots[-1].lag == 8
    history.poll(*((value, value) for value in range(3, 11)))
    assert watched(tmp_path, history)[1].series.slots[-1].lag == 0


def test_the_isr_is_drawn_until_it_changes(tmp_path: Path) -> None:
    history = History()
    for brokers in ([1, 2, 3], [3, 2, 1], [1, 2], [1], []):
        history.begin(5, "in_sync")
        history.end(5, value={"t-0": brokers})
    _, found = watched(tmp_path, history)
    chart = leaders_chart(found)
    assert chart is not None
    ((row,),) = [chart["rows"]]
    assert [(span["style"], span["text"]) for span in row["in_sync"]] == [
        ("all", "in sync: 1, 2, 3"), ("few", "in sync: 1, 2"), ("alone", "in sync: 1"), ("alone", "in sync: none"),
    ]  # fmt: skip
    assert row["terms"] == []


def test_leaders_change_only_with_a_newer_epoch(tmp_path: Path) -> None:
    history = History()
    for leader, epoch in ((1, 0), (2, 1), (1, 0), (2, 1)):
        history.begin(5, "metadata")
        history.end(5, value={"t-0": [leader, epoch]}, node="1")
    terms = watched(tmp_path, history)[1].leaders.terms["t-0"]
    assert [(term.leader, term.epoch) for term in terms] == [(1, 0), (2, 1)]
