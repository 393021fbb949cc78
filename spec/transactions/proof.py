"""Transactions in version 2 (KIP-890), for any number of instances, partitions, transactions and requests.

Main claim: no two records of a transaction have different ends, and a record is visible only if the producer of its own
transaction asked to commit it.  Every end of a transaction increments the producer epoch, so an epoch names a
transaction: records, requests and decisions of different transactions never have the same one.  A marker has a higher
epoch than the records that it ends, and no records of a later transaction have a lower one.

Requests are never removed, so each may be late, repeated or lost: `sent`, `asked` and `marker` are all that were ever
sent.  A coordinator that takes over finds what is stored:
the decision, and the partitions of the transaction.
"""

from typing import Final

from highwater.spec.proofs.language import (
    Action,
    And,
    Choice,
    Claim,
    Drop,
    Finite,
    If,
    Implies,
    Not,
    Number,
    Or,
    Protocol,
    Sort,
    State,
    Step,
    Term,
    in_turn,
    relation,
    step,
    table,
    value,
)

CLIENT: Final = Sort("Client")
PARTITION: Final = Sort("Partition")
EPOCH: Final = Number("Epoch")
STATE: Final = Choice("State", ("done", "ongoing", "commit", "abort"))

VARIABLES: Final = {
    # The coordinator: producer epoch and state, the partitions without a confirmed marker, and those that are stored.
    "epoch": value(EPOCH),
    "state": value(STATE),
    "waiting": relation(PARTITION),
    "stored": relation(PARTITION),
    # The markers that were sent, by their epoch, and their outcome.
    "marker": relation(EPOCH, PARTITION),
    "outcome": table(EPOCH, to=STATE),
    # An instance: its producer epoch (0: none).  By epoch: the instance to which the coordinator gave it, the
    # partitions to which it sent a record, and the EndTxn that it sent (done: none).
    "client_epoch": table(CLIENT, to=EPOCH),
    "holder": table(EPOCH, to=CLIENT),
    "sent": relation(EPOCH, PARTITION),
    "asked": table(EPOCH, to=STATE),
    # A partition: the newest epoch in its log, whether a transaction is open, the epochs with a record, and those with
    # one that was verified and is not stored yet.
    "known": table(PARTITION, to=EPOCH),
    "open": relation(PARTITION),
    "record": relation(EPOCH, PARTITION),
    "verified": relation(EPOCH, PARTITION),
    # History: the decision by the epoch of the transaction, the transaction that was decided last, and the records that
    # a marker has ended.
    "decided": table(EPOCH, to=STATE),
    "last": value(EPOCH),
    "committed_in": relation(EPOCH, PARTITION),
    "aborted_in": relation(EPOCH, PARTITION),
}


def init(s: State) -> Term:
    return And(
        And(s.epoch == 0, s.state == s.done, s.last == 0),
        s.all(lambda p: And(Not(s.waiting[p]), Not(s.stored[p]), s.known[p] == 0, Not(s.open[p]))),
        s.all(lambda c: s.client_epoch[c] == 0),
        s.all(lambda e: And(s.holder[e] == s.no_client, s.asked[e] == s.done, s.decided[e] == s.done)),
        s.all(lambda e: s.outcome[e] == s.done),
        s.all(lambda e, p: And(Not(s.sent[e, p]), Not(s.record[e, p]), Not(s.verified[e, p]), Not(s.marker[e, p]))),
        s.all(lambda e, p: And(Not(s.committed_in[e, p]), Not(s.aborted_in[e, p]))),
    )


def prepared(s: State) -> Term:
    return Or(s.state == s.commit, s.state == s.abort)


# -- the coordinator ---------------------------------------------------------------------------------------------------


def decide(s: State, outcome: Term, epoch: Term) -> dict[str, Term]:
    """Return the updates that store a decision and send its markers; the epoch before it names the transaction."""
    return {
        "state": outcome,
        "epoch": epoch,
        "marker": s.marker.but(epoch, lambda p: s.stored[p]),
        "outcome": s.outcome.but(epoch, outcome),
        "decided": s.decided.but(s.epoch, outcome),
        "last": s.epoch,
    }


def time_out(s: State) -> Step:
    """The coordinator aborts an open transaction and fences its producer."""
    return step(s.state == s.ongoing, **decide(s, s.abort, s.epoch + 2))


def initialise(s: State, c: Term) -> Step:
    """An instance receives the next epoch; if a transaction is open, it is aborted first (TimeOut)."""
    epoch = s.epoch + 1 if s.on("InitBumpsEpoch") else If(s.epoch == 0, 1, s.epoch)
    return step(
        And(c != s.no_client, s.client_epoch[c] == 0),
        s.guard("InitAbortsOpen", s.state != s.ongoing),
        s.guard("InitAwaitsMarkers", Not(prepared(s))),
        epoch=epoch,
        state=If(s.state == s.ongoing, s.ongoing, s.done),
        waiting=lambda p: And(s.state == s.ongoing, s.waiting[p]),
        stored=lambda p: And(s.state == s.ongoing, s.stored[p]),
        client_epoch=s.client_epoch.but(c, epoch),
        holder=s.holder.but(epoch, c),
    )


def complete(s: State) -> Step:
    """Every marker is written."""
    return step(
        prepared(s),
        s.guard("CompleteAwaitsMarkers", s.all(lambda p: Not(s.waiting[p]))),
        state=s.done,
        waiting=lambda p: False,
        stored=lambda p: False,
    )


def fail_over(s: State) -> Step:
    """Another coordinator finds what is stored, and sends all markers again."""
    return step(True, waiting=lambda p: s.stored[p])


# -- the producer ------------------------------------------------------------------------------------------------------


def send_record(s: State, c: Term, p: Term) -> Step:
    """An instance sends the record of its transaction to a partition."""
    e = s.client_epoch[c]
    return step(
        And(c != s.no_client, e > 0, s.asked[e] == s.done),
        sent=s.sent.but((e, p), True),
    )


def ask_commit(s: State, c: Term) -> Step:
    """An instance asks to commit, when all of its records are stored."""
    e = s.client_epoch[c]
    return step(
        And(c != s.no_client, e > 0, s.asked[e] == s.done),
        s.all(lambda p: Implies(s.sent[e, p], s.record[e, p])),
        asked=s.asked.but(e, s.commit),
    )


def ask_abort(s: State, c: Term) -> Step:
    """An instance asks to abort, at any time."""
    e = s.client_epoch[c]
    return step(And(c != s.no_client, e > 0, s.asked[e] == s.done), asked=s.asked.but(e, s.abort))


def handle_end(s: State, e: Term) -> Step:
    """The coordinator decides the transaction; the next epoch belongs to the same instance."""
    return step(
        s.asked[e] != s.done,
        s.guard("FenceStaleEndTxn", e == s.epoch),
        Or(s.state == s.ongoing, And(s.state == s.done, s.asked[e] == s.abort)),
        **decide(s, s.asked[e], s.epoch + 1),
        holder=s.holder.but(s.epoch + 1, s.holder[e]),
    )


def learn(s: State, c: Term) -> Step:
    """The instance receives the response to EndTxn, the first one or a repeated one, and with it the next epoch."""
    e = s.client_epoch[c]
    return step(
        And(c != s.no_client, e > 0, s.asked[e] != s.done, s.holder[e + 1] == c),
        client_epoch=s.client_epoch.but(c, e + 1),
    )


def handle_end_and_answer(s: State, e: Term, c: Term) -> Step:
    """The response arrives in the same step."""
    return in_turn(s, handle_end(s, e), lambda t: learn(t, c))


# -- the partitions ----------------------------------------------------------------------------------------------------


def fits(s: State, e: Term, p: Term) -> Term:
    """True if the partition appends the record of epoch e: the epoch is not stale, and it was not stored before."""
    return And(s.sent[e, p], s.guard("FenceStaleProduce", e >= s.known[p]), Not(s.record[e, p]))


def verify(s: State, e: Term, p: Term) -> Step:
    """The leader verifies a record; the coordinator adds the partition to the transaction, or begins one with it."""
    return step(
        And(fits(s, e, p), Not(prepared(s))),
        s.guard("FenceStaleAdd", e == s.epoch),
        state=s.ongoing,
        waiting=s.waiting.but(p, True),
        stored=s.stored.but(p, True),
        verified=s.verified.but((e, p), True),
    )


def append(s: State, e: Term, p: Term) -> Step:
    """The leader appends a verified record, perhaps long after its verification."""
    return step(
        fits(s, e, p),
        s.guard("VerifyBeforeAppend", s.verified[e, p]),
        known=s.known.but(p, e),
        open=s.open.but(p, True),
        record=s.record.but((e, p), True),
        verified=s.verified.but((e, p), False),
    )


def write_marker(s: State, e: Term, p: Term) -> Step:
    """The leader writes the marker of epoch e, which is higher than any epoch in the log."""
    old = s.known[p]
    return step(
        And(s.marker[e, p], e >= old),
        s.guard("MarkerNeedsNewEpoch", e != old),
        known=s.known.but(p, e),
        open=s.open.but(p, False),
        committed_in=s.committed_in.but((old, p), Or(s.committed_in[old, p], And(s.open[p], s.outcome[e] == s.commit))),
        aborted_in=s.aborted_in.but((old, p), Or(s.aborted_in[old, p], And(s.open[p], s.outcome[e] == s.abort))),
    )


def confirm(s: State, e: Term, p: Term) -> Step:
    """The coordinator receives that its marker is written, the first time or when it is repeated."""
    return step(
        And(s.marker[e, p], e == s.known[p], Not(s.open[p])),
        And(e == s.epoch, prepared(s)),
        waiting=s.waiting.but(p, False),
    )


def write_and_confirm(s: State, e: Term, p: Term) -> Step:
    """The response arrives in the same step."""
    return in_turn(s, write_marker(s, e, p), lambda t: confirm(t, e, p))


# -- what holds --------------------------------------------------------------------------------------------------------

PROMISES: Final = (
    Claim(
        "AllOrNothing",
        "No two records of a transaction have different ends, in whatever partitions they are.",
        lambda s, e, p, q: Not(And(s.committed_in[e, p], s.aborted_in[e, q])),
    ),
    Claim(
        "CommitsAreAsked",
        "A record is visible only if the producer of its transaction asked for it, and every other record is stored.",
        lambda s, e, p, q: Implies(
            s.committed_in[e, p], And(s.asked[e] == s.commit, Implies(s.sent[e, q], s.record[e, q]))
        ),
    ),
    Claim(
        "NoneHangs",
        "No transaction is open in a partition that the coordinator does not know of.",
        lambda s, p: Implies(s.open[p], And(s.waiting[p], s.state != s.done)),
    ),
    Claim(
        "OneInstancePerEpoch",
        "Two instances never have the same epoch.",
        lambda s, c, d: Implies(And(s.client_epoch[c] > 0, s.client_epoch[c] == s.client_epoch[d]), c == d),
    ),
)

LEMMAS: Final = (
    Claim(
        "EpochsOfClients",
        "An instance has an epoch that the coordinator gave to it.",
        lambda s, c: And(
            And(s.client_epoch[c] >= 0, s.client_epoch[c] <= s.epoch),
            Implies(s.client_epoch[c] > 0, s.holder[s.client_epoch[c]] == c),
            Implies(c == s.no_client, s.client_epoch[c] == 0),
        ),
    ),
    Claim(
        "EpochsNotAhead",
        "Nothing is known of an epoch that the coordinator has not reached.",
        lambda s, e, p: And(
            And(s.epoch >= 0, s.known[p] >= 0, s.known[p] <= s.epoch),
            Implies(Or(s.sent[e, p], s.asked[e] != s.done, s.holder[e] != s.no_client), And(e >= 1, e <= s.epoch)),
            Implies(s.decided[e] != s.done, And(e >= 1, e < s.epoch)),
        ),
    ),
    Claim(
        "RecordsWereSent",
        "A record that is stored or verified was sent; the partition knows its epoch or a newer one.",
        lambda s, e, p: And(
            Implies(s.record[e, p], And(s.sent[e, p], e <= s.known[p])),
            Implies(s.verified[e, p], s.sent[e, p]),
        ),
    ),
    Claim(
        "AskedIsAnEnd",
        "An instance asks to commit or to abort.",
        lambda s, e: And(s.asked[e] != s.ongoing, s.outcome[e] != s.ongoing),
    ),
    Claim(
        "AskedIsWhole",
        "A transaction whose commit was asked has all of its records.",
        lambda s, e, p: Implies(And(s.asked[e] == s.commit, s.sent[e, p]), s.record[e, p]),
    ),
    Claim(
        "DecidedAsAsked",
        "A decision to commit is what was asked; no decision is neither.",
        lambda s, e: And(
            Implies(s.decided[e] == s.commit, s.asked[e] == s.commit),
            s.decided[e] != s.ongoing,
        ),
    ),
    Claim(
        "StateOfDecision",
        "While markers are written, the last decision is that of the state.",
        lambda s: And(
            Implies(prepared(s), And(s.decided[s.last] == s.state, s.last < s.epoch)),
            Implies(s.state == s.ongoing, And(s.epoch >= 1, s.decided[s.epoch] == s.done)),
        ),
    ),
    Claim(
        "WaitingIsStored",
        "The coordinator waits only for partitions that are stored, and for none when nothing is open.",
        lambda s, p: And(
            Implies(s.waiting[p], s.stored[p]),
            Implies(s.state == s.done, Not(s.stored[p])),
            Implies(s.state == s.ongoing, s.waiting[p] == s.stored[p]),
        ),
    ),
    Claim(
        "OpenIsCurrent",
        "The open record of a partition is of the transaction that is open, or that was decided last.",
        lambda s, p: Implies(
            s.open[p],
            And(
                s.record[s.known[p], p],
                Implies(s.state == s.ongoing, s.known[p] == s.epoch),
                Implies(prepared(s), s.known[p] == s.last),
            ),
        ),
    ),
    Claim(
        "VerifiedIsCurrent",
        "A verified record that the partition would still append is of the transaction that is open, or decided last.",
        lambda s, e, p: Implies(
            And(s.verified[e, p], e >= s.known[p]),
            And(
                And(s.state != s.done, s.waiting[p]),
                Implies(s.state == s.ongoing, e == s.epoch),
                Implies(prepared(s), e == s.last),
            ),
        ),
    ),
    Claim(
        "MarkersAreDecisions",
        "A marker that could end an open transaction is that of the last decision.",
        lambda s, e, p: Implies(
            s.marker[e, p],
            And(
                And(e >= 1, e <= s.epoch, s.outcome[e] != s.done),
                Implies(And(prepared(s), e > s.last), And(e == s.epoch, s.outcome[e] == s.state)),
            ),
        ),
    ),
    Claim(
        "EndsAreDecisions",
        "A record ends as its transaction was decided.",
        lambda s, e, p: And(
            Implies(s.committed_in[e, p], s.decided[e] == s.commit),
            Implies(s.aborted_in[e, p], s.decided[e] == s.abort),
        ),
    ),
    Claim(
        "DecidedIsClosed",
        "Of a decided transaction nothing is open in a partition whose marker is confirmed.",
        lambda s, p: Implies(
            And(prepared(s), s.stored[p], Not(s.waiting[p])), And(Not(s.open[p]), s.known[p] > s.last)
        ),
    ),
)

# One instance and one partition, for what takes two transactions.
ONE: Final = Finite(sizes={CLIENT: 2, PARTITION: 1}, numbers={EPOCH: range(4)})

DROPS: Final = (
    Drop("InitBumpsEpoch", breaks="OneInstancePerEpoch", steps=2),
    Drop("InitAbortsOpen", breaks="CommitsAreAsked", steps=8),
    Drop("InitAwaitsMarkers", breaks="NoneHangs", steps=6),
    Drop("CompleteAwaitsMarkers", breaks="NoneHangs", steps=6),
    Drop("FenceStaleEndTxn", breaks="CommitsAreAsked", steps=8),
    Drop("FenceStaleProduce", breaks="NoneHangs", steps=6),
    Drop("FenceStaleAdd", breaks="CommitsAreAsked", steps=8),
    Drop("VerifyBeforeAppend", breaks="NoneHangs", steps=3),
    Drop("MarkerNeedsNewEpoch", breaks="CommitsAreAsked", steps=12, instance=ONE),
)

PROTOCOL: Final = Protocol(
    name="transactions",
    variables=VARIABLES,
    constants={"no_client": CLIENT},
    ghosts=("decided", "last", "committed_in", "aborted_in"),
    parameter_sorts={
        "e": EPOCH,
        **dict.fromkeys("cd", CLIENT),
        **dict.fromkeys("pq", PARTITION),
    },
    init=init,
    actions=tuple(
        Action(run)
        for run in (
            *(time_out, initialise, complete, fail_over, send_record, ask_commit, ask_abort),
            *(handle_end, learn, handle_end_and_answer, verify, append, write_marker, confirm, write_and_confirm),
        )
    ),
    invariant=(*PROMISES, *LEMMAS),
    promises=tuple(claim.name for claim in PROMISES),
    small=Finite(sizes={CLIENT: 3, PARTITION: 2}, numbers={EPOCH: range(6)}),
    tiny=Finite(sizes={CLIENT: 2, PARTITION: 1}, numbers={EPOCH: range(4)}),
    start={},
    drops=DROPS,
)
