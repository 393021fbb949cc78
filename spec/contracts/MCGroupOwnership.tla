-------------------------- MODULE MCGroupOwnership --------------------------
(* GroupOwnership by itself, bounded: checks the properties that follow from it. *)
EXTENDS GroupOwnership, Sequences, TLC

CONSTANTS Members, Twins, MaxGeneration

MCOneMember(a, b) == {a, b} \subseteq Twins

MCRebalance ==
    /\ grants' \in SUBSET (Members \X Partitions)
    /\ generation' \in 0 .. MaxGeneration
    /\ replaced' \in SUBSET Twins
    /\ Rebalance

MCNext == MCRebalance \/ Commit

MCSpec == Init /\ [][MCNext]_vars

Symmetry ==
    {a @@ b @@ c : a \in Permutations(Members \ Twins), b \in Permutations(Twins), c \in Permutations(Partitions)}

\* Must be reachable: the member that committed last no longer holds the partition, and another one does.
HandsChanged ==
    \E p \in Partitions : committed[p] # None /\ \E grant \in grants : grant[2] = p /\ grant[1] # committed[p].member
TakenOver == replaced # {} /\ grants # {}
\* Must be reachable: a member holds what its other id committed last.
MovedToOtherId ==
    \E p \in Partitions, grant \in grants :
        grant[2] = p /\ committed[p] # None /\ grant[1] # committed[p].member /\ MCOneMember(grant[1], committed[p].member)
=============================================================================
