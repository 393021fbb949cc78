"""The common part of the two replication proofs: logs, epochs, and why committed records are never lost.

The central predicate is `may_be_committed(e, o)`: leader epoch e has a record at o, and each member of its last ISR has
acknowledged it, or still knows epoch e and may acknowledge it later.  Every committed record was committed in some
epoch; the logs of later epochs contain it; and ISR members that know a later epoch have it.  A `witness` is a member of
e's ISR that has moved to a later epoch: a record that it did not acknowledge before can no longer be committed in e.
"""

from typing import Any, Final

from highwater.spec.proofs.language import (
    And,
    Claim,
    If,
    Implies,
    Not,
    Number,
    Or,
    Signature,
    Sort,
    State,
    Step,
    Term,
    relation,
    step,
    table,
    value,
)

BROKER: Final = Sort("Broker")
EPOCH: Final = Number("LeaderEpoch")
OFFSET: Final = Number("Offset")
END: Final = Number("LogEnd")  # up to the largest offset plus one
FETCHED: Final = Number("FetchOffset")  # like LogEnd, or UNKNOWN

UNKNOWN: Final = -1

PARAMETER_SORTS: Final[dict[str, Sort | Signature]] = {
    **dict.fromkeys(("b", "c", "d", "source"), BROKER),
    **dict.fromkeys("eg", EPOCH),
    **dict.fromkeys("oq", OFFSET),
    **dict.fromkeys("hkn", END),
}

STORE: Final = {
    # Leader and ISR as last written in each leader epoch; isr[leader_epoch, ...] is the current one.
    "leader_epoch": value(EPOCH),
    "leader": table(EPOCH, to=BROKER),
    "isr": relation(EPOCH, BROKER),
}
BROKERS: Final = {
    # A broker: the epoch that it knows, its log and its high watermark.
    "known_epoch": table(BROKER, to=EPOCH),
    "leads": relation(BROKER),
    "log": table(BROKER, OFFSET, to=EPOCH),
    "log_end": table(BROKER, to=END),
    "high_watermark": table(BROKER, to=END),
    # A leader: the ISR that it knows, and the fetch offsets in its epoch.
    "known_isr": relation(BROKER, BROKER),
    "fetched": table(EPOCH, BROKER, to=FETCHED),
}
HISTORY: Final = {
    # The log of each epoch's leader, its start and end; all records ever committed; a witness.
    "started": relation(EPOCH),
    "history": table(EPOCH, OFFSET, to=EPOCH),
    "epoch_start": table(EPOCH, to=END),
    "epoch_end": table(EPOCH, to=END),
    "committed": table(OFFSET, to=EPOCH),
    "committed_in": table(OFFSET, to=EPOCH),
    "committed_end": value(END),
    "left": relation(EPOCH),
    "witness": table(EPOCH, to=BROKER),
}


def init(s: State) -> Term:
    """Initial states: epoch 0, led by a member of its ISR; nothing is written."""
    first = s.leader[0]
    return And(
        And(s.leader_epoch == 0, s.isr[0, first], s.committed_end == 0),
        s.all(lambda e: And(Not(s.left[e]), s.started[e] == (e == 0), s.epoch_start[e] == 0, s.epoch_end[e] == 0)),
        s.all(lambda b: And(s.known_epoch[b] == 0, s.leads[b] == (b == first))),
        s.all(lambda b: And(s.log_end[b] == 0, s.high_watermark[b] == 0)),
        s.all(lambda e, b: If(And(e == 0, b == first), s.fetched[e, b] == 0, s.fetched[e, b] == UNKNOWN)),
        s.all(lambda b, c: s.known_isr[b, c] == And(b == first, s.isr[0, c])),
    )


# The initial state for execution (explicit.py), with every broker in the ISR.
START: Final[dict[str, Any]] = {
    "isr": lambda e, b: e == 0,
    "leads": lambda b: b == 0,
    "fetched": lambda e, b: 0 if e == 0 and b == 0 else UNKNOWN,
    "known_isr": lambda b, c: b == 0,
    "started": lambda e: e == 0,
}


def leader_write(s: State, b: Term) -> Step:
    """A leader appends a record; its own log end counts as its fetch offset."""
    e, end = s.known_epoch[b], s.log_end[b]
    return step(
        s.leads[b],
        log=s.log.but((b, end), e),
        log_end=s.log_end.but(b, end + 1),
        history=s.history.but((e, end), e),
        epoch_end=s.epoch_end.but(e, end + 1),
        fetched=s.fetched.but((e, b), end + 1),
    )


def may_receive(s: State, b: Term, source: Term, k: Term, h: Term) -> Term:
    """True if a reply may contain the records of leader `source` below k, and raise b's high watermark to h."""
    hw = s.high_watermark[b]
    received = And(h >= hw, h <= s.high_watermark[source], h <= k)
    return And(s.log_end[b] <= k, k <= s.log_end[source], Or(h == hw, received))


def receive(s: State, b: Term, source: Term, k: Term, h: Term) -> dict[str, Term]:
    """Return the updates when follower b fetches from its log end, which becomes its fetch offset, up to k."""
    end = s.log_end[b]
    return {
        "fetched": s.fetched.but((s.known_epoch[source], b), end),
        "log": lambda c, o: If(And(c == b, o >= end, o < k), s.log[source, o], s.log[c, o]),
        "log_end": s.log_end.but(b, k),
        "high_watermark": s.high_watermark.but(b, h),
    }


def commit(s: State, b: Term, h: Term) -> dict[str, Term]:
    """Return the updates when leader b advances its high watermark to h."""
    return {
        "high_watermark": s.high_watermark.but(b, h),
        "committed": lambda o: If(And(o >= s.committed_end, o < h), s.log[b, o], s.committed[o]),
        "committed_in": lambda o: If(And(o >= s.committed_end, o < h), s.known_epoch[b], s.committed_in[o]),
        "committed_end": If(h > s.committed_end, h, s.committed_end),
    }


def leader_and_isr_arrives(s: State, b: Term, e: Term) -> Term:
    """True if a LeaderAndIsr request of epoch e can reach b, perhaps late: later epochs may have started already."""
    return And(e >= 0, e <= s.leader_epoch, s.known_epoch[b] < e)


def begin_epoch(s: State, b: Term, e: Term) -> dict[str, Term]:
    """Return the updates when b becomes leader of e; b is the witness of all earlier epochs that have none."""
    end = s.log_end[b]
    return {
        "known_epoch": s.known_epoch.but(b, e),
        "leads": s.leads.but(b, True),
        "known_isr": s.known_isr.but(b, lambda c: s.isr[e, c]),
        "fetched": s.fetched.but(e, lambda c: If(c == b, end, UNKNOWN)),
        "started": s.started.but(e, True),
        "history": s.history.but(e, lambda o: s.log[b, o]),
        "epoch_start": s.epoch_start.but(e, end),
        "epoch_end": s.epoch_end.but(e, end),
        "left": lambda g: Or(s.left[g], And(g >= 0, g < e)),
        "witness": lambda g: If(And(Not(s.left[g]), g >= 0, g < e), b, s.witness[g]),
    }


def is_clean_member(s: State, b: Term) -> Term:
    """True if b is in the current ISR and clean: members that restarted uncleanly leave the ISR first."""
    return And(in_isr(s, b), clean(s, s.leader_epoch, b)) if "unclean" in s.variables else in_isr(s, b)


def knows_epoch_and_clean(s: State, b: Term) -> Term:
    """True if b knows the current leader epoch and is clean in it."""
    knows = s.known_epoch[b] == s.leader_epoch
    return And(knows, clean(s, s.leader_epoch, b)) if "unclean" in s.variables else knows


def next_epoch(s: State, c: Term, d: Term) -> dict[str, Term]:
    """Return the updates when the controller elects c and removes d, if d is another broker, from the ISR.

    Without ElectFromIsr c is the only member of the new ISR.
    """
    epoch = s.leader_epoch + 1
    return {
        "leader_epoch": epoch,
        "leader": s.leader.but(epoch, c),
        "isr": s.isr.but(
            epoch, lambda b: And(is_clean_member(s, b), Or(b == c, b != d)) if s.on("ElectFromIsr") else b == c
        ),
    }


def clean(s: State, e: Term, c: Term) -> Term:
    """True if c has not crashed since it joined the ISR of epoch e; members crash only in crashes.py."""
    return Not(s.unclean[e, c]) if "unclean" in s.variables else True


def acknowledged(s: State, e: Term, c: Term) -> Term:
    """Return the end of what c acknowledged in epoch e; it may have lost some of it since."""
    return s.acknowledged[e, c] if "acknowledged" in s.variables else s.fetched[e, c]


def may_be_committed(s: State, e: Term, o: Term) -> Term:
    """True if the record at o is committed in epoch e, or may still be (see above)."""
    return And(
        And(s.started[e], o >= 0, o < s.epoch_end[e]),
        s.all(lambda c: Implies(s.isr[e, c], Or(o < acknowledged(s, e, c), s.known_epoch[c] <= e))),
    )


def is_committed(s: State, o: Term) -> Term:
    """True if offset o was ever below a high watermark."""
    return And(o >= 0, o < s.committed_end)


def in_isr(s: State, c: Term) -> Term:
    """True if c is in the current ISR."""
    return s.isr[s.leader_epoch, c]


PROMISED: Final = (
    Claim(
        "CommittedOnIsr",
        "Every ISR member has every record that was ever below a high watermark.",
        lambda s, c, o: Implies(
            And(is_clean_member(s, c), is_committed(s, o)), And(o < s.log_end[c], s.log[c, o] == s.committed[o])
        ),
    ),
    Claim(
        "HighWatermarksAreCommitted",
        "Every record below the high watermark of any broker, zombies included, is committed.",
        lambda s, b, o: Implies(
            And(o >= 0, o < s.high_watermark[b]), And(o < s.committed_end, s.log[b, o] == s.committed[o])
        ),
    ),
)

SHAPE: Final = (
    Claim(
        "TypeEpochs",
        "The controller has begun every epoch that has started; the end of an epoch is not before its start.",
        lambda s, e: And(
            Implies(s.started[e], And(e >= 0, e <= s.leader_epoch)),
            And(s.epoch_start[e] >= 0, s.epoch_start[e] <= s.epoch_end[e]),
        ),
    ),
    Claim(
        "TypeFetched",
        "No fetch offset is beyond the end of the epoch.",
        lambda s, e, c: Implies(s.started[e], And(s.fetched[e, c] <= s.epoch_end[e], s.fetched[e, c] >= UNKNOWN)),
    ),
)

LEADERS: Final = (
    Claim(
        "LeadersLogIsHistory",
        "The log of a leader is the log of its epoch.",
        lambda s, b, o: Implies(
            And(s.leads[b], o >= 0, o < s.log_end[b]), s.log[b, o] == s.history[s.known_epoch[b], o]
        ),
    ),
    Claim(
        "StartedByLeader",
        "The leader of an epoch that has started knows this epoch or a later one.",
        lambda s, e: Implies(s.started[e], s.known_epoch[s.leader[e]] >= e),
    ),
    Claim(
        "CurrentLeaderLeads",
        "The current leader leads as soon as it knows the epoch.",
        lambda s: Implies(
            knows_epoch_and_clean(s, s.leader[s.leader_epoch]),
            And(s.started[s.leader_epoch], s.leads[s.leader[s.leader_epoch]]),
        ),
    ),
)

MEMBERS: Final = (
    Claim(
        "LeaderInIsr",
        "The leader of an epoch is in its ISR.",
        lambda s, e: Implies(And(e >= 0, e <= s.leader_epoch), s.isr[e, s.leader[e]]),
    ),
    Claim(
        "OldMembersWereMembers",
        "A member of the ISR of epoch g that knows at most epoch e <= g was in the ISR of e.",
        lambda s, e, g, c: Implies(And(s.isr[g, c], s.known_epoch[c] <= e, e <= g, g <= s.leader_epoch), s.isr[e, c]),
    ),
    Claim(
        "WitnessLeft",
        "A witness of an epoch was in its ISR and knows a later epoch.",
        lambda s, e: Implies(
            s.left[e], And(s.isr[e, s.witness[e]], s.known_epoch[s.witness[e]] > e, e < s.leader_epoch)
        ),
    ),
    Claim(
        "StartHasWitnesses",
        "Once an epoch has started, all earlier epochs have a witness.",
        lambda s, e, g: Implies(And(s.started[g], e >= 0, e < g), s.left[e]),
    ),
    Claim(
        "NobodyJoinedSince",
        "While an epoch has no witness, no broker has joined the ISR since that epoch.",
        lambda s, e, g, c: Implies(And(e >= 0, e <= g, g <= s.leader_epoch, Not(s.left[e]), s.isr[g, c]), s.isr[e, c]),
    ),
)

COMMITMENT: Final = (
    Claim(
        "LeaderHasCommitted",
        "The current epoch's log has every committed record, before its start or below its high watermark.",
        lambda s, o: Implies(
            And(s.started[s.leader_epoch], is_committed(s, o)),
            And(
                s.history[s.leader_epoch, o] == s.committed[o],
                Or(
                    *(o < s.epoch_start[s.leader_epoch], o < s.high_watermark[s.leader[s.leader_epoch]]),
                    Not(clean(s, s.leader_epoch, s.leader[s.leader_epoch])),
                ),
            ),
        ),
    ),
    Claim(
        "LaterEpochsAgree",
        "A record that may be committed in an epoch is in the log with which a later epoch starts.",
        lambda s, e, g, o: Implies(
            And(e < g, s.started[g], may_be_committed(s, e, o)),
            And(o < s.epoch_start[g], s.history[g, o] == s.history[e, o]),
        ),
    ),
    Claim(
        "LaterMembersHold",
        "A record that may be committed in an epoch is in the log of each ISR member of the later epoch that it knows.",
        lambda s, e, c, o: Implies(
            And(
                *(e < s.known_epoch[c], s.isr[s.known_epoch[c], c], clean(s, s.known_epoch[c], c)),
                may_be_committed(s, e, o),
            ),
            And(o < s.log_end[c], s.log[c, o] == s.history[e, o]),
        ),
    ),
    Claim(
        "CommittedInAnEpoch",
        "A committed record is in the log of the epoch in which it was committed.",
        lambda s, o: Implies(
            is_committed(s, o),
            And(
                And(s.started[s.committed_in[o]], o < s.epoch_end[s.committed_in[o]]),
                s.history[s.committed_in[o], o] == s.committed[o],
            ),
        ),
    ),
    Claim(
        "CommittedByAll",
        "Every member of that epoch's ISR has acknowledged it.",
        lambda s, c, o: Implies(
            And(is_committed(s, o), s.isr[s.committed_in[o], c]), o < acknowledged(s, s.committed_in[o], c)
        ),
    ),
    Claim(
        "MembersEpochsHaveCommitted",
        "The log of the epoch that an ISR member knows has every committed record.",
        lambda s, c, o: Implies(
            And(in_isr(s, c), s.started[s.known_epoch[c]], is_committed(s, o)),
            And(o < s.epoch_end[s.known_epoch[c]], s.history[s.known_epoch[c], o] == s.committed[o]),
        ),
    ),
    Claim(
        "LaterEpochsHaveCommitted",
        "A committed record is in the log with which any later epoch starts.",
        lambda s, e, o: Implies(
            And(is_committed(s, o), s.started[e], s.committed_in[o] < e),
            And(o < s.epoch_start[e], s.history[e, o] == s.committed[o]),
        ),
    ),
)
