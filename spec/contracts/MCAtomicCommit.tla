--------------------------- MODULE MCAtomicCommit ---------------------------
(* AtomicCommit by itself, bounded: checks the properties that follow from it. *)
EXTENDS AtomicCommit, TLC

CONSTANTS MaxRecords, MaxInput

Extended(records) == {records} \union IF Len(records) < MaxRecords THEN {Append(records, t) : t \in Transactions} ELSE {}

MCNext ==
    \/ /\ \E t \in Transactions, ask \in {"commit", "abort"} : asked' = [asked EXCEPT ![t] = ask]
       /\ UNCHANGED <<outcome, input, log, visible>> /\ Next
    \/ /\ \E t \in Transactions, n \in 1 .. MaxInput : input' = [input EXCEPT ![t] = n]
       /\ UNCHANGED <<asked, outcome, log, visible>> /\ Next
    \/ /\ \E p \in Partitions : \E records \in Extended(log[p]) : log' = [log EXCEPT ![p] = records]
       /\ UNCHANGED <<asked, outcome, input, visible>> /\ Next
    \/ /\ \E t \in Transactions, end \in {"commit", "abort"} : outcome' = [outcome EXCEPT ![t] = end]
       /\ UNCHANGED <<asked, input, log, visible>> /\ Next
    \/ /\ \E p \in Partitions, n \in 0 .. MaxRecords : n <= Len(log[p]) /\ visible' = [visible EXCEPT ![p] = Below(log[p], outcome, n)]
       /\ UNCHANGED <<asked, outcome, input, log>> /\ Next

MCSpec == Init /\ [][MCNext]_contract

Symmetry == Permutations(Transactions) \union Permutations(Partitions)

-----------------------------------------------------------------------------
(* What follows *)

Shown(p, t) == \E n \in DOMAIN visible[p] : visible[p][n] = t

\* Readers receive only what was committed, and the producer has asked for that.
OnlyCommitted == \A p \in Partitions, t \in Transactions : Shown(p, t) => Committed(t) /\ asked[t] = "commit"

\* What readers have received is everything that committed below some offset, below which nothing is open.
Whole ==
    \A p \in Partitions : \E n \in 0 .. Len(log[p]) :
        visible[p] = Below(log[p], outcome, n) /\ \A i \in 1 .. n : HasEnded(log[p][i])

\* Every input is in one committed transaction, and none is left out.
EachInputOnce ==
    LET ended == {t \in Transactions : Committed(t) /\ input[t] # 0} IN {input[t] : t \in ended} = 1 .. Cardinality(ended)

\* A decision, and what readers have received, is never withdrawn.
Final ==
    [][/\ \A t \in Transactions : HasEnded(t) => outcome'[t] = outcome[t]
       /\ \A p \in Partitions : Prefix(visible[p], visible'[p])]_contract

\* Must be reachable.
SomeHidden == \E p \in Partitions : visible[p] # <<>> /\ Len(visible[p]) < Len(log[p])
BothEnds == \E t, u \in Transactions : outcome[t] = "commit" /\ outcome[u] = "abort" /\ log # [p \in Partitions |-> <<>>]
TwoInputs == \E t \in Transactions : Committed(t) /\ input[t] = 2
=============================================================================
