"""What a correct Kafka and its clients do, beside the smallest change of it that is an anomaly, by whole audits."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from highwater.reports.audit import audit
from highwater.reports.tests.histories import PROMISED, History

KEY = "t-0"
CONFIG = msgspec.structs.replace(PROMISED, isolation="read_committed")
Story = Callable[[History], None]
STORIES: list[tuple[str, set[int], dict[str, Any], Story]] = []


def story(*rules: int, **config: Any) -> Callable[[Story], Story]:
    """A history and the rules that it violates."""

    def tell(told: Story) -> Story:
        STORIES.append((told.__name__, set(rules), config, told))
        return told

    return tell


def op(h: History, process: int, f: str, kind: str = "ok", asked: Any = None, told: Any = None, **both: Any) -> None:
    h.begin(process, f, **{"value": asked, **both})
    h.end(process, kind, **({"value": told} if told is not None else {}))


def event(h: History, process: int | str, f: str, kind: str = "info", **fields: Any) -> None:
    h._add(process, kind, f, **fields)


def begin(h: History, txn: int) -> None:
    event(h, 80 + txn, "begin_txn", txn=txn)


def end(h: History, txn: int, how: str = "commit", kind: str = "ok", error: str | None = None) -> None:
    h.begin(80 + txn, "end_txn", txn=txn, value=how)
    h.end(80 + txn, kind, error=error)


def member(h: History, process: int, *records: tuple[int, int]) -> None:
    event(h, process, "assign", "ok", value=[KEY], group="g")
    h.poll(*records, process=process)


def leave(h: History, process: int) -> None:
    event(h, process, "revoke", value=[KEY], group="g")


# -- values that were sent more than once ------------------------------------------------------------


@story()
def tried_again_after_a_time_out(h: History) -> None:
    h.send(1, kind="info")
    h.send(1, 0)
    h.assign(position=0)
    h.poll((0, 1))


@story()
def tried_again_after_a_refusal(h: History) -> None:
    h.send(1, kind="fail")
    h.send(1, 0)
    h.assign(position=0)
    h.poll((0, 1))


@story(17)
def refused_each_time_and_read(h: History) -> None:
    h.send(1, kind="fail")
    h.send(1, kind="fail")
    h.fetch(0, (0, 1), end=1)


@story()
def tried_again_in_another_transaction(h: History) -> None:
    for txn, offset, how in ((1, 0, "abort"), (2, 2, "commit")):
        begin(h, txn)
        h.send(1, offset, txn=txn)
        end(h, txn, how)
    h.fetch(0, (2, 1), end=4)


@story(17)
def the_attempt_that_was_taken_back_is_read(h: History) -> None:
    for txn, offset, how in ((1, 0, "abort"), (2, 2, "commit")):
        begin(h, txn)
        h.send(1, offset, txn=txn)
        end(h, txn, how)
    h.fetch(0, (0, 1), end=4)


@story(4)
def lost_although_sent_twice(h: History) -> None:
    h.send(1, kind="info")
    h.send(1, 0)
    h.send(2, 1)
    h.fetch(0, (1, 2), end=2)


# -- what a refusal says -----------------------------------------------------------------------------


@story()
def a_lost_connection_is_no_refusal(h: History) -> None:
    h.begin(0, "send", value=1)
    h.end(0, "fail", error="NETWORK_EXCEPTION")
    h.fetch(0, (0, 1), end=1)


@story()
def fenced_after_a_commit_that_nobody_answered(h: History) -> None:
    begin(h, 1)
    h.send(1, 0, txn=1)
    end(h, 1, kind="info")
    end(h, 1, kind="fail", error="INVALID_TXN_STATE")
    h.fetch(0, (0, 1), end=2)


@story(17)
def a_commit_that_was_refused_is_none(h: History) -> None:
    begin(h, 1)
    h.send(1, 0, txn=1)
    end(h, 1, kind="fail", error="INVALID_TXN_STATE")
    h.fetch(0, (0, 1), end=2)


# -- tombstones --------------------------------------------------------------------------------------


@story()
def a_tombstone_of_a_transaction_is_read(h: History) -> None:
    begin(h, 1)
    h.begin(0, "send", value=None, key="k", txn=1)
    h.end(0, offset=0)
    h.send(1, 1, txn=1)
    end(h, 1)
    h.fetch(0, (0, None), (1, 1), end=3)  # type: ignore[arg-type]


@story(4)
def a_tombstone_is_lost(h: History) -> None:
    h.send(1, 0, key="k")
    h.begin(0, "send", value=None, key="k")
    h.end(0, offset=1)
    h.send(2, 2, key="other")
    h.fetch(0, (0, 1), (2, 2), end=3)


@story(compaction=True)
def a_tombstone_was_taken_back(h: History) -> None:
    h.send(1, 0, key="k")
    begin(h, 1)
    h.begin(0, "send", value=None, key="k", txn=1)
    h.end(0, offset=1)
    end(h, 1, "abort")
    h.send(2, 3, key="other")
    h.fetch(0, (0, 1), (3, 2), end=4)


def _cleaned_and_back(h: History, epoch: int) -> None:
    h.send(1, 0, key="k")
    h.send(2, 1, key="k")
    h.fetch(0, (0, 1), (1, 2), end=2, epoch=1)
    h.fetch(0, (1, 2), end=2, epoch=1)
    h.fetch(0, (0, 1), (1, 2), end=2, epoch=epoch)


@story(compaction=True)
def a_new_leader_has_not_cleaned_yet(h: History) -> None:
    _cleaned_and_back(h, 2)


@story(35, compaction=True)
def the_same_leader_shows_again_what_it_had_cleaned(h: History) -> None:
    _cleaned_and_back(h, 1)


def _two_of_keys(h: History, *keys: dict[str, int]) -> None:
    for offset, key in enumerate(keys):
        h.send(offset + 1, offset, key=key)
    h.fetch(0, (1, 2), end=2)


@story(compaction=True)
def a_key_that_is_a_map_was_written_again(h: History) -> None:
    _two_of_keys(h, {"a": 1, "b": 2}, {"b": 2, "a": 1})


@story(4, compaction=True)
def another_map_is_another_key(h: History) -> None:
    _two_of_keys(h, {"a": 1, "b": 2}, {"a": 2, "b": 1})


# -- polls of unknown outcome ------------------------------------------------------------------------


def _three(h: History) -> None:
    for offset in range(3):
        h.send(offset + 1, offset)
    h.fetch(0, (0, 1), (1, 2), (2, 3), end=3)


@story()
def a_poll_that_did_not_return_may_have_gone_on(h: History) -> None:
    _three(h)
    h.assign(position=0)
    h.poll((0, 1))
    op(h, 50, "poll", "info")
    h.poll((2, 3))


@story(8)
def a_poll_that_was_refused_went_nowhere(h: History) -> None:
    _three(h)
    h.assign(position=0)
    h.poll((0, 1))
    op(h, 50, "poll", "fail")
    h.poll((2, 3))


@story()
def a_transaction_that_failed_does_not_rewind_its_consumer(h: History) -> None:
    _three(h)
    h.assign(position=0)
    h.poll((0, 1))
    op(h, 50, "poll", "fail", txn=1)
    h.poll((2, 3))


@story()
def a_member_that_was_cut_off_may_have_been_given_more(h: History) -> None:
    _three(h)
    member(h, 51, (0, 1))
    h.begin(51, "poll")
    event(h, 51, "crash")
    member(h, 52, (2, 3))


@story(33)
def a_group_jumps_over_what_none_of_it_was_given(h: History) -> None:
    _three(h)
    member(h, 51, (0, 1))
    leave(h, 51)
    member(h, 52, (2, 3))


# -- committed offsets -------------------------------------------------------------------------------


def _resumes_below(h: History, *, reset: bool) -> None:
    _three(h)
    member(h, 51, (0, 1), (1, 2))
    op(h, 51, "commit", asked={KEY: 2}, told={KEY: 2}, group="g")
    leave(h, 51)
    event(h, 52, "assign", "ok", value=[KEY], group="g")
    if reset:
        event(h, 52, "reset", value=[KEY])
    h.poll((0, 1), process=52)


@story(25)
def a_member_resumes_below_the_commit(h: History) -> None:
    _resumes_below(h, reset=False)


@story()
def a_member_takes_the_reset_policy(h: History) -> None:
    _resumes_below(h, reset=True)


@story()
def a_topic_takes_its_commits_with_it(h: History) -> None:
    op(h, 1, "commit", asked={KEY: 2}, told={KEY: 2}, group="g")
    op(h, 1, "delete_topic")
    op(h, 1, "committed", told={KEY: -1}, group="g")


@story(32)
def a_refused_deletion_takes_nothing(h: History) -> None:
    op(h, 1, "commit", asked={KEY: 2}, told={KEY: 2}, group="g")
    op(h, 1, "delete_topic", "fail")
    op(h, 1, "committed", told={KEY: -1}, group="g")


def _ahead(h: History, committed: int) -> None:
    _three(h)
    event(h, 51, "assign", "ok", value=[KEY], position=1)
    op(h, 51, "commit", asked={KEY: committed}, told={KEY: committed}, group="g")


@story()
def a_reader_commits_where_it_was_put(h: History) -> None:
    _ahead(h, 1)


@story(24)
def a_reader_commits_ahead_of_where_it_was_put(h: History) -> None:
    _ahead(h, 2)


def _transaction_of_an_old_generation(h: History, **who: Any) -> None:
    begin(h, 1)
    op(h, 3, "sync", told=[KEY], group="g", generation_id=6, member_id="new", node="1")
    op(h, 4, "send_offsets", asked={KEY: 3}, txn=1, group="g", **who)
    end(h, 1)


@story()
def offsets_of_a_transaction_without_a_member(h: History) -> None:
    _transaction_of_an_old_generation(h)


@story(27)
def offsets_of_a_transaction_of_an_old_generation(h: History) -> None:
    _transaction_of_an_old_generation(h, generation_id=5, member_id="old")


# -- the end of the log ------------------------------------------------------------------------------


def _listed(h: History, *told: tuple[int, int]) -> None:
    for epoch, high_watermark in told:
        h.list_offsets(high_watermark, epoch=epoch)


@story(16)
def a_listing_falls_below_that_of_an_earlier_epoch_though_a_later_one_told_more(h: History) -> None:
    _listed(h, (2, 9), (1, 8), (2, 8), (3, 7))


@story()
def a_zombie_lists_less(h: History) -> None:
    _listed(h, (2, 9), (1, 8))


def _metadata(h: History, *told: tuple[int, int, str]) -> None:
    for leader, epoch, topic_id in told:
        op(h, 7, "metadata", told={KEY: [leader, epoch]}, node="1", topic_id=topic_id)


@story()
def a_topic_of_another_id_begins_anew(h: History) -> None:
    _metadata(h, (1, 3, "A"), (2, 0, "B"))


@story(28)
def a_topic_of_one_id_does_not(h: History) -> None:
    _metadata(h, (1, 3, "A"), (2, 0, "A"))


def _position_of_the_request(h: History, *records: tuple[int, int]) -> None:
    """As a raw client writes it: where it reads, and of which epoch it knows, stands in the request alone."""
    _three(h)
    h.begin(9, "fetch", position=0, leader_epoch=1)
    h.end(9, value=[[0, 1], [1, 2], [2, 3]], position=None, leader_epoch=None, high_watermark=3)
    h.begin(9, "fetch", position=0, leader_epoch=1)
    h.end(9, value=[list(each) for each in records], position=None, leader_epoch=None, high_watermark=2)


@story(16, 14)
def a_request_tells_the_epoch(h: History) -> None:
    _position_of_the_request(h, (0, 1), (1, 2))


@pytest.mark.parametrize(("rules", "config", "told"), [each[1:] for each in STORIES], ids=[each[0] for each in STORIES])
def test_a_story_violates_what_it_says_and_nothing_else(
    rules: set[int], config: dict[str, Any], told: Story, tmp_path: Path
) -> None:
    h = History(msgspec.structs.replace(CONFIG, **config))
    told(h)
    result = audit(h.write(tmp_path / "history.ndjson"))
    assert {each.rule for each in result.findings if each.severity == "violation"} == rules
    assert (result.verdict == "invalid") == bool(rules)
