"""The verdicts on claims: a test agrees with what it describes, disagrees with the opposite, and else is undecided."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from highwater.experiments.conditions import Condition, Measurement, Setting
from highwater.experiments.documents import Claim, Table, claims, document_measurements, tables
from highwater.experiments.plans import EXPERIMENTS, SCALES, experiments_of
from highwater.experiments.verdicts import COUNTS, RATIOS, SHAPES, ClaimVerdict, judge

AGREES, DISAGREES, UNDECIDED = ClaimVerdict.AGREES, ClaimVerdict.DISAGREES, ClaimVerdict.UNDECIDED
TABLE = Table(id="t", experiment="throughput", document="d", section="1", says="", metrics=["rate"])
REPEATED = (0.97, 1.0, 1.02, 0.99, 1.03)
"""Five repetitions of a measurement that varies by 3 %."""
NOISY = (0.2, 1.0, 3.0, 0.5, 2.0)


def measured(
    rates: Mapping[Any, float], noise: Sequence[float] = REPEATED, along: str = "x", **settings: Setting
) -> list[Measurement]:
    return [
        Measurement(
            target="b",
            experiment="throughput",
            settings={along: value, **settings},
            repetition=number,
            metrics={"rate": rate * factor},
        )
        for value, rate in rates.items()
        for number, factor in enumerate(noise, 1)
    ]


def verdict(test: str, measurements: list[Measurement], **fields: object) -> ClaimVerdict:
    claim = Claim(table="t", says="", test=test, **({"along": "x"} | fields))  # type: ignore[arg-type]
    return judge(claim, TABLE, "b", measurements).verdict


LINE = {1: 100.0, 2: 200.0, 4: 400.0}
FLAT = {1: 100.0, 2: 101.0, 4: 99.0}
FALLING = {1: 100.0, 2: 70.0, 4: 40.0}
ROOT = {1: 100.0, 2: 141.0, 4: 200.0}


@pytest.mark.parametrize(
    ("test", "rates", "expected"),
    [
        ("rises", LINE, AGREES), ("rises", FALLING, DISAGREES), ("rises", FLAT, UNDECIDED),
        ("falls", FALLING, AGREES), ("falls", LINE, DISAGREES), ("falls", FLAT, UNDECIDED),
        ("linear", LINE, AGREES), ("linear", ROOT, DISAGREES), ("linear", FALLING, DISAGREES),
        ("no_rise", FLAT, AGREES), ("no_rise", FALLING, AGREES), ("no_rise", ROOT, DISAGREES),
        ("same", FLAT, AGREES), ("same", FALLING, DISAGREES), ("same", LINE, DISAGREES),
    ],
)  # fmt: skip
def test_shapes(test: str, rates: Mapping[Any, float], expected: ClaimVerdict) -> None:
    assert verdict(test, measured(rates)) is expected


@pytest.mark.parametrize("test", ["rises", "falls", "linear", "no_rise", "same"])
def test_noise_decides_nothing(test: str) -> None:
    assert verdict(test, measured(FLAT, NOISY)) is UNDECIDED


@pytest.mark.parametrize("test", [*SHAPES])
def test_two_repetitions_decide_nothing(test: str) -> None:
    assert verdict(test, measured(LINE, REPEATED[:2]), order=[1, 4]) is UNDECIDED


@pytest.mark.parametrize("test", [*SHAPES, *RATIOS, *COUNTS])
def test_nothing_measured_decides_nothing(test: str) -> None:
    assert verdict(test, [], order=[1, 4], metric="rate", than="rate", covered="rate") is UNDECIDED


def test_every_step_of_an_order_counts() -> None:
    falling = measured({"0": 100.0, "1": 60.0, "all": 30.0})
    assert verdict("falls", falling, order=["0", "1", "all"]) is AGREES
    assert verdict("falls", measured({"0": 100.0, "1": 60.0, "all": 90.0}), order=["0", "1", "all"]) is DISAGREES
    assert verdict("falls", measured({"0": 100.0, "1": 60.0}), order=["0", "1", "all"]) is UNDECIDED


def test_groups_are_compared_within_themselves() -> None:
    """Without groups, a fast group that is measured at other settings would look like a trend."""
    slow, fast = {1: 10.0, 2: 10.0}, {2: 1_000.0, 4: 1_000.0}
    both = measured(slow, size=1) + measured(fast, size=2)
    assert verdict("same", both, within=["size"]) is AGREES
    assert verdict("rises", both, within=["size"]) is UNDECIDED
    assert verdict("rises", both) is AGREES


def test_only_settings_of_the_order_count() -> None:
    rates = {1: 100.0, 2: 200.0, 4: 400.0, 8: 10.0}
    assert verdict("linear", measured(rates), order=[1, 2, 4]) is AGREES
    assert verdict("linear", measured(rates)) is DISAGREES


def test_other_targets_do_not_count() -> None:
    claim = Claim(table="t", says="", test="rises", along="x")
    assert judge(claim, TABLE, "another", measured(LINE)).verdict is UNDECIDED


@pytest.mark.parametrize(("left", "expected"), [(100.0, AGREES), (50.0, AGREES), (20.0, DISAGREES), (33.3, UNDECIDED)])
def test_more_than_a_share(left: float, expected: ClaimVerdict) -> None:
    assert verdict("more_than_share", measured({1: 100.0, 3: left}), order=[1, 3]) is expected


def counted(**metrics: float) -> list[Measurement]:
    return [
        Measurement(target="b", experiment="throughput", settings={"x": 1}, repetition=number, metrics=metrics)
        for number in (1, 2, 3)
    ]


def test_nothing_lost_needs_something_acknowledged() -> None:
    check: Callable[..., ClaimVerdict] = lambda **metrics: verdict(  # noqa: E731
        "zero", counted(**metrics), metric="lost", also="twice", covered="acked"
    )
    assert check(lost=0, twice=0, acked=9) is AGREES
    assert check(lost=1, twice=0, acked=9) is DISAGREES
    assert check(lost=0, twice=1, acked=9) is DISAGREES
    assert check(lost=0, twice=0, acked=0) is UNDECIDED


def test_records_that_were_not_read_back_may_be_lost() -> None:
    """A final read that was cut short shows no loss, and proves none is missing."""
    fields = {"metric": "lost", "covered": "acked", "unless": "unseen"}
    assert verdict("zero", counted(lost=0, unseen=4, acked=9), **fields) is UNDECIDED
    assert verdict("zero", counted(lost=0, unseen=0, acked=9), **fields) is AGREES
    assert verdict("zero", counted(lost=1, unseen=4, acked=9), **fields) is DISAGREES
    lost = [claim for claim in claims() if claim.metric == "lost" and claim.covered == "acknowledged"]
    lost = [claim for claim in lost if claim.test == "zero"]
    assert lost
    assert all(claim.unless == "unseen" for claim in lost)


def test_what_may_happen_is_not_refuted_by_its_absence() -> None:
    assert verdict("some", counted(lost=1, acked=9), metric="lost", covered="acked") is AGREES
    assert verdict("some", counted(lost=0, acked=9), metric="lost", covered="acked") is UNDECIDED


def test_something_every_time() -> None:
    assert verdict("positive", counted(rate=5), metric="rate") is AGREES
    assert verdict("positive", counted(rate=0), metric="rate") is DISAGREES
    assert verdict("positive", counted(rate=5) + counted(rate=0), metric="rate") is UNDECIDED


@pytest.mark.parametrize(
    ("test", "top", "bottom", "expected"),
    [
        ("less", 5, 9, AGREES), ("less", 9, 5, DISAGREES), ("equal", 100, 101, AGREES), ("equal", 5, 9, DISAGREES),
        ("nearly_none", 1, 100, AGREES), ("nearly_none", 50, 100, DISAGREES),
    ],
)  # fmt: skip
def test_ratios(test: str, top: float, bottom: float, expected: ClaimVerdict) -> None:
    assert verdict(test, counted(top=top, bottom=bottom), metric="top", than="bottom") is expected


def test_samples_of_one_repetition_have_an_interval() -> None:
    (one,) = counted(top=5, bottom=9)[:1]
    sampled = Measurement(
        target="b", experiment="throughput", settings={"x": 1}, repetition=1, metrics=one.metrics,
        samples={"top": [5, 6, 4, 5], "bottom": [9, 8, 10, 9]},
    )  # fmt: skip
    assert verdict("less", [one], metric="top", than="bottom") is UNDECIDED
    assert verdict("less", [sampled], metric="top", than="bottom") is AGREES


def judged(test: str, measurements: list[Measurement], **fields: object) -> str:
    claim = Claim(table="t", says="", test=test, along="x", **fields)  # type: ignore[arg-type]
    return judge(claim, TABLE, "b", measurements).measured


@pytest.mark.parametrize(
    ("test", "exponent", "expected"),
    [
        ("falls", -0.01, AGREES), ("falls", 0.01, DISAGREES), ("rises", 0.01, AGREES), ("rises", -0.01, DISAGREES),
        ("no_rise", 0.09, AGREES), ("no_rise", 0.11, DISAGREES), ("linear", 0.79, DISAGREES), ("linear", 0.81, AGREES),
        ("linear", 1.19, AGREES), ("linear", 1.21, DISAGREES),
    ],
)  # fmt: skip
def test_bounds_of_exponents(test: str, exponent: float, expected: ClaimVerdict) -> None:
    """Repetitions that are all equal have no interval, so that the bound alone decides."""
    assert verdict(test, measured({x: 100.0 * x**exponent for x in (1, 2, 4)}, (1.0,) * 3)) is expected


@pytest.mark.parametrize(
    ("test", "ratio", "expected"),
    [
        ("equal", 1.14, AGREES), ("equal", 1.16, DISAGREES), ("equal", 0.88, AGREES), ("equal", 0.86, DISAGREES),
        ("nearly_none", 0.04, AGREES), ("nearly_none", 0.06, DISAGREES), ("less", 0.99, AGREES),
        ("less", 1.01, DISAGREES),
    ],
)  # fmt: skip
def test_bounds_of_ratios(test: str, ratio: float, expected: ClaimVerdict) -> None:
    found = counted(top=100 * ratio, bottom=100)
    assert verdict(test, found, metric="top", than="bottom") is expected
    if test == "equal":
        assert verdict("same", measured({1: 100.0, 2: 100.0 * ratio}, (1.0,) * 3)) is expected


def test_every_setting_is_compared_with_the_first() -> None:
    """Two steps of 10 %, each of them within the bounds, make 21 %."""
    assert verdict("same", measured({1: 100.0, 2: 110.0}, (1.0,) * 3)) is AGREES
    assert verdict("same", measured({1: 100.0, 2: 110.0, 4: 121.0}, (1.0,) * 3)) is DISAGREES


@pytest.mark.parametrize("sizes", [(1, 2), (2, 1)])
def test_every_group_counts_in_the_interval(sizes: tuple[int, int]) -> None:
    """A group that says nothing makes the whole undecided, whichever is measured first."""
    steady, noisy = sizes
    by_size = {steady: measured(FALLING, size=steady), noisy: measured(FLAT, NOISY, size=noisy)}
    assert verdict("falls", by_size[steady], within=["size"]) is AGREES
    assert verdict("falls", by_size[1] + by_size[2], within=["size"]) is UNDECIDED


def test_a_statistic_is_the_mean_of_its_groups() -> None:
    both = measured(LINE, (1.0,) * 3, size=1) + measured({1: 1.0, 4: 2.0}, (1.0,) * 3, size=2)
    assert judged("rises", both, within=["size"]) == "exponent 0.75"


def test_a_value_that_is_seldom_above_zero_is_not_nothing() -> None:
    """Half of the steps of a bounce have no pause: their median is zero, and says nothing about the others."""
    seldom = (0.0, 0.0, 0.0, 0.0, 1.0)
    steps = measured({"eager": 900.0}, REPEATED) + measured({"cooperative": 900.0}, seldom)
    words = judged("falls", steps, order=["eager", "cooperative"])
    assert "-80%" in words


@pytest.mark.parametrize(
    ("values", "words"), [((100.0, 50.0), "-50%"), ((100.0, 150.0), "+50%"), ((100.0, 12_000.0), "120 times")]
)
def test_a_change_is_relative_to_the_first_value(values: tuple[float, float], words: str) -> None:
    """More than a hundred times as much once read "+99%", its share of the larger value."""
    steps = measured({"sync": values[0]}, REPEATED) + measured({"async": values[1]}, REPEATED)
    assert f"sync → async: {words}" in judged("rises", steps, order=["sync", "async"])


def test_an_interval_of_ratios_has_95_percent() -> None:
    """The means differ by a quarter, and the values of each metric by twice as much from their mean."""
    found = [
        Measurement(
            target="b", experiment="throughput", settings={"x": 1}, repetition=number,
            metrics={"top": 75.0 * factor, "bottom": 100.0 * factor},
        )
        for number, factor in enumerate((0.5, 1.5) * 5, 1)
    ]  # fmt: skip
    assert verdict("less", found, metric="top", than="bottom") is UNDECIDED


def test_nothing_before_is_no_ratio() -> None:
    """Where nothing was written before a failure, that nothing was written during it says nothing."""
    for test in RATIOS:
        assert verdict(test, counted(top=0, bottom=0), metric="top", than="bottom") is UNDECIDED


def test_measurements_of_other_tables_do_not_count() -> None:
    elsewhere = [
        Measurement(target="b", experiment="size", settings=one.settings, repetition=1, metrics=one.metrics)
        for one in measured(LINE)
    ]
    assert verdict("rises", elsewhere) is UNDECIDED
    assert verdict("rises", measured(FALLING) + elsewhere) is DISAGREES


def test_a_failed_measurement_does_not_count() -> None:
    """It has no throughput, which is not a throughput of zero."""
    failed = Measurement(target="b", experiment="throughput", settings={"x": 1}, repetition=4, failed="no leader")
    lacking = Measurement(target="b", experiment="throughput", settings={"x": 1}, repetition=4, unsupported="too old")
    assert verdict("positive", [*counted(rate=5), failed, lacking], metric="rate") is AGREES
    assert verdict("positive", [failed, lacking], metric="rate") is UNDECIDED


def test_the_metric_of_a_claim_is_not_that_of_its_table() -> None:
    found = [
        Measurement(
            target="b", experiment="throughput", settings={"x": x}, repetition=number,
            metrics={"rate": float(x), "delay": 1 / x},
        )
        for x in (1, 2)
        for number in (1, 2, 3)
    ]  # fmt: skip
    assert verdict("rises", found) is AGREES
    assert verdict("rises", found, metric="delay") is DISAGREES


def test_the_figures_of_a_document_need_no_repetition() -> None:
    table = next(one for one in tables() if one.id == "principles-producers")
    claim = next(one for one in claims() if one.table == table.id)
    assert judge(claim, table, "b", []).document == "exponent 0.92"


# -- the documents ---------------------------------------------------------------------------------


@pytest.mark.parametrize("claim", claims(), ids=lambda claim: claim.says)
def test_a_document_agrees_with_itself(claim: Claim) -> None:
    """The figures of each table, as if each had been measured five times, agree with the claims about it."""
    table = next(table for table in tables() if table.id == claim.table)
    figures = document_measurements(table)
    single = {name: value for name, value in table.where.items() if not isinstance(value, list)}
    repeated = [
        Measurement(
            target=table.document,
            experiment=table.experiment,
            settings={**single, **one.settings},
            repetition=number,
            metrics=one.metrics,
        )
        for one in figures
        for number in range(1, 6)
        if all(one.settings.get(name, 0) in value for name, value in table.where.items() if isinstance(value, list))
    ]
    found = judge(claim, table, table.document, repeated)
    decidable = "interval" not in found.measured and "measured" not in found.measured and found.claim.test in SHAPES
    assert found.verdict is not DISAGREES
    if decidable:
        assert found.verdict is AGREES, found.measured


@pytest.mark.parametrize("table", tables(), ids=lambda table: table.id)
def test_every_table_is_repeated_at_every_scale(table: Table) -> None:
    for name, scale in SCALES.items():
        made: list[Condition] = list(EXPERIMENTS[table.experiment](scale))
        repeated = [
            one
            for one in made
            if table.repeated_by(Measurement(target="", experiment=one.experiment, settings=one.settings, repetition=1))
        ]
        assert repeated or (name == "tiny" and table.id in {"reliability-2", "reliability-3", "principles-replicas"})


def test_a_scale_leaves_out_what_is_not_asked_for_by_name() -> None:
    assert experiments_of("tiny", []) == ["throughput", "failures", "rebalance"]
    assert experiments_of("tiny", ["size", "throughput"]) == ["throughput", "size"]
    assert experiments_of("default", []) == [name for name in EXPERIMENTS if name != "idle"]


@pytest.mark.parametrize("claim", claims(), ids=lambda claim: claim.says)
def test_every_claim_has_a_table_a_test_and_known_settings(claim: Claim) -> None:
    table = next(table for table in tables() if table.id == claim.table)
    assert claim.test in {*SHAPES, *RATIOS, *COUNTS}
    assert {claim.metric, claim.than, claim.also, claim.covered, claim.unless} <= {"", *table.metrics}
    if table.experiment != "availability":
        settings = {name for one in EXPERIMENTS[table.experiment](SCALES["full"]) for name in one.settings}
        assert {*claim.where, *claim.within, *table.where, *([claim.along] if claim.along else [])} <= settings
