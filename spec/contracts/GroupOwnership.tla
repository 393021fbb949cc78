--------------------------- MODULE GroupOwnership ---------------------------
(***************************************************************************)
(* What a consumer group promises: which member may process a partition,   *)
(* and whose commits are valid.                                            *)
(*                                                                         *)
(*   1. At most one member holds a partition.                              *)
(*   2. A partition that moves to another member has no holder in between: *)
(*      it is taken from one member and assigned to another in a later     *)
(*      step. One exception: a static member that restarts under a new     *)
(*      member id takes over immediately what the old id held (KIP-345).   *)
(*      Once that is stored the old id never gets a partition again; until *)
(*      then a failure of the coordinator may return them to the old id.   *)
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
    None,           \* the value for "no commit"
    OneMember(_, _) \* whether two member ids are of one static member

VARIABLE generation \* of the group, as it survives a failure of the coordinator
VARIABLE grants     \* the holders: <<member id, partition>>
VARIABLE replaced   \* member ids that a newer id of the same static member has replaced for ever
VARIABLE committed  \* of a partition: the member that committed last, and its generation
vars == <<generation, grants, replaced, committed>>

Holders == {grant[1] : grant \in grants}
Exclusive(set) == \A a, b \in set : a[2] = b[2] => a = b

Init ==
    /\ generation = 0
    /\ grants = {}
    /\ replaced = {}
    /\ committed = [p \in Partitions |-> None]

\* The coordinator revokes and assigns.  A partition that has a holder goes only to another id of the same member.
Rebalance ==
    /\ generation' >= generation
    /\ replaced \subseteq replaced'
    /\ \A new \in grants' \ grants, old \in grants : old[2] = new[2] => OneMember(old[1], new[1])
    /\ Exclusive(grants')
    /\ \A grant \in grants' : grant[1] \notin replaced'
    /\ UNCHANGED committed

Commit ==
    \E grant \in grants :
        /\ committed' = [committed EXCEPT ![grant[2]] = [member |-> grant[1], generation |-> generation]]
        /\ UNCHANGED <<generation, grants, replaced>>

Next == Rebalance \/ Commit

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
