--------------------------- MODULE GroupOwnership ---------------------------
(***************************************************************************)
(* What a consumer group promises: who may process a partition, and whose  *)
(* commit counts.                                                          *)
(*                                                                         *)
(*   1. At most one member holds a partition.                              *)
(*   2. A partition changes hands only through nobody's: what is taken     *)
(*      from one member is given to another in a later step.  One          *)
(*      exception: a static member that starts anew under a new member id  *)
(*      takes over at once what the old id held, and the old id never      *)
(*      gets anything again (KIP-345).                                     *)
(*   3. Only the holder's commit is accepted, and it bears the current     *)
(*      generation.                                                        *)
(*   4. Generations never fall.                                            *)
(*                                                                         *)
(* Holding is what the coordinator says: a member that was expelled may    *)
(* still believe that it holds a partition, and process it; no commit of   *)
(* it is accepted.  Nothing here says how the protocol does that: eager    *)
(* and cooperative rebalance refine this module, each with its own         *)
(* mapping, and histories are audited against it (rules 26 and 27).        *)
(***************************************************************************)
EXTENDS Integers

CONSTANTS
    Partitions,     \* what is shared out
    None            \* in place of a commit: there was none

VARIABLE generation \* of the group, as it survives the coordinator
VARIABLE grants     \* who holds what: <<member id, partition>>
VARIABLE replaced   \* member ids whose place a newer one of the same static member took
VARIABLE committed  \* of a partition: who committed last, and in which generation
vars == <<generation, grants, replaced, committed>>

Holders == {grant[1] : grant \in grants}
Held == {grant[2] : grant \in grants}
Exclusive(set) == \A a, b \in set : a[2] = b[2] => a = b

Init ==
    /\ generation = 0
    /\ grants = {}
    /\ replaced = {}
    /\ committed = [p \in Partitions |-> None]

\* The coordinator takes back and gives out: new holders get only what nobody held.
Rebalance ==
    /\ generation' >= generation
    /\ \A grant \in grants' \ grants : grant[2] \notin Held /\ grant[1] \notin replaced
    /\ Exclusive(grants')
    /\ UNCHANGED <<replaced, committed>>

\* A static member is back under a new id, and the old one is out for good.
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

\* The generations of a partition's accepted commits never fall: who comes later knows more (audit rules 25 and 27).
CommitsAscend ==
    [][\A p \in Partitions :
        committed[p] # None /\ committed'[p] # None => committed'[p].generation >= committed[p].generation]_vars
=============================================================================
