---------------------- MODULE CooperativeRebalanceCore ----------------------
(***************************************************************************)
(* The transition system that proof.py proves. Two checks hold it in its   *)
(* place: it reaches the same states as the proof on a tiny instance       *)
(* (spec/proofs/crosscheck.py), and every step of CooperativeRebalance is  *)
(* one of its steps (RefCooperativeRebalance). A member is a member id;    *)
(* guards are on; messages are sets that only grow.                        *)
(*                                                                         *)
(* Left out of CooperativeRebalance: eager assignors, the coordinator's    *)
(* failover, commits, sessions and their timers, the goals of the          *)
(* assignor, and everything about progress.                                *)
(***************************************************************************)
EXTENDS Integers, FiniteSets

CONSTANTS Members, Partitions, none, MaxGeneration, MaxSequence, MaxRequests

VARIABLE group              \* the coordinator's state
VARIABLE generation
VARIABLE member             \* members of the group
VARIABLE joined             \* members that have joined in the rebalance that is being prepared
VARIABLE fenced             \* ids that were expelled
VARIABLE assigned           \* of a partition: its member, or none
VARIABLE claimed            \* of a member: what its last join request claimed
VARIABLE claimGeneration    \* ... since which generation
VARIABLE lastSequence       \* ... and the number of that request
coordinator == <<group, generation, member, joined, fenced, assigned, claimed, claimGeneration, lastSequence>>

VARIABLE used               \* ids that were issued
VARIABLE client             \* a member's own state
VARIABLE sequence           \* the number of its last join request: the order in which they are sent
VARIABLE knownGeneration
VARIABLE grantedGeneration  \* the generation in which its partitions were assigned
VARIABLE owned
VARIABLE revoking           \* ... and which of them it must revoke before it joins again
clients == <<used, client, sequence, knownGeneration, grantedGeneration, owned, revoking>>

VARIABLE requests           \* join requests
VARIABLE joinReplySent      \* of a member: numbers of requests that were answered, with the generations
VARIABLE syncReplySent      \* of a member: the generations in SyncGroup replies to it
VARIABLE granted            \* of a member and generation: the partitions in that reply
messages == <<requests, joinReplySent, syncReplySent, granted>>

vars == <<coordinator, clients, messages>>

Generations == 0 .. MaxGeneration
Sequences == 0 .. MaxSequence

Unassigned == [p \in Partitions |-> none]

Preparing == group = "PreparingRebalance"

SendJoin(i) ==
    /\ i \in used
    /\ revoking[i] = {}
    /\ requests' = requests \union {[member |-> i, sequence |-> sequence[i] + 1, owned |-> owned[i],
                                     generation |-> grantedGeneration[i]]}
    /\ sequence' = [sequence EXCEPT ![i] = @ + 1]
    /\ client' = [client EXCEPT ![i] = "Joining"]
    /\ UNCHANGED <<coordinator, used, knownGeneration, grantedGeneration, owned, revoking, joinReplySent, syncReplySent,
                   granted>>

\* In the order in which they were sent: an assumption about the network, not a check of the coordinator.
InOrder(x) == x.sequence > lastSequence[x.member]

Join(x) ==
    LET i == x.member IN
    /\ InOrder(x) /\ i \notin fenced
    /\ group' = "PreparingRebalance"
    /\ member' = member \union {i}
    /\ joined' = {i} \union IF Preparing THEN joined ELSE {}
    /\ claimed' = [claimed EXCEPT ![i] = x.owned]
    /\ claimGeneration' = [claimGeneration EXCEPT ![i] = x.generation]
    /\ lastSequence' = [lastSequence EXCEPT ![i] = x.sequence]
    /\ UNCHANGED <<generation, fenced, assigned, clients, messages>>

\* A request with the claims of the last one is answered, and nothing changes.
Repeat(x) ==
    LET i == x.member IN
    /\ InOrder(x) /\ i \in member
    /\ group \in {"CompletingRebalance", "Stable"}
    /\ claimed[i] = x.owned /\ claimGeneration[i] = x.generation
    /\ lastSequence' = [lastSequence EXCEPT ![i] = x.sequence]
    /\ joinReplySent' = [joinReplySent EXCEPT ![i][x.sequence] = @ \union {generation}]
    /\ UNCHANGED <<group, generation, member, joined, fenced, assigned, claimed, claimGeneration, clients, requests,
                   syncReplySent, granted>>

\* Members that have not joined are awaited, or removed.
CompleteJoin ==
    LET present == member \intersect joined IN
    /\ Preparing /\ present # {}
    /\ group' = "CompletingRebalance"
    /\ generation' = generation + 1
    /\ member' = present
    /\ fenced' = fenced \union (member \ present)
    /\ assigned' = Unassigned
    /\ joinReplySent' = [i \in Members |-> [n \in Sequences |->
          joinReplySent[i][n] \union IF i \in present /\ n = lastSequence[i] THEN {generation + 1} ELSE {}]]
    /\ UNCHANGED <<joined, claimed, claimGeneration, lastSequence, clients, requests, syncReplySent, granted>>

TakeJoinReply(i, g) ==
    /\ client[i] = "Joining"
    /\ g \in joinReplySent[i][sequence[i]]
    /\ client' = [client EXCEPT ![i] = "Syncing"]
    /\ knownGeneration' = [knownGeneration EXCEPT ![i] = g]
    /\ UNCHANGED <<coordinator, used, sequence, grantedGeneration, owned, revoking, messages>>

Withheld(p, i) ==
    \E j \in member \ {i} : p \in claimed[j] /\ ~(p \in claimed[i] /\ claimGeneration[i] > claimGeneration[j])

\* The reply goes to all members; one takes it only while it waits for the reply to its own SyncGroup.
Assign(assignment) ==
    LET its(i) == {p \in Partitions : assignment[p] = i} IN
    /\ group = "CompletingRebalance"
    /\ \A p \in Partitions : assignment[p] # none => assignment[p] \in member /\ ~Withheld(p, assignment[p])
    /\ assigned' = assignment
    /\ group' = "Stable"
    /\ syncReplySent' = [i \in Members |-> syncReplySent[i] \union IF i \in member THEN {generation} ELSE {}]
    /\ granted' = [i \in Members |-> IF i \in member THEN [granted[i] EXCEPT ![generation] = its(i)] ELSE granted[i]]
    /\ UNCHANGED <<generation, member, joined, fenced, claimed, claimGeneration, lastSequence, clients, requests,
                   joinReplySent>>

TakeAssignment(i) ==
    LET mine == granted[i][knownGeneration[i]] IN
    /\ client[i] = "Syncing" /\ knownGeneration[i] \in syncReplySent[i]
    /\ owned' = [owned EXCEPT ![i] = @ \union mine]
    /\ revoking' = [revoking EXCEPT ![i] = owned[i] \ mine]
    /\ client' = [client EXCEPT ![i] = "Joined"]
    /\ grantedGeneration' = [grantedGeneration EXCEPT ![i] = knownGeneration[i]]
    /\ UNCHANGED <<coordinator, used, sequence, knownGeneration, messages>>

\* Without the last member the group is empty, in a new generation.
Expel(gone) ==
    LET rest == member \ gone IN
    /\ gone \intersect member # {}
    /\ member' = rest
    /\ fenced' = fenced \union (gone \intersect member)
    /\ group' = IF rest = {} THEN "Empty" ELSE "PreparingRebalance"
    /\ generation' = IF rest = {} THEN generation + 1 ELSE generation
    /\ joined' = IF Preparing THEN joined \ gone ELSE {}
    /\ assigned' = [p \in Partitions |-> IF assigned[p] \in gone THEN none ELSE assigned[p]]
    /\ UNCHANGED <<claimed, claimGeneration, lastSequence, clients, messages>>

Revoke(i, givenUp) ==
    /\ owned[i] \intersect givenUp # {}
    /\ owned' = [owned EXCEPT ![i] = @ \ givenUp]
    /\ revoking' = [revoking EXCEPT ![i] = @ \ givenUp]
    /\ UNCHANGED <<coordinator, used, client, sequence, knownGeneration, grantedGeneration, messages>>

IssueId(i) ==
    /\ i \notin used
    /\ used' = used \union {i}
    /\ UNCHANGED <<coordinator, client, sequence, knownGeneration, grantedGeneration, owned, revoking, messages>>

\* It was expelled, has an old generation, or restarts.
HearOfLoss(i) ==
    /\ i \in used
    /\ client' = [client EXCEPT ![i] = "Unjoined"]
    /\ owned' = [owned EXCEPT ![i] = {}]
    /\ revoking' = [revoking EXCEPT ![i] = {}]
    /\ grantedGeneration' = [grantedGeneration EXCEPT ![i] = 0]
    /\ UNCHANGED <<coordinator, used, sequence, knownGeneration, messages>>

Init ==
    LET each(value) == [i \in Members |-> value] IN
    /\ group = "Empty" /\ generation = 0
    /\ member = {} /\ joined = {} /\ fenced = {} /\ used = {}
    /\ assigned = Unassigned
    /\ claimed = each({}) /\ owned = each({}) /\ revoking = each({})
    /\ claimGeneration = each(0) /\ lastSequence = each(0) /\ sequence = each(0)
    /\ client = each("Unjoined") /\ knownGeneration = each(0) /\ grantedGeneration = each(0)
    /\ requests = {}
    /\ joinReplySent = each([n \in Sequences |-> {}])
    /\ syncReplySent = each({}) /\ granted = each([g \in Generations |-> {}])

Next ==
    \/ CompleteJoin
    \/ \E i \in Members : SendJoin(i) \/ TakeAssignment(i) \/ IssueId(i) \/ HearOfLoss(i)
    \/ \E i \in Members, g \in Generations : TakeJoinReply(i, g)
    \/ \E i \in Members, givenUp \in SUBSET Partitions : Revoke(i, givenUp)
    \/ \E gone \in SUBSET Members : Expel(gone)
    \/ \E x \in requests : Join(x) \/ Repeat(x)
    \/ \E assignment \in [Partitions -> Members \union {none}] : Assign(assignment)

Bounds ==
    /\ generation <= MaxGeneration
    /\ \A i \in Members : sequence[i] <= MaxSequence
    /\ Cardinality(requests) <= MaxRequests

Spec == Init /\ [][Next]_vars
=============================================================================
