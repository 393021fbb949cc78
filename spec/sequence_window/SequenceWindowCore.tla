------------------------- MODULE SequenceWindowCore -------------------------
(***************************************************************************)
(* The transition system that proof.py proves, for comparison on a tiny    *)
(* instance: both must reach the same states (spec/proofs/crosscheck.py).  *)
(* Guards are on; requests are a set that only grows. A log is a table     *)
(* whose first logEnd entries are valid, as in the proof.                  *)
(*                                                                         *)
(* Left out of SequenceWindow: batches that are sent again under a new     *)
(* sequence number, and a window that does not follow from the log.        *)
(***************************************************************************)
EXTENDS Integers, FiniteSets

CONSTANTS MaxSequence, MaxRequests, FirstSize

VARIABLE size           \* of the window; it never changes
VARIABLE next           \* the producer: its next sequence number
VARIABLE acked          \* the sequence numbers that are acknowledged
VARIABLE base           \* all below are acknowledged, as far as the producer has noticed
VARIABLE log
VARIABLE logEnd
VARIABLE committed
VARIABLE requests

vars == <<size, next, acked, base, log, logEnd, committed, requests>>

InWindow(o) == o >= 0 /\ o >= logEnd - size /\ o < logEnd

Send ==
    /\ next < base + size
    /\ requests' = requests \union {[sequence |-> next]}
    /\ next' = next + 1
    /\ UNCHANGED <<size, acked, base, log, logEnd, committed>>

Store(r) ==
    /\ r.sequence = IF logEnd = 0 THEN 0 ELSE log[logEnd - 1] + 1
    /\ log' = [log EXCEPT ![logEnd] = r.sequence]
    /\ logEnd' = logEnd + 1
    /\ UNCHANGED <<size, next, acked, base, committed, requests>>

Acknowledge(r, o) ==
    /\ InWindow(o) /\ log[o] = r.sequence /\ o < committed
    /\ acked' = acked \union {r.sequence}
    /\ UNCHANGED <<size, next, base, log, logEnd, committed, requests>>

Advance ==
    /\ base \in acked
    /\ base' = base + 1
    /\ UNCHANGED <<size, next, acked, log, logEnd, committed, requests>>

Commit(k) ==
    /\ committed < k /\ k <= logEnd
    /\ committed' = k
    /\ UNCHANGED <<size, next, acked, base, log, logEnd, requests>>

ChangeLeader(k) ==
    /\ committed <= k /\ k <= logEnd
    /\ logEnd' = k
    /\ UNCHANGED <<size, next, acked, base, log, committed, requests>>

Init ==
    /\ size = FirstSize /\ next = 0 /\ acked = {} /\ base = 0
    /\ log = [o \in 0 .. MaxSequence |-> 0] /\ logEnd = 0 /\ committed = 0 /\ requests = {}

Next ==
    \/ Send \/ Advance
    \/ \E r \in requests : Store(r) \/ \E o \in 0 .. MaxSequence : Acknowledge(r, o)
    \/ \E k \in 0 .. MaxSequence : Commit(k) \/ ChangeLeader(k)

Bounds == next <= MaxSequence /\ Cardinality(requests) <= MaxRequests

Spec == Init /\ [][Next]_vars
=============================================================================
