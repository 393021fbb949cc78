-------------------------- MODULE MCGroupOwnership --------------------------
(* GroupOwnership by itself, bounded: checks the properties that follow from it. *)
EXTENDS GroupOwnership, Sequences, TLC

CONSTANTS Members, MaxGeneration

MCRebalance ==
    /\ grants' \in SUBSET (Members \X Partitions)
    /\ generation' \in 0 .. MaxGeneration
    /\ Rebalance

MCHandOver ==
    /\ \E old \in Members : replaced' = replaced \union {old}
    /\ grants' \in SUBSET (Members \X Partitions)
    /\ HandOver

MCNext == MCRebalance \/ MCHandOver \/ Commit

MCSpec == Init /\ [][MCNext]_vars

Symmetry == {a @@ b : a \in Permutations(Members), b \in Permutations(Partitions)}

\* Must be reachable: the member that committed last no longer holds the partition, and another one does.
HandsChanged ==
    \E p \in Partitions : committed[p] # None /\ \E grant \in grants : grant[2] = p /\ grant[1] # committed[p].member
TakenOver == replaced # {} /\ grants # {}
=============================================================================
