"""The window of an idempotent producer, for any size of it, and any number of batches and changes of the leader.

Main claim: the log has every batch once, in order and without a gap.  A leader remembers as many batches as may be in
flight, so a repeated batch that is stored and not acknowledged yet is always recognised.

Batches may arrive late, again, in any order, or never.  The next leader has every committed batch and any number of the
others; its window is the end of its log.
"""

from typing import Final

from highwater.spec.proofs.language import (
    Action,
    And,
    Claim,
    Drop,
    Finite,
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
    step,
    table,
    value,
)

SEQUENCE: Final = Number("Sequence")  # also offsets: a batch has one record
SIZE: Final = Number("Size")

BATCH: Final = Message("request", {"sequence": value(SEQUENCE)})

VARIABLES: Final = {
    "size": value(SIZE),  # of the window; it never changes
    # The producer: its next sequence number, and the acknowledged ones; those below `base` are acknowledged.
    "next": value(SEQUENCE),
    "acked": relation(SEQUENCE),
    "base": value(SEQUENCE),
    # The leader's log, of which `log_end` batches are valid and `committed` are committed.
    "log": table(SEQUENCE, to=SEQUENCE),
    "log_end": value(SEQUENCE),
    "committed": value(SEQUENCE),
    **BATCH.variables,
}


def init(s: State) -> Term:
    return And(
        s.size >= 1,
        And(s.next == 0, s.base == 0, s.log_end == 0, s.committed == 0),
        s.all(lambda n: Not(s.acked[n])),
        s.all(lambda r: Not(s.request_sent[r])),
    )


def in_window(s: State, o: Term) -> Term:
    """True if the leader remembers the batch at offset o; before 1.0 it remembered only the last one."""
    first = s.log_end - s.size if s.on("RememberBatches") else s.log_end - 1
    return And(o >= 0, o >= first, o < s.log_end)


def send(s: State, r: Term) -> Step:
    """The producer sends the next batch, unless too many are in flight."""
    return step(
        Not(s.request_sent[r]),
        s.guard("LimitInFlight", s.next < s.base + s.size),
        **s.send(BATCH, r, sequence=s.next),
        next=s.next + 1,
    )


def store(s: State, r: Term) -> Step:
    """The leader appends a batch that it does not remember and that is the next one."""
    sequence, last = s.request_sequence[r], s.log[s.log_end - 1]
    return step(
        s.request_sent[r],
        s.all(lambda o: Implies(in_window(s, o), s.log[o] != sequence)),
        s.guard("BeginAtZero", Or(s.log_end > 0, sequence == 0)),
        s.guard("RefuseSequenceGap", Or(s.log_end == 0, sequence <= last + 1)),
        s.guard("RefuseUsedSequence", Or(s.log_end == 0, sequence > last)),
        log=s.log.but(s.log_end, sequence),
        log_end=s.log_end + 1,
    )


def acknowledge(s: State, r: Term, o: Term) -> Step:
    """The leader answers the first copy of a batch, or a repeated one that it remembers."""
    return step(
        s.request_sent[r],
        And(in_window(s, o), s.log[o] == s.request_sequence[r]),
        s.guard("AckAfterCommit", o < s.committed),
        acked=s.acked.but(s.request_sequence[r], True),
    )


def advance(s: State) -> Step:
    """The producer notices that its oldest batch is acknowledged."""
    return step(s.acked[s.base], base=s.base + 1)


def commit(s: State, k: Term) -> Step:
    """The high watermark advances to k."""
    return step(And(s.committed < k, k <= s.log_end), committed=k)


def change_leader(s: State, k: Term) -> Step:
    """The next leader has the first k batches, with all that are committed."""
    return step(And(s.committed <= k, k <= s.log_end), log_end=k)


PROMISES: Final = (
    Claim(
        "InOrderOnce",
        "The log has the batches in the order in which they were sent, each once, and none is left out.",
        lambda s, o: Implies(And(o >= 0, o < s.log_end), s.log[o] == o),
    ),
    Claim(
        "AckedIsStored",
        "An acknowledged batch is committed.",
        lambda s, n: Implies(s.acked[n], And(n >= 0, n < s.committed)),
    ),
    Claim(
        "RepeatsAreAnswered",
        "A batch that is stored, and not acknowledged yet, is remembered.",
        lambda s, n: Implies(And(n >= 0, n < s.log_end, Not(s.acked[n])), in_window(s, n)),
    ),
)

LEMMAS: Final = (
    Claim(
        "Numbers",
        "The committed batches are in the log, and what is in the log was sent.",
        lambda s: And(s.size >= 1, s.base >= 0, s.committed >= 0, s.committed <= s.log_end, s.log_end <= s.next),
    ),
    Claim(
        "BelowBaseAcked",
        "All batches below the oldest one without an acknowledgement are acknowledged.",
        lambda s, n: Implies(And(n >= 0, n < s.base), s.acked[n]),
    ),
    Claim(
        "InFlightLimited",
        "At most as many batches are in flight as a leader remembers.",
        lambda s: s.next <= s.base + s.size,
    ),
    Claim(
        "RequestsAreSent",
        "A request has a sequence number that was used.",
        lambda s, r: Implies(s.request_sent[r], And(s.request_sequence[r] >= 0, s.request_sequence[r] < s.next)),
    ),
)


DROPS: Final = (
    Drop("RefuseSequenceGap", breaks="InOrderOnce", steps=8),
    Drop("RefuseUsedSequence", breaks="InOrderOnce", steps=8),
    Drop("BeginAtZero", breaks="InOrderOnce", steps=3),
    Drop("RememberBatches", breaks="RepeatsAreAnswered", steps=4),
    Drop("LimitInFlight", breaks="RepeatsAreAnswered", steps=4),
    Drop("AckAfterCommit", breaks="AckedIsStored", steps=3),
)

PROTOCOL: Final = Protocol(
    name="sequence_window",
    variables=VARIABLES,
    messages=(BATCH,),
    parameter_sorts={"r": BATCH, **dict.fromkeys("nok", SEQUENCE)},
    init=init,
    actions=tuple(Action(run) for run in (send, store, acknowledge, advance, commit, change_leader)),
    invariant=(*PROMISES, *LEMMAS),
    promises=tuple(claim.name for claim in PROMISES),
    small=Finite(sizes={BATCH: 3}, numbers={SEQUENCE: range(5), SIZE: range(1, 3)}),
    tiny=Finite(sizes={BATCH: 4}, numbers={SEQUENCE: range(5), SIZE: range(1, 3)}),
    start={"size": 2},
    drops=DROPS,
)
