----------------------- MODULE ControllerFailoverCore -----------------------
(***************************************************************************)
(* The transition system that proof.py proves, for comparison on a tiny    *)
(* instance: both must reach the same states (spec/proofs/crosscheck.py).  *)
(* Guards are on; requests are a set that only grows.                      *)
(*                                                                         *)
(* Left out of ControllerFailover: sessions and watches, by which a        *)
(* controller learns which brokers failed and that it was replaced;        *)
(* replies to requests; and everything about progress.                     *)
(***************************************************************************)
EXTENDS Integers, FiniteSets

CONSTANTS Controllers, Brokers, Partitions, no_broker,
          MaxControllerEpoch, MaxLeaderEpoch, MaxPartitionEpoch, MaxBrokerEpoch, MaxRequests

VARIABLE controllerEpoch        \* the store
VARIABLE leader
VARIABLE leaderEpoch
VARIABLE isr
VARIABLE partitionEpoch
store == <<controllerEpoch, leader, leaderEpoch, isr, partitionEpoch>>

VARIABLE candidate              \* controllers that have read the epoch that they will increment
VARIABLE readEpoch
VARIABLE active                 \* controllers that have claimed an epoch
VARIABLE claimedEpoch
VARIABLE loaded                 \* of a controller: partitions whose state it has read; and that state
VARIABLE cachedLeader
VARIABLE cachedLeaderEpoch
VARIABLE cachedIsr
VARIABLE cachedPartitionEpoch
claims == <<candidate, readEpoch, active, claimedEpoch>>
caches == <<loaded, cachedLeader, cachedLeaderEpoch, cachedIsr, cachedPartitionEpoch>>

VARIABLE brokerEpoch            \* how often a broker has registered; and the content of the last request that it applied
VARIABLE knownControllerEpoch
VARIABLE knownLeader
VARIABLE knownLeaderEpoch
VARIABLE knownIsr
VARIABLE knownPartitionEpoch
brokers == <<brokerEpoch, knownControllerEpoch, knownLeader, knownLeaderEpoch, knownIsr, knownPartitionEpoch>>

VARIABLE requests               \* LeaderAndIsr

vars == <<store, claims, caches, brokers, requests>>

ReadEpoch(c) ==
    /\ candidate' = candidate \union {c}
    /\ readEpoch' = [readEpoch EXCEPT ![c] = controllerEpoch]
    /\ UNCHANGED <<store, active, claimedEpoch, caches, brokers, requests>>

Claim(c) ==
    /\ c \in candidate /\ readEpoch[c] = controllerEpoch
    /\ controllerEpoch' = controllerEpoch + 1
    /\ claimedEpoch' = [claimedEpoch EXCEPT ![c] = controllerEpoch + 1]
    /\ candidate' = candidate \ {c}
    /\ active' = active \union {c}
    /\ loaded' = [loaded EXCEPT ![c] = {}]
    /\ UNCHANGED <<leader, leaderEpoch, isr, partitionEpoch, readEpoch, cachedLeader, cachedLeaderEpoch, cachedIsr,
                   cachedPartitionEpoch, brokers, requests>>

ReadsPartition(c, p) ==
    /\ c \in active
    /\ loaded' = [loaded EXCEPT ![c] = @ \union {p}]
    /\ cachedLeader' = [cachedLeader EXCEPT ![c][p] = leader[p]]
    /\ cachedLeaderEpoch' = [cachedLeaderEpoch EXCEPT ![c][p] = leaderEpoch[p]]
    /\ cachedIsr' = [cachedIsr EXCEPT ![c][p] = isr[p]]
    /\ cachedPartitionEpoch' = [cachedPartitionEpoch EXCEPT ![c][p] = partitionEpoch[p]]
    /\ UNCHANGED <<store, claims, brokers>>

Writes(c, p, newLeader, newIsr) ==
    LET epoch == cachedLeaderEpoch[c][p] + 1
        version == partitionEpoch[p] + 1 IN
    /\ c \in active /\ p \in loaded[c]
    /\ claimedEpoch[c] = controllerEpoch /\ cachedPartitionEpoch[c][p] = partitionEpoch[p]
    /\ leader' = [leader EXCEPT ![p] = newLeader]
    /\ leaderEpoch' = [leaderEpoch EXCEPT ![p] = epoch]
    /\ isr' = [isr EXCEPT ![p] = newIsr]
    /\ partitionEpoch' = [partitionEpoch EXCEPT ![p] = version]
    /\ cachedLeader' = [cachedLeader EXCEPT ![c][p] = newLeader]
    /\ cachedLeaderEpoch' = [cachedLeaderEpoch EXCEPT ![c][p] = epoch]
    /\ cachedIsr' = [cachedIsr EXCEPT ![c][p] = newIsr]
    /\ cachedPartitionEpoch' = [cachedPartitionEpoch EXCEPT ![c][p] = version]
    /\ UNCHANGED <<controllerEpoch, claims, loaded, brokers>>

\* b, or no broker, leads; the controller may remove k from the ISR at once.
Elects(c, p, b, k) ==
    /\ b \in cachedIsr[c][p] \union {no_broker}
    /\ Writes(c, p, b, cachedIsr[c][p] \ ({k} \ {b}))

\* What controller c believes of p, to all brokers.
LeaderAndIsr(c, p) ==
    [partition |-> p, controllerEpoch |-> claimedEpoch[c], leader |-> cachedLeader[c][p],
     leaderEpoch |-> cachedLeaderEpoch[c][p], isr |-> cachedIsr[c][p], partitionEpoch |-> cachedPartitionEpoch[c][p],
     brokerEpoch |-> brokerEpoch]

Load(c, p) == ReadsPartition(c, p) /\ UNCHANGED requests
LoadAndSend(c, p) == ReadsPartition(c, p) /\ requests' = requests \union {LeaderAndIsr(c, p)'}

Elect(c, p, b, k) == Elects(c, p, b, k) /\ UNCHANGED requests
ElectAndSend(c, p, b, k) == Elects(c, p, b, k) /\ requests' = requests \union {LeaderAndIsr(c, p)'}

ShrinkIsr(c, p) ==
    /\ \E b \in cachedIsr[c][p] :
          Writes(c, p, IF cachedLeader[c][p] = b THEN no_broker ELSE cachedLeader[c][p], cachedIsr[c][p] \ {b})
    /\ UNCHANGED requests

Resign(c, p) ==
    /\ c \in active /\ p \in loaded[c]
    /\ claimedEpoch[c] # controllerEpoch \/ cachedPartitionEpoch[c][p] # partitionEpoch[p]
    /\ active' = active \ {c}
    /\ loaded' = [loaded EXCEPT ![c] = {}]
    /\ UNCHANGED <<store, candidate, readEpoch, claimedEpoch, cachedLeader, cachedLeaderEpoch, cachedIsr,
                   cachedPartitionEpoch, brokers, requests>>

Send(c, p) ==
    /\ c \in active /\ p \in loaded[c]
    /\ requests' = requests \union {LeaderAndIsr(c, p)}
    /\ UNCHANGED <<store, claims, caches, brokers>>

LeaderChangeIsr(b, p) ==
    /\ knownLeader[b][p] = b /\ knownLeaderEpoch[b][p] >= 0
    /\ knownPartitionEpoch[b][p] = partitionEpoch[p]
    /\ \E k \in Brokers \ {b} :
          LET new == IF k \in knownIsr[b][p] THEN knownIsr[b][p] \ {k} ELSE knownIsr[b][p] \union {k} IN
          /\ isr' = [isr EXCEPT ![p] = new]
          /\ knownIsr' = [knownIsr EXCEPT ![b][p] = new]
    /\ leader' = [leader EXCEPT ![p] = b]
    /\ leaderEpoch' = [leaderEpoch EXCEPT ![p] = knownLeaderEpoch[b][p]]
    /\ partitionEpoch' = [partitionEpoch EXCEPT ![p] = @ + 1]
    /\ knownPartitionEpoch' = [knownPartitionEpoch EXCEPT ![b][p] = partitionEpoch[p] + 1]
    /\ UNCHANGED <<controllerEpoch, claims, caches, brokerEpoch, knownControllerEpoch, knownLeader, knownLeaderEpoch,
                   requests>>

Follow(b, m) ==
    LET p == m.partition IN
    /\ m.controllerEpoch >= knownControllerEpoch[b]
    /\ m.leaderEpoch > knownLeaderEpoch[b][p]
    /\ m.brokerEpoch[b] >= brokerEpoch[b]
    /\ knownControllerEpoch' = [knownControllerEpoch EXCEPT ![b] = m.controllerEpoch]
    /\ knownLeader' = [knownLeader EXCEPT ![b][p] = m.leader]
    /\ knownLeaderEpoch' = [knownLeaderEpoch EXCEPT ![b][p] = m.leaderEpoch]
    /\ knownIsr' = [knownIsr EXCEPT ![b][p] = m.isr]
    /\ knownPartitionEpoch' = [knownPartitionEpoch EXCEPT ![b][p] = m.partitionEpoch]
    /\ UNCHANGED <<store, claims, caches, brokerEpoch, requests>>

Restart(b) ==
    /\ brokerEpoch' = [brokerEpoch EXCEPT ![b] = @ + 1]
    /\ knownControllerEpoch' = [knownControllerEpoch EXCEPT ![b] = 0]
    /\ knownLeader' = [knownLeader EXCEPT ![b] = [p \in Partitions |-> no_broker]]
    /\ knownLeaderEpoch' = [knownLeaderEpoch EXCEPT ![b] = [p \in Partitions |-> -1]]
    /\ UNCHANGED <<store, claims, caches, knownIsr, knownPartitionEpoch, requests>>

OfEach(value) == [p \in Partitions |-> value]

\* Every partition is led by `first`, or by no broker, and the brokers that are `informed` know that.
InitialState(first, informed) ==
    /\ controllerEpoch = 0
    /\ leader = OfEach(first) /\ leaderEpoch = OfEach(0) /\ isr = OfEach(Brokers) /\ partitionEpoch = OfEach(0)
    /\ candidate = {} /\ active = {}
    /\ readEpoch = [c \in Controllers |-> 0] /\ claimedEpoch = [c \in Controllers |-> 0]
    /\ loaded = [c \in Controllers |-> {}]
    /\ cachedLeader = [c \in Controllers |-> OfEach(no_broker)]
    /\ cachedLeaderEpoch = [c \in Controllers |-> OfEach(0)]
    /\ cachedIsr = [c \in Controllers |-> OfEach({})]
    /\ cachedPartitionEpoch = [c \in Controllers |-> OfEach(0)]
    /\ brokerEpoch = [b \in Brokers |-> 0] /\ knownControllerEpoch = [b \in Brokers |-> 0]
    /\ knownLeader = [b \in Brokers |-> OfEach(IF b \in informed THEN first ELSE no_broker)]
    /\ knownLeaderEpoch = [b \in Brokers |-> OfEach(IF b \in informed THEN 0 ELSE -1)]
    /\ knownIsr = [b \in Brokers |-> OfEach(IF b \in informed THEN Brokers ELSE {})] /\ knownPartitionEpoch = [b \in Brokers |-> OfEach(0)]
    /\ requests = {}
Init == InitialState(no_broker, {})

Next ==
    \/ \E c \in Controllers : ReadEpoch(c) \/ Claim(c)
    \/ \E c \in Controllers, p \in Partitions : Load(c, p) \/ ShrinkIsr(c, p) \/ Resign(c, p) \/ Send(c, p) \/ LoadAndSend(c, p)
    \/ \E c \in Controllers, p \in Partitions, b, k \in Brokers \union {no_broker} : Elect(c, p, b, k) \/ ElectAndSend(c, p, b, k)
    \/ \E b \in Brokers, p \in Partitions : LeaderChangeIsr(b, p)
    \/ \E b \in Brokers, m \in requests : Follow(b, m)
    \/ \E b \in Brokers : Restart(b)

Bounds ==
    /\ controllerEpoch <= MaxControllerEpoch
    /\ \A p \in Partitions : leaderEpoch[p] <= MaxLeaderEpoch /\ partitionEpoch[p] <= MaxPartitionEpoch
    /\ \A b \in Brokers : brokerEpoch[b] <= MaxBrokerEpoch
    /\ Cardinality(requests) <= MaxRequests

Spec == Init /\ [][Next]_vars
=============================================================================
