------------------------- MODULE EagerRebalanceCore -------------------------
(***************************************************************************)
(* The transition system that proof.py proves. Two checks hold it in its   *)
(* place: it reaches the same states as the proof on a tiny instance       *)
(* (spec/proofs/crosscheck.py), and every step of EagerRebalance is one of *)
(* its steps (RefEagerRebalance). A member is a member id; guards are on;  *)
(* messages are sets that only grow.                                       *)
(*                                                                         *)
(* Left out of EagerRebalance: static members, the coordinator's failover, *)
(* the offsets' values, sessions and their timers, and everything about    *)
(* progress.                                                               *)
(***************************************************************************)
EXTENDS Integers, FiniteSets

CONSTANTS Members, Partitions, none, MaxGeneration, MaxSyncs

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
VARIABLE owned
clients == <<client, knownGeneration, owned>>

VARIABLE joinSent               \* members that have sent a join request
VARIABLE joinReplySent          \* of a member: the generations in JoinGroup replies to it
VARIABLE commitSent             \* of a member and generation: the partitions of its commits
VARIABLE syncs
VARIABLE syncReplySent          \* of a member: the generations in SyncGroup replies to it
VARIABLE granted                \* of a member and generation: the partitions in that reply
messages == <<joinSent, joinReplySent, commitSent, syncs, syncReplySent, granted>>

vars == <<coordinator, clients, messages>>

Generations == 0 .. MaxGeneration
Assignments == [Partitions -> Members \union {none}]

Preparing == group = "PreparingRebalance"

SendJoin(i) ==
    /\ owned' = [owned EXCEPT ![i] = {}]
    /\ client' = [client EXCEPT ![i] = "Joining"]
    /\ joinSent' = joinSent \union {i}
    /\ UNCHANGED <<coordinator, knownGeneration, joinReplySent, commitSent, syncs, syncReplySent, granted>>

Join(i) ==
    /\ i \in joinSent
    /\ group' = "PreparingRebalance"
    /\ member' = member \union {i}
    /\ joined' = {i} \union IF Preparing THEN joined ELSE {}
    /\ leader' = none
    /\ UNCHANGED <<generation, assigned, committedGeneration, committedBy, leaderIn, memberIn, clients, messages>>

\* Members that have not joined are awaited, or removed.
CompleteJoin(i) ==
    LET present == member \intersect joined IN
    /\ Preparing /\ i \in present
    /\ generation < MaxGeneration
    /\ group' = "CompletingRebalance"
    /\ generation' = generation + 1
    /\ member' = present
    /\ joined' = {}
    /\ leader' = i
    /\ leaderIn' = [leaderIn EXCEPT ![generation + 1] = i]
    /\ memberIn' = [memberIn EXCEPT ![generation + 1] = present]
    /\ assigned' = [p \in Partitions |-> none]
    /\ joinReplySent' = [j \in Members |-> joinReplySent[j] \union IF j \in present THEN {generation + 1} ELSE {}]
    /\ UNCHANGED <<committedGeneration, committedBy, clients, joinSent, commitSent, syncs, syncReplySent, granted>>

\* Its SyncGroup follows at once; the leader's has an assignment, which may be any.
TakeJoinReply(i, g, assignment) ==
    /\ g \in joinReplySent[i] /\ client[i] = "Joining"
    /\ \A p \in Partitions : assignment[p] \in memberIn[g] \union {none}
    /\ client' = [client EXCEPT ![i] = "Syncing"]
    /\ knownGeneration' = [knownGeneration EXCEPT ![i] = g]
    /\ syncs' = syncs \union {[member |-> i, generation |-> g, leads |-> leaderIn[g] = i, assignment |-> assignment]}
    /\ UNCHANGED <<coordinator, owned, joinSent, joinReplySent, commitSent, syncReplySent, granted>>

\* The reply goes to all members; one takes it only while it waits for the reply to its own SyncGroup.
LeaderSync(q) ==
    LET its(j) == {p \in Partitions : q.assignment[p] = j} IN
    /\ q.leads /\ q.member = leader /\ q.member \in member
    /\ group = "CompletingRebalance" /\ q.generation = generation
    /\ assigned' = q.assignment
    /\ group' = "Stable"
    /\ syncReplySent' = [j \in Members |-> syncReplySent[j] \union IF j \in member THEN {generation} ELSE {}]
    /\ granted' = [j \in Members |-> IF j \in member THEN [granted[j] EXCEPT ![generation] = its(j)] ELSE granted[j]]
    /\ UNCHANGED <<generation, member, joined, leader, committedGeneration, committedBy, leaderIn, memberIn, clients,
                   joinSent, joinReplySent, commitSent, syncs>>

AnswerSync(q) ==
    LET i == q.member IN
    /\ group = "Stable" /\ i \in member /\ q.generation = generation
    /\ syncReplySent' = [syncReplySent EXCEPT ![i] = @ \union {q.generation}]
    /\ granted' = [granted EXCEPT ![i][q.generation] = {p \in Partitions : assigned[p] = i}]
    /\ UNCHANGED <<coordinator, clients, joinSent, joinReplySent, commitSent, syncs>>

TakeAssignment(i) ==
    /\ client[i] = "Syncing" /\ knownGeneration[i] \in syncReplySent[i]
    /\ owned' = [owned EXCEPT ![i] = granted[i][knownGeneration[i]]]
    /\ client' = [client EXCEPT ![i] = "Joined"]
    /\ UNCHANGED <<coordinator, knownGeneration, messages>>

\* Without the last member the group is empty, in a new generation.
Expel(gone) ==
    LET rest == member \ gone IN
    /\ gone \intersect member # {}
    /\ rest = {} => generation < MaxGeneration
    /\ member' = rest
    /\ group' = IF rest = {} THEN "Empty" ELSE "PreparingRebalance"
    /\ generation' = IF rest = {} THEN generation + 1 ELSE generation
    /\ joined' = IF Preparing THEN joined \ gone ELSE {}
    /\ leader' = none
    /\ assigned' = [p \in Partitions |-> IF assigned[p] \in gone THEN none ELSE assigned[p]]
    /\ UNCHANGED <<committedGeneration, committedBy, leaderIn, memberIn, clients, messages>>

HearOfLoss(i) ==
    /\ i \notin member \/ knownGeneration[i] # generation
    /\ client' = [client EXCEPT ![i] = "Unjoined"]
    /\ owned' = [owned EXCEPT ![i] = {}]
    /\ UNCHANGED <<coordinator, knownGeneration, messages>>

SendCommit(i, p) ==
    /\ p \in owned[i] /\ client[i] = "Joined"
    /\ commitSent' = [commitSent EXCEPT ![i][knownGeneration[i]] = @ \union {p}]
    /\ UNCHANGED <<coordinator, clients, joinSent, joinReplySent, syncs, syncReplySent, granted>>

TakeCommit(i, p) ==
    /\ p \in commitSent[i][generation] /\ i \in member /\ group # "CompletingRebalance"
    /\ committedGeneration' = [committedGeneration EXCEPT ![p] = generation]
    /\ committedBy' = [committedBy EXCEPT ![p] = i]
    /\ UNCHANGED <<group, generation, member, joined, leader, assigned, leaderIn, memberIn, clients, messages>>

Init ==
    LET each(value) == [i \in Members |-> value]
        ever(value) == [g \in Generations |-> value] IN
    /\ group = "Empty" /\ generation = 0 /\ leader = none
    /\ member = {} /\ joined = {} /\ joinSent = {} /\ syncs = {}
    /\ assigned = [p \in Partitions |-> none] /\ committedBy = [p \in Partitions |-> none]
    /\ committedGeneration = [p \in Partitions |-> 0]
    /\ leaderIn = ever(none) /\ memberIn = ever({})
    /\ client = each("Unjoined") /\ knownGeneration = each(0) /\ owned = each({})
    /\ joinReplySent = each({}) /\ syncReplySent = each({})
    /\ commitSent = each(ever({})) /\ granted = each(ever({}))

Next ==
    \/ \E i \in Members : SendJoin(i) \/ Join(i) \/ CompleteJoin(i) \/ TakeAssignment(i) \/ HearOfLoss(i)
    \/ \E gone \in SUBSET Members : Expel(gone)
    \/ \E i \in Members, g \in Generations, assignment \in Assignments : TakeJoinReply(i, g, assignment)
    \/ \E i \in Members, p \in Partitions : SendCommit(i, p) \/ TakeCommit(i, p)
    \/ \E q \in syncs : LeaderSync(q) \/ AnswerSync(q)

Bounds == Cardinality(syncs) <= MaxSyncs

Spec == Init /\ [][Next]_vars
=============================================================================
