"""Programs: the walks of the suite that run on any broker along drawn paths.

A program is a case, whose rules are stated nowhere else. `highwater explore` draws its paths and shrinks them, and
`highwater simulate --programs` runs it under faults.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
import pytest

from highwater.conformance.cases.fields import test_mixtures
from highwater.conformance.cases.groups import test_restated_members
from highwater.conformance.cases.records.walks import (
    test_mixed_everything,
    test_mixed_producers,
    test_mixed_reads,
    test_mixed_writes,
)
from highwater.conformance.cases.transactions import test_mixed_transactions
from highwater.conformance.cases.walks import (
    test_classic_walk,
    test_consumer_group_walk,
    test_entity_walk,
    test_group_list_walk,
    test_offset_walk,
    test_setting_walk,
    test_specified_rebalances,
    test_topic_walk,
    test_transaction_list_walk,
)
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.client.draws import Followed, Path
from highwater.conformance.running.selection import check_era
from highwater.reference.wire.messages.topics import CreateTopicsRequest

PROGRAMS: Final[Mapping[str, Callable[..., None]]] = {
    "writes": test_mixed_writes.test_each_part_of_a_produce_is_stored_or_refused_by_itself,
    "deletions": test_mixed_writes.test_each_part_of_a_deletion_moves_a_start_or_is_refused,
    "lookups": test_mixed_reads.test_each_time_and_special_timestamp_finds_its_offset,
    "limits": test_mixed_reads.test_offsets_and_limits_of_each_partition_apply_to_it_alone,
    "fetch-sessions": test_mixed_reads.test_a_session_returns_each_change_once,
    "producers": test_mixed_producers.test_each_batch_of_several_producers_is_stored_once_or_refused,
    "transactions": test_mixed_transactions.test_overlapping_transactions_have_each_its_own_end,
    "rising-epochs": test_mixed_transactions.test_overlapping_transactions_with_epochs_that_rise,
    "everything": test_mixed_everything.test_all_objects_of_the_log_used_at_once_follow_their_models,
    "everything-and-restarts": test_mixed_everything.test_all_objects_of_the_log_go_on_after_restarts,
    "transaction-lists": test_transaction_list_walk.test_every_filter_lists_what_the_model_lists,
    "active-producers": test_transaction_list_walk.test_the_producers_of_each_partition_follow_the_model,
    "members": test_classic_walk.test_a_group_of_dynamic_members_follows_the_model,
    "static-members": test_classic_walk.test_a_group_of_static_members_follows_the_model,
    "classic-group": test_classic_walk.test_members_that_do_anything_in_any_order_follow_the_model,
    "consumer-group": test_consumer_group_walk.test_a_consumer_group_follows_the_model,
    "rebalances": test_specified_rebalances.test_each_path_through_the_specification,
    "group-lists": test_group_list_walk.test_lists_descriptions_and_deletions_of_groups_follow_the_model,
    "offsets": test_offset_walk.test_offsets_of_groups_without_members_follow_the_model,
    "offsets-of-members": test_offset_walk.test_offsets_of_a_group_with_members_follow_the_model,
    "deleted-offsets": test_offset_walk.test_deleted_offsets_follow_the_model,
    "topics": test_topic_walk.test_topics_that_are_created_follow_the_model,
    "extended-topics": test_topic_walk.test_topics_that_are_extended_follow_the_model,
    "deleted-topics": test_topic_walk.test_topics_that_are_deleted_follow_the_model,
    "settings": test_setting_walk.test_changes_of_single_settings_follow_the_model,
    "replaced-settings": test_setting_walk.test_replaced_settings_follow_the_model,
    "quotas": test_entity_walk.test_quotas_follow_the_model,
    "mixtures": test_mixtures.test_items_of_several_kinds_are_answered_each_by_itself,
    "restated-members": test_restated_members.test_the_last_join_counts,
}
PARAMETERS: Final = 0
"""The number of the generator that chooses the parameters of a program."""


def run(name: str, cluster: Cluster) -> None:
    """Run a program on a cluster, with one of the values of each parameter of the case.

    Raises TargetFailure if the target breaks a clause, Unsupported or NotApplicable if the program does not fit it.
    """
    program, chance = PROGRAMS[name], cluster.draws.generator(PARAMETERS)
    marks: Sequence[pytest.Mark] = getattr(program, "pytestmark", ())
    check_era(cluster.target.era, marks)
    with cluster.connect() as broker:
        broker.version_of(CreateTopicsRequest)
    arguments: dict[str, Any] = {"cluster": cluster}
    for mark in marks:
        if mark.name == "parametrize":
            chosen = chance.choice(list(mark.args[1]))
            arguments[mark.args[0]] = chosen.values[0] if hasattr(chosen, "marks") else chosen
    if "topic" in program.__annotations__:
        arguments["topic"] = cluster.create_topic(partitions=3)
    program(**arguments)


def follow(name: str, cluster: Cluster, path: str) -> None:
    """Run a program along a path, which is given as JSON, as `highwater explore` writes it."""
    cluster.draws = Followed(msgspec.json.decode(path, type=Path))
    run(name, cluster)
