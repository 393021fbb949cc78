---------------------- MODULE CooperativeRebalanceCore ----------------------
(***************************************************************************)
(* The transition system that proof.py proves, for comparison on a tiny    *)
(* instance: both must reach the same states (spec/proofs/crosscheck.py).  *)
(* Guards are on; messages are sets that only grow.                        *)
(*                                                                         *)
(* Left out of CooperativeRebalance: static members, the coordinator's     *)
(* failover, commits, sessions and their timers, the goals of the          *)
(* assignor, and everything about progress.                                *)
(***************************************************************************)
EXTENDS Integers, FiniteSets

CONSTANTS Members, Partitions, nobody, MaxGeneration, MaxSequence, MaxRequests, MaxReplies

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

VARIABLE used               \* ids that a client uses
VARIABLE retired            \* ids that a client has replaced by another
VARIABLE client             \* a member's own state
VARIABLE sequence           \* the number of its last join request: the order in which they are sent
VARIABLE knownGeneration
VARIABLE grantedGeneration  \* the generation in which its partitions were assigned
VARIABLE owned
VARIABLE revoking           \* ... and which of them it must revoke before it joins again
clients == <<used, retired, client, sequence, knownGeneration, grantedGeneration, owned, revoking>>

VARIABLE requests           \* join requests
VARIABLE joinReplySent      \* of a member: numbers of requests that were answered, with the generations
VARIABLE replies             \* sync replies
messages == <<requests, joinReplySent, replies>>

vars == <<coordinator, clients, messages>>

Sequences == 0 .. MaxSequence

SendJoin(i) ==
    /\ i \in used \ retired
    /\ revoking[i] = {}
    /\ requests' = requests \union {[member |-> i, sequence |-> sequence[i] + 1, owned |-> owned[i],
                                     generation |-> grantedGeneration[i]]}
    /\ sequence' = [sequence EXCEPT ![i] = @ + 1]
    /\ client' = [client EXCEPT ![i] = "Joining"]
    /\ UNCHANGED <<coordinator, used, retired, knownGeneration, grantedGeneration, owned, revoking, joinReplySent, replies>>

\* In the order in which they were sent: an assumption about the network, not a check of the coordinator.
Join(x) ==
    LET i == x.member IN
    /\ x.sequence > lastSequence[i] /\ i \notin fenced
    /\ group' = "PreparingRebalance"
    /\ member' = member \union {i}
    /\ joined' = {i} \union IF group = "PreparingRebalance" THEN joined ELSE {}
    /\ claimed' = [claimed EXCEPT ![i] = x.owned]
    /\ claimGeneration' = [claimGeneration EXCEPT ![i] = x.generation]
    /\ lastSequence' = [lastSequence EXCEPT ![i] = x.sequence]
    /\ UNCHANGED <<generation, fenced, assigned, clients, messages>>

CompleteJoin ==
    /\ group = "PreparingRebalance"
    /\ member \subseteq joined
    /\ group' = "CompletingRebalance"
    /\ generation' = generation + 1
    /\ assigned' = [p \in Partitions |-> nobody]
    /\ joinReplySent' = [i \in Members |-> [n \in Sequences |->
          joinReplySent[i][n] \union IF i \in member /\ n = lastSequence[i] THEN {generation + 1} ELSE {}]]
    /\ UNCHANGED <<member, joined, fenced, claimed, claimGeneration, lastSequence, clients, requests, replies>>

TakeJoinReply(i, g) ==
    /\ client[i] = "Joining"
    /\ g \in joinReplySent[i][sequence[i]]
    /\ client' = [client EXCEPT ![i] = "Syncing"]
    /\ knownGeneration' = [knownGeneration EXCEPT ![i] = g]
    /\ UNCHANGED <<coordinator, used, retired, sequence, grantedGeneration, owned, revoking, messages>>

Withheld(p, i) ==
    \E j \in member \ {i} : p \in claimed[j] /\ ~(p \in claimed[i] /\ claimGeneration[i] > claimGeneration[j])

Assign(assignment) ==
    /\ group = "CompletingRebalance"
    /\ \A p \in Partitions : assignment[p] # nobody => assignment[p] \in member /\ ~Withheld(p, assignment[p])
    /\ assigned' = assignment
    /\ group' = "Stable"
    /\ UNCHANGED <<generation, member, joined, fenced, claimed, claimGeneration, lastSequence, clients, messages>>

AnswerSync(i) ==
    /\ group = "Stable" /\ i \in member
    /\ replies' = replies \union {[member |-> i, generation |-> generation,
                                   granted |-> {p \in Partitions : assigned[p] = i}]}
    /\ UNCHANGED <<coordinator, clients, requests, joinReplySent>>

TakeAssignment(z) ==
    LET i == z.member IN
    /\ client[i] = "Syncing" /\ z.generation = knownGeneration[i]
    /\ owned' = [owned EXCEPT ![i] = @ \union z.granted]
    /\ revoking' = [revoking EXCEPT ![i] = owned[i] \ z.granted]
    /\ client' = [client EXCEPT ![i] = "Joined"]
    /\ grantedGeneration' = [grantedGeneration EXCEPT ![i] = knownGeneration[i]]
    /\ UNCHANGED <<coordinator, used, retired, sequence, knownGeneration, messages>>

Expel(i) ==
    /\ i \in member
    /\ member' = member \ {i}
    /\ fenced' = fenced \union {i}
    /\ group' = "PreparingRebalance"
    /\ joined' = IF group = "PreparingRebalance" THEN joined \ {i} ELSE {}
    /\ UNCHANGED <<generation, assigned, claimed, claimGeneration, lastSequence, clients, messages>>

Revoke(i, p) ==
    /\ p \in owned[i]
    /\ owned' = [owned EXCEPT ![i] = @ \ {p}]
    /\ revoking' = [revoking EXCEPT ![i] = @ \ {p}]
    /\ UNCHANGED <<coordinator, used, retired, client, sequence, knownGeneration, grantedGeneration, messages>>

\* A new member, or one that continues under another id and has lost its partitions.
NewMember(j) ==
    /\ j \notin used
    /\ used' = used \union {j}
    /\ owned' = [owned EXCEPT ![j] = {}]
    /\ revoking' = [revoking EXCEPT ![j] = {}]
    /\ UNCHANGED <<coordinator, retired, client, sequence, knownGeneration, grantedGeneration, messages>>

TakeNewId(i, j) ==
    /\ i \in used \ retired /\ j \notin used
    /\ used' = used \union {j}
    /\ retired' = retired \union {i}
    /\ owned' = [owned EXCEPT ![i] = {}, ![j] = {}]
    /\ revoking' = [revoking EXCEPT ![i] = {}, ![j] = {}]
    /\ client' = [client EXCEPT ![i] = "Unjoined"]
    /\ UNCHANGED <<coordinator, sequence, knownGeneration, grantedGeneration, messages>>

Init ==
    /\ group = "Empty" /\ generation = 0
    /\ member = {} /\ joined = {} /\ fenced = {} /\ used = {} /\ retired = {}
    /\ assigned = [p \in Partitions |-> nobody]
    /\ claimed = [i \in Members |-> {}] /\ owned = [i \in Members |-> {}]
    /\ revoking = [i \in Members |-> {}]
    /\ claimGeneration = [i \in Members |-> 0] /\ lastSequence = [i \in Members |-> 0]
    /\ client = [i \in Members |-> "Unjoined"] /\ sequence = [i \in Members |-> 0]
    /\ knownGeneration = [i \in Members |-> 0] /\ grantedGeneration = [i \in Members |-> 0]
    /\ requests = {} /\ replies = {}
    /\ joinReplySent = [i \in Members |-> [n \in Sequences |-> {}]]

Next ==
    \/ CompleteJoin
    \/ \E i \in Members : SendJoin(i) \/ AnswerSync(i) \/ Expel(i) \/ NewMember(i)
    \/ \E i \in Members, g \in 1 .. MaxGeneration : TakeJoinReply(i, g)
    \/ \E i \in Members, p \in Partitions : Revoke(i, p)
    \/ \E i, j \in Members : TakeNewId(i, j)
    \/ \E x \in requests : Join(x)
    \/ \E z \in replies : TakeAssignment(z)
    \/ \E assignment \in [Partitions -> Members \union {nobody}] : Assign(assignment)

Bounds ==
    /\ generation <= MaxGeneration
    /\ \A i \in Members : sequence[i] <= MaxSequence
    /\ Cardinality(requests) <= MaxRequests /\ Cardinality(replies) <= MaxReplies

Spec == Init /\ [][Next]_vars
=============================================================================
