--------------------------- MODULE GroupOwnership ---------------------------
(***************************************************************************)
(* What a consumer group promises: which member may process a partition,   *)
(* and whose commits are valid.                                            *)
(*                                                                         *)
(*   1. At most one member holds a partition.                              *)
(*   2. A partition that moves to another member has no holder in between: *)
(*      it is taken from one member and assigned to another in a later     *)
(*      step. One exception: a static member that restarts under a new     *)
(*      member id takes over immediately what the old id held, and the old *)
(*      id never gets a partition again (KIP-345).                         *)
(*   3. Only the holder's commit is accepted, and it has the current       *)
(*      generation.                                                        *)
(*   4. Generations never decrease.                                        *)
(*                                                                         *)
(* The coordinator's state defines the holder: a member that was expelled  *)
(* may still believe that it holds a partition, and process it; its        *)
(* commits are rejected. This module does not define how the protocol      *)
(* achieves that: eager and cooperative rebalance refine this module, each *)
(* with its own mapping, and histories are audited against it (rules 26    *)
(* and 27).                                                                *)
(***************************************************************************)
EXTENDS Integers

CONSTANTS
    Partitions,     \* the partitions of the group
    None            \* the value for "no commit"

VARIABLE generation \* of the group, as it survives a failure of the coordinator
VARIABLE grants     \* the holders: <<member id, partition>>
VARIABLE replaced   \* member ids that a newer id of the same static member has replaced
VARIABLE committed  \* of a partition: the member that committed last, and its generation
vars == <<generation, grants, replaced, committed>>

Holders == {grant[1] : grant \in grants}
Held == {grant[2] : grant \in grants}
Exclusive(set) == \A a, b \in set : a[2] = b[2] => a = b

Init ==
    /\ generation = 0
    /\ grants = {}
    /\ replaced = {}
    /\ committed = [p \in Partitions |-> None]

\* The coordinator revokes and assigns: a new holder gets only a partition that had no holder.
Rebalance ==
    /\ generation' >= generation
    /\ \A grant \in grants' \ grants : grant[2] \notin Held /\ grant[1] \notin replaced
    /\ Exclusive(grants')
    /\ UNCHANGED <<replaced, committed>>

\* A static member has returned under a new id, and the old id never holds a partition again.
HandOver ==
    \E old \in replaced' \ replaced :
        /\ replaced' = replaced \union {old}
        /\ \/ grants' = {grant \in grants : grant[1] # old}
           \/ \E new \in {grant[1] : grant \in grants'} \ (Holders \union replaced') :
                 grants' = {<<IF grant[1] = old THEN new ELSE grant[1], grant[2]>> : grant \in grants}
        /\ UNCHANGED <<generation, committed>>

Commit ==
    \E grant \in grants :
        /\ committed' = [committed EXCEPT ![grant[2]] = [member |-> grant[1], generation |-> generation]]
        /\ UNCHANGED <<generation, grants, replaced>>

Next == Rebalance \/ HandOver \/ Commit

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* What follows *)

OneHolder == Exclusive(grants)

ReplacedHoldNothing == Holders \intersect replaced = {}

\* The generations of a partition's accepted commits never decrease (audit rules 25 and 27).
CommitsAscend ==
    [][\A p \in Partitions :
        committed[p] # None /\ committed'[p] # None => committed'[p].generation >= committed[p].generation]_vars
=============================================================================
