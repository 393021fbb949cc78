"""Eager rebalance, for any number of members, partitions and generations.

Any request or reply may be late, lost, duplicated and out of order; a member may not know that it was expelled.  Main
claims: in one generation a partition has one owner; every committed offset was committed by the member to which the
group's leader assigned the partition, and commits never go back to an older generation.

The invariant uses history variables: for each generation its members, its leader and, after the leader's SyncGroup, its
assignment.  Owners, SyncGroup replies and commits agree with it; in CompletingRebalance the assignment is undecided.
"""

from typing import Final

from highwater.spec.proofs.language import (
    TRUTH,
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
GROUP: Final = Choice("GroupState", ("Empty", "PreparingRebalance", "CompletingRebalance", "Stable"))
CLIENT: Final = Choice("MemberState", ("Unjoined", "Joining", "Syncing", "Joined"))
ASSIGNMENT: Final = table(PARTITION, to=MEMBER)

SYNC: Final = Message(
    "sync",
    {"member": value(MEMBER), "generation": value(GENERATION), "leads": value(TRUTH), "assignment": ASSIGNMENT},
)
HISTORY: Final = {
    "decided": relation(GENERATION),
    "assigned_in": table(GENERATION, PARTITION, to=MEMBER),
    "leader_in": table(GENERATION, to=MEMBER),
    "member_in": relation(GENERATION, MEMBER),
}

VARIABLES: Final = {
    # The coordinator.
    "group": value(GROUP),
    "generation": value(GENERATION),
    "member": relation(MEMBER),
    "joined": relation(MEMBER),
    "leader": value(MEMBER),
    "assigned": table(PARTITION, to=MEMBER),
    "committed_generation": table(PARTITION, to=GENERATION),
    "committed_by": table(PARTITION, to=MEMBER),
    # A member id: its state, the generation of the last join reply, and the partitions that it owns.
    "client": table(MEMBER, to=CLIENT),
    "known_generation": table(MEMBER, to=GENERATION),
    "owned": relation(MEMBER, PARTITION),
    # Messages: all that they contain are the member, the generation and the partitions.
    "join_sent": relation(MEMBER),
    "join_reply_sent": relation(MEMBER, GENERATION),
    "commit_sent": relation(MEMBER, GENERATION, PARTITION),
    **SYNC.variables,
    "sync_reply_sent": relation(MEMBER, GENERATION),
    "granted": relation(MEMBER, GENERATION, PARTITION),
    **HISTORY,
}


def init(s: State) -> Term:
    return And(
        And(s.group == s.Empty, s.generation == 0, s.leader == s.none),
        s.all(lambda i: And(Not(s.member[i]), Not(s.joined[i]), Not(s.join_sent[i]))),
        s.all(lambda i: And(s.client[i] == s.Unjoined, s.known_generation[i] == 0)),
        s.all(lambda i, p: Not(s.owned[i, p])),
        s.all(lambda p: And(s.assigned[p] == s.none, s.committed_generation[p] == 0, s.committed_by[p] == s.none)),
        s.all(lambda i, g: And(Not(s.join_reply_sent[i, g]), Not(s.sync_reply_sent[i, g]), Not(s.member_in[g, i]))),
        s.all(lambda i, g, p: And(Not(s.commit_sent[i, g, p]), Not(s.granted[i, g, p]))),
        s.all(lambda q: Not(s.sync_sent[q])),
        s.all(lambda g: And(Not(s.decided[g]), s.leader_in[g] == s.none)),
        s.all(lambda g, p: s.assigned_in[g, p] == s.none),
    )


def send_join(s: State, i: Term) -> Step:
    """A member sends JoinGroup, for the first time or again; before that it revokes all its partitions."""
    revoked = {"owned": s.owned.but(i, lambda p: False)} if s.on("RevokeBeforeJoin") else {}
    return step(i != s.none, client=s.client.but(i, s.Joining), join_sent=s.join_sent.but(i, True), **revoked)


def join(s: State, i: Term) -> Step:
    """The coordinator handles a JoinGroup, which may be old or from an expelled member."""
    preparing = s.group == s.PreparingRebalance
    return step(
        And(s.join_sent[i], i != s.none),
        group=s.PreparingRebalance,
        member=s.member.but(i, True),
        joined=lambda j: Or(j == i, And(preparing, s.joined[j])),
        leader=s.none,
    )


def complete_join(s: State, i: Term) -> Step:
    """A generation begins, with i as its leader: members that have not joined are awaited, or removed."""
    generation = s.generation + 1

    removes = s.on("AwaitAllMembers")

    def stays(j: Term) -> Term:
        return And(s.member[j], Or(not removes, s.joined[j]))

    return step(
        And(s.group == s.PreparingRebalance, s.member[i], s.joined[i]),
        group=s.CompletingRebalance,
        generation=generation,
        member=stays,
        joined=lambda j: False,
        leader=i,
        leader_in=s.leader_in.but(generation, i),
        member_in=s.member_in.but(generation, stays),
        assigned=lambda p: s.none,
        join_reply_sent=lambda j, g: Or(s.join_reply_sent[j, g], And(s.member[j], s.joined[j], g == generation)),
    )


def take_join_reply(s: State, i: Term, g: Term, q: Term, assignment: Table) -> Step:
    """A member receives its generation and sends SyncGroup; the leader adds an assignment, which may be any."""
    return step(
        And(s.join_reply_sent[i, g], s.client[i] == s.Joining, Not(s.sync_sent[q])),
        s.guard(
            "LeaderAssignsMembersOnly",
            s.all(lambda p: Or(assignment[p] == s.none, s.member_in[g, assignment[p]])),
        ),
        client=s.client.but(i, s.Syncing),
        known_generation=s.known_generation.but(i, g),
        **s.send(
            SYNC,
            q,
            member=i,
            generation=g,
            leads=s.leader_in[g] == i,
            assignment=lambda p: assignment[p],
        ),
    )


def leader_sync(s: State, q: Term) -> Step:
    """The coordinator stores the leader's assignment, and answers all members; one that has not sent SyncGroup waits
    for no reply."""
    i = s.sync_member[q]

    def now(j: Term, g: Term) -> Term:
        return And(s.member[j], g == s.generation)

    return step(
        And(s.sync_sent[q], s.sync_leads[q], s.group == s.CompletingRebalance, s.member[i], i == s.leader),
        s.guard("FenceStaleSync", s.sync_generation[q] == s.generation),
        assigned=lambda p: s.sync_assignment[q, p],
        group=s.Stable,
        sync_reply_sent=lambda j, g: Or(s.sync_reply_sent[j, g], now(j, g)),
        granted=lambda j, g, p: If(now(j, g), s.sync_assignment[q, p] == j, s.granted[j, g, p]),
        decided=s.decided.but(s.generation, True),
        assigned_in=s.assigned_in.but(s.generation, lambda p: s.sync_assignment[q, p]),
    )


def answer_sync(s: State, q: Term) -> Step:
    """The coordinator sends a member its assignment, in reply to a SyncGroup: in a generation always the same one."""
    i, g = s.sync_member[q], s.sync_generation[q]
    return step(
        And(s.sync_sent[q], s.group == s.Stable, s.member[i]),
        s.guard("FenceStaleSync", g == s.generation),
        sync_reply_sent=s.sync_reply_sent.but((i, g), True),
        granted=s.granted.but((i, g), lambda p: s.assigned[p] == i),
    )


def take_assignment(s: State, i: Term) -> Step:
    """A member receives the partitions that it owns."""
    g = s.known_generation[i]
    return step(
        And(s.client[i] == s.Syncing, s.sync_reply_sent[i, g]),
        owned=s.owned.but(i, lambda p: s.granted[i, g, p]),
        client=s.client.but(i, s.Joined),
    )


def expel(s: State, gone: Table) -> Step:
    """Sessions expire, or members leave; without the last one the group is empty, in a new generation."""
    preparing = s.group == s.PreparingRebalance
    some_stay = s.some(lambda j: And(s.member[j], Not(gone[j])))
    return step(
        s.some(lambda j: And(s.member[j], gone[j])),
        member=lambda j: And(s.member[j], Not(gone[j])),
        group=If(some_stay, s.PreparingRebalance, s.Empty),
        generation=If(some_stay, s.generation, s.generation + 1),
        joined=lambda j: And(Not(gone[j]), preparing, s.joined[j]),
        leader=s.none,
        assigned=lambda p: If(gone[s.assigned[p]], s.none, s.assigned[p]),
    )


def hear_of_loss(s: State, i: Term) -> Step:
    """A member receives UNKNOWN_MEMBER_ID or ILLEGAL_GENERATION: it has lost its partitions."""
    dropped = {"owned": s.owned.but(i, lambda p: False)} if s.on("DropOnLost") else {}
    lost = Or(Not(s.member[i]), s.known_generation[i] != s.generation)
    return step(lost, client=s.client.but(i, s.Unjoined), **dropped)


def send_commit(s: State, i: Term, p: Term) -> Step:
    """An owner sends an OffsetCommit."""
    return step(
        And(s.owned[i, p], s.client[i] == s.Joined),
        commit_sent=s.commit_sent.but((i, s.known_generation[i], p), True),
    )


def take_commit(s: State, i: Term, g: Term, p: Term) -> Step:
    """The coordinator stores a commit."""
    return step(
        And(s.commit_sent[i, g, p], s.group != s.CompletingRebalance),
        s.guard("MembersCommitOnly", s.member[i]),
        s.guard("FenceStaleGeneration", g == s.generation),
        committed_generation=s.committed_generation.but(p, g),
        committed_by=s.committed_by.but(p, i),
    )


def was_assigned(s: State, g: Term, p: Term, i: Term) -> Term:
    """True if the leader of generation g assigned p to i."""
    return And(s.decided[g], s.assigned_in[g, p] == i, g >= 1, i != s.none)


INVARIANT: Final = (
    Claim(
        "OneOwnerPerGeneration",
        "Members that own a partition in the current generation are one member.",
        lambda s, i, j, p: Implies(
            And(
                And(s.owned[i, p], s.owned[j, p]),
                And(s.known_generation[i] == s.generation, s.known_generation[j] == s.generation),
            ),
            i == j,
        ),
    ),
    Claim(
        "OwnersCommitted",
        "Each committed offset was committed by the member to which the generation's leader assigned the partition.",
        lambda s, p: And(
            s.committed_generation[p] <= s.generation,
            Implies(s.committed_generation[p] > 0, was_assigned(s, s.committed_generation[p], p, s.committed_by[p])),
        ),
    ),
    Claim(
        "MembersAssigned",
        "While the group is stable, only members are assigned partitions.",
        lambda s, p: Implies(And(s.group == s.Stable, s.assigned[p] != s.none), s.member[s.assigned[p]]),
    ),
    Claim(
        "OneLeader",
        "Sync requests of one generation that have an assignment come from one member.",
        lambda s, q, r: Implies(
            And(
                And(s.sync_sent[q], s.sync_sent[r], s.sync_leads[q], s.sync_leads[r]),
                s.sync_generation[q] == s.sync_generation[r],
            ),
            s.sync_member[q] == s.sync_member[r],
        ),
    ),
    Claim(
        "OwnersAreHistory",
        "An owner was assigned the partition in the generation that it knows, and is not joining.",
        lambda s, i, p: Implies(
            s.owned[i, p],
            And(
                was_assigned(s, s.known_generation[i], p, i),
                Or(s.client[i] == s.Joined, s.client[i] == s.Unjoined),
            ),
        ),
    ),
    Claim(
        "RepliesAreHistory",
        "The partitions in a sync reply were assigned in its generation.",
        lambda s, i, g, p: Implies(And(s.sync_reply_sent[i, g], s.granted[i, g, p]), was_assigned(s, g, p, i)),
    ),
    Claim(
        "AssignedIsHistory",
        "While the group is stable, the coordinator has the assignment of its generation.",
        lambda s, p: Implies(
            s.group == s.Stable, And(s.decided[s.generation], s.assigned_in[s.generation, p] == s.assigned[p])
        ),
    ),
    Claim(
        "DecidedBefore",
        "No later generation has a decided assignment; in CompletingRebalance, the current one has none either.",
        lambda s, g: And(
            s.generation >= 0,
            Implies(
                s.decided[g],
                And(g <= s.generation, Implies(s.group == s.CompletingRebalance, g < s.generation)),
            ),
        ),
    ),
    Claim(
        "CommitsAreHistory",
        "The sender of a commit was assigned the partition in the commit's generation.",
        lambda s, i, g, p: Implies(s.commit_sent[i, g, p], was_assigned(s, g, p, i)),
    ),
    Claim(
        "JoinRepliesNotAhead",
        "The generations of join replies have begun.",
        lambda s, i, g: Implies(s.join_reply_sent[i, g], And(g >= 1, g <= s.generation, i != s.none)),
    ),
    Claim(
        "MembersNotAhead",
        "No member knows a generation that has not begun.",
        lambda s, i: And(
            s.known_generation[i] <= s.generation,
            Implies(s.client[i] == s.Syncing, And(s.known_generation[i] >= 1, i != s.none)),
        ),
    ),
    Claim(
        "MembersAreHistory",
        "In CompletingRebalance, the members are those with which the generation began.",
        lambda s, i: Implies(s.group == s.CompletingRebalance, s.member_in[s.generation, i] == s.member[i]),
    ),
    Claim(
        "LeadersAreHistory",
        "Sync requests have an assignment if and only if they come from the leader of their generation.",
        lambda s, q: Implies(
            s.sync_sent[q], s.sync_leads[q] == (s.leader_in[s.sync_generation[q]] == s.sync_member[q])
        ),
    ),
    Claim(
        "SyncsNotAhead",
        "The generations of sync requests have begun.",
        lambda s, q: Implies(
            s.sync_sent[q],
            And(s.sync_generation[q] <= s.generation, s.sync_generation[q] >= 1, s.sync_member[q] != s.none),
        ),
    ),
    Claim(
        "SyncsAssignMembers",
        "A sync request assigns partitions only to members of its generation.",
        lambda s, q, p: Implies(
            And(s.sync_sent[q], s.sync_assignment[q, p] != s.none),
            s.member_in[s.sync_generation[q], s.sync_assignment[q, p]],
        ),
    ),
    Claim("NoneIsNoMember", "The constant `none` is not a member.", lambda s: Not(s.member[s.none])),
)

STEPS: Final = (
    Claim(
        "CommitsNeverGoBack",
        "The generation of a commit is never older than that of the previous commit of the partition.",
        lambda s, t, p: t.committed_generation[p] >= s.committed_generation[p],
    ),
)

THREE: Final = Finite(sizes={MEMBER: 3, PARTITION: 1, SYNC: 3}, numbers={GENERATION: range(4)})

DROPS: Final = (
    Drop("RevokeBeforeJoin", breaks="OneOwnerPerGeneration", steps=15, instance=THREE),
    Drop(
        "AwaitAllMembers",
        redundant="A member that was not awaited keeps an older generation, with its partitions of that generation.",
    ),
    Drop("FenceStaleGeneration", breaks="CommitsNeverGoBack", steps=16, instance=THREE),
    Drop("FenceStaleSync", breaks="MembersAssigned", steps=9),
    Drop(
        "MembersCommitOnly",
        redundant="A former member commits only partitions that it was assigned in the current generation.",
    ),
    Drop(
        "DropOnLost",
        redundant="An expelled member owns its old partitions in an old generation, which no other member has.",
    ),
    Drop("LeaderAssignsMembersOnly", breaks="MembersAssigned", steps=5),
)

PROTOCOL: Final = Protocol(
    name="eager_rebalance",
    variables=VARIABLES,
    constants={"none": MEMBER},
    messages=(SYNC,),
    ghosts=("decided", "assigned_in"),
    parameter_sorts={
        **dict.fromkeys("ij", MEMBER),
        "p": PARTITION,
        "g": GENERATION,
        **dict.fromkeys("qr", SYNC),
        "assignment": ASSIGNMENT,
        "gone": relation(MEMBER),
    },
    init=init,
    actions=tuple(
        Action(run)
        for run in (
            *(send_join, join, complete_join, take_join_reply, leader_sync, answer_sync),
            *(take_assignment, expel, hear_of_loss, send_commit, take_commit),
        )
    ),
    invariant=INVARIANT,
    steps=STEPS,
    promises=("OneOwnerPerGeneration", "OwnersCommitted", "MembersAssigned", "OneLeader", "CommitsNeverGoBack"),
    small=Finite(
        sizes={MEMBER: 3, PARTITION: 1, SYNC: 2},
        numbers={GENERATION: range(4)},
    ),
    tiny=Finite(sizes={MEMBER: 3, PARTITION: 1, SYNC: 1}, numbers={GENERATION: range(2)}),
    start={},
    drops=DROPS,
)
