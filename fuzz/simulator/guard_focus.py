"""Clients, settings and faults that make the absence of a guard visible; a guard that is not listed needs none."""

from dataclasses import dataclass, field, replace
from typing import Any, Final

from highwater.fuzz.schedule import CLIENTS, MESSAGE, Fault
from highwater.fuzz.simulator.cluster import Focus, Load, Settings

ANY_FAULT: Final = Focus()


@dataclass(frozen=True, slots=True)
class Needs:
    """What a run without the guard needs; the seed draws the rest. `also_off` are guards that would mask it."""

    load: Load | None = None
    focus: Focus = ANY_FAULT
    also_off: tuple[str, ...] = ()
    min_insync_replicas: int = 2
    broker_settings: dict[str, Any] = field(default_factory=dict)
    assigned: tuple[int, ...] = ()


OLD_CONSUMERS: Final = Needs(
    Load(producers=0, old_consumers=3), Focus(("kill", "pause", "cut", "clog", "delay", "expire"))
)
BY_ALTER_PARTITION: Final = {"isr_update": "alter_partition"}
BY_ZOOKEEPER: Final = {"isr_update": "zookeeper"}
COOPERATIVE: Final = Load(members=("cooperative-sticky",) * 3)
EAGER: Final = Load(members=("range",) * 3)
MIXED_ASSIGNORS: Final = Load(members=("cooperative-sticky+range", "range", "range+cooperative-sticky"))
STATIC_TWINS: Final = Load(members=("range",) * 4, twins=2)
STATIC: Final = Load(members=("range",) * 3, twins=1)
STATIC_NO_COMMITS: Final = replace(STATIC, commits=False)
SWARM: Final = Settings(swarm=True)
LED_BY_2: Final = (2, 3, 4)
ALL_FOUR: Final = (1, 2, 3, 4)
ADMINISTRATOR: Final = Load(administrator=True)
ADMINISTRATOR_DELETES: Final = Load(producers=1, administrator=True, deletes=True)


def fault(at_ms: int, for_ms: int, kind: str, node: str, **options: str | int) -> Fault:
    """Return a fault of one node."""
    return Fault(at_ms=at_ms, for_ms=for_ms, kind=kind, nodes=(node,), options=options)


def messages(at_ms: int, for_ms: int, line: str) -> Fault:
    """Return faults of single messages."""
    return Fault(at_ms=at_ms, for_ms=for_ms, kind=MESSAGE, nodes=(CLIENTS,), options={"line": line})


TRANSACTIONAL: Final = Load(producers=0, transactional=1)
QUICK_TRANSACTIONS: Final = replace(TRANSACTIONAL, transaction_timeout_ms=500)
ENDLESS_TRANSACTIONS: Final = replace(TRANSACTIONAL, producers=3, transaction_timeout_ms=3_000)
"""Each log grows behind a transaction that does not end, so that the auditor sees it, too."""
IDEMPOTENT: Final = Load(producers=0, idempotent=2)
READERS_OF_TRANSACTIONS: Final = Load(producers=0, transactional=2, readers=2)
VERSION_1: Final = ("EndTxnBumpsEpoch",)
PATIENT: Final = {"request_timeout_ms": 3_000}
"""Brokers wait for each other as long as a message is late."""
FEW_EPOCHS: Final = {"producer_epoch_max": 2}
"""A producer id has epochs 0 and 1."""
TRANSACTION_COORDINATOR: Final = "leader(__transaction_state,0)"
MEMBERS_RESTART: Final = Focus(faults=(fault(600, 2_000, "kill", "member:1"), fault(4_000, 700, "kill", "member:0")))
CONTROLLERS_CHANGE: Final = Focus(faults=tuple(fault(700 + 900 * n, 0, "expire", "controller") for n in range(6)))
DUPLICATES: Final = tuple(
    fault(500, 5_500, "duplicate", f"member:{number}", direction="out", of="brokers", per_mille=900)
    for number in range(3)
)
"""Nine of ten requests of each member are delivered twice."""


NEEDS: Final[dict[str, Needs]] = {
    # ISR
    "KeepEligible": Needs(
        Load(),
        Focus(faults=(
            fault(800, 3_000, "cut", "leader(t,0)", direction="in", of="brokers", what="FetchRequest"),
            fault(2_200, 1_000, "kill", "leader(t,0)", lose="unflushed"),
        )),
        broker_settings=BY_ALTER_PARTITION | {"log_flush_interval_ms": 10_000},
    ),
    "UncleanLeavesEligible": Needs(
        Load(),
        Focus(faults=(
            fault(200, 5_000, "cut", "4", direction="out", of="brokers", what="FetchRequest"),
            fault(1_600, 1_000, "kill", "3", lose="unflushed"),
            fault(1_700, 4_000, "cut", "3", direction="out", of="brokers", what="FetchRequest"),
            fault(3_400, 0, "expire", "leader(t,0)"),
        )),
        broker_settings=BY_ALTER_PARTITION | {"log_flush_interval_ms": 10_000},
        assigned=LED_BY_2,
    ),
    "ExpandAfterEpochStart": Needs(
        Load(),
        Focus(faults=(
            fault(300, 4_000, "delay", "2", direction="out", of="3", what="FetchResponse", ms=400),
            fault(800, 3_000, "cut", "4", direction="out", of="brokers", what="FetchRequest"),
            fault(1_500, 3_000, "kill", "2"),
        )),
        assigned=LED_BY_2,
    ),
    "RefuseFenced": Needs(
        Load(),
        Focus(faults=(
            fault(200, 5_300, "cut", "4", of="store"),
            fault(250, 3_900, "pause", "4"),
            fault(300, 5_300, "clog", "controller", of="2", what="UpdateMetadataRequest", direction="out"),
        )),
        broker_settings=BY_ALTER_PARTITION | {"replica_lag_time_max_ms": 300},
        assigned=LED_BY_2,
    ),
    "DeferToNewerLeader": Needs(
        Load(),
        Focus(faults=(
            fault(300, 3_000, "clog", "controller", of="store"),
            fault(400, 3_500, "clog", "all", of="3", what="UpdateMetadataRequest", direction="out"),
            fault(500, 1_800, "cut", "2", of="store"),
            fault(1_500, 1_300, "cut", "4", direction="out", of="brokers", what="FetchRequest"),
        )),
        broker_settings=BY_ALTER_PARTITION,
        assigned=LED_BY_2,
    ),
    "PreferOnlyInSync": Needs(
        Load(),
        Focus(faults=(
            fault(400, 1_200, "kill", "2"),
            fault(500, 4_000, "cut", "2", direction="out", of="brokers", what="FetchRequest"),
        )),
        broker_settings={"leader_imbalance_check_interval_ms": 500},
        assigned=LED_BY_2,
    ),
    "FenceStaleController": Needs(
        Load(),
        Focus(faults=(
            fault(300, 5_000, "duplicate", "controller", of="brokers", direction="out", per_mille=900),
            fault(600, 400, "kill", "4"),
            fault(1_200, 0, "depose", "store"),
            fault(2_600, 400, "kill", "4"),
            fault(3_200, 0, "depose", "store"),
        )),
        assigned=LED_BY_2,
    ),
    "ControllerEpochCas": Needs(
        ADMINISTRATOR,
        Focus(faults=(
            fault(300, 600, "kill", "leader(t,0)"),
            fault(1_500, 2_500, "clog", "controller", of="store", direction="in"),
            fault(1_900, 0, "depose", "store"),
        )),
    ),
    "AwaitStateAfterConflict": Needs(
        Load(),
        Focus(faults=(
            fault(100, 6_000, "cut", "5", direction="out", of="brokers", what="FetchRequest"),
            fault(100, 1_600, "cut", "4", direction="out", of="brokers", what="FetchRequest"),
            fault(1_300, 2_000, "cut", "controller", direction="out", of="2", what="AlterPartitionResponse"),
            fault(2_500, 3_000, "clog", "controller", direction="out", of="2", what="LeaderAndIsrRequest"),
            fault(2_500, 3_000, "clog", "controller", direction="out", of="3", what="LeaderAndIsrRequest"),
            fault(2_700, 200, "kill", "5"),
        )),
        broker_settings=BY_ALTER_PARTITION | {"replica_lag_time_max_ms": 300},
        assigned=(2, 3, 4, 5),
    ),
    "PersistAssignmentLast": Needs(
        Load(administrator=True, hurries=True),
        Focus(faults=tuple(fault(at_ms, 400, "kill", "controller") for at_ms in (700, 2_200, 3_700, 5_200))),
    ),
    "FenceStaleStopReplica": Needs(
        Load(administrator=True, hurries=True),
        Focus(faults=(
            fault(0, 6_000, "duplicate", "controller", direction="out", what="StopReplicaRequest", per_mille=900),
        )),
    ),
    "DeletionAwaitsReplicas": Needs(
        ADMINISTRATOR_DELETES,
        Focus(faults=(
            fault(500, 1_500, "kill", "2"),
            fault(2_400, 1_500, "kill", "3"),
            fault(4_300, 1_500, "kill", "4"),
        )),
    ),
    "DeletionWaitsForReassignment": Needs(
        Load(producers=1, administrator=True, moves_side=True),
        Focus(faults=(fault(1_500, 4_500, "delay", "store", direction="out", of="brokers", ms=300),)),
    ),
    "FenceStaleFetch": Needs(
        Load(administrator=True, hurries=True),
        Focus(faults=(
            fault(300, 5_500, "delay", "controller", direction="out", of="3", what="LeaderAndIsrRequest", ms=300),
        )),
        assigned=ALL_FOUR,
    ),
    "TruncateToCommonEpoch": Needs(
        Load(),
        Focus(faults=(
            fault(1_000, 600, "cut", "3", direction="out", of="2", what="FetchRequest"),
            fault(1_300, 4_000, "kill", "2"),
            fault(1_600, 2_600, "cut", "4", direction="out", of="brokers", what="FetchRequest"),
            fault(3_300, 1_500, "kill", "3"),
        )),
        broker_settings={"replica_lag_time_max_ms": 2_000},
        assigned=LED_BY_2,
    ),
    "TruncateBeforeHw": Needs(
        Load(),
        Focus(faults=(
            fault(1_000, 700, "cut", "2", direction="in", of="brokers", what="FetchRequest"),
            fault(1_200, 2_000, "kill", "2"),
        )),
        assigned=LED_BY_2,
    ),
    "ForgetTruncatedEpochs": Needs(
        Load(),
        Focus(faults=(
            fault(600, 2_600, "cut", "producer:0", of="brokers"),
            fault(600, 2_600, "cut", "producer:1", of="brokers"),
            fault(1_000, 4_500, "kill", "2"),
            fault(2_500, 1_500, "cut", "3", of="store"),
        )),
        assigned=LED_BY_2,
    ),
    "MatchReplies": Needs(
        EAGER,
        Focus(faults=(
            fault(0, 700, "kill", "member:2"),
            fault(200, 8_200, "clog", "member:0", direction="in", of="brokers", what="SyncGroupResponse"),
        )),
    ),
    "MembersCommitOnly": Needs(
        EAGER,
        Focus(faults=(
            fault(400, 4_000, "cut", "member:1", direction="in", of="brokers", what="HeartbeatResponse"),
            fault(500, 2_500, "clog", "member:0", direction="out", of="brokers", what="HeartbeatRequest"),
            fault(500, 2_200, "clog", "member:0", direction="out", of="brokers", what="OffsetCommitRequest"),
        )),
    ),
    "RevokeBeforeRejoin": Needs(
        COOPERATIVE,
        Focus(faults=(
            fault(0, 1_200, "cut", "member:2", of="brokers"),
            fault(1_100, 900, "stall", "member:1"),
            fault(1_800, 1_500, "stall", "member:0"),
        )),
    ),
    "OneProtocolForAll": Needs(
        Load(members=("cooperative-sticky", "cooperative-sticky", "range")),
        Focus(faults=(
            fault(1_500, 2_000, "kill", "member:0"),
            fault(4_000, 1_500, "kill", "member:1"),
        )),
    ),
    "ElectFromIsr": Needs(
        Load(),
        Focus(faults=(
            fault(500, 4_500, "cut", "2", of="brokers"),
            fault(2_500, 3_000, "kill", "3"),
            fault(2_500, 3_000, "kill", "1"),
        )),
    ),
    "ExpandOnlyCaughtUp": Needs(
        Load(), Focus(faults=(fault(500, 2_500, "kill", "2"), fault(4_500, 1_500, "pause", "3")))
    ),
    "IsrCas": Needs(
        Load(),
        Focus(faults=(fault(500, 1_500, "pause", "leader(t,0)"), fault(1_600, 3_000, "kill", "2"))),
        broker_settings=BY_ZOOKEEPER,
    ),
    # controller
    "ClaimCas": Needs(
        Load(),
        Focus(faults=(
            fault(300, 5_500, "delay", "2", of="store", ms=150),
            fault(600, 0, "expire", "controller"),
            fault(910, 0, "expire", "controller"),
            fault(1_220, 0, "expire", "controller"),
        )),
    ),
    "VersionCas": Needs(
        ADMINISTRATOR,
        Focus(faults=tuple(fault(600 + 800 * n, 700, "pause", f"{2 + n % 3}") for n in range(6))),
        broker_settings=BY_ZOOKEEPER,
    ),
    **dict.fromkeys(("BumpLeaderEpoch", "MoveLeaderToTarget", "ShrinkBeforeDelete"), Needs(ADMINISTRATOR)),
    **dict.fromkeys(("PersistAssignmentLast", "PersistBeforeSend"), Needs(ADMINISTRATOR, CONTROLLERS_CHANGE)),
    "FencedLeavesIsr": Needs(Load(), Focus(faults=(fault(500, 5_300, "cut", "2", of="store"),))),
    # groups
    **dict.fromkeys(
        ("AwaitAllMembers", "LeaderAssignsMembersOnly", "RejoinOnRebalance", "RequireMemberId", "RevokeBeforeJoin"),
        Needs(EAGER, MEMBERS_RESTART),
    ),
    **dict.fromkeys(("UnaffectedKeep", "WithholdClaimed"), Needs(COOPERATIVE, MEMBERS_RESTART)),
    "RejoinAfterRevoke": Needs(COOPERATIVE, Focus(faults=(fault(600, 2_000, "kill", "member:1"),))),
    **dict.fromkeys(("FenceInstance", "NewMemberIdOnStaticRejoin"), Needs(STATIC_TWINS, MEMBERS_RESTART)),
    "EagerMembersRevokeAll": Needs(MIXED_ASSIGNORS, MEMBERS_RESTART),
    "DropOnLost": Needs(EAGER, Focus(faults=(fault(1_000, 1_600, "pause", "member:1"),))),
    "FenceStaleGeneration": Needs(
        EAGER,
        Focus(faults=(*DUPLICATES, fault(1_000, 200, "kill", "member:2"), fault(1_900, 200, "kill", "member:2"))),
    ),
    "FenceStaleSync": Needs(
        EAGER,
        Focus(faults=(
            *DUPLICATES,
            fault(900, 60, "kill", "member:2"),
            fault(1_130, 60, "kill", "member:2"),
            fault(1_360, 60, "kill", "member:2"),
        )),
    ),
    "PersistBeforeSyncReply": Needs(
        EAGER,
        Focus(faults=(
            fault(1_000, 1_000, "kill", "member:0"),
            fault(1_000, 4_000, "delay", "2", of="brokers", ms=150),
            fault(1_000, 4_000, "delay", "3", of="brokers", ms=150),
            fault(3_300, 1_500, "kill", "coordinator(g)"),
        )),
    ),
    # transactions
    "InitBumpsEpoch": Needs(
        TRANSACTIONAL,
        Focus(faults=(
            fault(1, 6_000, "delay", "transactional:0", direction="out", what="ProduceRequest", spread_ms=1_500),
        )),
    ),
    "InitAbortsOpen": Needs(
        TRANSACTIONAL, Focus(faults=(messages(0, 6_000, "Produce: late 1000 ms every 9"),))
    ),
    "InitAwaitsMarkers": Needs(
        TRANSACTIONAL,
        Focus(faults=(
            messages(0, 6_000, "WriteTxnMarkers: delay 1200 ms every 5"),
            messages(0, 6_000, "EndTxn response: delay 900 ms every 3"),
        )),
        broker_settings=PATIENT,
    ),
    **dict.fromkeys(
        ("AddAwaitsMarkers", "CompleteAwaitsMarkers"),
        Needs(TRANSACTIONAL, Focus(faults=(messages(0, 6_000, "WriteTxnMarkers: delay 150 ms"),))),
    ),
    "FenceStaleAdd": Needs(
        TRANSACTIONAL,
        Focus(faults=(
            fault(1, 6_000, "delay", "transactional:0", direction="out", what="ProduceRequest", spread_ms=1_500),
        )),
    ),
    "FenceStaleEndTxn": Needs(
        TRANSACTIONAL, Focus(faults=(messages(0, 6_000, "EndTxn: repeat 40 ms every 2"),))
    ),
    "TimeoutFences": Needs(
        QUICK_TRANSACTIONS,
        Focus(faults=tuple(fault(900 + 1_500 * n, 800, "pause", "transactional:0") for n in range(4))),
        VERSION_1,
        broker_settings={"transaction_abort_timed_out_transaction_cleanup_interval_ms": 100},
    ),
    "VerifyBeforeAppend": Needs(
        TRANSACTIONAL, Focus(faults=(messages(0, 6_000, "Produce: late 1000 ms every 9"),)), VERSION_1
    ),
    "RefuseEndedMeanwhile": Needs(
        TRANSACTIONAL,
        Focus(faults=(messages(0, 6_000, "AddPartitionsToTxn response client=broker:*: delay 850 ms every 6"),)),
        VERSION_1,
        broker_settings=PATIENT,
    ),
    "FenceStaleProduce": Needs(
        TRANSACTIONAL,
        Focus(faults=(messages(0, 6_000, "AddPartitionsToTxn response: delay 1100 ms every 9"),)),
        broker_settings=PATIENT,
    ),
    "PersistDecision": Needs(
        TRANSACTIONAL,
        Focus(faults=(
            messages(0, 6_000, "WriteTxnMarkers: delay 300 ms every 2"),
            *(fault(900 + 1_500 * n, 300, "kill", TRANSACTION_COORDINATOR) for n in range(3)),
        )),
    ),
    "ResumePrepared": Needs(
        ENDLESS_TRANSACTIONS,
        Focus(faults=(
            messages(0, 6_000, "WriteTxnMarkers: delay 300 ms every 2"),
            *(fault(900 + 1_500 * n, 300, "kill", TRANSACTION_COORDINATOR) for n in range(3)),
        )),
    ),
    "FenceStaleMarker": Needs(
        TRANSACTIONAL, Focus(faults=(messages(0, 6_000, "WriteTxnMarkers: repeat 400 ms every 2"),))
    ),
    "FenceOldCoordinator": Needs(
        TRANSACTIONAL,
        Focus(faults=tuple(
            each
            for at_ms in (900, 2_400, 3_900, 5_400)
            for each in (
                messages(at_ms, 100, "WriteTxnMarkers: delay 1300 ms"),
                fault(at_ms + 100, 0, "expire", TRANSACTION_COORDINATOR),
            )
        )),
        VERSION_1,
        broker_settings=PATIENT,
    ),
    "MarkerNeedsNewEpoch": Needs(
        TRANSACTIONAL, Focus(faults=(messages(0, 6_000, "WriteTxnMarkers: repeat 40 ms every 2"),))
    ),
    "AnswerRepeatedMarker": Needs(
        TRANSACTIONAL, Focus(faults=(messages(0, 6_000, "WriteTxnMarkers response: close every 7"),))
    ),
    **dict.fromkeys(("StableBeforeOpen", "HideAborted"), Needs(READERS_OF_TRANSACTIONS)),
    **dict.fromkeys(
        ("NewIdWhenExhausted", "MarkersKeepOldId"),
        Needs(
            ENDLESS_TRANSACTIONS,
            Focus(faults=(messages(0, 6_000, "EndTxn response: close every 7"),)),
            broker_settings=FEW_EPOCHS,
        ),
    ),
    "NewIdAfterFence": Needs(
        QUICK_TRANSACTIONS,
        Focus(faults=tuple(fault(600 + 1_200 * n, 900, "pause", "transactional:0") for n in range(4))),
        broker_settings=FEW_EPOCHS | {"transaction_abort_timed_out_transaction_cleanup_interval_ms": 100},
    ),
    "FenceOldProducerId": Needs(
        TRANSACTIONAL, Focus(faults=(messages(0, 6_000, "EndTxn: repeat 150 ms every 2"),)), broker_settings=FEW_EPOCHS
    ),
    # idempotent producers
    "RefuseSequenceGap": Needs(
        IDEMPOTENT, Focus(faults=(messages(0, 6_000, "Produce: late 200 ms every 7"),))
    ),
    "RefuseUsedSequence": Needs(
        IDEMPOTENT, Focus(faults=(messages(0, 6_000, "Produce: repeat 400 ms every 7"),))
    ),
    **dict.fromkeys(
        ("RememberBatches", "RetryKeepsSequence"),
        Needs(IDEMPOTENT, Focus(faults=(messages(0, 6_000, "Produce response: close every 9"),))),
    ),
    "LimitInFlight": Needs(
        IDEMPOTENT, Focus(faults=(messages(0, 6_000, "Produce response: delay 700 ms every 30"),))
    ),
    "RebuildWindow": Needs(
        IDEMPOTENT,
        Focus(faults=(
            messages(0, 6_000, "Produce response: close every 9"),
            *(fault(900 + 700 * n, 0, "expire", "leader(t,0)") for n in range(7)),
        )),
    ),
    "ForgetTruncatedBatches": Needs(
        replace(IDEMPOTENT, idempotent=1),
        Focus(faults=(
            fault(800, 2_600, "cut", "idempotent:0", of="3"),
            fault(800, 2_600, "cut", "idempotent:0", of="4"),
            fault(800, 1_500, "cut", "2", direction="in", of="brokers", what="FetchRequest"),
            fault(900, 1_500, "cut", "2", of="store"),
            fault(3_200, 1_500, "kill", "3"),
        )),
        assigned=LED_BY_2,
    ),
    "EndTxnBumpsEpoch": Needs(
        Load(producers=1, transactional=1),
        Focus(faults=(
            fault(0, 6_000, "duplicate", "transactional:0", direction="out", of="brokers", per_mille=500),
        )),
    ),
    "FenceStaleHeartbeat": Needs(
        STATIC_NO_COMMITS,
        Focus(faults=(
            fault(0, 1_200, "cut", "member:2", of="brokers"),
            fault(500, 4_200, "cut", "member:0", direction="in", of="brokers", what="HeartbeatResponse"),
        )),
    ),
    "PersistStaticRejoin": Needs(
        STATIC,
        Focus(faults=(
            fault(2_500, 200, "kill", "member:0"),
            fault(3_400, 2_000, "kill", "coordinator(g)"),
        )),
    ),
    "HighestClaimWins": Needs(
        COOPERATIVE, Focus(("kill", "delay", "clog"), ("SyncGroupRequest",)),
    ),
    "ResetClaimOnLost": Needs(COOPERATIVE, Focus(("stall", "pause", "kill", "cut"))),
    "NobodyKeepsOnConflict": Needs(
        COOPERATIVE, Focus(("stall", "pause", "kill", "cut")), ("ResetClaimOnLost", "ClaimsBearGeneration")
    ),
    "ClaimsBearGeneration": Needs(
        COOPERATIVE, Focus(("stall", "pause", "kill", "cut")), ("ResetClaimOnLost", "NobodyKeepsOnConflict")
    ),
    **dict.fromkeys(
        (
            "EphemeralOwners", "ClaimIfFree", "ReleaseBeforeClaim", "StopBeforeRelease", "RetryRebalance",
            "RewatchOnRead", "SameViewOrder", "StopFetchingOnExpiry",
        ),
        OLD_CONSUMERS,
    ),
}  # fmt: skip


def settings_without_guard(guard: str, base: Settings = SWARM) -> Settings:
    """Return `base` with the guard off and with the clients, settings and faults that the guard needs."""
    needs = NEEDS.get(guard)
    if needs is None:
        return replace(base, guards_off=(guard,))
    return replace(
        base, guards_off=(guard, *needs.also_off), load=needs.load, focus=needs.focus,
        min_insync_replicas=needs.min_insync_replicas, broker_settings=needs.broker_settings,
        assigned=needs.assigned,
    )  # fmt: skip
