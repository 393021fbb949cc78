---------------------------- MODULE HwTruncation ----------------------------
(***************************************************************************)
(* One partition: its leader, its followers, and the metadata store that   *)
(* holds leader and ISR. A follower copies the leader's log; after a       *)
(* change of leader it truncates the records that the new leader never     *)
(* had. The module models how a follower finds the truncation point: by    *)
(* its own high watermark (until KIP-101, loses acknowledged records) or   *)
(* by leader epochs (KIP-101, 279, 320).                                   *)
(*                                                                         *)
(* Requests and replies are messages: they may be late, lost, or served by *)
(* a zombie. A crash loses any suffix of the log that was not flushed,     *)
(* within the fault budget (MayLose, MayCrash). Elections are clean.       *)
(*                                                                         *)
(* A guard is on, as in the protocol, unless GuardsOff names it: then the  *)
(* module has a historical bug; spec/guards.toml lists them. README.md maps *)
(* the names in this module to the broker and the wire protocol.           *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
    Brokers,    \* the assigned replicas
    None,       \* the value for "no leader"
    InFlight    \* how many requests of one follower may be in flight at once

CONSTANT GuardsOff      \* the guards that are switched off; {} is the protocol

TruncateByEpoch == "TruncateByEpoch" \notin GuardsOff
TruncateToCommonEpoch == "TruncateToCommonEpoch" \notin GuardsOff
FenceStaleFetch == "FenceStaleFetch" \notin GuardsOff
ForgetTruncatedEpochs == "ForgetTruncatedEpochs" \notin GuardsOff
TruncateBeforeHw == "TruncateBeforeHw" \notin GuardsOff
HwNeedsWholeIsr == "HwNeedsWholeIsr" \notin GuardsOff
AckAfterCommit == "AckAfterCommit" \notin GuardsOff
ExpandOnlyCaughtUp == "ExpandOnlyCaughtUp" \notin GuardsOff
ExpandAfterEpochStart == "ExpandAfterEpochStart" \notin GuardsOff
IsrCas == "IsrCas" \notin GuardsOff
FenceStaleLeaderAndIsr == "FenceStaleLeaderAndIsr" \notin GuardsOff
ElectFromIsr == "ElectFromIsr" \notin GuardsOff
UncleanRestartLeavesIsr == "UncleanRestartLeavesIsr" \notin GuardsOff

Guards ==
    {"TruncateByEpoch", "TruncateToCommonEpoch", "FenceStaleFetch", "ForgetTruncatedEpochs", "TruncateBeforeHw",
     "HwNeedsWholeIsr", "AckAfterCommit", "ExpandOnlyCaughtUp", "ExpandAfterEpochStart", "IsrCas",
     "FenceStaleLeaderAndIsr", "ElectFromIsr", "UncleanRestartLeavesIsr"}
ASSUME GuardsOff \subseteq Guards

VARIABLE metadata       \* the store, by leader epoch (from 0): leader, isr, partitionEpoch as last written in that epoch
VARIABLE unclean        \* members of the ISR that registered after a crash, and have not left it since
store == <<metadata, unclean>>

VARIABLE status         \* of a broker: "down", "starting" (or "starting clean") until it registers, "idle" until the
                        \* first LeaderAndIsr, "active"
VARIABLE brokerEpoch    \* of a broker: the number of its re-registrations (KIP-380)
VARIABLE leaderEpoch    \* of a broker: the leader epoch of the last LeaderAndIsr that it applied
roles == <<status, brokerEpoch, leaderEpoch>>

VARIABLE log            \* of a broker: the leader epoch of each record; <<offset, leader epoch>> identifies a record
VARIABLE latestEpoch    \* of its leader epoch cache: that of the last record, or one that it began as leader without writing
VARIABLE highWatermark  \* of a broker: it considers all records below this offset committed
replicas == <<log, latestEpoch, highWatermark>>

VARIABLE leading        \* of a leader: what it knows (see NotLeading)

VARIABLE fetch          \* of a follower: its requests in flight, oldest first
VARIABLE reply          \* of a follower: the reply in flight to its latest request
messages == <<fetch, reply>>

VARIABLE committed      \* history: the longest log that was ever below a leader's high watermark, or acknowledged

vars == <<store, roles, replicas, leading, messages, committed>>

-----------------------------------------------------------------------------
(* Definitions *)

Min(a, b) == IF a < b THEN a ELSE b
Max(a, b) == IF a > b THEN a ELSE b
MinOf(S) == CHOOSE x \in S : \A y \in S : x <= y
Take(s, n) == SubSeq(s, 1, n)
Without(s, i) == Take(s, i - 1) \o SubSeq(s, i + 1, Len(s))
IsPrefix(s, t) == Len(s) <= Len(t) /\ Take(t, Len(s)) = s
Agree(s, t) == LET n == Min(Len(s), Len(t)) IN Take(s, n) = Take(t, n)

Unknown == -1           \* an offset or epoch that is not known

NoProposal == [b \in {} |-> 0]

NotLeading == [isr            |-> {},           \* the ISR that this leader last received from the store,
               partitionEpoch |-> Unknown,      \* and its version, for the compare-and-set
               proposed       |-> NoProposal,   \* the proposed ISR: of each member the broker epoch that this leader knows
               applied        |-> FALSE,        \* the store has written the proposal, and the reply is in flight
               epochStart     |-> Unknown,      \* the offset at which its own leader epoch began
               fetched        |-> [b \in Brokers |-> [end |-> Unknown, brokerEpoch |-> Unknown]]]

NoReply == [result |-> "none", records |-> <<>>, highWatermark |-> Unknown, epoch |-> Unknown, end |-> Unknown]

Epoch == Len(metadata) - 1              \* the current leader epoch; -1 before the partition exists
InEpoch(e) == metadata[e + 1]
Store == InEpoch(Epoch)
InIsr(b) == metadata # <<>> /\ b \in Store.isr

LogEnd(b) == Len(log[b])
LastEpoch(records) == IF records = <<>> THEN Unknown ELSE records[Len(records)]

\* The end offset of the epochs up to `epoch` in the first n records (leader_epochs.py: end_offset_for).
RECURSIVE EpochEnd(_, _, _)
EpochEnd(records, epoch, n) ==
    IF n = 0 THEN 0 ELSE IF records[n] <= epoch THEN n ELSE EpochEnd(records, epoch, n - 1)

Up(b) == status[b] # "down"
Registered(b) == status[b] \in {"idle", "active"}
Clean(b) == Registered(b) /\ b \notin unclean
Leads(b) == status[b] = "active" /\ leaderEpoch[b] >= 0 /\ InEpoch(leaderEpoch[b]).leader = b
LeaderOf(f) == IF status[f] = "active" /\ leaderEpoch[f] >= 0 THEN InEpoch(leaderEpoch[f]).leader ELSE None

\* The leader epoch cache drops entries beyond the log end, even if no record is truncated (KAFKA-10706).
Truncate(b, end) ==
    /\ log' = [log EXCEPT ![b] = Take(@, end)]
    /\ latestEpoch' = [latestEpoch EXCEPT ![b] = IF ForgetTruncatedEpochs THEN LastEpoch(log'[b]) ELSE @]

-----------------------------------------------------------------------------
(* Controller and store *)

\* Members that may stay when the controller writes: a member that restarted uncleanly may have lost its tail and is
\* removed, unless all members did so: then no other broker has their records.
Stays ==
    IF UncleanRestartLeavesIsr /\ ~(Store.isr \subseteq unclean) THEN Store.isr \ unclean ELSE Store.isr

\* With KIP-966, if all members restarted uncleanly while no broker led, the broker that led last is elected, although it
\* left the ISR after an unclean restart of its own (PartitionChangeBuilder.canElectLastKnownLeader).  An assumption: off
\* in the models, and on in a trace whose metadata log names such a leader (README.md, "Budget").
LastKnownLeads == FALSE
Led == {e \in 0 .. Epoch : InEpoch(e).leader # None}
LastKnown(leader) ==
    /\ LastKnownLeads /\ Store.leader = None /\ Store.isr \subseteq unclean
    /\ \E e \in Led : InEpoch(e).leader = leader /\ \A later \in Led : later <= e

\* The store accepts the controller's choice, under a new leader epoch.
ElectLeader(leader, isr) ==
    /\ isr # {}
    /\ leader \in isr \union {None}
    /\ metadata # <<>> => \/ isr \subseteq Stays
                          \/ (~ElectFromIsr \/ LastKnown(leader)) /\ isr = {leader}    \* guard off: an unclean election
    /\ metadata' = Append(metadata, [leader         |-> leader,
                                     isr            |-> isr,
                                     partitionEpoch |-> IF metadata = <<>> THEN 0 ELSE Store.partitionEpoch + 1])
    /\ unclean' = unclean \intersect (isr \ {leader})
    /\ UNCHANGED <<roles, replicas, leading, messages, committed>>

\* A member failed: the ISR shrinks, with the same leader and a new leader epoch.
ControllerShrinkIsr(isr) ==
    /\ metadata # <<>>
    /\ isr \subseteq Store.isr /\ isr # Store.isr
    /\ ElectLeader(Store.leader, isr)

-----------------------------------------------------------------------------
(* Leader *)

\* A broker that registered again receives the current state again; to lead, it must be elected again.  Requests that
\* the controller sent before the restart have the old broker epoch, and are rejected (KIP-380).  With the guard off a
\* broker may lead on in its epoch: with ZooKeeper a new controller that has not seen its restart sends it that epoch.
Accepts(b, e) ==
    /\ Registered(b)
    /\ \/ e > leaderEpoch[b]
       \/ e = leaderEpoch[b] /\ status[b] = "idle" /\ (InEpoch(e).leader # b \/ ~UncleanRestartLeavesIsr)
       \/ e < leaderEpoch[b] /\ ~FenceStaleLeaderAndIsr       \* guard off: a late request reverts the state (KAFKA-1188)

BecomeLeader(b, e) ==
    /\ Accepts(b, e)
    /\ InEpoch(e).leader = b
    /\ status' = [status EXCEPT ![b] = "active"]
    /\ leaderEpoch' = [leaderEpoch EXCEPT ![b] = e]
    /\ latestEpoch' = [latestEpoch EXCEPT ![b] = Max(@, e)]
    /\ leading' = [leading EXCEPT ![b] = [NotLeading EXCEPT !.isr = InEpoch(e).isr,
                                                            !.partitionEpoch = InEpoch(e).partitionEpoch,
                                                            !.epochStart = LogEnd(b)]]
    /\ reply' = [reply EXCEPT ![b] = NoReply]
    /\ UNCHANGED <<store, brokerEpoch, log, highWatermark, fetch, committed>>

LeaderWrite(l, count) ==
    /\ Leads(l)
    /\ log' = [log EXCEPT ![l] = @ \o [i \in 1 .. count |-> leaderEpoch[l]]]
    /\ UNCHANGED <<store, roles, latestEpoch, highWatermark, leading, messages, committed>>

\* The largest high watermark of a leader whose knowledge is `lead`.  Proposed members count immediately, because the
\* store may have added them already (KIP-497).
CommittedEnd(l, lead) ==
    LET maximalIsr == lead.isr \union DOMAIN lead.proposed
        others == IF HwNeedsWholeIsr THEN maximalIsr \ {l} ELSE {} IN
    Max(highWatermark[l], MinOf({LogEnd(l)} \union {lead.fetched[f].end : f \in others}))

\* A trace allows smaller values: below min.insync.replicas, or for a replica that is about to join.
HwChoices(l, lead) == {CommittedEnd(l, lead)}

\* The records that clients may consider stored after leader l has acknowledged offsets below `end`.
Told(l, end) == IF end > Len(committed) THEN Take(log[l], end) ELSE committed

Commit(l, hw) ==
    /\ highWatermark' = [highWatermark EXCEPT ![l] = hw]
    /\ committed' = Told(l, hw)

LeaderAdvanceHw(l, hw) ==
    /\ Leads(l)
    /\ hw > highWatermark[l] /\ hw <= CommittedEnd(l, leading[l])
    /\ Commit(l, hw)
    /\ UNCHANGED <<store, roles, log, latestEpoch, leading, messages>>

\* An acks=all produce is answered.  It adds nothing to `committed` unless the guard is off.
LeaderAck(l, lastOffset) ==
    /\ Leads(l)
    /\ lastOffset < IF AckAfterCommit THEN highWatermark[l] ELSE LogEnd(l)
    /\ committed' = Told(l, lastOffset + 1)
    /\ UNCHANGED <<store, roles, replicas, leading, messages>>

\* Without the two conditions a new member may lack committed records (KAFKA-7128).
MayJoin(l, f) ==
    LET end == leading[l].fetched[f].end IN
    /\ end # Unknown
    /\ ExpandOnlyCaughtUp => end >= highWatermark[l]
    /\ ExpandAfterEpochStart => end >= leading[l].epochStart

LeaderProposeIsr(l, isr) ==
    /\ Leads(l)
    /\ l \in isr /\ isr # leading[l].isr
    /\ DOMAIN leading[l].proposed \in {{}, isr}     \* one at a time; the same is sent again without a reply
    /\ \A f \in isr \ leading[l].isr : MayJoin(l, f)
    /\ leading' = [leading EXCEPT ![l].proposed = [f \in isr |-> leading[l].fetched[f].brokerEpoch]]
    /\ UNCHANGED <<store, roles, replicas, messages, committed>>

StoreAccepts(l) ==
    LET proposed == leading[l].proposed IN
    /\ IsrCas => leading[l].partitionEpoch = Store.partitionEpoch
    /\ UncleanRestartLeavesIsr =>                   \* fetches from before a restart do not count (KIP-903)
          \A f \in DOMAIN proposed \ Store.isr : proposed[f] = brokerEpoch[f]

LeaderChangeIsr(l) ==
    LET isr == DOMAIN leading[l].proposed IN
    /\ isr # {} /\ ~leading[l].applied
    /\ StoreAccepts(l)
    /\ metadata' = [metadata EXCEPT ![Epoch + 1].isr = isr, ![Epoch + 1].partitionEpoch = @ + 1]
    /\ unclean' = unclean \intersect isr
    /\ leading' = [leading EXCEPT ![l].applied = TRUE]
    /\ UNCHANGED <<roles, replicas, messages, committed>>

\* The leader learns that its proposal was accepted; or, if it was rejected or lost, it takes the last state that the
\* store held in the leader's own epoch, which no other leader can have written.
LeaderLearnIsr(l, accepted) ==
    LET told == InEpoch(leaderEpoch[l])
        lead == [leading[l] EXCEPT !.isr = IF accepted THEN DOMAIN leading[l].proposed ELSE told.isr,
                                   !.partitionEpoch = told.partitionEpoch,
                                   !.proposed = NoProposal,
                                   !.applied = FALSE] IN
    /\ Leads(l)
    /\ DOMAIN leading[l].proposed # {}
    /\ accepted => leading[l].applied
    /\ leading' = [leading EXCEPT ![l] = lead]
    /\ \E hw \in HwChoices(l, lead) : Commit(l, hw)
    /\ UNCHANGED <<store, roles, log, latestEpoch, messages>>

-----------------------------------------------------------------------------
(* Fetching *)

\* Until KIP-101 a follower truncated its log to its own high watermark, which lags behind the leader's.
BecomeFollower(b, e) ==
    /\ Accepts(b, e)
    /\ InEpoch(e).leader # b
    /\ status' = [status EXCEPT ![b] = "active"]
    /\ leaderEpoch' = [leaderEpoch EXCEPT ![b] = e]
    /\ leading' = [leading EXCEPT ![b] = NotLeading]
    /\ reply' = [reply EXCEPT ![b] = NoReply]
    /\ IF TruncateByEpoch THEN UNCHANGED <<log, latestEpoch>> ELSE Truncate(b, highWatermark[b])
    /\ UNCHANGED <<store, brokerEpoch, highWatermark, fetch, committed>>

Request(f) == [leaderEpoch |-> leaderEpoch[f], offset |-> LogEnd(f),
               lastEpoch |-> IF TruncateByEpoch THEN latestEpoch[f] ELSE Unknown, brokerEpoch |-> brokerEpoch[f],
               awaited |-> TRUE]

\* A follower that gave up waiting sends another request: the old one may still be served, but its reply is ignored.
SendFetch(f) ==
    LET older == [i \in DOMAIN fetch[f] |-> [fetch[f][i] EXCEPT !.awaited = FALSE]]
        sent == Append(older, Request(f)) IN
    /\ LeaderOf(f) \notin {None, f}
    /\ fetch' = [fetch EXCEPT ![f] = SubSeq(sent, Max(1, Len(sent) - InFlight + 1), Len(sent))]
    /\ reply' = [reply EXCEPT ![f] = NoReply]
    /\ UNCHANGED <<store, roles, replicas, leading, committed>>

\* The follower's log diverges from the leader's before the fetch offset (KIP-320, KIP-595).
Diverges(l, request) ==
    LET end == EpochEnd(log[l], request.lastEpoch, LogEnd(l)) IN
    IF ~TruncateByEpoch THEN request.offset > LogEnd(l)
    ELSE IF end < request.offset THEN TRUE
    ELSE TruncateToCommonEpoch /\ end > 0 /\ request.lastEpoch \notin {Unknown, latestEpoch[l], log[l][end]}

FetchResult(l, request) ==
    CASE ~Leads(l)                                                  -> "not_leader"
      [] FenceStaleFetch /\ request.leaderEpoch < leaderEpoch[l]    -> "fenced"
      [] request.leaderEpoch > leaderEpoch[l]                       -> "unknown_epoch"
      [] Diverges(l, request)                                       -> "diverging"
      [] OTHER                                                      -> "records"

\* The end offset of the follower's last epoch in the leader's log, and the epoch that ends there.
DivergingReply(l, request) ==
    LET end == IF TruncateByEpoch THEN EpochEnd(log[l], request.lastEpoch, LogEnd(l)) ELSE LogEnd(l) IN
    [NoReply EXCEPT !.result = "diverging", !.end = end, !.epoch = LastEpoch(Take(log[l], end))]

RecordsReply(l, request, hw) ==
    [NoReply EXCEPT !.result = "records", !.records = SubSeq(log[l], request.offset + 1, LogEnd(l)), !.highWatermark = hw]

\* The fetch offset is the follower's log end: the follower has stored everything below it.
AfterFetch(l, f, request) ==
    [leading[l] EXCEPT !.fetched[f] = [end |-> request.offset, brokerEpoch |-> request.brokerEpoch]]

\* The follower awaits only the reply to its latest request, and only in the same leader epoch and broker epoch.
Awaited(f, request) ==
    /\ request.awaited /\ status[f] = "active"
    /\ request.leaderEpoch = leaderEpoch[f] /\ request.brokerEpoch = brokerEpoch[f]

Answer(f, i, answer) ==
    /\ fetch' = [fetch EXCEPT ![f] = Without(@, i)]
    /\ reply' = IF Awaited(f, fetch[f][i]) THEN [reply EXCEPT ![f] = answer] ELSE reply

\* The i-th request of f in flight has reached l, to which it was sent.
Arrived(l, f, i) ==
    /\ i \in DOMAIN fetch[f]
    /\ Up(l) /\ InEpoch(fetch[f][i].leaderEpoch).leader = l

ServeRecords(l, f, i) ==
    LET request == fetch[f][i]
        lead == AfterFetch(l, f, request) IN
    \E hw \in HwChoices(l, lead) :
        /\ leading' = [leading EXCEPT ![l] = lead]
        /\ Commit(l, hw)
        /\ Answer(f, i, RecordsReply(l, request, hw))

LeaderServeFetch(l, f, i) ==
    LET request == fetch[f][i]
        result == FetchResult(l, request) IN
    /\ Arrived(l, f, i)
    /\ IF result = "records" THEN ServeRecords(l, f, i)
       ELSE /\ Answer(f, i, IF result = "diverging" THEN DivergingReply(l, request) ELSE NoReply)
            /\ UNCHANGED <<leading, highWatermark, committed>>
    /\ UNCHANGED <<store, roles, log, latestEpoch>>

\* There are no records to send yet: the request waits at the leader, and its fetch offset counts (fetch.py: "parked").
LeaderParkFetch(l, f, i) ==
    LET lead == AfterFetch(l, f, fetch[f][i]) IN
    /\ Arrived(l, f, i)
    /\ FetchResult(l, fetch[f][i]) = "records"
    /\ leading' = [leading EXCEPT ![l] = lead]
    /\ \E hw \in HwChoices(l, lead) : Commit(l, hw)
    /\ UNCHANGED <<store, roles, log, latestEpoch, messages>>

\* A follower appends as many records as the size limits allow.
FollowerAppend(f, count) ==
    LET records == log[f] \o Take(reply[f].records, count) IN
    /\ Up(f)
    /\ reply[f].result = "records" /\ count <= Len(reply[f].records)
    /\ log' = [log EXCEPT ![f] = records]
    /\ latestEpoch' = [latestEpoch EXCEPT ![f] = IF count = 0 THEN @ ELSE LastEpoch(records)]
    /\ highWatermark' = [highWatermark EXCEPT ![f] = Max(@, Min(reply[f].highWatermark, Len(records)))]
    /\ reply' = [reply EXCEPT ![f] = NoReply]
    /\ UNCHANGED <<store, roles, leading, fetch, committed>>

\* KIP-279 looks up the epoch in both logs, so that each reply leads the follower to an epoch that both logs have.
\* KIP-101 used only the leader's log.
TruncationPoint(f, answer) ==
    Min(answer.end, IF TruncateByEpoch /\ TruncateToCommonEpoch THEN EpochEnd(log[f], answer.epoch, LogEnd(f)) ELSE LogEnd(f))

TruncateToEpochEnd(f) ==
    LET end == TruncationPoint(f, reply[f]) IN
    /\ Up(f)
    /\ reply[f].result = "diverging"
    /\ Truncate(f, end)
    /\ highWatermark' = [highWatermark EXCEPT ![f] = Min(@, end)]
    /\ reply' = [reply EXCEPT ![f] = NoReply]
    /\ UNCHANGED <<store, roles, leading, fetch, committed>>

\* A bug (KAFKA-14704): a follower that receives the leader's high watermark together with the point of divergence
\* raises its own high watermark first, and returns records to readers that it is about to truncate.
FollowerRaiseHw(f, l) ==
    /\ ~TruncateBeforeHw
    /\ LeaderOf(f) = l /\ f # l /\ Up(l)
    /\ FetchResult(l, Request(f)) = "diverging"
    /\ highWatermark' = [highWatermark EXCEPT ![f] = Max(@, Min(highWatermark[l], LogEnd(f)))]
    /\ UNCHANGED <<store, roles, log, latestEpoch, leading, messages, committed>>

-----------------------------------------------------------------------------
(* Crashes *)

\* The fault budget, under which acks=all keeps its promise: a member of the ISR may lose its tail only while another
\* member has not crashed, and as long as it is in the ISR some other member does not (README.md, "Budget").
OtherIsClean(b) == \E other \in Store.isr \ {b} : Clean(other)
MayLose(b) == InIsr(b) => OtherIsClean(b)
MayCrash(b) == InIsr(b) /\ (\E other \in Store.isr \ {b} : Up(other) /\ ~Clean(other)) => OtherIsClean(b)

\* Its requests stay in flight, also those to the store.  The restart decides which suffix is lost.
Crash(b) ==
    /\ Up(b)
    /\ MayCrash(b)
    /\ status' = [status EXCEPT ![b] = "down"]
    /\ reply' = [reply EXCEPT ![b] = NoReply]
    /\ UNCHANGED <<store, brokerEpoch, leaderEpoch, replicas, leading, fetch, committed>>

\* Recovery found a log up to `end` and a high watermark checkpoint; it rebuilds the leader epoch cache from the
\* records.
Restart(b, end, hw, clean) ==
    /\ ~Up(b)
    /\ end <= LogEnd(b) /\ hw <= Min(highWatermark[b], end)
    /\ clean => end = LogEnd(b)
    /\ end < LogEnd(b) => MayLose(b)
    /\ status' = [status EXCEPT ![b] = IF clean THEN "starting clean" ELSE "starting"]
    /\ Truncate(b, end)
    /\ highWatermark' = [highWatermark EXCEPT ![b] = hw]
    /\ leading' = [leading EXCEPT ![b] = NotLeading]
    /\ UNCHANGED <<store, brokerEpoch, leaderEpoch, messages, committed>>

\* Only now controller and store learn of the restart: the broker may have been elected in between.
Register(b) ==
    /\ status[b] \in {"starting", "starting clean"}
    /\ status' = [status EXCEPT ![b] = "idle"]
    /\ brokerEpoch' = [brokerEpoch EXCEPT ![b] = @ + 1]
    /\ leaderEpoch' = [leaderEpoch EXCEPT ![b] = Epoch]
    /\ unclean' = IF status[b] = "starting" /\ InIsr(b) THEN unclean \union {b} ELSE unclean
    /\ UNCHANGED <<metadata, replicas, leading, messages, committed>>

-----------------------------------------------------------------------------
Init ==
    /\ metadata = <<>>
    /\ unclean = {}
    /\ status = [b \in Brokers |-> "active"]
    /\ brokerEpoch = [b \in Brokers |-> 0]
    /\ leaderEpoch = [b \in Brokers |-> Unknown]
    /\ log = [b \in Brokers |-> <<>>]
    /\ latestEpoch = [b \in Brokers |-> Unknown]
    /\ highWatermark = [b \in Brokers |-> 0]
    /\ leading = [b \in Brokers |-> NotLeading]
    /\ fetch = [b \in Brokers |-> <<>>]
    /\ reply = [b \in Brokers |-> NoReply]
    /\ committed = <<>>

Next ==
    \/ \E l \in Brokers \union {None}, isr \in SUBSET Brokers : ElectLeader(l, isr)
    \/ \E isr \in SUBSET Brokers : ControllerShrinkIsr(isr) \/ \E l \in Brokers : LeaderProposeIsr(l, isr)
    \/ \E b \in Brokers, e \in 0 .. Epoch : BecomeLeader(b, e) \/ BecomeFollower(b, e)
    \/ \E l \in Brokers : LeaderChangeIsr(l) \/ \E accepted \in BOOLEAN : LeaderLearnIsr(l, accepted)
    \/ \E l \in Brokers : LeaderWrite(l, 1)
    \/ \E l \in Brokers : \E n \in 1 .. LogEnd(l) : LeaderAdvanceHw(l, n) \/ LeaderAck(l, n - 1)
    \/ \E f \in Brokers : SendFetch(f) \/ TruncateToEpochEnd(f)
    \/ \E l, f \in Brokers : \E i \in 1 .. Len(fetch[f]) : LeaderServeFetch(l, f, i) \/ LeaderParkFetch(l, f, i)
    \/ \E f \in Brokers : \E count \in 0 .. Len(reply[f].records) : FollowerAppend(f, count)
    \/ \E f, l \in Brokers : FollowerRaiseHw(f, l)
    \/ \E b \in Brokers : Crash(b) \/ Register(b)
    \/ \E b \in Brokers, clean \in BOOLEAN : \E end \in 0 .. LogEnd(b) : \E hw \in 0 .. end : Restart(b, end, hw, clean)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* What holds *)

Numbers == Nat \union {Unknown}
TypeOK ==
    /\ \A n \in 1 .. Len(metadata) : metadata[n] \in [leader : Brokers \union {None}, isr : SUBSET Brokers,
                                                       partitionEpoch : Nat]
    /\ unclean \subseteq Brokers
    /\ status \in [Brokers -> {"down", "starting", "starting clean", "idle", "active"}]
    /\ brokerEpoch \in [Brokers -> Nat] /\ leaderEpoch \in [Brokers -> Numbers]
    /\ log \in [Brokers -> Seq(Nat)] /\ latestEpoch \in [Brokers -> Numbers] /\ highWatermark \in [Brokers -> Nat]
    /\ \A l \in Brokers :
          /\ leading[l].isr \subseteq Brokers /\ DOMAIN leading[l].proposed \subseteq Brokers
          /\ {leading[l].partitionEpoch, leading[l].epochStart} \subseteq Numbers /\ leading[l].applied \in BOOLEAN
          /\ leading[l].fetched \in [Brokers -> [end : Numbers, brokerEpoch : Numbers]]
    /\ \A f \in Brokers :
          /\ \A n \in 1 .. Len(fetch[f]) : fetch[f][n].offset \in Nat /\ fetch[f][n].awaited \in BOOLEAN
          /\ reply[f].result \in {"none", "records", "diverging"} /\ reply[f].records \in Seq(Nat)
    /\ committed \in Seq(Nat)

\* Every committed record is on every member of the ISR that has not crashed since it joined (StrongIsr).
CommittedOnIsr == metadata # <<>> => \A m \in Store.isr : Clean(m) => IsPrefix(committed, log[m])

\* An acknowledged record is never lost: some member of the ISR still has it.
AckedSurvives == metadata # <<>> => \E m \in Store.isr : IsPrefix(committed, log[m])

\* No leader, not even a zombie, considers a record committed that is not.
LeadersAgree == \A l \in Brokers : Leads(l) => Agree(Take(log[l], highWatermark[l]), committed)

\* No broker, leader or follower, returns other records to readers.
ReadersAgree == \A b \in Brokers : Agree(Take(log[b], highWatermark[b]), committed)

\* Two logs that agree on one record agree on all records before it.
LogMatching ==
    \A a, b \in Brokers : \A n \in 2 .. Min(LogEnd(a), LogEnd(b)) :
        log[a][n] = log[b][n] => log[a][n - 1] = log[b][n - 1]

EpochsAscend == \A b \in Brokers : \A n \in 2 .. LogEnd(b) : log[b][n - 1] <= log[b][n]

HwWithinLog == \A b \in Brokers : highWatermark[b] <= LogEnd(b)

\* A leader's high watermark never decreases while it leads.
HwNeverFalls ==
    [][\A l \in Brokers : Leads(l) /\ Leads(l)' /\ leaderEpoch'[l] = leaderEpoch[l]
                              => highWatermark'[l] >= highWatermark[l]]_vars

\* The mapping to the contract: the log is the part of the committed records that the next leader has.
Heir == CHOOSE m \in Store.isr : \A other \in Store.isr : Clean(other) => Clean(m)
Promise == INSTANCE PartitionLog WITH
    Replicas <- Brokers,
    LosesItsEnd <- FALSE,
    log <- IF metadata = <<>> THEN <<>> ELSE Take(log[Heir], Min(Len(committed), LogEnd(Heir))),
    acked <- Len(committed),
    served <- [b \in Brokers |-> IF Leads(b) THEN Take(log[b], highWatermark[b]) ELSE <<>>]
RefinesPartitionLog == Promise!Spec

-----------------------------------------------------------------------------
(* The promises of the protocol: README.md says how each is checked, and within which bounds *)

Protocol == Spec /\ GuardsOff = {}

THEOREM Protocol => []TypeOK
THEOREM Protocol => []CommittedOnIsr
THEOREM Protocol => []AckedSurvives
THEOREM Protocol => []LeadersAgree
THEOREM Protocol => []ReadersAgree
THEOREM Protocol => []LogMatching
THEOREM Protocol => []EpochsAscend
THEOREM Protocol => []HwWithinLog
THEOREM Protocol => HwNeverFalls
THEOREM Protocol => RefinesPartitionLog
=============================================================================
