------------------------ MODULE MCGroupTransactions ------------------------
(* GroupTransactions, bounded so that TLC can explore every state. *)
EXTENDS GroupTransactions, TLC

CONSTANT MaxGeneration

MCRebalance(m) == generation < MaxGeneration /\ Rebalance(m)

MCNext ==
    \/ \E m \in Members : MCRebalance(m) \/ FetchOffset(m) \/ Produce(m) \/ SendCommit(m) \/ Ended(m)
    \/ \E m \in Members, answered \in BOOLEAN : HandleOffset(m, answered)
    \/ \E m \in Members, outcome \in {"commit", "abort"} : Decide(m, outcome)
    \/ \E m \in Members, place \in Markers : WriteMarker(m, place)

MCSpec == Init /\ [][MCNext]_vars

Symmetry == Permutations(Members)

-----------------------------------------------------------------------------
(* Situations that must be reachable; otherwise the claims would hold vacuously *)

TwoAreOpen == \E m, n \in DOMAIN log : m # n /\ \A k \in {m, n} : ~IsMarker(log[k]) /\ Fate(k) = "open"
CommittedBehindOpen ==
    \E m, n \in DOMAIN log : m < n /\ ~IsMarker(log[n]) /\ ~IsMarker(log[m]) /\ Fate(m) = "open" /\ Fate(n) = "commit"
ZombieCommits ==
    \E m \in Members : member[m].phase = "commit" /\ member[m].generation < generation /\ Outcome(member[m].txn) = "commit"
LateOffset == \E m \in Members : member[m].phase = "open" /\ member[m].generation < generation /\ pending[m] = None
UnstableOffset == \E m \in Members : pending[m] # None /\ owner # m /\ member[owner].phase = "idle"
ConsumedTwo == Len(Visible) = 2
=============================================================================
