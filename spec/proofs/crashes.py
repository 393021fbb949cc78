"""`hw_truncation` with crashes that lose the unflushed suffix inside the ISR, under the fault budget (research).

A member of the ISR may crash and lose a suffix of its log while another member has not crashed since it joined, so
there is always such a *clean* member.  The crashed broker registers again, no longer leads, and leaves the ISR before
any election or other change by the controller.  Main claim: every record that was ever below a high watermark is on
every clean member of the ISR, and there is one.

The argument is that of commitment.py with two changes: claims about logs hold for clean members, and whether a record
may be committed depends on what a member acknowledged, even if it has lost it since.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Final

from highwater.spec.hw_truncation import proof as hw_truncation
from highwater.spec.proofs.commitment import (
    BROKER,
    EPOCH,
    FETCHED,
    UNKNOWN,
    clean,
    in_isr,
    is_clean_member,
    is_committed,
)
from highwater.spec.proofs.language import (
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
    # Brokers that crashed since they joined the ISR of an epoch; the offset that each acknowledged before.
    "unclean": relation(EPOCH, BROKER),
    "acknowledged": table(EPOCH, BROKER, to=FETCHED),
}


def init(s: State) -> Term:
    return And(
        hw_truncation.PROTOCOL.init(s),
        s.all(lambda e, b: And(Not(s.unclean[e, b]), s.acknowledged[e, b] == s.fetched[e, b])),
    )


def crash_in_isr(s: State, b: Term, c: Term, h: Term) -> Step:
    """Member b crashes, loses a suffix and registers again, while another member c is clean (the fault budget)."""
    return step(
        And(in_isr(s, b), h >= 0, h <= s.log_end[b]),
        s.guard("FaultBudget", And(is_clean_member(s, c), b != c)),
        log_end=s.log_end.but(b, h),
        high_watermark=s.high_watermark.but(b, smaller(s.high_watermark[b], h)),
        leads=s.leads.but(b, False),
        known_epoch=s.known_epoch.but(b, s.leader_epoch),
        fetched=s.fetched.but((s.leader_epoch, b), UNKNOWN),
        unclean=s.unclean.but((s.leader_epoch, b), True),
    )


def shrink_isr(s: State, b: Term, c: Term) -> Step:
    """A leader removes a follower that has fallen behind, or crashed."""
    return clear_unclean(s, c, hw_truncation.shrink_isr(s, b, c))


def controller_shrink(s: State, c: Term) -> Step:
    """The controller removes a follower from the ISR; those that restarted uncleanly are removed first."""
    first = Or(Not(clean(s, s.leader_epoch, c)), s.all(lambda d: Implies(in_isr(s, d), is_clean_member(s, d))))
    dropped = hw_truncation.controller_shrink(s, c)
    return clear_unclean(s, c, replace(dropped, when=(*dropped.when, first)))


def clear_unclean(s: State, c: Term, shrunk: Step) -> Step:
    """Return the step that also clears the mark of c as unclean."""
    return replace(shrunk, then={**shrunk.then, "unclean": s.unclean.but((s.leader_epoch, c), False)})


def with_acknowledged(run: Callable[..., Step]) -> Callable[..., Step]:
    """Return the action that also maintains `acknowledged`: the fetch offset, for unclean members the largest."""

    @wraps(run)
    def run_and_remember(s: State, **parameters: Term) -> Step:
        taken = run(s, **parameters)
        if not {"fetched", "unclean"} & taken.then.keys():
            return taken
        after = s.after(taken)

        def acknowledged(e: Term, c: Term) -> Term:
            now, once = after.fetched[e, c], s.acknowledged[e, c]
            return If(And(after.unclean[e, c], once > now), once, now)

        return replace(taken, then={**taken.then, "acknowledged": acknowledged})

    return run_and_remember


CLEAN: Final = (
    Claim(
        "SomebodyIsClean",
        "Some member of the ISR has not crashed since it joined.",
        lambda s: s.some(lambda c: is_clean_member(s, c)),
    ),
    Claim(
        "LeadersAreClean",
        "A leader has not crashed in its epoch.",
        lambda s, b: Implies(s.leads[b], clean(s, s.known_epoch[b], b)),
    ),
    Claim(
        "UncleanAreMembers",
        "A broker that crashed inside the ISR of an epoch is still in it, and knows the epoch.",
        lambda s, e, c: Implies(
            Not(clean(s, e, c)), And(s.isr[e, c], s.known_epoch[c] >= e, e >= 0, e <= s.leader_epoch)
        ),
    ),
    Claim(
        "MembersWereClean",
        "A member of the ISR of epoch g that knows at most epoch e < g has not crashed in the ISR of e.",
        lambda s, e, g, c: Implies(And(s.isr[g, c], s.known_epoch[c] <= e, e < g, g <= s.leader_epoch), clean(s, e, c)),
    ),
    Claim(
        "TypeAcknowledged",
        "An acknowledged offset is at least the fetch offset, and at most the end of the epoch.",
        lambda s, e, c: And(
            s.acknowledged[e, c] >= s.fetched[e, c],
            Implies(s.started[e], s.acknowledged[e, c] <= s.epoch_end[e]),
        ),
    ),
    Claim(
        "NothingAcknowledged",
        "No broker fetches in an epoch before it starts.",
        lambda s, e, c: Implies(Not(s.started[e]), And(s.acknowledged[e, c] == UNKNOWN, s.fetched[e, c] == UNKNOWN)),
    ),
    Claim(
        "CleanHaveFetched",
        "For clean brokers the acknowledged offset is the fetch offset.",
        lambda s, e, c: Implies(clean(s, e, c), s.acknowledged[e, c] == s.fetched[e, c]),
    ),
)

COMMITTED_ON_CLEAN: Final = Claim(
    "CommittedOnClean",
    "Every record that was ever below a high watermark is on some ISR member that has not crashed since it joined.",
    lambda s, o: Implies(
        is_committed(s, o),
        s.some(lambda c: And(is_clean_member(s, c), o < s.log_end[c], s.log[c, o] == s.committed[o])),
    ),
)

REPLACED_ACTIONS: Final = {action.__name__: action for action in (shrink_isr, controller_shrink)}
ACTIONS: Final = tuple(
    REPLACED_ACTIONS.get(action.run.__name__, action.run) for action in hw_truncation.PROTOCOL.actions
)

PROTOCOL: Final = replace(
    hw_truncation.PROTOCOL,
    name="hw_truncation_with_crashes",
    variables=VARIABLES,
    ghosts=(*hw_truncation.PROTOCOL.ghosts, "unclean", "acknowledged"),
    init=init,
    actions=tuple(Action(with_acknowledged(run)) for run in (*ACTIONS, crash_in_isr)),
    invariant=(*hw_truncation.PROTOCOL.invariant, *CLEAN),
    implied=(COMMITTED_ON_CLEAN, *hw_truncation.PROTOCOL.implied),
    promises=("CommittedOnClean", *hw_truncation.PROTOCOL.promises),
    # The other guards can be dropped too; the violations without them need no crash inside the ISR.
    drops=(Drop("FaultBudget", breaks="CommittedOnClean", steps=3, instance=hw_truncation.SHORT), *hw_truncation.DROPS),
)
