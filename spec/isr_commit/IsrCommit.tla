----------------------------- MODULE IsrCommit -----------------------------
(***************************************************************************)
(* When a record is committed, and who decides which replicas count. One   *)
(* partition: a leader that tracks its followers' fetches and proposes the *)
(* ISR to the controller; a controller that fences brokers, elects         *)
(* leaders, and accepts or rejects proposals; brokers that learn its       *)
(* decisions late.                                                         *)
(*                                                                         *)
(* There are two ways to change the ISR: the AlterPartition request        *)
(* (KIP-497, 841, 903, 966), which is pending until the controller has     *)
(* answered, and the older conditional write to ZooKeeper. With eligible   *)
(* leader replicas (ELR, KIP-966), a replica that leaves an ISR which      *)
(* falls below min.insync.replicas may still be elected, and the high      *)
(* watermark does not advance meanwhile.                                   *)
(*                                                                         *)
(* How a follower finds the truncation point is modelled in HwTruncation;  *)
(* here it knows the point. Crashes lose any suffix of a log, within the   *)
(* fault budget (MayCrash). Guards: spec/guards.toml.                      *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
    Brokers,            \* the assigned replicas
    None,               \* the value for "no leader"
    MinIsr,             \* min.insync.replicas
    ByZooKeeper,        \* BOOLEAN: leaders write the ISR to ZooKeeper themselves (until 2.6); otherwise AlterPartition
    LastMemberLeads     \* BOOLEAN: if all candidates restarted uncleanly, the last of them leads (otherwise no broker leads)

CONSTANT GuardsOff      \* the guards that are switched off; {} is the protocol

HwNeedsWholeIsr == "HwNeedsWholeIsr" \notin GuardsOff
HwWaitsForProposed == "HwWaitsForProposed" \notin GuardsOff
HwNeedsMinIsr == "HwNeedsMinIsr" \notin GuardsOff
AckAfterCommit == "AckAfterCommit" \notin GuardsOff
AckNeedsMinIsr == "AckNeedsMinIsr" \notin GuardsOff
AppendNeedsMinIsr == "AppendNeedsMinIsr" \notin GuardsOff
ExpandOnlyCaughtUp == "ExpandOnlyCaughtUp" \notin GuardsOff
ExpandAfterEpochStart == "ExpandAfterEpochStart" \notin GuardsOff
OneProposalAtATime == "OneProposalAtATime" \notin GuardsOff
KeepProposalUntilAnswered == "KeepProposalUntilAnswered" \notin GuardsOff
AwaitStateAfterConflict == "AwaitStateAfterConflict" \notin GuardsOff
IgnoreStaleState == "IgnoreStaleState" \notin GuardsOff
WaitOnlyForEligible == "WaitOnlyForEligible" \notin GuardsOff
DeferToNewerLeader == "DeferToNewerLeader" \notin GuardsOff
IsrCas == "IsrCas" \notin GuardsOff
FenceOldLeader == "FenceOldLeader" \notin GuardsOff
RefuseFenced == "RefuseFenced" \notin GuardsOff
RefuseFormerLife == "RefuseFormerLife" \notin GuardsOff
FencedLeavesIsr == "FencedLeavesIsr" \notin GuardsOff
KeepEligible == "KeepEligible" \notin GuardsOff
EmptyEligibleAtMinIsr == "EmptyEligibleAtMinIsr" \notin GuardsOff
UncleanRestartLeavesIsr == "UncleanRestartLeavesIsr" \notin GuardsOff
UncleanLeavesEligible == "UncleanLeavesEligible" \notin GuardsOff
ElectFromIsr == "ElectFromIsr" \notin GuardsOff

Guards ==
    {"HwNeedsWholeIsr", "HwWaitsForProposed", "HwNeedsMinIsr", "AckAfterCommit", "AckNeedsMinIsr",
     "AppendNeedsMinIsr", "ExpandOnlyCaughtUp", "ExpandAfterEpochStart", "OneProposalAtATime",
     "KeepProposalUntilAnswered", "AwaitStateAfterConflict", "IgnoreStaleState", "WaitOnlyForEligible",
     "DeferToNewerLeader", "IsrCas", "FenceOldLeader", "RefuseFenced", "RefuseFormerLife", "FencedLeavesIsr",
     "KeepEligible", "EmptyEligibleAtMinIsr", "UncleanRestartLeavesIsr", "UncleanLeavesEligible", "ElectFromIsr"}
ASSUME GuardsOff \subseteq Guards
ASSUME {ByZooKeeper, LastMemberLeads} \subseteq BOOLEAN

VARIABLE metadata       \* every state of the partition, oldest first: leader, leaderEpoch, isr, elr.  The index of a state
                        \* is its partition epoch
VARIABLE fenced         \* brokers without a session, as the controller sees it
VARIABLE brokerEpoch    \* of a broker: the number of its re-registrations (KIP-380)
controller == <<metadata, fenced, brokerEpoch>>

VARIABLE up             \* brokers that are not down; a restarted one counts after its registration
VARIABLE view           \* of a broker: the partition epoch of the last state that it has learned; 0: none
VARIABLE log            \* of a broker: the leader epoch of each record
VARIABLE highWatermark  \* of a broker: the value when it last was leader.  Later values that a follower receives only make its
                        \* election safer, and are left out
VARIABLE leading        \* of a leader: what it knows (see NotLeading)
brokers == <<up, view, log, highWatermark, leading>>

VARIABLE requests       \* AlterPartition requests in flight

VARIABLE committed      \* history: the longest log that was ever below a leader's high watermark
VARIABLE acked          \* history: how many records were acknowledged with acks=all
VARIABLE unclean        \* history: brokers that lost a tail, and have not joined the ISR since
history == <<committed, acked, unclean>>

vars == <<controller, brokers, requests, history>>

-----------------------------------------------------------------------------
(* Definitions *)

Min(a, b) == IF a < b THEN a ELSE b
Max(a, b) == IF a > b THEN a ELSE b
MinOf(S) == CHOOSE x \in S : \A y \in S : x <= y
Take(s, n) == SubSeq(s, 1, n)
IsPrefix(s, t) == Len(s) <= Len(t) /\ Take(t, Len(s)) = s
Agree(s, t) == LET n == Min(Len(s), Len(t)) IN Take(s, n) = Take(t, n)
RECURSIVE Common(_, _, _)
Common(s, t, n) == IF n = 0 \/ Take(s, n) = Take(t, n) THEN n ELSE Common(s, t, n - 1)

Unknown == -1                           \* an offset or epoch that is not known
NoProposal == [b \in {} |-> 0]

NotLeading == [proposed   |-> NoProposal,   \* the proposed ISR: of each member the broker epoch that it knows
               epochStart |-> Unknown,      \* the offset at which its own leader epoch began
               fetched    |-> [b \in Brokers |-> [end |-> Unknown, brokerEpoch |-> Unknown]]]

PartitionEpoch == Len(metadata)
Now == metadata[PartitionEpoch]
Eligible == Now.isr \union Now.elr      \* the brokers that may be elected
Seen(b) == metadata[view[b]]            \* the partition as broker b believes it to be
LogEnd(b) == Len(log[b])

\* A leader that has not learned of its successor is a zombie, but it still acts as leader.
Leads(l) == l \in up /\ view[l] > 0 /\ Seen(l).leader = l /\ leading[l].epochStart # Unknown
IsZombie(l) == Leads(l) /\ Seen(l).leaderEpoch < Now.leaderEpoch
Follows(f, l) == f \in up /\ l # f /\ view[f] > 0 /\ Seen(f).leader = l /\ Leads(l)
                 /\ Seen(f).leaderEpoch = Seen(l).leaderEpoch

\* Proposed members may be in the ISR already (KIP-497).
MaximalIsr(l) == Seen(l).isr \union DOMAIN leading[l].proposed

-----------------------------------------------------------------------------
(* Leader and followers *)

\* If the confirmed ISR is too small, NOT_ENOUGH_REPLICAS is returned before anything is stored.
Write(l) ==
    /\ Leads(l)
    /\ AppendNeedsMinIsr => Cardinality(Seen(l).isr) >= MinIsr
    /\ log' = [log EXCEPT ![l] = Append(@, Seen(l).leaderEpoch)]
    /\ UNCHANGED <<controller, up, view, highWatermark, leading, requests, history>>

\* If its log diverges from the leader's, it first truncates the records that the leader never had.
Truncate(f, l) ==
    /\ Follows(f, l)
    /\ ~IsPrefix(log[f], log[l])
    /\ LET end == Common(log[f], log[l], Min(LogEnd(f), LogEnd(l))) IN
       /\ log' = [log EXCEPT ![f] = Take(@, end)]
       /\ highWatermark' = [highWatermark EXCEPT ![f] = Min(@, end)]
    /\ UNCHANGED <<controller, up, view, leading, requests, history>>

\* The fetch offset states what the follower has stored; the returned records may never arrive.
Fetch(f, l, arrives) ==
    /\ Follows(f, l)
    /\ IsPrefix(log[f], log[l])
    /\ leading' = [leading EXCEPT ![l].fetched[f] = [end |-> LogEnd(f), brokerEpoch |-> brokerEpoch[f]]]
    /\ log' = IF arrives THEN [log EXCEPT ![f] = log[l]] ELSE log
    /\ UNCHANGED <<controller, up, view, highWatermark, requests, history>>

\* Replicas that are about to join: caught up, and not in the ISR yet.  The leader may wait for them; otherwise they may
\* never catch up.
Joining(l) == {f \in Brokers \ Seen(l).isr :
    /\ leading[l].fetched[f].end >= highWatermark[l]
    /\ WaitOnlyForEligible => f \notin fenced}                 \* guard off: it waits for fenced brokers (KAFKA-15021)

\* The largest offset up to which the leader may serve readers and acknowledge records.
CommittedEnd(l, waits) ==
    LET counted == IF ~HwNeedsWholeIsr THEN {} ELSE IF HwWaitsForProposed THEN MaximalIsr(l) ELSE Seen(l).isr
        awaited == counted \union (IF waits THEN Joining(l) ELSE {})
        end == MinOf({LogEnd(l)} \union {leading[l].fetched[f].end : f \in awaited \ {l}}) IN
    IF HwNeedsMinIsr /\ Cardinality(Seen(l).isr) < MinIsr THEN highWatermark[l] ELSE Max(highWatermark[l], end)

AdvanceHw(l, waits) ==
    LET end == CommittedEnd(l, waits) IN
    /\ Leads(l)
    /\ end > highWatermark[l]
    /\ highWatermark' = [highWatermark EXCEPT ![l] = end]
    /\ committed' = IF end > Len(committed) THEN Take(log[l], end) ELSE committed
    /\ UNCHANGED <<controller, up, view, log, leading, requests, acked, unclean>>

\* A produce with acks=all is answered; if too few replicas are in sync now, with NOT_ENOUGH_REPLICAS_AFTER_APPEND.
Ack(l, end) ==
    /\ Leads(l)
    /\ end \in acked + 1 .. LogEnd(l)
    /\ AckAfterCommit => end <= highWatermark[l]
    /\ AckNeedsMinIsr => Cardinality(MaximalIsr(l)) >= MinIsr
    /\ acked' = end
    /\ committed' = IF end > Len(committed) THEN Take(log[l], end) ELSE committed
    /\ UNCHANGED <<controller, brokers, requests, unclean>>

-----------------------------------------------------------------------------
(* The ISR changes *)

MayJoin(l, f) ==
    /\ leading[l].fetched[f].brokerEpoch # Unknown          \* it has fetched in this leader epoch
    /\ ExpandOnlyCaughtUp => leading[l].fetched[f].end >= highWatermark[l]
    /\ ExpandAfterEpochStart => leading[l].fetched[f].end >= leading[l].epochStart

Proposal(l, isr) == [f \in isr |-> IF f = l THEN brokerEpoch[l] ELSE leading[l].fetched[f].brokerEpoch]

\* Add one member, or remove one that lags.
MayPropose(l, isr) ==
    /\ Leads(l)
    /\ \/ \E f \in Brokers \ Seen(l).isr : isr = Seen(l).isr \union {f} /\ MayJoin(l, f)
       \/ \E f \in Seen(l).isr \ {l} : isr = Seen(l).isr \ {f}

AlterPartition(l, proposal) ==
    [leader |-> l, leaderEpoch |-> Seen(l).leaderEpoch, partitionEpoch |-> view[l], isr |-> proposal]

Propose(l, isr) ==
    /\ ~ByZooKeeper
    /\ MayPropose(l, isr)
    /\ OneProposalAtATime => leading[l].proposed = NoProposal
    /\ Proposal(l, isr) # leading[l].proposed
    /\ leading' = [leading EXCEPT ![l].proposed = Proposal(l, isr)]
    /\ requests' = requests \union {AlterPartition(l, Proposal(l, isr))}
    /\ UNCHANGED <<controller, up, view, log, highWatermark, history>>

\* Without a reply the leader sends the same request again.  The first one may have been accepted.
Resend(l) ==
    /\ Leads(l)
    /\ leading[l].proposed # NoProposal
    /\ requests' = requests \union {AlterPartition(l, leading[l].proposed)}
    /\ requests' # requests
    /\ UNCHANGED <<controller, brokers, history>>

\* Without a reply in time it returns to the confirmed ISR.
GiveUp(l) ==
    /\ ~KeepProposalUntilAnswered
    /\ Leads(l)
    /\ leading[l].proposed # NoProposal
    /\ leading' = [leading EXCEPT ![l].proposed = NoProposal]
    /\ UNCHANGED <<controller, up, view, log, highWatermark, requests, history>>

\* A broker that leaves an ISR that is too small stays eligible until the ISR is large enough again.
NewElr(isr, gone) ==
    IF ~KeepEligible \/ (Cardinality(isr) >= MinIsr /\ EmptyEligibleAtMinIsr) THEN {}
    ELSE IF Cardinality(isr) >= MinIsr THEN Now.elr \ isr
    ELSE (Now.elr \union Now.isr) \ (isr \union gone)

\* The controller (or ZooKeeper) holds a new state, under the next partition epoch.
Store(leader, leaderEpoch, isr, elr) ==
    /\ metadata' = Append(metadata, [leader |-> leader, leaderEpoch |-> leaderEpoch, isr |-> isr, elr |-> elr])
    /\ unclean' = unclean \ ((isr \ Now.isr) \intersect up)    \* if f is down, its fetch was before the crash

\* The checks of a requested ISR.  Members that are in the ISR already are not checked again.
Acceptable(request) ==
    LET joining == DOMAIN request.isr \ Now.isr IN
    /\ IsrCas => request.partitionEpoch = PartitionEpoch
    /\ FenceOldLeader => request.leaderEpoch = Now.leaderEpoch
    /\ RefuseFenced => joining \intersect fenced = {}
    /\ RefuseFormerLife => \A f \in joining : request.isr[f] = brokerEpoch[f]

HandleAlterPartition(l) ==
    \E request \in {each \in requests : each.leader = l} :
        /\ requests' = requests \ {request}
        /\ IF Acceptable(request)
           THEN /\ Store(Now.leader, Now.leaderEpoch, DOMAIN request.isr, NewElr(DOMAIN request.isr, {}))
                /\ UNCHANGED leading
           ELSE LET conflict == request.partitionEpoch # PartitionEpoch    \* perhaps with its own first copy (KAFKA-14144)
                    drops == /\ Leads(l) /\ view[l] = request.partitionEpoch /\ leading[l].proposed = request.isr
                             /\ conflict => ~AwaitStateAfterConflict IN
                /\ leading' = IF drops THEN [leading EXCEPT ![l].proposed = NoProposal] ELSE leading
                /\ UNCHANGED <<metadata, unclean>>
        /\ UNCHANGED <<fenced, brokerEpoch, up, view, log, highWatermark, committed, acked>>

\* A bug (KAFKA-14154): a former controller that is behind the leader answers that the leader is fenced, and the leader
\* waits for a state that never arrives.
RefuseNewerLeader(l) ==
    /\ ~DeferToNewerLeader
    /\ \E request \in {each \in requests : each.leader = l} :
          /\ request.leaderEpoch > metadata[1].leaderEpoch
          /\ requests' = requests \ {request}
    /\ UNCHANGED <<controller, brokers, history>>

\* Until 2.6: the leader writes to ZooKeeper, if the version is still the one that it knows.
WriteToZooKeeper(l, isr) ==
    /\ ByZooKeeper
    /\ MayPropose(l, isr)
    /\ IsrCas => view[l] = PartitionEpoch
    /\ Store(Now.leader, Now.leaderEpoch, isr, NewElr(isr, {}))
    /\ view' = [view EXCEPT ![l] = PartitionEpoch + 1]
    /\ UNCHANGED <<fenced, brokerEpoch, up, log, highWatermark, leading, requests, committed, acked>>

\* A broker learns a state: by the reply to its request, by LeaderAndIsr, or by the metadata log.
Learn(b, epoch) ==
    /\ b \in up
    /\ epoch \in 1 .. PartitionEpoch
    /\ IF IgnoreStaleState THEN epoch > view[b]
       ELSE epoch # view[b] /\ (view[b] > 0 => metadata[epoch].leaderEpoch >= Seen(b).leaderEpoch)
    /\ LET told == metadata[epoch]
           same == view[b] > 0 /\ Seen(b).leader = b /\ told.leader = b /\ told.leaderEpoch = Seen(b).leaderEpoch IN
       leading' = [leading EXCEPT ![b] =
           IF same THEN [@ EXCEPT !.proposed = NoProposal]
           ELSE IF told.leader = b THEN [NotLeading EXCEPT !.epochStart = LogEnd(b)] ELSE NotLeading]
    /\ view' = [view EXCEPT ![b] = epoch]
    /\ UNCHANGED <<controller, up, log, highWatermark, requests, history>>

-----------------------------------------------------------------------------
(* Controller *)

\* The live members of the ISR, or if there is none, the live eligible brokers.
Candidates(isr, elr, away) ==
    IF ~ElectFromIsr THEN Brokers \ away
    ELSE IF isr \ away # {} THEN isr \ away ELSE elr \ away

\* Without ELR the last member must stay: otherwise the controller would not know which broker was the last.
Remaining(isr, gone) == IF isr \ gone = {} /\ ~KeepEligible THEN isr ELSE isr \ gone

\* Write the given ISR and ELR, and elect another leader if the current one has left.
Settle(isr, elr, away) ==
    IF Now.leader \in isr \ away
    THEN Store(Now.leader, Now.leaderEpoch, isr, elr)
    ELSE \E leader \in Candidates(isr, elr, away) \union {None} :
            /\ leader = None => Candidates(isr, elr, away) = {}
            /\ Store(leader, Now.leaderEpoch + 1,
                     IF leader \in isr \union {None} THEN isr ELSE isr \union {leader}, elr \ {leader})

\* Without a heartbeat in time the session ends, whether the broker is alive or not.
Fence(b) ==
    /\ b \notin fenced
    /\ fenced' = fenced \union {b}
    /\ IF b \in Now.isr /\ FencedLeavesIsr
       THEN LET isr == Remaining(Now.isr, {b}) IN Settle(isr, NewElr(isr, {}), fenced')
       ELSE UNCHANGED <<metadata, unclean>>
    /\ UNCHANGED <<brokerEpoch, brokers, requests, committed, acked>>

Unfence(b) ==
    /\ b \in fenced /\ b \in up
    /\ fenced' = fenced \ {b}
    /\ IF Now.leader = None /\ b \in Candidates(Now.isr, Now.elr, fenced')
       THEN Settle(Now.isr, Now.elr, fenced')
       ELSE UNCHANGED <<metadata, unclean>>
    /\ UNCHANGED <<brokerEpoch, brokers, requests, committed, acked>>

-----------------------------------------------------------------------------
(* Crashes *)

\* The fault budget: of the brokers that may be elected, fewer than min.insync.replicas have lost records at one time,
\* and one has lost nothing.
MayCrash(b) == b \in Eligible =>
    /\ Cardinality((unclean \intersect Eligible) \union {b}) < MinIsr
    /\ Eligible \ (unclean \union {b}) # {}

\* The unflushed records are lost: any suffix.
Crash(b, end) ==
    /\ b \in up
    /\ MayCrash(b)
    /\ end \in 0 .. LogEnd(b)
    /\ up' = up \ {b}
    /\ log' = [log EXCEPT ![b] = Take(@, end)]
    /\ highWatermark' = [highWatermark EXCEPT ![b] = Min(@, end)]
    /\ leading' = [leading EXCEPT ![b] = NotLeading]
    /\ view' = [view EXCEPT ![b] = 0]
    /\ unclean' = unclean \union {b}
    /\ UNCHANGED <<controller, requests, committed, acked>>

\* It restarts and registers, under a new broker epoch.  It reports that its last stop was not orderly, and the
\* controller no longer relies on the records that it may have lost.
Register(b) ==
    /\ b \notin up
    /\ up' = up \union {b}
    /\ fenced' = fenced \union {b}
    /\ brokerEpoch' = [brokerEpoch EXCEPT ![b] = @ + 1]
    /\ LET last == Eligible = {b} /\ LastMemberLeads
           gone == IF last THEN {} ELSE {b}
           isr == IF UncleanRestartLeavesIsr THEN Remaining(Now.isr, gone) ELSE Now.isr
           elr == IF UncleanLeavesEligible THEN NewElr(isr, gone) ELSE NewElr(isr, {}) \union (Now.elr \intersect {b}) IN
       IF b \in Eligible THEN Settle(isr, elr, fenced') ELSE UNCHANGED <<metadata, unclean>>
    /\ view' = [view EXCEPT ![b] = Len(metadata')]          \* requests from before its restart are rejected (KIP-380)
    /\ UNCHANGED <<log, highWatermark, leading, requests, committed, acked>>

-----------------------------------------------------------------------------
\* No record is stored yet, so any broker may be in sync.
Init ==
    /\ \E leader \in Brokers, isr, elr \in SUBSET Brokers :
          /\ leader \in isr /\ isr \intersect elr = {} /\ (elr # {} => KeepEligible /\ Cardinality(isr) < MinIsr)
          /\ metadata = <<[leader |-> leader, leaderEpoch |-> 0, isr |-> isr, elr |-> elr]>>
    /\ fenced = {}
    /\ brokerEpoch = [b \in Brokers |-> 0]
    /\ up = Brokers
    /\ view = [b \in Brokers |-> 1]
    /\ log = [b \in Brokers |-> <<>>]
    /\ highWatermark = [b \in Brokers |-> 0]
    /\ leading = [b \in Brokers |-> [NotLeading EXCEPT !.epochStart = IF Now.leader = b THEN 0 ELSE Unknown]]
    /\ requests = {}
    /\ committed = <<>>
    /\ acked = 0
    /\ unclean = {}

Next ==
    \/ \E l \in Brokers : Write(l) \/ \E waits \in BOOLEAN : AdvanceHw(l, waits)
    \/ \E l \in Brokers : GiveUp(l) \/ Resend(l) \/ HandleAlterPartition(l) \/ RefuseNewerLeader(l)
    \/ \E l \in Brokers : \E end \in 1 .. LogEnd(l) : Ack(l, end)
    \/ \E f, l \in Brokers : Truncate(f, l) \/ \E arrives \in BOOLEAN : Fetch(f, l, arrives)
    \/ \E l \in Brokers, isr \in SUBSET Brokers : Propose(l, isr) \/ WriteToZooKeeper(l, isr)
    \/ \E b \in Brokers, epoch \in 1 .. PartitionEpoch : Learn(b, epoch)
    \/ \E b \in Brokers : Fence(b) \/ Unfence(b) \/ Register(b)
    \/ \E b \in Brokers : \E end \in 0 .. LogEnd(b) : Crash(b, end)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* What holds *)

Offsets == Nat \union {Unknown}
TypeOK ==
    /\ \A n \in 1 .. PartitionEpoch : metadata[n] \in [leader : Brokers \union {None}, leaderEpoch : Nat,
                                                       isr : SUBSET Brokers, elr : SUBSET Brokers]
    /\ {fenced, up, unclean} \subseteq SUBSET Brokers
    /\ brokerEpoch \in [Brokers -> Nat] /\ view \in [Brokers -> 0 .. PartitionEpoch]
    /\ \A b \in Brokers : IF b \in up THEN view[b] > 0 ELSE view[b] = 0 /\ leading[b] = NotLeading
    /\ \A b \in Brokers : leading[b].proposed # NoProposal => leading[b].epochStart # Unknown
    /\ log \in [Brokers -> Seq(Nat)] /\ highWatermark \in [Brokers -> Nat]
    /\ \A l \in Brokers :
          /\ DOMAIN leading[l].proposed \subseteq Brokers
          /\ leading[l].epochStart \in Offsets
          /\ leading[l].fetched \in [Brokers -> [end : Offsets, brokerEpoch : Offsets]]
    /\ \A request \in requests :
          /\ request.leader \in Brokers /\ DOMAIN request.isr \subseteq Brokers
          /\ request.leaderEpoch \in Nat /\ request.partitionEpoch \in 1 .. PartitionEpoch
    /\ committed \in Seq(Nat) /\ acked \in 0 .. Len(committed)

\* Every broker that may be elected and has lost nothing has every committed record (LeaderCandidateCompleteness).
CommittedOnEligible == \A m \in Eligible \ unclean : IsPrefix(committed, log[m])

\* Some broker that may be elected has every committed record.
CommittedSurvives == Eligible # {} => \E m \in Eligible : IsPrefix(committed, log[m])

\* The same for acknowledged records, even if readers received records that were lost later.
AckedSurvives == Eligible # {} => \E m \in Eligible : IsPrefix(Take(committed, acked), log[m])

\* No leader, not even a zombie, considers a record committed that is not.
LeadersAgree == \A l \in Brokers : Leads(l) => Agree(Take(log[l], highWatermark[l]), committed)

\* The leader counts every replica that the controller counts (ReplicationQuorumSuperset).
LeaderCountsIsr == \A l \in Brokers : Leads(l) /\ ~IsZombie(l) => Now.isr \subseteq MaximalIsr(l)

\* Every committed record was stored by enough replicas, even if some have lost it since.
EnoughHold == committed # <<>> =>
    Cardinality({b \in Brokers : b \in unclean \/ IsPrefix(committed, log[b])}) >= MinIsr

\* No broker without a session is in the ISR: it could be elected, and would not answer (KIP-841).  The last one may
\* stay.
NoFencedMember == KeepEligible /\ Now.leader # None => Now.isr \intersect fenced = {}

\* A leader's high watermark never decreases while it leads.
HwNeverFalls ==
    [][\A l \in Brokers : Leads(l) /\ Leads(l)' /\ Seen(l)'.leaderEpoch = Seen(l).leaderEpoch
                              => highWatermark'[l] >= highWatermark[l]]_vars

\* The mapping to the contract: the log is the part of the committed records that the next leader has.
Heir == IF Eligible \ unclean # {} THEN CHOOSE m \in Eligible \ unclean : TRUE ELSE CHOOSE m \in Brokers : TRUE
Promise == INSTANCE PartitionLog WITH
    Replicas <- Brokers,
    LosesItsEnd <- FALSE,
    log <- Take(log[Heir], Min(Len(committed), LogEnd(Heir))),
    served <- [b \in Brokers |-> IF Leads(b) THEN Take(log[b], highWatermark[b]) ELSE <<>>]
RefinesPartitionLog == Promise!Spec

-----------------------------------------------------------------------------
(* The promises of the protocol: README.md says how each is checked, and within which bounds *)

Protocol == Spec /\ GuardsOff = {}

THEOREM Protocol => []TypeOK
THEOREM Protocol => []CommittedOnEligible
THEOREM Protocol => []CommittedSurvives
THEOREM Protocol => []AckedSurvives
THEOREM Protocol => []LeadersAgree
THEOREM Protocol => []LeaderCountsIsr
THEOREM Protocol => []EnoughHold
THEOREM Protocol => HwNeverFalls
THEOREM Protocol => RefinesPartitionLog
THEOREM Protocol /\ ~ByZooKeeper => []NoFencedMember
=============================================================================
