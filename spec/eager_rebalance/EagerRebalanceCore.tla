------------------------- MODULE EagerRebalanceCore -------------------------
(***************************************************************************)
(* The transition system that proof.py proves, for comparison on a tiny    *)
(* instance: both must reach the same states (spec/proofs/crosscheck.py).  *)
(* Guards are on; messages are sets that only grow.                        *)
(*                                                                         *)
(* Left out of EagerRebalance: static members, the coordinator's failover, *)
(* the offsets' values, sessions and their timers, and everything about    *)
(* progress.                                                               *)
(***************************************************************************)
EXTENDS Integers, FiniteSets

CONSTANTS Members, Partitions, nobody, MaxGeneration, MaxSyncs, MaxReplies

VARIABLE group                  \* the coordinator's state
VARIABLE generation
VARIABLE member                 \* members of the group
VARIABLE joined                 \* members that have joined in the rebalance that is being prepared
VARIABLE leader
VARIABLE assigned               \* of a partition: its member, or none
VARIABLE committedGeneration    \* of a partition: the generation of the last commit
VARIABLE committedBy
VARIABLE leaderIn               \* of a generation: its leader and members, as in the JoinGroup replies
VARIABLE memberIn
coordinator == <<group, generation, member, joined, leader, assigned, committedGeneration, committedBy, leaderIn, memberIn>>

VARIABLE client                 \* a member's own state
VARIABLE knownGeneration
VARIABLE leads                  \* members that believe that they are the leader
VARIABLE knownMember            \* of a leader: the members to which it may assign partitions
VARIABLE owned
clients == <<client, knownGeneration, leads, knownMember, owned>>

VARIABLE joinSent               \* members that have sent a join request
VARIABLE joinReplySent          \* of a member: the generations in JoinGroup replies to it
VARIABLE commitSent             \* of a member and generation: the partitions of its commits
VARIABLE syncs
VARIABLE replies
messages == <<joinSent, joinReplySent, commitSent, syncs, replies>>

vars == <<coordinator, clients, messages>>

Generations == 0 .. MaxGeneration
Assignments == [Partitions -> Members \union {nobody}]

SendJoin(i) ==
    /\ owned' = [owned EXCEPT ![i] = {}]
    /\ client' = [client EXCEPT ![i] = "Joining"]
    /\ joinSent' = joinSent \union {i}
    /\ UNCHANGED <<coordinator, knownGeneration, leads, knownMember, joinReplySent, commitSent, syncs, replies>>

Join(i) ==
    /\ i \in joinSent
    /\ group' = "PreparingRebalance"
    /\ member' = member \union {i}
    /\ joined' = {i} \union IF group = "PreparingRebalance" THEN joined ELSE {}
    /\ UNCHANGED <<generation, leader, assigned, committedGeneration, committedBy, leaderIn, memberIn, clients, messages>>

CompleteJoin(i) ==
    /\ group = "PreparingRebalance" /\ i \in member
    /\ member \subseteq joined
    /\ generation < MaxGeneration
    /\ group' = "CompletingRebalance"
    /\ generation' = generation + 1
    /\ leader' = i
    /\ leaderIn' = [leaderIn EXCEPT ![generation + 1] = i]
    /\ memberIn' = [memberIn EXCEPT ![generation + 1] = member]
    /\ assigned' = [p \in Partitions |-> nobody]
    /\ joinReplySent' = [j \in Members |-> joinReplySent[j] \union IF j \in member THEN {generation + 1} ELSE {}]
    /\ UNCHANGED <<member, joined, committedGeneration, committedBy, clients, joinSent, commitSent, syncs, replies>>

TakeJoinReply(i, g) ==
    /\ g \in joinReplySent[i] /\ client[i] = "Joining"
    /\ client' = [client EXCEPT ![i] = "Syncing"]
    /\ knownGeneration' = [knownGeneration EXCEPT ![i] = g]
    /\ leads' = IF leaderIn[g] = i THEN leads \union {i} ELSE leads \ {i}
    /\ knownMember' = [knownMember EXCEPT ![i] = memberIn[g]]
    /\ UNCHANGED <<coordinator, owned, messages>>

SendSync(i, assignment) ==
    /\ client[i] = "Syncing"
    /\ \A p \in Partitions : assignment[p] \in knownMember[i] \union {nobody}
    /\ syncs' = syncs \union {[member |-> i, generation |-> knownGeneration[i], leads |-> i \in leads,
                               assignment |-> assignment]}
    /\ UNCHANGED <<coordinator, clients, joinSent, joinReplySent, commitSent, replies>>

LeaderSync(q) ==
    /\ q.leads /\ q.member = leader /\ q.member \in member
    /\ group = "CompletingRebalance" /\ q.generation = generation
    /\ assigned' = q.assignment
    /\ group' = "Stable"
    /\ UNCHANGED <<generation, member, joined, leader, committedGeneration, committedBy, leaderIn, memberIn, clients,
                   messages>>

AnswerSync(q) ==
    /\ group = "Stable" /\ q.member \in member /\ q.generation = generation
    /\ replies' = replies \union {[member |-> q.member, generation |-> q.generation,
                                   granted |-> {p \in Partitions : assigned[p] = q.member}]}
    /\ UNCHANGED <<coordinator, clients, joinSent, joinReplySent, commitSent, syncs>>

TakeAssignment(z) ==
    LET i == z.member IN
    /\ client[i] = "Syncing" /\ z.generation = knownGeneration[i]
    /\ owned' = [owned EXCEPT ![i] = z.granted]
    /\ client' = [client EXCEPT ![i] = "Joined"]
    /\ UNCHANGED <<coordinator, knownGeneration, leads, knownMember, messages>>

Expel(i) ==
    /\ i \in member
    /\ member' = member \ {i}
    /\ group' = "PreparingRebalance"
    /\ joined' = IF group = "PreparingRebalance" THEN joined \ {i} ELSE {}
    /\ UNCHANGED <<generation, leader, assigned, committedGeneration, committedBy, leaderIn, memberIn, clients, messages>>

HearOfLoss(i) ==
    /\ i \notin member
    /\ client' = [client EXCEPT ![i] = "Unjoined"]
    /\ owned' = [owned EXCEPT ![i] = {}]
    /\ UNCHANGED <<coordinator, knownGeneration, leads, knownMember, messages>>

SendCommit(i, p) ==
    /\ p \in owned[i] /\ client[i] = "Joined"
    /\ commitSent' = [commitSent EXCEPT ![i][knownGeneration[i]] = @ \union {p}]
    /\ UNCHANGED <<coordinator, clients, joinSent, joinReplySent, syncs, replies>>

TakeCommit(i, p) ==
    /\ p \in commitSent[i][generation] /\ i \in member /\ group # "CompletingRebalance"
    /\ committedGeneration' = [committedGeneration EXCEPT ![p] = generation]
    /\ committedBy' = [committedBy EXCEPT ![p] = i]
    /\ UNCHANGED <<group, generation, member, joined, leader, assigned, leaderIn, memberIn, clients, messages>>

Init ==
    /\ group = "Empty" /\ generation = 0 /\ leader = nobody
    /\ member = {} /\ joined = {} /\ leads = {} /\ joinSent = {} /\ syncs = {} /\ replies = {}
    /\ assigned = [p \in Partitions |-> nobody] /\ committedBy = [p \in Partitions |-> nobody]
    /\ committedGeneration = [p \in Partitions |-> 0]
    /\ leaderIn = [g \in Generations |-> nobody] /\ memberIn = [g \in Generations |-> {}]
    /\ client = [i \in Members |-> "Unjoined"] /\ knownGeneration = [i \in Members |-> 0]
    /\ knownMember = [i \in Members |-> {}] /\ owned = [i \in Members |-> {}]
    /\ joinReplySent = [i \in Members |-> {}]
    /\ commitSent = [i \in Members |-> [g \in Generations |-> {}]]

Next ==
    \/ \E i \in Members : SendJoin(i) \/ Join(i) \/ CompleteJoin(i) \/ Expel(i) \/ HearOfLoss(i)
    \/ \E i \in Members, g \in Generations : TakeJoinReply(i, g)
    \/ \E i \in Members, p \in Partitions : SendCommit(i, p) \/ TakeCommit(i, p)
    \/ \E i \in Members, assignment \in Assignments : SendSync(i, assignment)
    \/ \E q \in syncs : LeaderSync(q) \/ AnswerSync(q)
    \/ \E z \in replies : TakeAssignment(z)

Bounds == Cardinality(syncs) <= MaxSyncs /\ Cardinality(replies) <= MaxReplies

Spec == Init /\ [][Next]_vars
=============================================================================
