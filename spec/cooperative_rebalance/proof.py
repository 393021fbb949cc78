"""Cooperative rebalance (KIP-429, KIP-792), for any number of members, partitions and generations.

A member keeps its partitions while it joins, and claims them in its join request.  What a new assignment omits it
revokes, one partition after the other, before it joins again.  Requests and replies may be late, lost, and duplicated;
an expelled member id is never used again.  Main claim: two members of the group never own the same partition.

The invariant: only the member to which a partition is assigned owns it; a member that has joined in this round owns at
most what it claims, and at most what its newer requests in flight (`fresh`) claim.  The claims of two members never
overlap, so the rule that the highest generation wins a conflict of claims is a second line of defence.

An assumption about the network: the coordinator handles a member's join requests in the order in which they were sent
(`JoinsInOrder`), as on one connection.  JoinGroup has no number that would let it refuse an older one: `sequence` is
that order, and matches a reply to its request, as correlation ids do.  Without the assumption an old claim may replace
a newer one, and only a weaker promise holds: two members never own a partition by assignments of one generation.
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
    Message,
    Not,
    Number,
    Or,
    Protocol,
    Sort,
    State,
    Step,
    Table,
    Term,
    relation,
    step,
    table,
    value,
)

MEMBER: Final = Sort("Member")
PARTITION: Final = Sort("Partition")
GENERATION: Final = Number("Generation")
SEQUENCE: Final = Number("Sequence")
GROUP: Final = Choice("GroupState", ("Empty", "PreparingRebalance", "CompletingRebalance", "Stable"))
CLIENT: Final = Choice("MemberState", ("Unjoined", "Joining", "Syncing", "Joined"))
ASSIGNMENT: Final = table(PARTITION, to=MEMBER)

JOIN: Final = Message(
    "request",
    {
        "member": value(MEMBER),
        "sequence": value(SEQUENCE),
        "owned": relation(PARTITION),
        "generation": value(GENERATION),  # in which the member was assigned them
    },
)
VARIABLES: Final = {
    # The coordinator; the claims of each member in its last join request, their generation, and its sequence number.
    "group": value(GROUP),
    "generation": value(GENERATION),
    "member": relation(MEMBER),
    "joined": relation(MEMBER),
    "fenced": relation(MEMBER),
    "assigned": table(PARTITION, to=MEMBER),
    "claimed": relation(MEMBER, PARTITION),
    "claim_generation": table(MEMBER, to=GENERATION),
    "last_sequence": table(MEMBER, to=SEQUENCE),
    # A member id that was issued: its state and generation; its partitions, and their generation; which of them it has
    # to revoke before it joins again.
    "used": relation(MEMBER),
    "client": table(MEMBER, to=CLIENT),
    "sequence": table(MEMBER, to=SEQUENCE),
    "known_generation": table(MEMBER, to=GENERATION),
    "granted_generation": table(MEMBER, to=GENERATION),
    "owned": relation(MEMBER, PARTITION),
    "revoking": relation(MEMBER, PARTITION),
    "join_reply_sent": relation(MEMBER, SEQUENCE, GENERATION),
    **JOIN.variables,
    "sync_reply_sent": relation(MEMBER, GENERATION),
    "granted": relation(MEMBER, GENERATION, PARTITION),
    # History: of a partition, its member by the assignment of each generation; of a member, since which one it owns it.
    "holder": table(GENERATION, PARTITION, to=MEMBER),
    "owned_since": table(MEMBER, PARTITION, to=GENERATION),
}


def init(s: State) -> Term:
    return And(
        And(s.group == s.Empty, s.generation == 0),
        s.all(lambda i: And(Not(s.member[i]), Not(s.joined[i]), Not(s.fenced[i]), Not(s.used[i]))),
        s.all(lambda i: And(s.last_sequence[i] == 0, s.sequence[i] == 0, s.client[i] == s.Unjoined)),
        s.all(lambda i: And(s.known_generation[i] == 0, s.granted_generation[i] == 0, s.claim_generation[i] == 0)),
        s.all(lambda i, p: And(Not(s.claimed[i, p]), Not(s.owned[i, p]), Not(s.revoking[i, p]))),
        s.all(lambda p: s.assigned[p] == s.none),
        s.all(lambda x: Not(s.request_sent[x])),
        s.all(lambda i, g: Not(s.sync_reply_sent[i, g])),
        s.all(lambda i, g, p: Not(s.granted[i, g, p])),
        s.all(lambda i, n, g: Not(s.join_reply_sent[i, n, g])),
    )


def send_join(s: State, i: Term, x: Term) -> Step:
    """A member sends JoinGroup: the first, a retry, or again after it has revoked what it must."""
    return step(
        And(i != s.none, s.used[i], Not(s.request_sent[x])),
        # RevokeBeforeRejoin; what breaks without it takes 27 steps, too many for z3: the TLA+ model shows it.
        s.all(lambda p: Not(s.revoking[i, p])),
        **s.send(
            JOIN,
            x,
            member=i,
            sequence=s.sequence[i] + 1,
            owned=lambda p: s.owned[i, p],
            generation=s.granted_generation[i],
        ),
        sequence=s.sequence.but(i, s.sequence[i] + 1),
        client=s.client.but(i, s.Joining),
    )


def join(s: State, x: Term, i: Term) -> Step:
    """The coordinator handles a join request, and stores the claims."""
    preparing = s.group == s.PreparingRebalance
    return step(
        And(s.request_sent[x], s.request_member[x] == i),
        s.guard("JoinsInOrder", s.request_sequence[x] > s.last_sequence[i]),
        s.guard("FenceUnknownMember", Not(s.fenced[i])),
        group=s.PreparingRebalance,
        member=s.member.but(i, True),
        joined=lambda j: Or(j == i, And(preparing, s.joined[j])),
        claimed=s.claimed.but(i, lambda p: s.request_owned[x, p]),
        claim_generation=s.claim_generation.but(i, s.request_generation[x]),
        last_sequence=s.last_sequence.but(i, s.request_sequence[x]),
    )


def repeat(s: State, x: Term, i: Term) -> Step:
    """The coordinator handles a join request with the claims of the last one: it answers again, and nothing changes."""
    n = s.request_sequence[x]
    return step(
        And(s.request_sent[x], s.request_member[x] == i, s.member[i]),
        Or(s.group == s.CompletingRebalance, s.group == s.Stable),
        s.guard("JoinsInOrder", n > s.last_sequence[i]),
        s.all(lambda p: s.request_owned[x, p] == s.claimed[i, p]),
        s.request_generation[x] == s.claim_generation[i],
        last_sequence=s.last_sequence.but(i, n),
        join_reply_sent=s.join_reply_sent.but((i, n, s.generation), True),
    )


def complete_join(s: State) -> Step:
    """A generation begins, with nothing assigned: members that have not joined are awaited, or removed."""
    generation = s.generation + 1

    removes = s.on("AwaitAllMembers")

    def stays(i: Term) -> Term:
        return And(s.member[i], Or(not removes, s.joined[i]))

    def answered(i: Term, n: Term, g: Term) -> Term:
        return And(s.member[i], s.joined[i], n == s.last_sequence[i], g == generation)

    return step(
        s.group == s.PreparingRebalance,
        s.some(lambda i: And(s.member[i], s.joined[i])),
        group=s.CompletingRebalance,
        generation=generation,
        member=stays,
        fenced=lambda i: Or(s.fenced[i], And(s.member[i], Not(stays(i)))),
        assigned=lambda p: s.none,
        join_reply_sent=lambda i, n, g: Or(s.join_reply_sent[i, n, g], answered(i, n, g)),
    )


def take_join_reply(s: State, i: Term, n: Term, g: Term) -> Step:
    """A member receives its generation."""
    return step(
        And(s.join_reply_sent[i, n, g], s.client[i] == s.Joining),
        s.guard("MatchReplies", n == s.sequence[i]),
        client=s.client.but(i, s.Syncing),
        known_generation=s.known_generation.but(i, g),
    )


def may_keep(s: State, i: Term, j: Term, p: Term) -> Term:
    """True if i, which claims p as j does, may keep p: its claim has the later generation."""
    later = s.guard("HighestClaimWins", s.claim_generation[i] > s.claim_generation[j])
    return And(s.claimed[i, p], later)


def assign(s: State, assignment: Table) -> Step:
    """The leader chooses any assignment, but withholds partitions that another member still claims.  The coordinator
    answers all members; one that has not sent SyncGroup waits for no reply."""

    def withheld(p: Term, j: Term) -> Term:
        i = assignment[p]
        claims = And(i != s.none, j != i, s.member[j], s.claimed[j, p])
        return Implies(claims, may_keep(s, i, j, p))

    def now(i: Term, g: Term) -> Term:
        return And(s.member[i], g == s.generation)

    return step(
        s.group == s.CompletingRebalance,
        s.all(lambda p: Or(assignment[p] == s.none, s.member[assignment[p]])),
        s.guard("WithholdClaimed", s.all(withheld)),
        assigned=lambda p: assignment[p],
        group=s.Stable,
        sync_reply_sent=lambda i, g: Or(s.sync_reply_sent[i, g], now(i, g)),
        granted=lambda i, g, p: If(now(i, g), assignment[p] == i, s.granted[i, g, p]),
        holder=s.holder.but(s.generation, lambda p: assignment[p]),
    )


def take_assignment(s: State, i: Term, g: Term) -> Step:
    """A member receives its new assignment; the partitions that are not in it must be revoked."""
    return step(
        And(s.sync_reply_sent[i, g], s.client[i] == s.Syncing),
        s.guard("MatchReplies", g == s.known_generation[i]),
        owned=s.owned.but(i, lambda p: Or(s.owned[i, p], s.granted[i, g, p])),
        revoking=s.revoking.but(i, lambda p: And(s.owned[i, p], Not(s.granted[i, g, p]))),
        client=s.client.but(i, s.Joined),
        granted_generation=s.granted_generation.but(i, s.known_generation[i]),
        owned_since=s.owned_since.but(i, lambda p: If(s.granted[i, g, p], g, s.owned_since[i, p])),
    )


def expel(s: State, gone: Table) -> Step:
    """Sessions expire, and the coordinator fences the ids; without the last one the group is empty, in a new
    generation."""
    preparing = s.group == s.PreparingRebalance
    some_stay = s.some(lambda j: And(s.member[j], Not(gone[j])))
    return step(
        s.some(lambda j: And(s.member[j], gone[j])),
        member=lambda j: And(s.member[j], Not(gone[j])),
        fenced=lambda j: Or(s.fenced[j], And(s.member[j], gone[j])),
        group=If(some_stay, s.PreparingRebalance, s.Empty),
        generation=If(some_stay, s.generation, s.generation + 1),
        joined=lambda j: And(Not(gone[j]), preparing, s.joined[j]),
        assigned=lambda p: If(gone[s.assigned[p]], s.none, s.assigned[p]),
    )


def revoke(s: State, i: Term, given_up: Table) -> Step:
    """A member revokes partitions, because it must, or because it does not want them any more."""
    return step(
        s.some(lambda p: And(s.owned[i, p], given_up[p])),
        owned=s.owned.but(i, lambda p: And(s.owned[i, p], Not(given_up[p]))),
        revoking=s.revoking.but(i, lambda p: And(s.revoking[i, p], Not(given_up[p]))),
    )


def issue_id(s: State, j: Term) -> Step:
    """A process receives a member id: it is new, or was expelled under another id."""
    return step(And(j != s.none, Not(s.used[j])), used=s.used.but(j, True))


def hear_of_loss(s: State, i: Term) -> Step:
    """A member hears that it was expelled or has an old generation, or restarts: it owns nothing any more."""
    return step(
        s.used[i],
        client=s.client.but(i, s.Unjoined),
        owned=s.owned.but(i, lambda p: False),
        revoking=s.revoking.but(i, lambda p: False),
        granted_generation=s.granted_generation.but(i, 0),
    )


def keep_under_new_id(s: State, i: Term, j: Term) -> Step:
    """A member that was expelled continues under another id, with its partitions."""

    def moved(k: Term, p: Term) -> Term:
        return If(k == j, s.owned[i, p], And(k != i, s.owned[k, p]))

    return step(
        And(j != s.none, s.used[i], Not(s.used[j])),
        used=s.used.but(j, True),
        owned=moved,
        revoking=lambda k, p: And(k != i, k != j, s.revoking[k, p]),
        owned_since=lambda k, p: If(k == j, s.owned_since[i, p], s.owned_since[k, p]),
        client=s.client.but(i, s.Unjoined),
    )


def waiting(s: State, i: Term) -> Term:
    """True if i has joined in the current round, which is in PreparingRebalance."""
    return And(s.group == s.PreparingRebalance, s.joined[i])


def fresh(s: State, x: Term) -> Term:
    """True if the coordinator would still accept join request x."""
    i = s.request_member[x]
    return And(s.request_sent[x], s.request_sequence[x] > s.last_sequence[i], Not(s.fenced[i]))


def in_round(s: State) -> Term:
    """True during a rebalance."""
    return Or(s.group == s.PreparingRebalance, s.group == s.CompletingRebalance)


def settled(s: State, g: Term) -> Term:
    """True if the assignment of generation g can no longer change."""
    return Or(g < s.generation, And(g == s.generation, s.group != s.CompletingRebalance))


def newcomer(s: State, i: Term) -> Term:
    """True if i has not joined the group yet."""
    return And(Not(s.member[i]), Not(s.fenced[i]))


OWNERS: Final = (
    Claim(
        "OneOwner",
        "Members of the group that own a partition are one member.",
        lambda s, i, j, p: Implies(And(s.member[i], s.member[j], s.owned[i, p], s.owned[j, p]), i == j),
    ),
    Claim(
        "OnlyAssignedOwn",
        "In the group, only the member that a partition is assigned to owns it.",
        lambda s, i, p: Implies(And(s.assigned[p] != s.none, s.assigned[p] != i, s.member[i]), Not(s.owned[i, p])),
    ),
    Claim(
        "OwnedIsClaimed",
        "A member that has joined in this round owns no more than it claims.",
        lambda s, i, p: Implies(And(s.member[i], s.joined[i], in_round(s), s.owned[i, p]), s.claimed[i, p]),
    ),
    Claim(
        "OwnedIsInFreshRequests",
        "A member owns no more than each of its fresh requests claims.",
        lambda s, x, i, p: Implies(And(fresh(s, x), s.request_member[x] == i, s.owned[i, p]), s.request_owned[x, p]),
    ),
    Claim(
        "NewcomersOwnNothing",
        "A member that has not joined yet owns nothing.",
        lambda s, i, p: Implies(newcomer(s, i), Not(s.owned[i, p])),
    ),
)

# What holds even if join requests arrive out of order.
GENERATIONS: Final = (
    Claim(
        "OneOwnerAGeneration",
        "Two ids that own a partition by assignments of one generation are one id.",
        lambda s, i, j, p: Implies(
            And(s.owned[i, p], s.owned[j, p], s.owned_since[i, p] == s.owned_since[j, p]), i == j
        ),
    ),
    Claim(
        "OwnersHold",
        "Who owns a partition was assigned it in the generation since which it owns it.",
        lambda s, i, p: Implies(
            s.owned[i, p], And(s.holder[s.owned_since[i, p], p] == i, settled(s, s.owned_since[i, p]))
        ),
    ),
    Claim(
        "RepliesGoToHolders",
        "A sync reply grants what its member was assigned in its generation.",
        lambda s, i, g, p: Implies(
            And(s.sync_reply_sent[i, g], s.granted[i, g, p]), And(s.holder[g, p] == i, settled(s, g))
        ),
    ),
    Claim(
        "AssignmentIsRecorded",
        "In a stable group the assignment is that of its generation.",
        lambda s, p: Implies(s.group == s.Stable, s.holder[s.generation, p] == s.assigned[p]),
    ),
)

ROUNDS: Final = (
    Claim(
        "CompletedByAll",
        "In CompletingRebalance, all members have joined.",
        lambda s, i: Implies(And(s.group == s.CompletingRebalance, s.member[i]), s.joined[i]),
    ),
    Claim(
        "NothingAssignedYet",
        "In CompletingRebalance, no partition is assigned.",
        lambda s, p: Implies(s.group == s.CompletingRebalance, s.assigned[p] == s.none),
    ),
    Claim(
        "SequencesAscend",
        "The coordinator has received only requests that were sent.",
        lambda s, i: And(s.last_sequence[i] >= 0, s.last_sequence[i] <= s.sequence[i]),
    ),
    Claim(
        "RequestsAreNumbered",
        "Requests are numbered from one to the last that was sent.",
        lambda s, x: Implies(
            s.request_sent[x],
            And(s.request_sequence[x] >= 1, s.request_sequence[x] <= s.sequence[s.request_member[x]]),
        ),
    ),
    Claim(
        "JoinRepliesNotAhead",
        "Join replies answer requests that the coordinator has received, and their generations have begun.",
        lambda s, i, n, g: Implies(
            s.join_reply_sent[i, n, g], And(n <= s.last_sequence[i], g <= s.generation, Or(s.member[i], s.fenced[i]))
        ),
    ),
    Claim(
        "LastJoinReplyIsCurrent",
        "The reply to a member's last request has the current generation, and the member waits for no other reply.",
        lambda s, i, n, g: Implies(
            And(s.join_reply_sent[i, n, g], s.member[i], n == s.last_sequence[i]),
            And(g == s.generation, Not(waiting(s, i))),
        ),
    ),
    Claim(
        "SyncingIsCurrent",
        "A syncing member knows this generation, and its last request has been answered.",
        lambda s, i: Implies(
            And(s.member[i], s.client[i] == s.Syncing),
            And(s.known_generation[i] == s.generation, s.last_sequence[i] == s.sequence[i], Not(waiting(s, i))),
        ),
    ),
    Claim(
        "RepliesNotAhead",
        "The generations of sync replies have an assignment; their receivers are or were members.",
        lambda s, i, g: Implies(s.sync_reply_sent[i, g], And(settled(s, g), Not(newcomer(s, i)))),
    ),
    Claim(
        "RepliesGrantAssigned",
        "A sync reply of the current generation grants a member only partitions that are assigned to it.",
        lambda s, i, g, p: Implies(
            And(s.sync_reply_sent[i, g], g == s.generation, s.granted[i, g, p], s.member[i]),
            And(s.assigned[p] == i, i != s.none),
        ),
    ),
    Claim(
        "NewcomersDoNotSync",
        "A member that has not joined yet does not sync.",
        lambda s, i: Implies(newcomer(s, i), s.client[i] != s.Syncing),
    ),
    Claim(
        "UnusedIds",
        "An id that is not in use has sent nothing and is not a member.",
        lambda s, i: Implies(
            Not(s.used[i]),
            And(s.sequence[i] == 0, Not(s.member[i]), Not(s.fenced[i]), s.client[i] == s.Unjoined),
        ),
    ),
    Claim("NoneIsUnused", "The constant `none` is not an id in use.", lambda s: Not(s.used[s.none])),
    Claim(
        "SendersAreUsed",
        "Requests come from ids in use.",
        lambda s, x: Implies(s.request_sent[x], s.used[s.request_member[x]]),
    ),
    Claim("FencedAreNoMembers", "A fenced id is not a member.", lambda s, i: Not(And(s.fenced[i], s.member[i]))),
)

CLAIMS: Final = (
    Claim(
        "ClaimsDisjoint",
        "Members of the group that claim a partition are one member.",
        lambda s, i, j, p: Implies(And(s.member[i], s.member[j], s.claimed[i, p], s.claimed[j, p]), i == j),
    ),
    Claim(
        "FreshAgainstClaimed",
        "No fresh request claims what another member has claimed.",
        lambda s, x, j, p: Implies(
            And(fresh(s, x), s.request_owned[x, p], s.member[j], s.claimed[j, p]), s.request_member[x] == j
        ),
    ),
    Claim(
        "FreshDisjoint",
        "Fresh requests that claim a partition are of one member.",
        lambda s, x, y, p: Implies(
            And(fresh(s, x), fresh(s, y), s.request_owned[x, p], s.request_owned[y, p]),
            s.request_member[x] == s.request_member[y],
        ),
    ),
    Claim(
        "OwnedAgainstClaimed",
        "No member owns what another has claimed.",
        lambda s, i, j, p: Implies(And(s.member[i], s.member[j], s.owned[i, p], s.claimed[j, p]), i == j),
    ),
    Claim(
        "OwnedAgainstFresh",
        "No member owns what another's fresh request claims.",
        lambda s, i, x, p: Implies(
            And(s.member[i], s.owned[i, p], fresh(s, x), s.request_owned[x, p]), i == s.request_member[x]
        ),
    ),
    Claim(
        "AssignedAgainstClaimed",
        "Nothing is assigned that another member has claimed.",
        lambda s, p, j: Implies(And(s.assigned[p] != s.none, s.member[j], s.claimed[j, p]), j == s.assigned[p]),
    ),
    Claim(
        "AssignedAgainstFresh",
        "Nothing is assigned that another member's fresh request claims.",
        lambda s, p, x: Implies(
            And(s.assigned[p] != s.none, fresh(s, x), s.request_owned[x, p]), s.request_member[x] == s.assigned[p]
        ),
    ),
    Claim(
        "FreshIsClaimed",
        "A fresh request of a member that has joined in this round claims no more than its earlier request.",
        lambda s, x, p: Implies(
            And(
                And(fresh(s, x), s.member[s.request_member[x]], s.joined[s.request_member[x]]),
                And(in_round(s), s.request_owned[x, p]),
            ),
            s.claimed[s.request_member[x], p],
        ),
    ),
    Claim(
        "FreshShrink",
        "A later fresh request claims no more than an earlier one.",
        lambda s, x, y, p: Implies(
            And(
                And(fresh(s, x), fresh(s, y), s.request_member[x] == s.request_member[y]),
                And(s.request_sequence[x] < s.request_sequence[y], s.request_owned[y, p]),
            ),
            s.request_owned[x, p],
        ),
    ),
    Claim(
        "NewcomersClaimNothing",
        "A member that has not joined yet claims nothing.",
        lambda s, x, p: Implies(And(s.request_sent[x], newcomer(s, s.request_member[x])), Not(s.request_owned[x, p])),
    ),
    Claim(
        "SequencesUnique",
        "No two requests of a member have the same sequence number.",
        lambda s, x, y: Implies(
            And(
                And(s.request_sent[x], s.request_sent[y], s.request_member[x] == s.request_member[y]),
                s.request_sequence[x] == s.request_sequence[y],
            ),
            x == y,
        ),
    ),
)


def instance(members: int, requests: int) -> Finite:
    return Finite(
        sizes={MEMBER: members, PARTITION: 1, JOIN: requests},
        numbers={GENERATION: range(4), SEQUENCE: range(4)},
    )


DROPS: Final = (
    Drop("WithholdClaimed", breaks="OneOwner", steps=16, instance=instance(3, 4)),
    Drop("DropOnLost", breaks="OneOwner", steps=15, instance=instance(4, 3)),
    Drop("HighestClaimWins", redundant="With fenced ids the claims of two members never overlap."),
    Drop("MatchReplies", breaks="OneOwner", steps=16, instance=instance(3, 4)),
    Drop("AwaitAllMembers", breaks="OneOwner", steps=14, instance=instance(3, 4)),
    Drop(
        "JoinsInOrder",
        breaks="OneOwner",
        steps=15,
        instance=instance(3, 4),
        keeps=tuple(claim.name for claim in GENERATIONS),
    ),
    Drop("FenceUnknownMember", breaks="OneOwner", steps=16, instance=instance(3, 4)),
)

PROTOCOL: Final = Protocol(
    name="cooperative_rebalance",
    variables=VARIABLES,
    constants={"none": MEMBER},
    messages=(JOIN,),
    parameter_sorts={
        **dict.fromkeys("ijk", MEMBER),
        "p": PARTITION,
        "g": GENERATION,
        "n": SEQUENCE,
        **dict.fromkeys("xy", JOIN),
        "assignment": ASSIGNMENT,
        "gone": relation(MEMBER),
        "given_up": relation(PARTITION),
    },
    init=init,
    actions=(
        *(
            Action(run)
            for run in (
                *(send_join, join, repeat, complete_join, take_join_reply, assign, take_assignment),
                *(expel, revoke, issue_id, hear_of_loss),
            )
        ),
        Action(keep_under_new_id, without="DropOnLost"),
    ),
    invariant=(*OWNERS, *GENERATIONS, *ROUNDS, *CLAIMS),
    promises=("OneOwner", "OneOwnerAGeneration"),
    ghosts=("holder", "owned_since"),
    small=Finite(
        sizes={MEMBER: 3, PARTITION: 2, JOIN: 2},
        numbers={GENERATION: range(4), SEQUENCE: range(4)},
    ),
    tiny=Finite(
        sizes={MEMBER: 3, PARTITION: 1, JOIN: 2},
        numbers={GENERATION: range(3), SEQUENCE: range(3)},
    ),
    start={},
    drops=DROPS,
)
