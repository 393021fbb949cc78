---------------------------- MODULE RefIsrCommit ----------------------------
(* Every step of IsrCommit is a step of IsrCommitCore, the transition system that proof.py proves, or changes none of its
   variables. Where this is narrower than the module: spec/proofs/README.md, "The link to the modules". *)
EXTENDS MCIsrCommit

CONSTANT First

VARIABLE memory     \* history: what the core still knows of past leaders and requests, and beyond the ends of logs

LastOf(epoch) == CHOOSE n \in 1 .. PartitionEpoch :
    metadata[n].leaderEpoch = epoch /\ \A later \in n + 1 .. PartitionEpoch : metadata[later].leaderEpoch # epoch

\* A broker learns the last state of a leader epoch.
RefLearn(b, epoch) == epoch <= Now.leaderEpoch /\ Learn(b, LastOf(epoch))

\* A refused proposal stays pending.
RefHandleAlterPartition(l) == MCHandleAlterPartition(l) /\ (metadata' # metadata \/ UNCHANGED leading)

\* The last member of the ISR stays.
RefFence(b) == Now.isr # {b} /\ MCFence(b)

RefNext ==
    \/ \E l \in Brokers : MCWrite(l) \/ \E waits \in BOOLEAN : AdvanceHw(l, waits)
    \/ \E l \in Brokers : Resend(l) \/ RefHandleAlterPartition(l)
    \/ \E f, l \in Brokers : Truncate(f, l) \/ \E arrives \in BOOLEAN : MCFetch(f, l, arrives)
    \/ \E l \in Brokers, isr \in SUBSET Brokers : Propose(l, isr)
    \/ \E b \in Brokers, epoch \in 0 .. MaxLeaderEpoch : RefLearn(b, epoch)
    \/ \E b \in Brokers : RefFence(b) \/ MCUnfence(b)

-----------------------------------------------------------------------------
(* The mapping *)

MaxOffset == MaxRecords - 1
Epochs == 0 .. MaxLeaderEpoch
InEpoch(e) == metadata[LastOf(e)]
KnownEpoch(b) == Seen(b).leaderEpoch

FetchedFrom(l) == [f \in Brokers |-> IF f = l THEN LogEnd(l) ELSE leading[l].fetched[f].end]
Leader(e) == {l \in Brokers : Leads(l) /\ KnownEpoch(l) = e}
Fetched(old) == [e \in Epochs |-> IF Leader(e) = {} THEN old.fetched[e] ELSE FetchedFrom(CHOOSE l \in Leader(e) : TRUE)]

\* A late state of an earlier epoch has a version that is out of date: the core keeps the broker's old one.
Version(b, old) ==
    IF view[b] = old.view[b] \/ KnownEpoch(b) < Now.leaderEpoch \/ (KnownEpoch(b) = old.epoch[b] /\ ~Leads(b))
    THEN old.version[b] ELSE view[b] - 1

\* A follower must find where its log diverges, until it has fetched or truncated in its epoch.
MustTruncate(b, old) ==
    IF KnownEpoch(b) # old.epoch[b] THEN ~Leads(b)
    ELSE old.mustTruncate[b] /\ log[b] = old.ownLog[b] /\ Fetched(old)[KnownEpoch(b)][b] = old.fetched[KnownEpoch(b)][b]

Sent(old) == {[leaderEpoch |-> r.leaderEpoch, partitionEpoch |-> old.version[r.leader], isr |-> DOMAIN r.isr] :
              r \in requests \ old.inFlight}

Memory(old) ==
    [log          |-> [b \in Brokers |-> [o \in 0 .. MaxOffset |-> IF o < LogEnd(b) THEN log[b][o + 1] ELSE old.log[b][o]]],
     knownIsr     |-> [b \in Brokers |-> IF Leads(b) THEN Seen(b).isr ELSE old.knownIsr[b]],
     maximalIsr   |-> [b \in Brokers |-> IF Leads(b) THEN MaximalIsr(b) ELSE old.maximalIsr[b]],
     fetched      |-> Fetched(old),
     version      |-> [b \in Brokers |-> Version(b, old)],
     mustTruncate |-> [b \in Brokers |-> MustTruncate(b, old)],
     requests     |-> old.requests \union Sent(old),
     \* to notice what has changed
     view |-> view, epoch |-> [b \in Brokers |-> KnownEpoch(b)], ownLog |-> log, inFlight |-> requests]

Nothing ==
    LET each(value) == [b \in Brokers |-> value] IN
    [log |-> each([o \in 0 .. MaxOffset |-> 0]), knownIsr |-> each({}), maximalIsr |-> each({}),
     fetched |-> [e \in Epochs |-> each(Unknown)], version |-> each(0), mustTruncate |-> each(FALSE), requests |-> {},
     view |-> view, epoch |-> each(0), ownLog |-> log, inFlight |-> {}]

Started == Init /\ Now.leader = First /\ Now.isr = Brokers
Remember == \E old \in {memory} : memory' = Memory(old)'

RefSpec == Started /\ memory = Memory(Nothing) /\ [][RefNext /\ Remember]_<<vars, memory>>

Core == INSTANCE IsrCommitCore WITH
    MaxRequests <- 0,
    leaderEpoch <- Now.leaderEpoch,
    leader <- [e \in Epochs |-> IF e <= Now.leaderEpoch THEN InEpoch(e).leader ELSE First],
    isr <- [e \in Epochs |-> IF e <= Now.leaderEpoch THEN InEpoch(e).isr ELSE {}],
    partitionEpoch <- PartitionEpoch - 1,
    knownEpoch <- [b \in Brokers |-> KnownEpoch(b)],
    knownVersion <- memory.version,
    leads <- {b \in Brokers : Leads(b)},
    mustTruncate <- {b \in Brokers : memory.mustTruncate[b]},
    knownIsr <- memory.knownIsr,
    maximalIsr <- memory.maximalIsr,
    log <- memory.log,
    logEnd <- [b \in Brokers |-> LogEnd(b)],
    fetched <- memory.fetched,
    requests <- memory.requests
RefinesCore == Core!Spec
=============================================================================
