-------------------------- MODULE HwTruncationCore --------------------------
(***************************************************************************)
(* The transition system that proof.py proves, for comparison on a tiny    *)
(* instance: both must reach the same states (spec/proofs/crosscheck.py).  *)
(* Guards are on. A log is a table whose first logEnd entries are valid,   *)
(* as in the proof.                                                        *)
(*                                                                         *)
(* Left out of HwTruncation: separate fetch messages (a fetch is one step  *)
(* here), the pending proposal, registration, crashes inside the ISR, the  *)
(* latest epoch that a leader began without writing, and the state without *)
(* a leader.                                                               *)
(***************************************************************************)
EXTENDS Integers, FiniteSets

CONSTANTS Brokers, First, MaxLeaderEpoch, MaxOffset

VARIABLE leaderEpoch    \* the store, by leader epoch: leader and isr as last written in it
VARIABLE leader
VARIABLE isr
store == <<leaderEpoch, leader, isr>>

VARIABLE knownEpoch     \* of a broker: the latest leader epoch that it has learned
VARIABLE leads          \* brokers that believe that they are the leader
VARIABLE log
VARIABLE logEnd
VARIABLE highWatermark
VARIABLE knownIsr       \* of a leader
VARIABLE fetched        \* by leader epoch and broker: the fetch offset, or -1
brokers == <<knownEpoch, leads, log, logEnd, highWatermark, knownIsr, fetched>>

vars == <<store, brokers>>

Epochs == 0 .. MaxLeaderEpoch
Min(a, b) == IF a < b THEN a ELSE b

\* The end offset of the epochs up to `epoch` in b's log.
RECURSIVE EpochEnd(_, _, _)
EpochEnd(b, epoch, end) ==
    IF end = 0 THEN 0 ELSE IF log[b][end - 1] <= epoch THEN end ELSE EpochEnd(b, epoch, end - 1)

LeaderWrite(b) ==
    /\ b \in leads /\ logEnd[b] <= MaxOffset
    /\ log' = [log EXCEPT ![b][logEnd[b]] = knownEpoch[b]]
    /\ logEnd' = [logEnd EXCEPT ![b] = @ + 1]
    /\ fetched' = [fetched EXCEPT ![knownEpoch[b]][b] = logEnd[b] + 1]
    /\ UNCHANGED <<store, knownEpoch, leads, highWatermark, knownIsr>>

Reaches(b, l) == b # l /\ l \in leads /\ b \notin leads /\ knownEpoch[b] = knownEpoch[l]

\* The end offset of the follower's last epoch in the leader's log, and the epoch that ends there.
EndAt(b, l) == EpochEnd(l, log[b][logEnd[b] - 1], logEnd[l])
Diverges(b, l) ==
    /\ logEnd[b] > 0
    /\ IF EndAt(b, l) < logEnd[b] THEN TRUE ELSE log[l][EndAt(b, l) - 1] # log[b][logEnd[b] - 1]

\* The reply may raise the follower's high watermark to h, and contains the records below k.
Fetch(b, l, k, h) ==
    /\ Reaches(b, l) /\ ~Diverges(b, l) /\ logEnd[b] <= k /\ k <= logEnd[l]
    /\ h = highWatermark[b] \/ h \in highWatermark[b] .. Min(highWatermark[l], k)
    /\ fetched' = [fetched EXCEPT ![knownEpoch[l]][b] = logEnd[b]]
    /\ log' = [log EXCEPT ![b] = [o \in 0 .. MaxOffset |-> IF o \in logEnd[b] .. k - 1 THEN log[l][o] ELSE @[o]]]
    /\ logEnd' = [logEnd EXCEPT ![b] = k]
    /\ highWatermark' = [highWatermark EXCEPT ![b] = h]
    /\ UNCHANGED <<store, knownEpoch, leads, knownIsr>>

Truncate(b, l) ==
    /\ Reaches(b, l) /\ Diverges(b, l)
    /\ LET end == EndAt(b, l)
           here == IF end = 0 THEN 0 ELSE EpochEnd(b, log[l][end - 1], logEnd[b])
           cut == Min(end, here) IN
       /\ logEnd' = [logEnd EXCEPT ![b] = cut]
       /\ highWatermark' = [highWatermark EXCEPT ![b] = Min(@, cut)]
    /\ UNCHANGED <<store, knownEpoch, leads, log, knownIsr, fetched>>

AdvanceHw(b, h) ==
    /\ b \in leads /\ highWatermark[b] < h /\ h <= logEnd[b]
    /\ \A c \in knownIsr[b] : fetched[knownEpoch[b]][c] >= h
    /\ highWatermark' = [highWatermark EXCEPT ![b] = h]
    /\ UNCHANGED <<store, knownEpoch, leads, log, logEnd, knownIsr, fetched>>

ChangeIsr(b, new) ==
    /\ b \in leads /\ knownEpoch[b] = leaderEpoch /\ knownIsr[b] = isr[leaderEpoch]
    /\ isr' = [isr EXCEPT ![leaderEpoch] = new]
    /\ knownIsr' = [knownIsr EXCEPT ![b] = new]
    /\ UNCHANGED <<leaderEpoch, leader, knownEpoch, leads, log, logEnd, highWatermark, fetched>>

\* The start offset of b's leader epoch: its first own record, or its log end.
EpochStart(b) == IF \E o \in 0 .. logEnd[b] - 1 : log[b][o] = knownEpoch[b]
                 THEN CHOOSE o \in 0 .. logEnd[b] - 1 : log[b][o] = knownEpoch[b] /\ \A q \in 0 .. o - 1 : log[b][q] # log[b][o]
                 ELSE logEnd[b]

ExpandIsr(b, c) ==
    LET end == fetched[knownEpoch[b]][c] IN
    /\ c \notin knownIsr[b] /\ end >= highWatermark[b] /\ end >= EpochStart(b)
    /\ ChangeIsr(b, knownIsr[b] \union {c})

ShrinkIsr(b, c) ==
    /\ c \in knownIsr[b] /\ c # b
    /\ ChangeIsr(b, knownIsr[b] \ {c})

ControllerShrink(c) ==
    /\ c \in isr[leaderEpoch] /\ c # leader[leaderEpoch]
    /\ isr' = [isr EXCEPT ![leaderEpoch] = @ \ {c}]
    /\ UNCHANGED <<leaderEpoch, leader, brokers>>

\* The controller may remove another broker from the ISR at once.
ElectLeader(c, d) ==
    /\ c \in isr[leaderEpoch] /\ leaderEpoch < MaxLeaderEpoch
    /\ leaderEpoch' = leaderEpoch + 1
    /\ leader' = [leader EXCEPT ![leaderEpoch + 1] = c]
    /\ isr' = [isr EXCEPT ![leaderEpoch + 1] = isr[leaderEpoch] \ ({d} \ {c})]
    /\ UNCHANGED brokers

LearnIsr(b) ==
    /\ b \in leads
    /\ knownIsr' = [knownIsr EXCEPT ![b] = isr[knownEpoch[b]]]
    /\ UNCHANGED <<store, knownEpoch, leads, log, logEnd, highWatermark, fetched>>

\* The request may be late: other leaders may have begun later epochs.
Hears(b, e) == e <= leaderEpoch /\ knownEpoch[b] < e

BecomeLeader(b, e) ==
    /\ Hears(b, e) /\ leader[e] = b
    /\ knownEpoch' = [knownEpoch EXCEPT ![b] = e]
    /\ leads' = leads \union {b}
    /\ knownIsr' = [knownIsr EXCEPT ![b] = isr[e]]
    /\ fetched' = [fetched EXCEPT ![e] = [c \in Brokers |-> IF c = b THEN logEnd[b] ELSE -1]]
    /\ UNCHANGED <<store, log, logEnd, highWatermark>>

BecomeFollower(b, e) ==
    /\ Hears(b, e) /\ leader[e] # b
    /\ knownEpoch' = [knownEpoch EXCEPT ![b] = e]
    /\ leads' = leads \ {b}
    /\ UNCHANGED <<store, log, logEnd, highWatermark, knownIsr, fetched>>

Crash(b, end) ==
    /\ end < logEnd[b] /\ leader[leaderEpoch] # b /\ b \notin isr[leaderEpoch]
    /\ logEnd' = [logEnd EXCEPT ![b] = end]
    /\ highWatermark' = [highWatermark EXCEPT ![b] = Min(@, end)]
    /\ leads' = leads \ {b}
    /\ knownEpoch' = [knownEpoch EXCEPT ![b] = leaderEpoch]
    /\ fetched' = [fetched EXCEPT ![leaderEpoch][b] = -1]
    /\ UNCHANGED <<store, log, knownIsr>>

Init ==
    /\ leaderEpoch = 0
    /\ leader = [e \in Epochs |-> First]
    /\ isr = [e \in Epochs |-> IF e = 0 THEN Brokers ELSE {}]
    /\ knownEpoch = [b \in Brokers |-> 0]
    /\ leads = {First}
    /\ log = [b \in Brokers |-> [o \in 0 .. MaxOffset |-> 0]]
    /\ logEnd = [b \in Brokers |-> 0] /\ highWatermark = [b \in Brokers |-> 0]
    /\ knownIsr = [b \in Brokers |-> IF b = First THEN Brokers ELSE {}]
    /\ fetched = [e \in Epochs |-> [b \in Brokers |-> IF e = 0 /\ b = First THEN 0 ELSE -1]]

Next ==
    \/ \E b \in Brokers : LeaderWrite(b) \/ ControllerShrink(b) \/ LearnIsr(b)
    \/ \E b \in Brokers, e \in Epochs : BecomeLeader(b, e) \/ BecomeFollower(b, e)
    \/ \E b, c \in Brokers : ElectLeader(b, c) \/ Truncate(b, c) \/ ExpandIsr(b, c) \/ ShrinkIsr(b, c)
    \/ \E b \in Brokers, n \in 0 .. MaxOffset + 1 : AdvanceHw(b, n) \/ Crash(b, n)
    \/ \E b, c \in Brokers, k, h \in 0 .. MaxOffset + 1 : Fetch(b, c, k, h)

Bounds == TRUE

Spec == Init /\ [][Next]_vars
=============================================================================
