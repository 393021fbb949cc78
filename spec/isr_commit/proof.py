"""ISR commit (KIP-497), for any number of brokers, offsets, epochs and AlterPartition requests.

Main claim: every record that was ever below a high watermark is in the log of every member of the controller's ISR.
spec/proofs/commitment.py shows why committed records are never lost.  This module is about the replicas that a leader
waits for: they include those that it has proposed (`maximal_isr`), so a request that the controller accepts late cannot
add a replica that lacks committed records.

Followers know where their log diverges from the leader's; how they find that offset is the subject of hw_truncation.
"""

from typing import Final

from highwater.spec.proofs import commitment
from highwater.spec.proofs.commitment import (
    BROKER,
    BROKERS,
    COMMITMENT,
    END,
    EPOCH,
    FETCHED,
    HISTORY,
    LEADERS,
    MEMBERS,
    OFFSET,
    PARAMETER_SORTS,
    PROMISED,
    SHAPE,
    STORE,
    begin_epoch,
    commit,
    in_isr,
    is_committed,
    leader_and_isr_arrives,
    leader_write,
    may_receive,
    next_epoch,
    receive,
)
from highwater.spec.proofs.language import (
    Action,
    And,
    Claim,
    Drop,
    Finite,
    Formula,
    If,
    Implies,
    Message,
    Not,
    Number,
    Or,
    Protocol,
    State,
    Step,
    Term,
    relation,
    smaller,
    step,
    table,
    value,
)

VERSION: Final = Number("PartitionEpoch")

ALTER: Final = Message(
    "request", {"leader_epoch": value(EPOCH), "partition_epoch": value(VERSION), "isr": relation(BROKER)}
)

VARIABLES: Final = {
    **STORE,
    "partition_epoch": value(VERSION),
    **BROKERS,
    "known_version": table(BROKER, to=VERSION),
    "must_truncate": relation(BROKER),
    "maximal_isr": relation(BROKER, BROKER),  # the ISR that a leader knows, with the replicas that it has proposed
    **ALTER.variables,
    **HISTORY,
}


def init(s: State) -> Term:
    return And(
        commitment.init(s),
        s.partition_epoch == 0,
        s.all(lambda b: And(s.known_version[b] == 0, Not(s.must_truncate[b]))),
        s.all(lambda b, c: s.maximal_isr[b, c] == s.known_isr[b, c]),
        s.all(lambda r: Not(s.request_sent[r])),
    )


def fetch(s: State, b: Term, source: Term, k: Term, h: Term) -> Step:
    """A follower whose log is a prefix of the leader's fetches the records below k, if any."""
    prefix = s.all(lambda o: Implies(And(o >= 0, o < s.log_end[b]), s.log[b, o] == s.log[source, o]))
    return step(
        And(b != source, s.leads[source], Not(s.leads[b]), may_receive(s, b, source, k, h)),
        Or(Not(s.must_truncate[b]), prefix),
        s.guard("FenceStaleFetch", s.known_epoch[b] == s.known_epoch[source]),
        must_truncate=s.must_truncate.but(b, False),
        **receive(s, b, source, k, h),
    )


def advance_hw(s: State, b: Term, h: Term) -> Step:
    """A leader advances its high watermark to h, which every ISR member and every proposed replica has fetched.

    Proposed replicas count because the controller may have added them already.
    """
    e = s.known_epoch[b]
    counted = s.maximal_isr if s.on("HwWaitsForProposed") else s.known_isr
    return step(
        And(s.leads[b], s.high_watermark[b] < h, h <= s.log_end[b]),
        s.all(lambda c: Implies(counted[b, c], s.fetched[e, c] >= h)),
        **commit(s, b, h),
    )


def send_proposal(s: State, b: Term, r: Term, isr: Formula) -> dict[str, Term]:
    """Return the updates that send an AlterPartition request; the leader waits for its members until it is answered."""
    still = s.maximal_isr if s.on("KeepProposalUntilAnswered") else s.known_isr
    return {
        **s.send(ALTER, r, leader_epoch=s.known_epoch[b], partition_epoch=s.known_version[b], isr=isr),
        "maximal_isr": s.maximal_isr.but(b, lambda c: Or(isr(c), still[b, c])),
    }


def propose_expand(s: State, b: Term, c: Term, r: Term) -> Step:
    """A leader proposes a follower that has caught up with the high watermark and with the start of the epoch."""
    e = s.known_epoch[b]
    return step(
        And(s.leads[b], Not(s.known_isr[b, c]), Not(s.request_sent[r]), s.fetched[e, c] >= 0),
        s.guard("ExpandOnlyCaughtUp", s.fetched[e, c] >= s.high_watermark[b]),
        s.guard("ExpandAfterEpochStart", s.fetched[e, c] >= s.epoch_start[e]),
        **send_proposal(s, b, r, lambda d: Or(d == c, s.known_isr[b, d])),
    )


def propose_shrink(s: State, b: Term, c: Term, r: Term) -> Step:
    """A leader proposes to remove a follower that has fallen behind."""
    return step(
        And(s.leads[b], s.known_isr[b, c], c != b, Not(s.request_sent[r])),
        **send_proposal(s, b, r, lambda d: And(d != c, s.known_isr[b, d])),
    )


def change_isr(s: State, r: Term) -> Step:
    """The controller accepts a proposal."""
    return step(
        s.request_sent[r],
        s.guard("FenceOldLeader", s.request_leader_epoch[r] == s.leader_epoch),
        s.guard("IsrCas", s.request_partition_epoch[r] == s.partition_epoch),
        isr=s.isr.but(s.leader_epoch, lambda c: s.request_isr[r, c]),
        partition_epoch=s.partition_epoch + 1,
    )


def controller_shrink(s: State, c: Term) -> Step:
    """The controller fences a follower and removes it from the ISR."""
    return step(
        And(s.isr[s.leader_epoch, c], c != s.leader[s.leader_epoch]),
        isr=s.isr.but((s.leader_epoch, c), False),
        partition_epoch=s.partition_epoch + 1,
    )


def elect_leader(s: State, c: Term, d: Term) -> Step:
    """The controller elects c, which may lead already, and begins a leader epoch; it may remove d from the ISR."""
    return step(s.guard("ElectFromIsr", in_isr(s, c)), partition_epoch=s.partition_epoch + 1, **next_epoch(s, c, d))


def learn_isr(s: State, b: Term) -> Step:
    """A leader receives the last ISR of its epoch: the reply to a proposal, or a change by the controller."""
    e = s.known_epoch[b]
    return step(
        And(s.leads[b], Or(e < s.leader_epoch, s.known_version[b] < s.partition_epoch)),
        known_version=received_version(s, b, e),
        known_isr=s.known_isr.but(b, lambda c: s.isr[e, c]),
        maximal_isr=s.maximal_isr.but(b, lambda c: s.isr[e, c]),
    )


def received_version(s: State, b: Term, e: Term) -> Term:
    """Return the partition epoch that b knows after it received the last state of epoch e.

    A late one has an old partition epoch, with which the controller accepts no proposal.
    """
    return s.known_version.but(b, If(e == s.leader_epoch, s.partition_epoch, s.known_version[b]))


def become_leader(s: State, b: Term, e: Term) -> Step:
    """A broker receives that it is the leader of epoch e."""
    return step(
        And(leader_and_isr_arrives(s, b, e), s.leader[e] == b),
        known_version=received_version(s, b, e),
        must_truncate=s.must_truncate.but(b, False),
        maximal_isr=s.maximal_isr.but(b, lambda c: s.isr[e, c]),
        **begin_epoch(s, b, e),
    )


def become_follower(s: State, b: Term, e: Term) -> Step:
    """A broker receives that another one leads e; it must truncate records that this leader does not have."""
    return step(
        And(leader_and_isr_arrives(s, b, e), s.leader[e] != b),
        known_epoch=s.known_epoch.but(b, e),
        known_version=received_version(s, b, e),
        leads=s.leads.but(b, False),
        must_truncate=s.must_truncate.but(b, True),
    )


def truncate(s: State, b: Term, source: Term, n: Term) -> Step:
    """A follower truncates its log to the common prefix with the leader's."""
    return step(
        And(s.must_truncate[b], s.leads[source], s.known_epoch[b] == s.known_epoch[source]),
        And(n >= 0, n <= s.log_end[b], n <= s.log_end[source]),
        s.all(lambda o: Implies(And(o >= 0, o < n), s.log[b, o] == s.log[source, o])),
        Or(n == s.log_end[b], n == s.log_end[source], s.log[b, n] != s.log[source, n]),
        log_end=s.log_end.but(b, n),
        high_watermark=s.high_watermark.but(b, smaller(s.high_watermark[b], n)),
        must_truncate=s.must_truncate.but(b, False),
    )


def live(s: State, r: Term) -> Term:
    """True if the controller would still accept request r."""
    current = And(s.request_leader_epoch[r] == s.leader_epoch, s.request_partition_epoch[r] == s.partition_epoch)
    return And(s.request_sent[r], current)


def newcomer(s: State, r: Term, c: Term) -> Term:
    """True if request r can still add c to the ISR."""
    return And(live(s, r), s.request_isr[r, c], Not(in_isr(s, c)))


VIEWS: Final = (
    Claim(
        "TypeBrokers",
        "No broker is ahead of the controller; a high watermark is at most the log end.",
        lambda s, b: And(
            And(s.committed_end >= 0, s.leader_epoch >= 0, s.partition_epoch >= 0),
            And(s.known_epoch[b] >= 0, s.known_epoch[b] <= s.leader_epoch, s.known_version[b] <= s.partition_epoch),
            And(s.high_watermark[b] >= 0, s.high_watermark[b] <= s.log_end[b]),
        ),
    ),
    Claim(
        "LeadersLead",
        "A leader was elected in the epoch that it knows, has the whole log of it and is in the ISR that it knows.",
        lambda s, b: Implies(
            s.leads[b],
            And(
                And(s.leader[s.known_epoch[b]] == b, s.started[s.known_epoch[b]]),
                And(s.log_end[b] == s.epoch_end[s.known_epoch[b]], s.fetched[s.known_epoch[b], b] == s.log_end[b]),
                And(Not(s.must_truncate[b]), s.known_isr[b, b]),
            ),
        ),
    ),
    Claim(
        "FollowersFollow",
        "A broker that has truncated knows an epoch that has started, and its log is not longer than the epoch's.",
        lambda s, b: Implies(
            Not(s.must_truncate[b]),
            And(s.started[s.known_epoch[b]], s.log_end[b] <= s.epoch_end[s.known_epoch[b]]),
        ),
    ),
    Claim(
        "FollowersLogIsHistory",
        "The log of a broker that has truncated is a prefix of its epoch's log.",
        lambda s, b, o: Implies(
            And(Not(s.must_truncate[b]), o >= 0, o < s.log_end[b]), s.log[b, o] == s.history[s.known_epoch[b], o]
        ),
    ),
)

PROPOSALS: Final = (
    Claim(
        "FetchedIsThere",
        "A broker keeps the records that it fetched in an epoch until it knows a later epoch.",
        lambda s, e, c: Implies(
            And(s.started[e], s.fetched[e, c] >= 0),
            And(
                s.known_epoch[c] >= e,
                Implies(s.known_epoch[c] == e, And(Not(s.must_truncate[c]), s.fetched[e, c] <= s.log_end[c])),
            ),
        ),
    ),
    Claim(
        "LeaderCountsItsIsr",
        "Every leader, zombies included, waits for every member of its epoch's last ISR.",
        lambda s, b, c: Implies(And(s.leads[b], s.isr[s.known_epoch[b], c]), s.maximal_isr[b, c]),
    ),
    Claim(
        "MaximalIsMore",
        "A leader waits for every member of the ISR that it knows.",
        lambda s, b, c: Implies(And(s.leads[b], s.known_isr[b, c]), s.maximal_isr[b, c]),
    ),
    Claim(
        "LeaderInRequests",
        "Every request of the current leader epoch includes the leader.",
        lambda s, r: Implies(
            And(s.request_sent[r], s.request_leader_epoch[r] == s.leader_epoch),
            s.request_isr[r, s.leader[s.leader_epoch]],
        ),
    ),
    Claim(
        "RequestsNotAhead",
        "Requests have leader epochs and partition epochs that the controller has reached.",
        lambda s, r: Implies(
            s.request_sent[r],
            And(
                And(s.request_partition_epoch[r] <= s.partition_epoch, s.request_leader_epoch[r] <= s.leader_epoch),
                Implies(s.request_leader_epoch[r] == s.leader_epoch, s.started[s.leader_epoch]),
            ),
        ),
    ),
    Claim(
        "LiveRequestIsCurrent",
        "While a request can be accepted, its leader knows the current partition epoch.",
        lambda s, r: Implies(live(s, r), s.known_version[s.leader[s.leader_epoch]] == s.partition_epoch),
    ),
    Claim(
        "LiveRequestCounts",
        "While a request can be accepted, its leader waits for all its members.",
        lambda s, r, c: Implies(And(live(s, r), s.request_isr[r, c]), s.maximal_isr[s.leader[s.leader_epoch], c]),
    ),
    Claim(
        "NewcomersCaughtUp",
        "A replica that a request would add has fetched every committed record.",
        lambda s, r, c, o: Implies(
            And(newcomer(s, r, c), is_committed(s, o)),
            And(s.history[s.leader_epoch, o] == s.committed[o], o < s.fetched[s.leader_epoch, c]),
        ),
    ),
    Claim(
        "NewcomersPastStart",
        "A replica that a request would add follows the current epoch, and has fetched up to its start.",
        lambda s, r, c: Implies(
            newcomer(s, r, c),
            And(
                And(s.known_epoch[c] == s.leader_epoch, Not(s.must_truncate[c])),
                s.fetched[s.leader_epoch, c] >= s.epoch_start[s.leader_epoch],
            ),
        ),
    ),
    Claim(
        "CurrentLeaderKnowsIsr",
        "A leader that knows the current partition epoch knows the ISR.",
        lambda s, b, c: Implies(
            And(s.leads[b], s.known_epoch[b] == s.leader_epoch, s.known_version[b] == s.partition_epoch),
            s.known_isr[b, c] == in_isr(s, c),
        ),
    ),
)


def instance(versions: int, requests: int) -> Finite:
    return Finite(
        sizes={BROKER: 3, ALTER: requests},
        numbers={
            EPOCH: range(3),
            VERSION: range(versions),
            OFFSET: range(2),
            END: range(3),
            FETCHED: range(-1, 3),
        },
    )


VERSION_IMPLIES_EPOCH: Final = (
    Claim(
        "VersionImpliesEpoch",
        "A request with the current partition epoch has the current leader epoch.",
        lambda s, r: Implies(
            And(s.request_sent[r], s.request_partition_epoch[r] == s.partition_epoch),
            s.request_leader_epoch[r] == s.leader_epoch,
        ),
    ),
    Claim(
        "KnownVersionImpliesEpoch",
        "A broker that knows the current partition epoch knows the current leader epoch.",
        lambda s, b: Implies(s.known_version[b] == s.partition_epoch, s.known_epoch[b] == s.leader_epoch),
    ),
)

DROPS: Final = (
    Drop("HwWaitsForProposed", breaks="CommittedOnIsr", steps=5),
    Drop("KeepProposalUntilAnswered", breaks="CommittedOnIsr", steps=8, instance=instance(4, 2)),
    Drop("ExpandOnlyCaughtUp", breaks="CommittedOnIsr", steps=5),
    Drop("ExpandAfterEpochStart", breaks="CommittedOnIsr", steps=10, instance=instance(3, 1)),
    Drop(
        "FenceOldLeader",
        redundant="Every election raises the partition epoch too, which IsrCas compares.",
        more=VERSION_IMPLIES_EPOCH,
    ),
    Drop("IsrCas", breaks="CommittedOnIsr", steps=7, instance=instance(4, 2)),
    Drop("ElectFromIsr", breaks="CommittedOnIsr", steps=3, instance=instance(4, 1)),
    Drop("FenceStaleFetch", breaks="CommittedOnIsr", steps=7, instance=instance(4, 1)),
)

PROTOCOL: Final = Protocol(
    name="isr_commit",
    variables=VARIABLES,
    messages=(ALTER,),
    ghosts=tuple(HISTORY),
    parameter_sorts={**PARAMETER_SORTS, "r": ALTER},
    init=init,
    actions=tuple(
        Action(run)
        for run in (
            *(leader_write, fetch, advance_hw, propose_expand, propose_shrink, change_isr, controller_shrink),
            *(elect_leader, learn_isr, become_leader, become_follower, truncate),
        )
    ),
    invariant=(*PROMISED, *SHAPE, *LEADERS, *MEMBERS, *COMMITMENT, *VIEWS, *PROPOSALS),
    promises=("CommittedOnIsr", "HighWatermarksAreCommitted"),
    small=Finite(
        sizes={BROKER: 3, ALTER: 1},
        numbers={EPOCH: range(3), VERSION: range(3), OFFSET: range(2), END: range(3), FETCHED: range(-1, 3)},
    ),
    tiny=Finite(
        sizes={BROKER: 2, ALTER: 1},
        numbers={EPOCH: range(3), VERSION: range(3), OFFSET: range(1), END: range(2), FETCHED: range(-1, 2)},
    ),
    start={**commitment.START, "maximal_isr": lambda b, c: b == 0},
    drops=DROPS,
)
