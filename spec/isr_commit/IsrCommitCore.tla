--------------------------- MODULE IsrCommitCore ---------------------------
(***************************************************************************)
(* The transition system that proof.py proves, for comparison on a tiny    *)
(* instance: both must reach the same states (spec/proofs/crosscheck.py).  *)
(* Guards are on; requests are a set that only grows. A log is a table     *)
(* whose first logEnd entries are valid, as in the proof.                  *)
(*                                                                         *)
(* Left out of IsrCommit: the older way by ZooKeeper, min.insync.replicas  *)
(* and eligible leader replicas, registration and crashes, replies to      *)
(* requests (a leader learns the current state instead), separate fetch    *)
(* messages, and the state without a leader.                               *)
(***************************************************************************)
EXTENDS Integers, FiniteSets

CONSTANTS Brokers, First, MaxLeaderEpoch, MaxPartitionEpoch, MaxOffset, MaxRequests

VARIABLE leaderEpoch    \* the controller, by leader epoch: leader and isr as last written in it
VARIABLE leader
VARIABLE isr
VARIABLE partitionEpoch
controller == <<leaderEpoch, leader, isr, partitionEpoch>>

VARIABLE knownEpoch     \* of a broker: the latest leader epoch that it has learned
VARIABLE knownVersion
VARIABLE leads          \* brokers that believe that they are the leader
VARIABLE mustTruncate   \* brokers that must first find where their log diverges from the leader's
VARIABLE knownIsr       \* of a leader
VARIABLE maximalIsr     \* ... with the members that it has proposed
views == <<knownEpoch, knownVersion, leads, mustTruncate, knownIsr, maximalIsr>>

VARIABLE log
VARIABLE logEnd
VARIABLE highWatermark
VARIABLE fetched        \* by leader epoch and broker: the fetch offset, or -1
replicas == <<log, logEnd, highWatermark, fetched>>

VARIABLE requests       \* AlterPartition

vars == <<controller, views, replicas, requests>>

Epochs == 0 .. MaxLeaderEpoch
Min(a, b) == IF a < b THEN a ELSE b

LeaderWrite(b) ==
    /\ b \in leads /\ logEnd[b] <= MaxOffset
    /\ log' = [log EXCEPT ![b][logEnd[b]] = knownEpoch[b]]
    /\ logEnd' = [logEnd EXCEPT ![b] = @ + 1]
    /\ fetched' = [fetched EXCEPT ![knownEpoch[b]][b] = logEnd[b] + 1]
    /\ UNCHANGED <<controller, views, highWatermark, requests>>

IsPrefix(b, l) == logEnd[b] <= logEnd[l] /\ \A o \in 0 .. logEnd[b] - 1 : log[b][o] = log[l][o]

\* The reply may raise the follower's high watermark to h, and contains the records below k.
Fetch(b, l, k, h) ==
    /\ b # l /\ l \in leads /\ b \notin leads /\ knownEpoch[b] = knownEpoch[l]
    /\ b \in mustTruncate => IsPrefix(b, l)
    /\ logEnd[b] <= k /\ k <= logEnd[l]
    /\ h = highWatermark[b] \/ h \in highWatermark[b] .. Min(highWatermark[l], k)
    /\ fetched' = [fetched EXCEPT ![knownEpoch[l]][b] = logEnd[b]]
    /\ log' = [log EXCEPT ![b] = [o \in 0 .. MaxOffset |-> IF o \in logEnd[b] .. k - 1 THEN log[l][o] ELSE @[o]]]
    /\ logEnd' = [logEnd EXCEPT ![b] = k]
    /\ highWatermark' = [highWatermark EXCEPT ![b] = h]
    /\ mustTruncate' = mustTruncate \ {b}
    /\ UNCHANGED <<controller, knownEpoch, knownVersion, leads, knownIsr, maximalIsr, requests>>

AdvanceHw(b, h) ==
    /\ b \in leads /\ highWatermark[b] < h /\ h <= logEnd[b]
    /\ \A c \in maximalIsr[b] : fetched[knownEpoch[b]][c] >= h
    /\ highWatermark' = [highWatermark EXCEPT ![b] = h]
    /\ UNCHANGED <<controller, views, log, logEnd, fetched, requests>>

Propose(b, new) ==
    /\ b \in leads
    /\ requests' = requests \union {[leaderEpoch |-> knownEpoch[b], partitionEpoch |-> knownVersion[b], isr |-> new]}
    /\ maximalIsr' = [maximalIsr EXCEPT ![b] = @ \union new]
    /\ UNCHANGED <<controller, knownEpoch, knownVersion, leads, mustTruncate, knownIsr, replicas>>

\* The start offset of b's leader epoch: its first own record, or its log end.
Own(b) == {o \in 0 .. logEnd[b] - 1 : log[b][o] = knownEpoch[b]}
EpochStart(b) == IF Own(b) = {} THEN logEnd[b] ELSE CHOOSE o \in Own(b) : \A q \in Own(b) : o <= q

ProposeExpand(b, c) ==
    LET end == fetched[knownEpoch[b]][c] IN
    /\ c \notin knownIsr[b] /\ end >= highWatermark[b] /\ end >= EpochStart(b)
    /\ Propose(b, knownIsr[b] \union {c})

ProposeShrink(b, c) ==
    /\ c \in knownIsr[b] /\ c # b
    /\ Propose(b, knownIsr[b] \ {c})

ChangeIsr(r) ==
    /\ r.leaderEpoch = leaderEpoch /\ r.partitionEpoch = partitionEpoch
    /\ isr' = [isr EXCEPT ![leaderEpoch] = r.isr]
    /\ partitionEpoch' = partitionEpoch + 1
    /\ UNCHANGED <<leaderEpoch, leader, views, replicas, requests>>

ControllerShrink(c) ==
    /\ c \in isr[leaderEpoch] /\ c # leader[leaderEpoch]
    /\ isr' = [isr EXCEPT ![leaderEpoch] = @ \ {c}]
    /\ partitionEpoch' = partitionEpoch + 1
    /\ UNCHANGED <<leaderEpoch, leader, views, replicas, requests>>

\* The controller may remove another broker from the ISR at once.
ElectLeader(c, d) ==
    /\ c \in isr[leaderEpoch] /\ leaderEpoch < MaxLeaderEpoch
    /\ leaderEpoch' = leaderEpoch + 1
    /\ partitionEpoch' = partitionEpoch + 1
    /\ leader' = [leader EXCEPT ![leaderEpoch + 1] = c]
    /\ isr' = [isr EXCEPT ![leaderEpoch + 1] = isr[leaderEpoch] \ ({d} \ {c})]
    /\ UNCHANGED <<views, replicas, requests>>

\* The last ISR of its epoch; of an earlier epoch the version is out of date.
LearnIsr(b) ==
    LET e == knownEpoch[b] IN
    /\ b \in leads /\ (e < leaderEpoch \/ knownVersion[b] < partitionEpoch)
    /\ knownVersion' = IF e = leaderEpoch THEN [knownVersion EXCEPT ![b] = partitionEpoch] ELSE knownVersion
    /\ knownIsr' = [knownIsr EXCEPT ![b] = isr[e]]
    /\ maximalIsr' = [maximalIsr EXCEPT ![b] = isr[e]]
    /\ UNCHANGED <<controller, knownEpoch, leads, mustTruncate, replicas, requests>>

\* The request may be late: other leaders may have begun later epochs.  Then its version is out of date.
Hears(b, e) ==
    /\ e <= leaderEpoch /\ knownEpoch[b] < e
    /\ knownEpoch' = [knownEpoch EXCEPT ![b] = e]
    /\ knownVersion' = IF e = leaderEpoch THEN [knownVersion EXCEPT ![b] = partitionEpoch] ELSE knownVersion

BecomeLeader(b, e) ==
    /\ Hears(b, e) /\ leader[e] = b
    /\ leads' = leads \union {b}
    /\ mustTruncate' = mustTruncate \ {b}
    /\ knownIsr' = [knownIsr EXCEPT ![b] = isr[e]]
    /\ maximalIsr' = [maximalIsr EXCEPT ![b] = isr[e]]
    /\ fetched' = [fetched EXCEPT ![e] = [c \in Brokers |-> IF c = b THEN logEnd[b] ELSE -1]]
    /\ UNCHANGED <<controller, log, logEnd, highWatermark, requests>>

BecomeFollower(b, e) ==
    /\ Hears(b, e) /\ leader[e] # b
    /\ leads' = leads \ {b}
    /\ mustTruncate' = mustTruncate \union {b}
    /\ UNCHANGED <<controller, knownIsr, maximalIsr, replicas, requests>>

\* Truncates to the longest common prefix of the two logs.
Truncate(b, l, n) ==
    /\ b \in mustTruncate /\ l \in leads /\ knownEpoch[b] = knownEpoch[l]
    /\ n <= Min(logEnd[b], logEnd[l])
    /\ \A o \in 0 .. n - 1 : log[b][o] = log[l][o]
    /\ n < Min(logEnd[b], logEnd[l]) => log[b][n] # log[l][n]
    /\ logEnd' = [logEnd EXCEPT ![b] = n]
    /\ highWatermark' = [highWatermark EXCEPT ![b] = Min(@, n)]
    /\ mustTruncate' = mustTruncate \ {b}
    /\ UNCHANGED <<controller, knownEpoch, knownVersion, leads, knownIsr, maximalIsr, log, fetched, requests>>

Init ==
    /\ leaderEpoch = 0 /\ partitionEpoch = 0
    /\ leader = [e \in Epochs |-> First]
    /\ isr = [e \in Epochs |-> IF e = 0 THEN Brokers ELSE {}]
    /\ knownEpoch = [b \in Brokers |-> 0] /\ knownVersion = [b \in Brokers |-> 0]
    /\ leads = {First} /\ mustTruncate = {}
    /\ knownIsr = [b \in Brokers |-> IF b = First THEN Brokers ELSE {}] /\ maximalIsr = knownIsr
    /\ log = [b \in Brokers |-> [o \in 0 .. MaxOffset |-> 0]]
    /\ logEnd = [b \in Brokers |-> 0] /\ highWatermark = [b \in Brokers |-> 0]
    /\ fetched = [e \in Epochs |-> [b \in Brokers |-> IF e = 0 /\ b = First THEN 0 ELSE -1]]
    /\ requests = {}

Next ==
    \/ \E b \in Brokers : LeaderWrite(b) \/ ControllerShrink(b) \/ LearnIsr(b)
    \/ \E b \in Brokers, e \in Epochs : BecomeLeader(b, e) \/ BecomeFollower(b, e)
    \/ \E b, c \in Brokers : ElectLeader(b, c) \/ ProposeExpand(b, c) \/ ProposeShrink(b, c)
    \/ \E r \in requests : ChangeIsr(r)
    \/ \E b \in Brokers, n \in 0 .. MaxOffset + 1 : AdvanceHw(b, n)
    \/ \E b, c \in Brokers, n \in 0 .. MaxOffset + 1 : Truncate(b, c, n)
    \/ \E b, c \in Brokers, k, h \in 0 .. MaxOffset + 1 : Fetch(b, c, k, h)

Bounds == partitionEpoch <= MaxPartitionEpoch /\ Cardinality(requests) <= MaxRequests

Spec == Init /\ [][Next]_vars
=============================================================================
