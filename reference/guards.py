"""The guard switches: on, the broker follows the protocol; off, it has the historical bug."""

import dataclasses
import re
from dataclasses import dataclass
from typing import Self

from highwater.names import unknown_name


@dataclass(frozen=True, slots=True)
class Guards:
    """One switch for each guard of `spec/guards.toml`, in snake case; that file has rule, source and witnesses.

    The broker setting `truncation` sets three of them: each older rule switches one more off.
    """

    truncate_by_epoch: bool = True
    fence_stale_fetch: bool = True
    hw_needs_whole_isr: bool = True
    hw_needs_min_isr: bool = True
    expand_only_caught_up: bool = True
    expand_after_epoch_start: bool = True
    isr_cas: bool = True
    fence_stale_leader_and_isr: bool = True
    fence_stale_controller: bool = True
    elect_from_isr: bool = True
    unclean_restart_leaves_isr: bool = True
    ack_after_commit: bool = True
    end_txn_bumps_epoch: bool = True
    truncate_to_common_epoch: bool = True
    forget_truncated_epochs: bool = True
    truncate_before_hw: bool = True
    hw_waits_for_proposed: bool = True
    wait_only_for_eligible: bool = True
    ack_needs_min_isr: bool = True
    append_needs_min_isr: bool = True
    one_proposal_at_a_time: bool = True
    keep_proposal_until_answered: bool = True
    await_state_after_conflict: bool = True
    ignore_stale_state: bool = True
    # ISR membership
    fence_old_leader: bool = True
    defer_to_newer_leader: bool = True
    refuse_fenced: bool = True
    refuse_former_life: bool = True
    fenced_leaves_isr: bool = True
    keep_eligible: bool = True
    empty_eligible_at_min_isr: bool = True
    unclean_leaves_eligible: bool = True
    # controller
    claim_cas: bool = True
    controller_epoch_cas: bool = True
    version_cas: bool = True
    persist_before_send: bool = True
    bump_leader_epoch: bool = True
    fence_old_broker_epoch: bool = True
    prefer_only_in_sync: bool = True
    announce_both_replica_sets: bool = True
    await_target_in_sync: bool = True
    move_leader_to_target: bool = True
    shrink_before_delete: bool = True
    persist_assignment_last: bool = True
    fence_stale_stop_replica: bool = True
    deletion_awaits_replicas: bool = True
    deletion_waits_for_reassignment: bool = True

    # transactions: the coordinator
    init_bumps_epoch: bool = True
    init_aborts_open: bool = True
    init_awaits_markers: bool = True
    add_awaits_markers: bool = True
    fence_stale_add: bool = True
    fence_stale_end_txn: bool = True
    timeout_fences: bool = True
    persist_decision: bool = True
    complete_awaits_markers: bool = True
    resume_prepared: bool = True
    # transactions: the partitions
    verify_before_append: bool = True
    refuse_ended_meanwhile: bool = True
    fence_stale_produce: bool = True
    fence_stale_marker: bool = True
    fence_old_coordinator: bool = True
    marker_needs_new_epoch: bool = True
    answer_repeated_marker: bool = True
    stable_before_open: bool = True
    hide_aborted: bool = True
    new_id_when_exhausted: bool = True
    new_id_after_fence: bool = True
    fence_old_producer_id: bool = True
    markers_keep_old_id: bool = True
    persist_next_id: bool = True
    answer_previous_id: bool = True
    await_stable_offsets: bool = True

    # idempotent producers: the leader of a partition
    refuse_sequence_gap: bool = True
    refuse_used_sequence: bool = True
    begin_at_zero: bool = True
    remember_batches: bool = True
    rebuild_window: bool = True
    forget_truncated_batches: bool = True
    # idempotent producers: the producer
    limit_in_flight: bool = True
    retry_keeps_sequence: bool = True

    # groups: the coordinator
    await_all_members: bool = True
    expire_unsynced_members: bool = True
    require_member_id: bool = True
    persist_before_sync_reply: bool = True
    fence_stale_generation: bool = True
    fence_stale_sync: bool = True
    fence_stale_heartbeat: bool = True
    members_commit_only: bool = True
    fence_instance: bool = True
    new_member_id_on_static_rejoin: bool = True
    persist_static_rejoin: bool = True
    one_protocol_for_all: bool = True
    # groups: the member
    revoke_before_join: bool = True
    drop_on_lost: bool = True
    rejoin_on_rebalance: bool = True
    match_replies: bool = True
    leader_assigns_members_only: bool = True
    withhold_claimed: bool = True
    highest_claim_wins: bool = True
    nobody_keeps_on_conflict: bool = True
    claims_bear_generation: bool = True
    revoke_before_rejoin: bool = True
    rejoin_after_revoke: bool = True
    unaffected_keep: bool = True
    reset_claim_on_lost: bool = True
    eager_members_revoke_all: bool = True

    # consumers of 0.7 over ZooKeeper
    ephemeral_owners: bool = True
    claim_if_free: bool = True
    release_before_claim: bool = True
    stop_before_release: bool = True
    stop_fetching_on_expiry: bool = True
    retry_rebalance: bool = True
    same_view_order: bool = True
    rewatch_on_read: bool = True

    def without(self, *names: str) -> Self:
        """Return a copy with the named guards off; `FenceStaleFetch` and `fence_stale_fetch` name the same guard.

        Raises UsageError, with near names, for an unknown one.
        """
        known = [field.name for field in dataclasses.fields(self)]
        switches = [switch_name(name) for name in names]
        for name, switch in zip(names, switches, strict=True):
            if switch not in known:
                raise unknown_name("guard", name, map(guard_name, known), "highwater guards --list")
        return dataclasses.replace(self, **dict.fromkeys(switches, False))


def guard_name(switch: str) -> str:
    """Convert `fence_stale_fetch` to `FenceStaleFetch`."""
    return "".join(word.capitalize() for word in switch.split("_"))


def switch_name(guard: str) -> str:
    """Convert `FenceStaleFetch` to `fence_stale_fetch`; return snake case unchanged."""
    return re.sub(r"(?<=[A-Za-z0-9])(?=[A-Z])", "_", guard).lower()
