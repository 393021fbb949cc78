"""The page and the tables of a bench: what a reader sees of repetitions, failures and the figures of a document."""

import csv
from pathlib import Path

import pytest

from highwater.experiments.conditions import Measurement, Setting
from highwater.experiments.documents import document_measurements, repeats, tables
from highwater.experiments.export import CSV, PARQUET, export
from highwater.experiments.page import count_verdicts, judgements, write_page

ONE: dict[str, Setting] = {
    "clients": "producers", "producers": 1, "consumers": 0, "acks": "1", "replicas": 1, "min_insync_replicas": 0,
    "partitions": 6, "record_bytes": 100,
}  # fmt: skip
THREE = {**ONE, "producers": 3}


def rate(value: float, repetition: int = 1, settings: dict[str, Setting] = ONE, target: str = "a") -> Measurement:
    metrics = {"records_per_second": value, "megabytes_per_second": value / 1e4}
    return Measurement(
        target=target, experiment="clients", settings=settings, repetition=repetition, metrics=metrics
    )  # fmt: skip


def failed(repetition: int, failure: str = "", lacks: str = "") -> Measurement:
    return Measurement(
        target="a", experiment="clients", settings=ONE, repetition=repetition, failed=failure, unsupported=lacks
    )  # fmt: skip


def page(folder: Path, *measurements: Measurement) -> str:
    return write_page(folder, ["a"], measurements, {}).read_text()


def test_a_bar_is_the_median_of_the_repetitions(tmp_path: Path) -> None:
    text = page(tmp_path, rate(100, 1), rate(120, 2), rate(1_000, 3))
    assert ">120 (100 to 1,000)<" in text


def test_the_figures_of_a_document_have_a_scale_of_their_own(tmp_path: Path) -> None:
    """The longest bar of the document is as long as the longest of ours, though its figure is 17,500 times as large."""
    text = page(tmp_path, rate(100), rate(200, settings=THREE))
    bars = [line.strip() for line in text.splitlines() if '<rect class="' in line and 'rx="2"' in line]
    found = [(bar.split('"')[1], float(bar.split('width="')[1].split('"')[0])) for bar in bars]
    ours, published = ([width for style, width in found if style == name] for name in ("b0", "doc"))
    assert ours[:2] == [215, 430]
    assert published[:2] == pytest.approx([430 * 128 / 350, 430], abs=0.1)
    assert (text.count(">1,280,000<"), text.count(">3,500,000<")) == (2, 1), "one producer is also part of the pair"


def test_a_failure_is_shown_unless_its_repetition_was_measured_later(tmp_path: Path) -> None:
    text = page(tmp_path, rate(100, 1), failed(2, "no leader"), failed(3, "too slow"), rate(100, 3))
    assert "no leader" in text
    assert "too slow" not in text
    assert "needs 4 brokers" in page(tmp_path, failed(1, lacks="needs 4 brokers; this cluster has 3"))


def test_only_targets_that_were_measured_are_judged() -> None:
    linear = [
        rate(value, number, settings, target)
        for value, settings in ((100, ONE), (300, THREE))
        for number in (1, 2, 3)
        for target in ("a", "b")
    ]
    judged = judgements(["a", "b", "c"], linear)
    assert {one.target for one in judged} == {"a", "b"}
    found = {(one.target, one.verdict.value) for one in judged if one.claim.test == "linear"}
    assert found == {("a", "agrees"), ("b", "agrees")}
    assert sum(count_verdicts(judged).values()) == len(judged)


def test_a_row_of_the_tables_for_each_metric_and_each_failure(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    export([rate(100), failed(2, "no leader")], tmp_path)
    with (tmp_path / CSV).open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["metric"], row["value"], row["unit"], row["failed"]) for row in rows] == [
        ("records_per_second", "100", "records/s", ""), ("megabytes_per_second", "0.01", "MB/s", ""),
        ("", "", "", "no leader"),
    ]  # fmt: skip
    assert pq.read_table(tmp_path / PARQUET).num_rows == 3


def test_a_measurement_repeats_every_table_that_it_fits() -> None:
    """One producer is a row of the table of producers, and of that of the pair."""
    sections = "Producer Number VS. Throughput", "Producer Consumer pair"
    assert repeats(rate(1)) == [f"Kafka design principles (0.8), {section}" for section in sections]
    assert repeats(rate(1, settings=THREE)) == [f"Kafka design principles (0.8), {sections[0]}"]


def test_a_figure_without_a_name_is_the_only_metric_of_its_table() -> None:
    unnamed = [table for table in tables() if any("value" in figure for figure in table.figures)]
    assert unnamed
    assert all(len(table.metrics) == 1 for table in unnamed)
    assert [one.metrics for table in unnamed for one in document_measurements(table)] == [
        {table.metrics[0]: figure["value"]} for table in unnamed for figure in table.figures
    ]
