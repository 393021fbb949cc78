---------------------------- MODULE MCIsrCommit ----------------------------
(* IsrCommit, bounded so that TLC can explore every state. *)
EXTENDS IsrCommit, TLC

CONSTANTS MaxLeaderEpoch, MaxPartitionEpoch, MaxRecords, MaxCrashes

Records == UNION {{<<n, log[b][n]>> : n \in 1 .. LogEnd(b)} : b \in Brokers}
Crashes == Cardinality({<<b, n>> \in Brokers \X (1 .. MaxCrashes) : n <= brokerEpoch[b] + IF b \in up THEN 0 ELSE 1})
Bounded == PartitionEpoch' <= MaxPartitionEpoch /\ Now.leaderEpoch' <= MaxLeaderEpoch

MCWrite(l) == Cardinality(Records) < MaxRecords /\ Write(l)
MCCrash(b, end) == Crashes < MaxCrashes /\ Crash(b, end)
MCHandleAlterPartition(l) == HandleAlterPartition(l) /\ Bounded
MCWriteToZooKeeper(l, isr) == WriteToZooKeeper(l, isr) /\ Bounded
MCFence(b) == b \in Eligible /\ Fence(b) /\ Bounded
MCUnfence(b) == Unfence(b) /\ Bounded
MCRegister(b) == Register(b) /\ Bounded

\* A fetch that changes neither the follower nor the leader is not a step.
MCFetch(f, l, arrives) == (arrives \/ LogEnd(l) > LogEnd(f)) /\ Fetch(f, l, arrives)

\* For a follower only leader and leader epoch matter.
MCLearn(b, epoch) ==
    /\ epoch \in 1 .. PartitionEpoch
    /\ \/ metadata[epoch].leader = b
       \/ epoch > 1 => metadata[epoch].leaderEpoch # metadata[epoch - 1].leaderEpoch
    /\ Learn(b, epoch)

MCNext ==
    \/ \E l \in Brokers : MCWrite(l) \/ \E waits \in BOOLEAN : AdvanceHw(l, waits)
    \/ \E l \in Brokers : GiveUp(l) \/ Resend(l) \/ MCHandleAlterPartition(l) \/ RefuseNewerLeader(l)
    \/ \E l \in Brokers, end \in 1 .. MaxRecords : Ack(l, end)
    \/ \E f, l \in Brokers : Truncate(f, l) \/ \E arrives \in BOOLEAN : MCFetch(f, l, arrives)
    \/ \E l \in Brokers, isr \in SUBSET Brokers : Propose(l, isr) \/ MCWriteToZooKeeper(l, isr)
    \/ \E b \in Brokers, epoch \in 1 .. MaxPartitionEpoch : MCLearn(b, epoch)
    \/ \E b \in Brokers : MCFence(b) \/ MCUnfence(b) \/ MCRegister(b)
    \/ \E b \in Brokers, end \in 0 .. MaxRecords : MCCrash(b, end)

MCSpec == Init /\ [][MCNext]_vars

Symmetry == Permutations(Brokers)

-----------------------------------------------------------------------------
(* Liveness: a proposal is answered, and a leader with enough in-sync replicas commits its records.  Each step that a broker
   or the controller takes by itself must happen if it stays enabled (weak fairness); the high watermark must advance if it
   is enabled repeatedly (strong: a proposal that is rejected forever holds it back in between).  Crashes, lost sessions,
   writes, proposals, and fetches of brokers without a session are not forced.  At the bound on partition epochs the
   controller no longer answers.  The session of a broker that is down ends. *)

LiveSpec ==
    /\ MCSpec
    /\ \A l \in Brokers :
          /\ WF_vars(MCHandleAlterPartition(l)) /\ SF_vars(AdvanceHw(l, TRUE)) /\ WF_vars(\E e \in 1 .. MaxPartitionEpoch : MCLearn(l, e))
          /\ WF_vars(l \notin up /\ MCFence(l))
          /\ \A f \in Brokers : WF_vars(Truncate(f, l)) /\ WF_vars(f \notin fenced /\ MCFetch(f, l, TRUE))

Open(l) == Leads(l) /\ leading[l].proposed # NoProposal /\ PartitionEpoch < MaxPartitionEpoch
ProposalsAreAnswered == \A l \in Brokers : Open(l) ~> ~Open(l)

\* A broker that is down leaves the ISR, unless it is the last member.
DeadLeaveIsr ==
    \A b \in Brokers : []<>(b \in up \/ Now.isr \subseteq {b} \/ b \notin Now.isr \/ PartitionEpoch = MaxPartitionEpoch)

Enough ==
    /\ Now.leader # None /\ Now.isr \subseteq up /\ (Cardinality(Now.isr) >= MinIsr \/ ~HwNeedsMinIsr)
    /\ PartitionEpoch = MaxPartitionEpoch => leading[Now.leader].proposed = NoProposal     \* it is never answered
LeaderCommits == <>[](Enough => Leads(Now.leader) /\ highWatermark[Now.leader] = LogEnd(Now.leader))

-----------------------------------------------------------------------------
(* Situations that must be reachable; otherwise the claims would hold vacuously *)

IsrOfOne == Cardinality(Now.isr) = 1
EmptyIsr == Now.isr = {}
EligibleLeads == Now.leader # None /\ PartitionEpoch > 1 /\ Now.leader \in metadata[PartitionEpoch - 1].elr
ZombieWithRecords == \E l \in Brokers : IsZombie(l) /\ LogEnd(l) > 0
ProposalAccepted == \E l \in Brokers : Leads(l) /\ leading[l].proposed # NoProposal /\ view[l] < PartitionEpoch
HwStandsStill == \E l \in Brokers : Leads(l) /\ Cardinality(Seen(l).isr) < MinIsr /\ LogEnd(l) > highWatermark[l]
CommittedAfterCrash == acked > 0 /\ unclean # {} /\ up = Brokers
Rejoined ==
    /\ PartitionEpoch > 1 /\ Now.leader # None /\ brokerEpoch[Now.leader] = 0
    /\ \E f \in Now.isr \ metadata[PartitionEpoch - 1].isr : brokerEpoch[f] > 0
FirstLeaderLost == PartitionEpoch = 1 /\ Now.leader \in unclean \ up
FencedLeaderLives == \E l \in Brokers \intersect fenced : Leads(l)
=============================================================================
