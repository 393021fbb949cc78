"""Truncation by leader epoch (KIP-101, 279, 320), for any number of brokers, offsets and epochs.

If the last epoch of a follower's log ends elsewhere in the leader's log, or is missing there, the leader returns the
end of that epoch, and the follower truncates its log; before that the leader does not count its fetch offset.  A broker
outside the ISR may crash and lose any suffix.  Main claims: every record that was ever below a high watermark is in the
log of every ISR member; two logs that agree on one record agree on all earlier records.

spec/proofs/commitment.py shows why committed records are never lost.  This module is about the shape of logs: each
record is at the offset where the leader of its epoch wrote it, and epochs never decrease along a log.  So the last
epoch of a follower determines the common prefix with its leader; beyond its fetch offset, a log may still differ.
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
    UNKNOWN,
    begin_epoch,
    commit,
    is_clean_member,
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
    Implies,
    Not,
    Or,
    Protocol,
    State,
    Step,
    Term,
    smaller,
    step,
)

VARIABLES: Final = {**STORE, **BROKERS, **HISTORY}


def can_fetch_from(s: State, b: Term, source: Term) -> Term:
    """True if follower b can send a request to leader `source`."""
    fence = s.guard("FenceStaleFetch", s.known_epoch[b] == s.known_epoch[source])
    return And(b != source, s.leads[source], Not(s.leads[b]), fence)


def is_epoch_end(s: State, b: Term, epoch: Term, end: Term) -> Term:
    """True if `end` is the end offset of the epochs up to `epoch` in b's log."""
    return And(
        And(end >= 0, end <= s.log_end[b]),
        Or(end == 0, s.log[b, end - 1] <= epoch),
        Or(end == s.log_end[b], s.log[b, end] > epoch),
    )


def fetch(s: State, b: Term, source: Term, n: Term, k: Term, h: Term) -> Step:
    """A follower whose log is a prefix of the leader's, by its last epoch, fetches the records below k, if any."""
    end = s.log_end[b]
    last = s.log[b, end - 1]
    same = And(is_epoch_end(s, source, last, n), n > 0, end <= n, s.log[source, n - 1] == last)
    return step(
        And(can_fetch_from(s, b, source), may_receive(s, b, source, k, h)),
        s.guard("TruncateByEpoch", Or(end == 0, same)),
        **receive(s, b, source, k, h),
    )


def truncate(s: State, b: Term, source: Term, n: Term, k: Term) -> Step:
    """A follower with a diverging log truncates it.

    n is the end of the follower's last epoch in the leader's log; k is the end, in the follower's own log, of the epoch
    that the leader has at n - 1.
    """
    end = s.log_end[b]
    last, found = s.log[b, end - 1], s.log[source, n - 1]
    cut = smaller(n, k)
    return step(
        And(s.on("TruncateByEpoch"), can_fetch_from(s, b, source), end > 0, is_epoch_end(s, source, last, n)),
        Or(n < end, n == 0, found != last),
        And(k >= 0, k <= end, Or(k == 0, And(n > 0, s.log[b, k - 1] <= found))),
        Or(k == end, n == 0, s.log[b, k] > found),
        log_end=s.log_end.but(b, cut),
        high_watermark=s.high_watermark.but(b, smaller(s.high_watermark[b], cut)),
    )


def advance_hw(s: State, b: Term, h: Term) -> Step:
    """A leader advances its high watermark to h: every member of the ISR has fetched up to h."""
    e = s.known_epoch[b]
    return step(
        And(s.leads[b], s.high_watermark[b] < h, h <= s.log_end[b]),
        s.guard("HwNeedsWholeIsr", s.all(lambda c: Implies(s.known_isr[b, c], s.fetched[e, c] >= h))),
        **commit(s, b, h),
    )


def may_write_isr(s: State, b: Term) -> Term:
    """True if the store accepts an ISR from b: b is the current leader and knows the stored ISR."""
    current = s.all(lambda c: s.known_isr[b, c] == s.isr[s.leader_epoch, c])
    return And(s.leads[b], s.known_epoch[b] == s.leader_epoch, s.guard("IsrCas", current))


def expand_isr(s: State, b: Term, c: Term) -> Step:
    """A leader adds a follower that has caught up with the high watermark and with the start of the epoch."""
    e = s.known_epoch[b]
    return step(
        And(may_write_isr(s, b), Not(s.known_isr[b, c]), s.fetched[e, c] >= 0),
        s.guard("ExpandOnlyCaughtUp", s.fetched[e, c] >= s.high_watermark[b]),
        s.guard("ExpandAfterEpochStart", s.fetched[e, c] >= s.epoch_start[e]),
        isr=s.isr.but(s.leader_epoch, lambda d: Or(d == c, s.known_isr[b, d])),
        known_isr=s.known_isr.but((b, c), True),
    )


def shrink_isr(s: State, b: Term, c: Term) -> Step:
    """A leader removes a follower that has fallen behind."""
    return step(
        And(may_write_isr(s, b), s.known_isr[b, c], c != b),
        isr=s.isr.but(s.leader_epoch, lambda d: And(d != c, s.known_isr[b, d])),
        known_isr=s.known_isr.but((b, c), False),
    )


def controller_shrink(s: State, c: Term) -> Step:
    """The controller removes a follower from the ISR."""
    return step(And(s.isr[s.leader_epoch, c], c != s.leader[s.leader_epoch]), isr=s.isr.but((s.leader_epoch, c), False))


def elect_leader(s: State, c: Term, d: Term) -> Step:
    """The controller elects c, which may lead already, and begins a leader epoch; it may remove d from the ISR."""
    return step(s.guard("ElectFromIsr", is_clean_member(s, c)), **next_epoch(s, c, d))


def learn_isr(s: State, b: Term) -> Step:
    """A leader, zombies included, receives the ISR that the store held last in its epoch."""
    return step(s.leads[b], known_isr=s.known_isr.but(b, lambda c: s.isr[s.known_epoch[b], c]))


def become_leader(s: State, b: Term, e: Term) -> Step:
    """A broker receives that it is the leader of epoch e."""
    return step(And(leader_and_isr_arrives(s, b, e), s.leader[e] == b), **begin_epoch(s, b, e))


def become_follower(s: State, b: Term, e: Term) -> Step:
    """A broker receives that another one leads e. Before KIP-101 it truncated to its own high watermark, which lags."""
    cut = {} if s.on("TruncateByEpoch") else {"log_end": s.log_end.but(b, s.high_watermark[b])}
    return step(
        And(leader_and_isr_arrives(s, b, e), s.leader[e] != b),
        known_epoch=s.known_epoch.but(b, e),
        leads=s.leads.but(b, False),
        **cut,
    )


def crash(s: State, b: Term, h: Term) -> Step:
    """A broker crashes, loses a suffix and registers again; its earlier fetch offsets no longer count (KIP-903)."""
    forgotten = {"fetched": s.fetched.but((s.leader_epoch, b), UNKNOWN)} if s.on("RefuseFormerLife") else {}
    may_be = s.isr[s.leader_epoch, b] if not s.on("UncleanRestartLeavesIsr") else False
    return step(
        And(h >= 0, h < s.log_end[b], s.leader[s.leader_epoch] != b),
        Or(Not(s.isr[s.leader_epoch, b]), may_be),
        log_end=s.log_end.but(b, h),
        high_watermark=s.high_watermark.but(b, smaller(s.high_watermark[b], h)),
        leads=s.leads.but(b, False),
        known_epoch=s.known_epoch.but(b, s.leader_epoch),
        **forgotten,
    )


def before(s: State, b: Term, q: Term, o: Term) -> Term:
    """True if q <= o are offsets in b's log."""
    return And(q >= 0, q <= o, o < s.log_end[b])


def before_in(s: State, e: Term, q: Term, o: Term) -> Term:
    """True if q <= o are offsets in the log of epoch e."""
    return And(s.started[e], q >= 0, q <= o, o < s.epoch_end[e])


VIEWS: Final = (
    Claim(
        "TypeBrokers",
        "No broker is ahead of the store; a high watermark is at most the log end.",
        lambda s, b: And(
            And(s.committed_end >= 0, s.leader_epoch >= 0),
            And(s.known_epoch[b] >= 0, s.known_epoch[b] <= s.leader_epoch),
            And(s.high_watermark[b] >= 0, s.high_watermark[b] <= s.log_end[b]),
        ),
    ),
    Claim(
        "LeadersLead",
        "A leader was elected in the epoch that it knows, has the whole log of it and is in the ISR that it knows.",
        lambda s, b: Implies(
            s.leads[b],
            And(
                And(s.leader[s.known_epoch[b]] == b, s.started[s.known_epoch[b]], s.known_isr[b, b]),
                And(s.log_end[b] == s.epoch_end[s.known_epoch[b]], s.fetched[s.known_epoch[b], b] == s.log_end[b]),
            ),
        ),
    ),
    Claim(
        "LeaderCountsItsIsr",
        "Every leader, zombies included, waits for every member of its epoch's last ISR.",
        lambda s, b, c: Implies(And(s.leads[b], s.isr[s.known_epoch[b], c]), s.known_isr[b, c]),
    ),
    Claim(
        "FetchedIsThere",
        "A broker's log reaches its fetch offset in an epoch until it knows a later epoch.",
        lambda s, e, c: Implies(
            And(s.started[e], s.fetched[e, c] >= 0),
            And(s.known_epoch[c] >= e, Implies(s.known_epoch[c] == e, s.fetched[e, c] <= s.log_end[c])),
        ),
    ),
    Claim(
        "FetchedIsHistory",
        "Up to its fetch offset in its epoch, the log of a broker is the log of that epoch.",
        lambda s, c, o: Implies(
            And(s.started[s.known_epoch[c]], o >= 0, o < s.fetched[s.known_epoch[c], c]),
            s.log[c, o] == s.history[s.known_epoch[c], o],
        ),
    ),
)

RECORDS: Final = (
    Claim(
        "RecordsHaveEpochs",
        "The epoch of a record has started, its broker knows it, and the record's offset is within it.",
        lambda s, b, o: Implies(
            before(s, b, o, o),
            And(
                And(s.started[s.log[b, o]], s.log[b, o] <= s.known_epoch[b]),
                And(s.epoch_start[s.log[b, o]] <= o, o < s.epoch_end[s.log[b, o]]),
            ),
        ),
    ),
    Claim(
        "RecordsAreHistory",
        "Up to any record, a log is equal to the log of the record's epoch.",
        lambda s, b, o, q: Implies(before(s, b, q, o), s.log[b, q] == s.history[s.log[b, o], q]),
    ),
    Claim(
        "HistoryHasEpochs",
        "The same holds for the logs of epochs; an epoch's own records begin at its start.",
        lambda s, e, o: Implies(
            before_in(s, e, o, o),
            And(
                And(s.started[s.history[e, o]], s.history[e, o] <= e),
                (s.history[e, o] == e) == (o >= s.epoch_start[e]),
                And(s.epoch_start[s.history[e, o]] <= o, o < s.epoch_end[s.history[e, o]]),
            ),
        ),
    ),
    Claim(
        "HistoryIsHistory",
        "Up to any record, the log of an epoch is equal to the log of the record's epoch.",
        lambda s, e, o, q: Implies(before_in(s, e, q, o), s.history[e, q] == s.history[s.history[e, o], q]),
    ),
    Claim(
        "EpochsAscend",
        "Leader epochs never decrease along a log.",
        lambda s, b, o, q: Implies(before(s, b, q, o), s.log[b, q] <= s.log[b, o]),
    ),
    Claim(
        "EpochsAscendInHistory",
        "Leader epochs never decrease along the log of an epoch.",
        lambda s, e, o, q: Implies(before_in(s, e, q, o), s.history[e, q] <= s.history[e, o]),
    ),
)

IMPLIED: Final = (
    Claim(
        "LogMatching",
        "Two logs that agree on one record agree on all earlier records.",
        lambda s, b, c, o, q: Implies(
            And(before(s, b, q, o), o < s.log_end[c], s.log[b, o] == s.log[c, o]), s.log[b, q] == s.log[c, q]
        ),
    ),
    Claim(
        "LeadersAgree",
        "No leader, not even a zombie, regards a record as committed that an ISR member does not have.",
        lambda s, b, c, o: Implies(
            And(s.leads[b], is_clean_member(s, c), o >= 0, o < s.high_watermark[b]),
            And(o < s.log_end[c], s.log[c, o] == s.log[b, o]),
        ),
    ),
)

SHORT: Final = Finite(
    sizes={BROKER: 3},
    numbers={EPOCH: range(3), OFFSET: range(2), END: range(3), FETCHED: range(-1, 3)},
)

DROPS: Final = (
    Drop("TruncateByEpoch", breaks="CommittedOnIsr", steps=6, instance=SHORT),
    Drop("FenceStaleFetch", breaks="CommittedOnIsr", steps=7, instance=SHORT),
    Drop("HwNeedsWholeIsr", breaks="CommittedOnIsr", steps=2, instance=SHORT),
    Drop("ExpandOnlyCaughtUp", breaks="CommittedOnIsr", steps=4, instance=SHORT),
    Drop("ExpandAfterEpochStart", breaks="CommittedOnIsr", steps=9, instance=SHORT),
    Drop("IsrCas", breaks="CommittedOnIsr", steps=9, instance=SHORT),
    Drop("ElectFromIsr", breaks="CommittedOnIsr", steps=3, instance=SHORT),
    Drop("UncleanRestartLeavesIsr", breaks="CommittedOnIsr", steps=5, instance=SHORT),
    Drop("RefuseFormerLife", breaks="CommittedOnIsr", steps=6, instance=SHORT),
)

PROTOCOL: Final = Protocol(
    name="hw_truncation",
    variables=VARIABLES,
    ghosts=tuple(HISTORY),
    parameter_sorts=PARAMETER_SORTS,
    init=commitment.init,
    actions=tuple(
        Action(run)
        for run in (
            *(leader_write, fetch, truncate, advance_hw, expand_isr, shrink_isr, controller_shrink),
            *(elect_leader, learn_isr, become_leader, become_follower, crash),
        )
    ),
    invariant=(*PROMISED, *SHAPE, *LEADERS, *MEMBERS, *COMMITMENT, *VIEWS, *RECORDS),
    implied=IMPLIED,
    promises=("CommittedOnIsr", "HighWatermarksAreCommitted", "EpochsAscend", "LogMatching", "LeadersAgree"),
    small=Finite(
        sizes={BROKER: 3},
        numbers={EPOCH: range(3), OFFSET: range(3), END: range(4), FETCHED: range(-1, 4)},
    ),
    tiny=Finite(
        sizes={BROKER: 2},
        numbers={EPOCH: range(2), OFFSET: range(2), END: range(3), FETCHED: range(-1, 3)},
    ),
    start=commitment.START,
    drops=DROPS,
)
