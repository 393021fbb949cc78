----------------------- MODULE RefControllerFailover -----------------------
(* Every step of ControllerFailover, without reassignment and deletion, is a step of ControllerFailoverCore, the transition
   system that proof.py proves, or changes none of its variables (spec/proofs/README.md, "The link to the modules"). *)
EXTENDS MCControllerFailover

VARIABLE memory     \* history: the core forgets nothing that a controller or a broker once knew

Claimed(c, old) == controller[c].active /\ controller[c].epoch # old.claimed[c]
State(known) == [leader |-> known.leader, leaderEpoch |-> known.leaderEpoch, isr |-> known.isr, version |-> known.version]
\* A broker that is down counts as restarted.
Lives == [b \in Brokers |-> brokerEpoch[b] + IF b \in live THEN 0 ELSE 1]

Sent(old) ==
    {[partition |-> "p", controllerEpoch |-> m.controllerEpoch, leader |-> m.leader, leaderEpoch |-> m.leaderEpoch,
      isr |-> m.isr, partitionEpoch |-> m.version, brokerEpoch |-> Lives] : m \in sent \ old.sent}

Memory(old) ==
    [candidate |-> [c \in Controllers |-> controller[c].reads \/ (old.candidate[c] /\ ~Claimed(c, old))],
     read      |-> [c \in Controllers |-> IF controller[c].reads THEN controller[c].epoch ELSE old.read[c]],
     active    |-> [c \in Controllers |-> controller[c].active \/ old.active[c]],
     claimed   |-> [c \in Controllers |-> IF controller[c].active THEN controller[c].epoch ELSE old.claimed[c]],
     loaded    |-> [c \in Controllers |-> controller[c].loaded \/ (old.loaded[c] /\ ~Claimed(c, old))],
     cache     |-> [c \in Controllers |-> IF controller[c].loaded THEN State(controller[c].partition) ELSE old.cache[c]],
     isr       |-> [b \in Brokers |-> IF role[b] = NoRole THEN old.isr[b] ELSE role[b].isr],
     version   |-> [b \in Brokers |-> IF role[b] = NoRole THEN old.version[b] ELSE role[b].version],
     requests  |-> old.requests \union Sent(old),
     sent      |-> sent]

Nothing ==
    LET each(value) == [c \in Controllers |-> value] IN
    [candidate |-> each(FALSE), read |-> each(0), active |-> each(FALSE), claimed |-> each(0), loaded |-> each(FALSE),
     cache |-> each([leader |-> None, leaderEpoch |-> 0, isr |-> {}, version |-> 0]),
     isr |-> [b \in Brokers |-> {}], version |-> [b \in Brokers |-> 0], requests |-> {}, sent |-> {}]

Remember == \E old \in {memory} : memory' = Memory(old)'
RefSpec == Init /\ memory = Memory(Nothing) /\ [][MCNext /\ Remember]_<<vars, memory>>

Of(value) == [p \in {"p"} |-> value]
Core == INSTANCE ControllerFailoverCore WITH
    Partitions <- {"p"}, no_broker <- None, MaxPartitionEpoch <- 0, MaxBrokerEpoch <- 0, MaxRequests <- 0,
    controllerEpoch <- election.epoch,
    leader <- Of(partition.leader),
    leaderEpoch <- Of(partition.leaderEpoch),
    isr <- Of(partition.isr),
    partitionEpoch <- Of(partition.version),
    candidate <- {c \in Controllers : memory.candidate[c]},
    readEpoch <- memory.read,
    active <- {c \in Controllers : memory.active[c]},
    claimedEpoch <- memory.claimed,
    loaded <- [c \in Controllers |-> IF memory.loaded[c] THEN {"p"} ELSE {}],
    cachedLeader <- [c \in Controllers |-> Of(memory.cache[c].leader)],
    cachedLeaderEpoch <- [c \in Controllers |-> Of(memory.cache[c].leaderEpoch)],
    cachedIsr <- [c \in Controllers |-> Of(memory.cache[c].isr)],
    cachedPartitionEpoch <- [c \in Controllers |-> Of(memory.cache[c].version)],
    brokerEpoch <- Lives,
    knownControllerEpoch <- [b \in Brokers |-> role[b].controllerEpoch],
    knownLeader <- [b \in Brokers |-> Of(role[b].leader)],
    knownLeaderEpoch <- [b \in Brokers |-> Of(role[b].leaderEpoch)],
    knownIsr <- [b \in Brokers |-> Of(memory.isr[b])],
    knownPartitionEpoch <- [b \in Brokers |-> Of(memory.version[b])],
    requests <- memory.requests

RefinesCore == Core!InitialState(Preferred, Brokers) /\ [][Core!Next]_Core!vars
=============================================================================
