-------------------------- MODULE RefHwTruncation --------------------------
(* Every step of HwTruncation is a step of HwTruncationCore, the transition system that proof.py proves, or changes none
   of its variables.  What is narrower than the module is in spec/proofs/README.md, "The link to the modules". *)
EXTENDS MCHwTruncation

CONSTANT First

VARIABLE memory     \* history: what the core still knows of past leaders, and beyond the ends of logs

\* Every broker has learned of the first leader epoch: the core begins here.
Started ==
    /\ metadata = <<[leader |-> First, isr |-> Brokers, partitionEpoch |-> 0]>>
    /\ unclean = {}
    /\ status = [b \in Brokers |-> "active"]
    /\ brokerEpoch = [b \in Brokers |-> 0]
    /\ leaderEpoch = [b \in Brokers |-> 0]
    /\ log = [b \in Brokers |-> <<>>]
    /\ latestEpoch = [b \in Brokers |-> IF b = First THEN 0 ELSE Unknown]
    /\ highWatermark = [b \in Brokers |-> 0]
    /\ leading = [b \in Brokers |-> IF b = First
                                    THEN [NotLeading EXCEPT !.isr = Brokers, !.partitionEpoch = 0, !.epochStart = 0]
                                    ELSE NotLeading]
    /\ fetch = [b \in Brokers |-> <<>>]
    /\ reply = [b \in Brokers |-> NoReply]
    /\ committed = <<>>

\* The high watermark advances in a step of its own (replaces HwChoices), by any number of records.
Later(l, lead) == {highWatermark[l]}

RefNext ==
    \/ \E l \in Brokers : MCElectLeader(l) \/ MCBecomeLeader(l) \/ MCBecomeFollower(l)
    \/ \E isr \in SUBSET Brokers : Epoch < MaxLeaderEpoch /\ ControllerShrinkIsr(isr) /\ Cardinality(Store.isr \ isr) = 1
    \/ \E l \in Brokers : MCLeaderWrite(l) \/ \E n \in 1 .. LogEnd(l) : LeaderAdvanceHw(l, n)
    \/ \E l \in Brokers : MCLeaderProposeIsr(l) \/ LeaderChangeIsr(l) \/ LeaderLearnIsr(l, TRUE) \/ LeaderLearnIsr(l, FALSE)
    \/ \E f, l \in Brokers : MCTruncate(l, f) \/ \E taken \in BOOLEAN : FetchAtOnce(l, f, highWatermark[l], taken)

-----------------------------------------------------------------------------
(* The mapping *)

MaxOffset == MaxRecords - 1
Epochs == 0 .. MaxLeaderEpoch

\* From the store's write on, a leader knows the ISR that it proposed: it counts at least its members.
LearnedIsr(l) == IF leading[l].applied THEN DOMAIN leading[l].proposed ELSE leading[l].isr
FetchedFrom(l) == [f \in Brokers |-> IF f = l THEN LogEnd(l) ELSE leading[l].fetched[f].end]
Leader(e) == {l \in Brokers : Leads(l) /\ leaderEpoch[l] = e}

Memory(old) ==
    [log      |-> [b \in Brokers |-> [o \in 0 .. MaxOffset |-> IF o < LogEnd(b) THEN log[b][o + 1] ELSE old.log[b][o]]],
     knownIsr |-> [b \in Brokers |-> IF Leads(b) THEN LearnedIsr(b) ELSE old.knownIsr[b]],
     fetched  |-> [e \in Epochs |-> IF Leader(e) = {} THEN old.fetched[e] ELSE FetchedFrom(CHOOSE l \in Leader(e) : TRUE)]]

Nothing == [log |-> [b \in Brokers |-> [o \in 0 .. MaxOffset |-> 0]], knownIsr |-> [b \in Brokers |-> {}],
            fetched |-> [e \in Epochs |-> [b \in Brokers |-> Unknown]]]

Remember == \E old \in {memory} : memory' = Memory(old)'

RefSpec == Started /\ memory = Memory(Nothing) /\ [][RefNext /\ Remember]_<<vars, memory>>

Core == INSTANCE HwTruncationCore WITH
    leaderEpoch <- Epoch,
    leader <- [e \in Epochs |-> IF e <= Epoch THEN InEpoch(e).leader ELSE First],
    isr <- [e \in Epochs |-> IF e <= Epoch THEN InEpoch(e).isr ELSE {}],
    knownEpoch <- leaderEpoch,
    leads <- {b \in Brokers : Leads(b)},
    logEnd <- [b \in Brokers |-> LogEnd(b)],
    log <- memory.log,
    knownIsr <- memory.knownIsr,
    fetched <- memory.fetched
RefinesCore == Core!Spec
=============================================================================
