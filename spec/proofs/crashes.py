"""`hw_truncation` with crashes that lose the unflushed suffix inside the ISR, under the fault budget (research).

A member of the ISR may crash and lose a suffix while another member has not crashed since it joined; so one such member
there always is.  The crashed broker registers anew, leads no more, and leaves the ISR before any election or other
change by the controller.  Main claim: what was ever below a high watermark is on every *clean* member of the ISR, one
that has not crashed since it joined, and there is one.

Why what is committed stays is told as without crashes, with two changes: hold is said of clean members, and whether
something may be committed is judged by what a member acknowledged, though it may have lost it since.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Final

from spec.hw_truncation import proof as hw_truncation
from spec.proofs.commitment import BROKER, EPOCH, FETCHED, UNKNOWN, clean, in_isr, is_committed, stays
from spec.proofs.language import (
    Action,
    And,
    Claim,
    Drop,
    If,
    Implies,
    Not,
    Or,
    State,
    Step,
    Term,
    relation,
    smaller,
    step,
    table,
)

VARIABLES: Final = {
    **hw_truncation.VARIABLES,
    # Who crashed since it joined the ISR of an epoch; what each acknowledged in an epoch before that, or has fetched.
    "unclean": relation(EPOCH, BROKER),
    "acknowledged": table(EPOCH, BROKER, to=FETCHED),
}


def init(s: State) -> Term:
    return And(
        hw_truncation.PROTOCOL.init(s),
        s.all(lambda e, b: And(Not(s.unclean[e, b]), s.acknowledged[e, b] == s.fetched[e, b])),
    )


def crash_in_isr(s: State, b: Term, c: Term, h: Term) -> Step:
    """A member loses a suffix and registers anew, while another, c, is clean: the budget."""
    return step(
        And(in_isr(s, b), h >= 0, h <= s.log_end[b]),
        s.guard("FaultBudget", And(stays(s, c), b != c)),
        log_end=s.log_end.but(b, h),
        high_watermark=s.high_watermark.but(b, smaller(s.high_watermark[b], h)),
        leads=s.leads.but(b, False),
        known_epoch=s.known_epoch.but(b, s.leader_epoch),
        fetched=s.fetched.but((s.leader_epoch, b), UNKNOWN),
        unclean=s.unclean.but((s.leader_epoch, b), True),
    )


def shrink_isr(s: State, b: Term, c: Term) -> Step:
    """A follower has fallen behind, or crashed."""
    return leaves(s, c, hw_truncation.shrink_isr(s, b, c))


def controller_shrink(s: State, c: Term) -> Step:
    """The controller drops a follower; who restarted uncleanly goes first."""
    first = Or(Not(clean(s, s.leader_epoch, c)), s.all(lambda d: Implies(in_isr(s, d), stays(s, d))))
    dropped = hw_truncation.controller_shrink(s, c)
    return leaves(s, c, replace(dropped, when=(*dropped.when, first)))


def leaves(s: State, c: Term, shrunk: Step) -> Step:
    return replace(shrunk, then={**shrunk.then, "unclean": s.unclean.but((s.leader_epoch, c), False)})


def remembered(run: Callable[..., Step]) -> Callable[..., Step]:
    """The same action; what an unclean member acknowledged is remembered, of others it is what they have fetched."""

    @wraps(run)
    def acts(s: State, **parameters: Term) -> Step:
        taken = run(s, **parameters)
        if not {"fetched", "unclean"} & taken.then.keys():
            return taken
        after = s.after(taken)

        def acknowledged(e: Term, c: Term) -> Term:
            now, once = after.fetched[e, c], s.acknowledged[e, c]
            return If(And(after.unclean[e, c], once > now), once, now)

        return replace(taken, then={**taken.then, "acknowledged": acknowledged})

    return acts


CLEAN: Final = (
    Claim(
        "SomebodyIsClean",
        "Some member of the ISR has not crashed since it joined.",
        lambda s: s.some(lambda c: stays(s, c)),
    ),
    Claim(
        "LeadersAreClean",
        "Who leads an epoch has not crashed in it.",
        lambda s, b: Implies(s.leads[b], clean(s, s.known_epoch[b], b)),
    ),
    Claim(
        "UncleanAreMembers",
        "Who crashed inside the ISR of an epoch is in it still, and knows the epoch.",
        lambda s, e, c: Implies(
            Not(clean(s, e, c)), And(s.isr[e, c], s.known_epoch[c] >= e, e >= 0, e <= s.leader_epoch)
        ),
    ),
    Claim(
        "MembersWereClean",
        "A member of an epoch's ISR that has not left an earlier one has not crashed in the ISR of that.",
        lambda s, e, g, c: Implies(And(s.isr[g, c], s.known_epoch[c] <= e, e < g, g <= s.leader_epoch), clean(s, e, c)),
    ),
    Claim(
        "TypeAcknowledged",
        "What is acknowledged was fetched within the epoch.",
        lambda s, e, c: And(
            s.acknowledged[e, c] >= s.fetched[e, c],
            Implies(s.started[e], s.acknowledged[e, c] <= s.epoch_end[e]),
        ),
    ),
    Claim(
        "NothingAcknowledged",
        "Nobody fetches in an epoch before it starts.",
        lambda s, e, c: Implies(Not(s.started[e]), And(s.acknowledged[e, c] == UNKNOWN, s.fetched[e, c] == UNKNOWN)),
    ),
    Claim(
        "CleanHaveFetched",
        "What clean brokers acknowledged they have fetched still.",
        lambda s, e, c: Implies(clean(s, e, c), s.acknowledged[e, c] == s.fetched[e, c]),
    ),
)

COMMITTED_ON_CLEAN: Final = Claim(
    "CommittedOnClean",
    "What was ever below a high watermark is on some ISR member that has not crashed since it joined.",
    lambda s, o: Implies(
        is_committed(s, o),
        s.some(lambda c: And(stays(s, c), o < s.log_end[c], s.log[c, o] == s.committed[o])),
    ),
)

INSTEAD: Final = {each.__name__: each for each in (shrink_isr, controller_shrink)}
PLAIN: Final = tuple(INSTEAD.get(action.run.__name__, action.run) for action in hw_truncation.PROTOCOL.actions)

PROTOCOL: Final = replace(
    hw_truncation.PROTOCOL,
    name="hw_truncation_with_crashes",
    variables=VARIABLES,
    ghosts=(*hw_truncation.PROTOCOL.ghosts, "unclean", "acknowledged"),
    init=init,
    actions=tuple(Action(remembered(run)) for run in (*PLAIN, crash_in_isr)),
    invariant=(*hw_truncation.PROTOCOL.invariant, *CLEAN),
    implied=(COMMITTED_ON_CLEAN, *hw_truncation.PROTOCOL.implied),
    promises=("CommittedOnClean", *hw_truncation.PROTOCOL.promises),
    # The other guards can be dropped too; what each one's absence breaks is shown without such crashes.
    drops=(Drop("FaultBudget", breaks="CommittedOnClean", steps=3, instance=hw_truncation.SHORT), *hw_truncation.DROPS),
)
