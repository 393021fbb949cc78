-------------------------- MODULE TransactionsCore --------------------------
(***************************************************************************)
(* The transition system that proof.py proves, for comparison on a tiny    *)
(* instance: both must reach the same states (spec/proofs/crosscheck.py).  *)
(* Guards are on. Version 2: an epoch names a transaction, so the requests *)
(* that were ever sent are the relations sent, asked and marker.           *)
(*                                                                         *)
(* Left out of Transactions: version 1, readers and what they consume, the *)
(* order of records and markers in a log, the number of the coordinator,   *)
(* which version 2 does not need, and everything about progress.           *)
(***************************************************************************)
EXTENDS Integers

CONSTANTS Clients, Partitions, no_client, MaxEpoch

VARIABLE epoch          \* the coordinator: producer epoch and state
VARIABLE state
VARIABLE waiting        \* partitions without a confirmed marker
VARIABLE stored         \* partitions in the transaction, as it is in the log
VARIABLE marker         \* by epoch: the partitions to which a marker was sent
VARIABLE outcome        \* ... and its outcome
coordinator == <<epoch, state, waiting, stored, marker, outcome>>

VARIABLE clientEpoch    \* of an instance; 0: none
VARIABLE holder         \* by epoch: the instance that has received it, or will
VARIABLE sent           \* by epoch: the partitions to which a record was sent
VARIABLE asked          \* by epoch: the EndTxn that was sent
producers == <<clientEpoch, holder, sent, asked>>

VARIABLE known          \* of a partition: the newest epoch in its log
VARIABLE open           \* partitions in which a transaction is open
VARIABLE record         \* by epoch: the partitions with a record
VARIABLE verified       \* by epoch: the partitions whose record was verified
partitions == <<known, open, record, verified>>

vars == <<coordinator, producers, partitions>>

Epochs == 0 .. MaxEpoch
Prepared == {"commit", "abort"}

Decide(end, next) ==
    /\ next <= MaxEpoch
    /\ state' = end /\ epoch' = next
    /\ marker' = [marker EXCEPT ![next] = stored] /\ outcome' = [outcome EXCEPT ![next] = end]
    /\ UNCHANGED <<waiting, stored>>

TimeOut == state = "ongoing" /\ Decide("abort", epoch + 2) /\ UNCHANGED <<producers, partitions>>

Initialise(c) ==
    /\ clientEpoch[c] = 0 /\ state = "done" /\ epoch < MaxEpoch
    /\ epoch' = epoch + 1
    /\ clientEpoch' = [clientEpoch EXCEPT ![c] = epoch'] /\ holder' = [holder EXCEPT ![epoch'] = c]
    /\ UNCHANGED <<state, waiting, stored, marker, outcome, sent, asked, partitions>>

Complete ==
    /\ state \in Prepared /\ waiting = {}
    /\ state' = "done" /\ stored' = {}
    /\ UNCHANGED <<epoch, waiting, marker, outcome, producers, partitions>>

FailOver == waiting' = stored /\ UNCHANGED <<epoch, state, stored, marker, outcome, producers, partitions>>

MaySend(c) == clientEpoch[c] > 0 /\ asked[clientEpoch[c]] = "done"

SendRecord(c, p) ==
    /\ MaySend(c)
    /\ sent' = [sent EXCEPT ![clientEpoch[c]] = @ \union {p}]
    /\ UNCHANGED <<coordinator, clientEpoch, holder, asked, partitions>>

Ask(c, end) ==
    /\ MaySend(c)
    /\ end = "commit" => sent[clientEpoch[c]] \subseteq record[clientEpoch[c]]
    /\ asked' = [asked EXCEPT ![clientEpoch[c]] = end]
    /\ UNCHANGED <<coordinator, clientEpoch, holder, sent, partitions>>

\* The response may arrive in the same step, or later, or never.
HandleEnd(answered) ==
    /\ asked[epoch] # "done"
    /\ state = "ongoing" \/ (state = "done" /\ asked[epoch] = "abort")
    /\ Decide(asked[epoch], epoch + 1)
    /\ holder' = [holder EXCEPT ![epoch + 1] = holder[epoch]]
    /\ IF answered
       THEN /\ holder[epoch] # no_client /\ clientEpoch[holder[epoch]] = epoch
            /\ clientEpoch' = [clientEpoch EXCEPT ![holder[epoch]] = epoch + 1]
       ELSE UNCHANGED clientEpoch
    /\ UNCHANGED <<sent, asked, partitions>>

Learn(c) ==
    LET e == clientEpoch[c] IN
    /\ e \in 1 .. MaxEpoch - 1 /\ asked[e] # "done" /\ holder[e + 1] = c
    /\ clientEpoch' = [clientEpoch EXCEPT ![c] = e + 1]
    /\ UNCHANGED <<coordinator, holder, sent, asked, partitions>>

Fits(e, p) == p \in sent[e] /\ e >= known[p] /\ p \notin record[e]

Verify(p) ==
    /\ Fits(epoch, p) /\ state \notin Prepared
    /\ state' = "ongoing" /\ waiting' = waiting \union {p} /\ stored' = stored \union {p}
    /\ verified' = [verified EXCEPT ![epoch] = @ \union {p}]
    /\ UNCHANGED <<epoch, marker, outcome, producers, known, open, record>>

Append(e, p) ==
    /\ Fits(e, p) /\ p \in verified[e]
    /\ known' = [known EXCEPT ![p] = e] /\ open' = open \union {p}
    /\ record' = [record EXCEPT ![e] = @ \union {p}] /\ verified' = [verified EXCEPT ![e] = @ \ {p}]
    /\ UNCHANGED <<coordinator, producers>>

WriteMarker(e, p, answered) ==
    /\ p \in marker[e] /\ e > known[p]
    /\ known' = [known EXCEPT ![p] = e] /\ open' = open \ {p}
    /\ IF answered THEN e = epoch /\ state \in Prepared /\ waiting' = waiting \ {p} ELSE UNCHANGED waiting
    /\ UNCHANGED <<epoch, state, stored, marker, outcome, producers, record, verified>>

Confirm(e, p) ==
    /\ p \in marker[e] /\ e = known[p] /\ p \notin open
    /\ e = epoch /\ state \in Prepared
    /\ waiting' = waiting \ {p}
    /\ UNCHANGED <<epoch, state, stored, marker, outcome, producers, partitions>>

Init ==
    /\ epoch = 0 /\ state = "done" /\ waiting = {} /\ stored = {}
    /\ marker = [e \in Epochs |-> {}] /\ outcome = [e \in Epochs |-> "done"]
    /\ clientEpoch = [c \in Clients |-> 0] /\ holder = [e \in Epochs |-> no_client]
    /\ sent = [e \in Epochs |-> {}] /\ asked = [e \in Epochs |-> "done"]
    /\ known = [p \in Partitions |-> 0] /\ open = {}
    /\ record = [e \in Epochs |-> {}] /\ verified = [e \in Epochs |-> {}]

Next ==
    \/ TimeOut \/ Complete \/ FailOver
    \/ \E c \in Clients : Initialise(c) \/ Learn(c) \/ \E end \in Prepared : Ask(c, end)
    \/ \E c \in Clients, p \in Partitions : SendRecord(c, p)
    \/ \E answered \in BOOLEAN : HandleEnd(answered)
    \/ \E p \in Partitions : Verify(p)
    \/ \E e \in Epochs, p \in Partitions : Append(e, p) \/ Confirm(e, p) \/ \E answered \in BOOLEAN : WriteMarker(e, p, answered)

Bounds == epoch <= MaxEpoch

Spec == Init /\ [][Next]_vars
=============================================================================
