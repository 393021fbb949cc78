--------------------------- MODULE TraceIsrCommit ---------------------------
(***************************************************************************)
(* Checks whether the trace of a partition's brokers is a behaviour of     *)
(* IsrCommit. Each line contains the action, the choices made and values   *)
(* after the step; the spec must have such a step. trace.toml defines the  *)
(* fields of a line.                                                       *)
(*                                                                         *)
(* The reason for a controller's write (sessions) is not traced: the       *)
(* controller may remove any member and elect any candidate, and it        *)
(* increments the leader epoch with every write. Fetches are messages      *)
(* here, as in HwTruncation, which also checks what this module does not:  *)
(* how logs converge. A partition epoch in the trace is one less than      *)
(* here.                                                                   *)
(***************************************************************************)
EXTENDS IsrCommit, TLC

CONSTANTS Step(_),      \* a line of the trace: <<action, node, high watermark, ...>>
          Length,       \* how many lines there are
          ShownLine     \* print the state before this one (0: none)

VARIABLES
    line,               \* the next line to explain
    asked,              \* of a follower: its last fetches, which may still be served
    served,             \* of a follower: the records last sent to it, and their start offset
    owing,              \* a high watermark in the last line that must still be explained
    withinBudget        \* no crash has gone beyond the fault budget

traceVars == <<asked, served, owing, withinBudget>>

Unlogged == -2
Same(logged, actual) == logged = Unlogged \/ logged = actual
Nothing == [broker |-> None, end |-> 0]
KeptRequests == 4

TraceNone == -1
\* A run may go beyond the fault budget; from then on less is promised.
TraceMayCrash(b) == TRUE

Lines(action) == {n \in 1 .. Length : Step(n)[1] = action}
Creation == MinOf(Lines("ElectLeader") \union {Length + 1})

-----------------------------------------------------------------------------
(* Controller and store *)

\* KRaft since 3.6: without a leader, a broker that restarted uncleanly leaves the ISR in the same leader epoch.
KeepsEpoch(leader, epoch) == leader = None /\ Now.leader = None /\ epoch = Now.leaderEpoch

\* If all candidates restarted uncleanly, the broker that led last is elected (KIP-966); to the module and its budget, that
\* is an unclean election.  The metadata log has named it as the last known leader.
Led == {n \in 1 .. PartitionEpoch : metadata[n].leader # None}
LastKnown(leader) ==
    /\ Now.leader = None /\ Eligible \subseteq unclean
    /\ \E n \in Led : metadata[n].leader = leader /\ \A later \in Led : later <= n

IsControllerWrite(leader, epoch, isr, partitionEpoch, lastKnown) ==
    /\ epoch = Now.leaderEpoch + 1 \/ KeepsEpoch(leader, epoch)
    /\ partitionEpoch = PartitionEpoch
    /\ leader \in isr \union {None}
    /\ \/ isr \subseteq Now.isr \union (Now.elr \intersect {leader})
       \/ lastKnown /\ LastKnown(leader) /\ isr = {leader}
    /\ Store(leader, epoch, isr, NewElr(isr, IF lastKnown THEN Eligible ELSE {}) \ {leader})
    /\ UNCHANGED <<fenced, brokerEpoch, brokers, requests, committed, acked>>

IsElectLeader(leader, epoch, isr, partitionEpoch, lastKnown) ==
    IF line = Creation THEN partitionEpoch = 0 /\ UNCHANGED vars
    ELSE IsControllerWrite(leader, epoch, isr, partitionEpoch, lastKnown)

IsControllerShrinkIsr(leader, epoch, isr, partitionEpoch) ==
    leader = Now.leader /\ isr # Now.isr /\ IsControllerWrite(leader, epoch, isr, partitionEpoch, FALSE)

IsLeaderChangeIsr(l, leader, epoch, isr, partitionEpoch) ==
    /\ leader = Now.leader /\ epoch = Now.leaderEpoch /\ partitionEpoch = PartitionEpoch
    /\ \E request \in {each \in requests : each.leader = l /\ DOMAIN each.isr = isr} :
          /\ Acceptable(request)
          /\ requests' = requests \ {request}
    /\ Store(Now.leader, Now.leaderEpoch, isr, NewElr(isr, {}))
    /\ UNCHANGED <<fenced, brokerEpoch, brokers, committed, acked>>

-----------------------------------------------------------------------------
(* The leader and its ISR *)

\* It may remove several members at once, and sends the same request again without a reply.
IsLeaderProposeIsr(l, isr) ==
    LET proposal == Proposal(l, isr) IN
    /\ Leads(l) /\ l \in isr /\ isr # Seen(l).isr
    /\ \A f \in isr \ Seen(l).isr : MayJoin(l, f)
    /\ leading[l].proposed \in {NoProposal, proposal}
    /\ leading' = [leading EXCEPT ![l].proposed = proposal]
    /\ requests' = requests \union {AlterPartition(l, proposal)}
    /\ UNCHANGED <<controller, up, view, log, highWatermark, history>>

Refused(l) ==
    /\ leading' = [leading EXCEPT ![l].proposed = NoProposal]
    /\ requests' = {each \in requests : each.leader # l}
    /\ UNCHANGED <<controller, up, view, log, highWatermark, history>>

IsLeaderLearnIsr(l, accepted, isr, partitionEpoch) ==
    LET epoch == partitionEpoch + 1 IN
    /\ Leads(l) /\ leading[l].proposed # NoProposal
    /\ accepted => isr = DOMAIN leading[l].proposed
    /\ epoch \in 1 .. PartitionEpoch /\ metadata[epoch].isr = isr
    /\ IF epoch > view[l] THEN Learn(l, epoch) ELSE epoch = view[l] /\ ~accepted /\ Refused(l)

\* LeaderAndIsr contains the state that the controller wrote with that leader epoch.
Told(epoch, leader) == {n \in 1 .. PartitionEpoch : metadata[n].leaderEpoch = epoch /\ metadata[n].leader = leader}

IsBecomeLeader(b, epoch, end, isr) ==
    /\ Same(end, LogEnd(b))
    /\ \E n \in Told(epoch, b) : metadata[n].isr = isr /\ Learn(b, n)

\* A broker that registered again receives the state again.
IsBecomeFollower(b, epoch, end, leader) ==
    /\ Same(end, LogEnd(b)) /\ leader # b
    /\ \E n \in Told(epoch, leader) :
          \/ Learn(b, n) /\ \A m \in Told(epoch, leader) : m >= n \/ m <= view[b]
          \/ n = view[b] /\ UNCHANGED vars

IsLeaderWrite(l, count, end, epoch) ==
    /\ Leads(l) /\ Same(epoch, Seen(l).leaderEpoch)
    /\ log' = [log EXCEPT ![l] = @ \o [i \in 1 .. count |-> Seen(l).leaderEpoch]]
    /\ Same(end, Len(log'[l]))
    /\ UNCHANGED <<controller, up, view, highWatermark, leading, requests, history>>

\* The broker may hold back the high watermark, for a replica that is about to join.
IsAdvanceHw(l, end) ==
    /\ Leads(l)
    /\ end > highWatermark[l] /\ end <= CommittedEnd(l, FALSE)
    /\ highWatermark' = [highWatermark EXCEPT ![l] = end]
    /\ committed' = IF end > Len(committed) THEN Take(log[l], end) ELSE committed
    /\ UNCHANGED <<controller, up, view, log, leading, requests, acked, unclean>>

\* A new leader takes over the high watermark that earlier leaders reported; those records must be committed.
IsTakenOver(l, end) ==
    /\ end <= Len(committed) /\ end <= LogEnd(l) /\ Agree(Take(log[l], end), committed)
    /\ highWatermark' = [highWatermark EXCEPT ![l] = end]
    /\ UNCHANGED <<controller, up, view, log, leading, requests, history>>

IsLeaderAck(l, lastOffset) ==
    /\ Leads(l)
    /\ lastOffset < highWatermark[l]
    /\ Cardinality(MaximalIsr(l)) >= MinIsr
    /\ acked' = Max(acked, lastOffset + 1)
    /\ UNCHANGED <<controller, brokers, requests, committed, unclean>>

-----------------------------------------------------------------------------
(* Fetching *)

Latest(s) == SubSeq(s, Max(1, Len(s) - KeptRequests + 1), Len(s))
IsSendFetch(f, leader, offset, epoch) ==
    /\ f \in up /\ view[f] > 0 /\ Seen(f).leader = leader /\ epoch = Seen(f).leaderEpoch /\ offset = LogEnd(f)
    /\ asked' = [asked EXCEPT ![f] = Latest(Append(@, [to |-> leader, offset |-> offset, epoch |-> epoch,
                                                     brokerEpoch |-> brokerEpoch[f]]))]
    /\ UNCHANGED <<vars, served>>

IsCounted(l, f, offset, result) ==
    /\ Leads(l) /\ offset <= LogEnd(l)
    /\ Follows(f, l) /\ LogEnd(f) >= offset => Take(log[f], offset) = Take(log[l], offset)
    /\ \E i \in DOMAIN asked[f] :
          LET request == asked[f][i] IN
          /\ request.to = l /\ request.offset = offset /\ request.epoch = Seen(l).leaderEpoch
          /\ leading' = [leading EXCEPT ![l].fetched[f] = [end |-> offset, brokerEpoch |-> request.brokerEpoch]]
    /\ served' = IF result = "parked" THEN served
                 ELSE [served EXCEPT ![f] = [from |-> offset, records |-> SubSeq(log[l], offset + 1, LogEnd(l))]]
    /\ UNCHANGED <<controller, up, view, log, highWatermark, requests, history, asked>>

IsLeaderServeFetch(l, f, offset, result, end) ==
    /\ Same(end, LogEnd(l))
    /\ IF result \in {"records", "parked"} THEN IsCounted(l, f, offset, result)
       ELSE /\ \E i \in DOMAIN asked[f] : asked[f][i].to = l /\ asked[f][i].offset = offset
            /\ UNCHANGED <<vars, asked, served>>

IsFollowerAppend(f, count, end) ==
    /\ f \in up
    /\ count > 0 => served[f].from = LogEnd(f) /\ count <= Len(served[f].records)
    /\ log' = [log EXCEPT ![f] = @ \o Take(served[f].records, count)]
    /\ Same(end, Len(log'[f]))
    /\ UNCHANGED <<controller, up, view, highWatermark, leading, requests, history>>

IsTruncate(f, end) ==
    /\ f \in up /\ end \in 0 .. LogEnd(f)
    /\ log' = [log EXCEPT ![f] = Take(@, end)]
    /\ highWatermark' = [highWatermark EXCEPT ![f] = Min(@, end)]
    /\ UNCHANGED <<controller, up, view, leading, requests, history>>

-----------------------------------------------------------------------------
(* Crashes: the restart shows how much was lost *)

IsCrash(b) == IF b \in up THEN Crash(b, LogEnd(b)) ELSE UNCHANGED vars

\* Or a replica is created again, on a broker that had none or that received a StopReplica with deletion.
IsRestart(b, end) ==
    /\ b \in up => b \notin Now.isr
    /\ end \in 0 .. LogEnd(b)
    /\ up' = up \union {b}
    /\ brokerEpoch' = [brokerEpoch EXCEPT ![b] = @ + 1]
    /\ log' = [log EXCEPT ![b] = Take(@, end)]
    /\ highWatermark' = [highWatermark EXCEPT ![b] = Min(@, end)]
    /\ view' = [view EXCEPT ![b] = 0] /\ leading' = [leading EXCEPT ![b] = NotLeading]
    /\ UNCHANGED <<metadata, fenced, requests, history>>

\* The folder of a broker: the leader epoch of each record, and a checkpoint of the high watermark.  Not a step.
IsStored(b, content, hw) ==
    /\ content = {<<n, log[b][n]>> : n \in 1 .. LogEnd(b)}
    /\ hw <= Min(Len(committed), LogEnd(b))
    /\ Agree(Take(log[b], hw), committed)
    /\ UNCHANGED vars

-----------------------------------------------------------------------------
InSpec(s) ==
    LET node == s[2] IN
    CASE s[1] = "ElectLeader"         -> IsElectLeader(s[4], s[5], s[6], s[7], s[8])
      [] s[1] = "ControllerShrinkIsr" -> IsControllerShrinkIsr(s[4], s[5], s[6], s[7])
      [] s[1] = "LeaderProposeIsr"    -> IsLeaderProposeIsr(node, s[4])
      [] s[1] = "LeaderChangeIsr"     -> IsLeaderChangeIsr(node, s[4], s[5], s[6], s[7])
      [] s[1] = "LeaderLearnIsr"      -> IsLeaderLearnIsr(node, s[4], s[5], s[6])
      [] s[1] = "BecomeLeader"        -> IsBecomeLeader(node, s[4], s[5], s[6])
      [] s[1] = "BecomeFollower"      -> IsBecomeFollower(node, s[4], s[5], s[6])
      [] s[1] = "LeaderWrite"         -> IsLeaderWrite(node, s[4], s[5], s[6])
      [] s[1] = "LeaderAdvanceHw"     -> IsAdvanceHw(node, s[3])
      [] s[1] = "LeaderAck"           -> IsLeaderAck(node, s[4])
      [] s[1] = "FollowerAppend"      -> IsFollowerAppend(node, s[4], s[5])
      [] s[1] = "TruncateToEpochEnd"  -> IsTruncate(node, s[4])
      [] s[1] = "Crash"               -> IsCrash(node)
      [] s[1] = "Restart"             -> IsRestart(node, s[4])
      [] s[1] = "Stored"              -> IsStored(node, s[4], s[3])

Explained(s) ==
    CASE s[1] = "SendFetch"        -> IsSendFetch(s[2], s[4], s[5], s[6])
      [] s[1] = "LeaderServeFetch" -> IsLeaderServeFetch(s[2], s[4], s[5], s[6], s[7])
      [] OTHER                     -> InSpec(s) /\ UNCHANGED <<asked, served>>

\* Only a leader's high watermark is checked here; it never decreases.
Claims(s) ==
    IF s[1] \in {"LeaderLearnIsr", "LeaderServeFetch", "BecomeLeader", "LeaderAck"} /\ s[3] # Unlogged
       /\ (s[1] = "BecomeLeader" \/ (Leads(s[2]) /\ s[3] # highWatermark[s[2]]))
    THEN [broker |-> s[2], end |-> s[3]] ELSE Nothing

\* A killed process may have stored records without writing a trace line; the log end after its restart shows how many.
Unsaid ==
    /\ line <= Length /\ Step(line)[1] = "Crash" /\ Step(line)[4]
    /\ LET b == Step(line)[2]
           lives == {n \in line + 1 .. Length : Step(n)[1] = "Restart" /\ Step(n)[2] = b} IN
       /\ lives # {}
       /\ LET more == Step(CHOOSE n \in lives : \A m \in lives : n <= m)[4] - LogEnd(b) IN
          more > 0 /\ (IsLeaderWrite(b, more, Unlogged, Unlogged) \/ IsFollowerAppend(b, more, Unlogged))
    /\ UNCHANGED <<line, traceVars>>

\* MayCrash of the module.
Affordable(s) ==
    s[1] = "Crash" /\ s[2] \in up \intersect Eligible =>
        /\ Cardinality((unclean \intersect Eligible) \union {s[2]}) < MinIsr
        /\ Eligible \ (unclean \union {s[2]}) # {}

TraceStep ==
    /\ line <= Length /\ owing = Nothing
    /\ withinBudget' = (withinBudget /\ Affordable(Step(line)))
    /\ line' = line + 1
    /\ Explained(Step(line))
    /\ owing' = Claims(Step(line))

\* The same line again: explains its high watermark.
Explain ==
    /\ owing # Nothing /\ owing' = Nothing
    /\ IF Step(line - 1)[1] = "BecomeLeader" THEN IsTakenOver(owing.broker, owing.end) ELSE IsAdvanceHw(owing.broker, owing.end)
    /\ UNCHANGED <<line, asked, served, withinBudget>>

\* The partition as it was created; no broker has learned of it.
TraceInit ==
    /\ metadata = << IF Creation > Length THEN [leader |-> None, leaderEpoch |-> 0, isr |-> {}, elr |-> {}]
                     ELSE [leader |-> Step(Creation)[4], leaderEpoch |-> 0, isr |-> Step(Creation)[6], elr |-> {}] >>
    /\ fenced = {} /\ brokerEpoch = [b \in Brokers |-> 0]
    /\ up = Brokers /\ view = [b \in Brokers |-> 0]
    /\ log = [b \in Brokers |-> <<>>] /\ highWatermark = [b \in Brokers |-> 0]
    /\ leading = [b \in Brokers |-> NotLeading]
    /\ requests = {} /\ committed = <<>> /\ acked = 0 /\ unclean = {}
    /\ line = 1 /\ TLCSet(1, 0)
    /\ asked = [b \in Brokers |-> <<>>] /\ served = [b \in Brokers |-> [from |-> 0, records |-> <<>>]] /\ owing = Nothing
    /\ withinBudget = TRUE

TraceSpec == TraceInit /\ [][TraceStep \/ Explain \/ Unsaid]_<<vars, traceVars, line>>

Milestone == owing = Nothing /\ (line > Length \/ (line > 1 /\ Step(line - 1)[1] = "BecomeLeader"))
Promises ==
    [LeaderCountsIsr     |-> LeaderCountsIsr,
     CommittedOnEligible |-> withinBudget => CommittedOnEligible,
     CommittedSurvives   |-> withinBudget => CommittedSurvives,
     AckedSurvives       |-> withinBudget => AckedSurvives,
     LeadersAgree        |-> withinBudget => LeadersAgree,
     EnoughHold          |-> withinBudget => EnoughHold]

\* Checked as an invariant, and after the last line: what the theorems of the module promise.
PromisesKept == Milestone => \A promise \in DOMAIN Promises : Promises[promise] \/ (PrintT(<<"BROKEN", line - 1, promise>>) /\ FALSE)

\* Checked as an invariant: prints each line that is reached for the first time, and ends the run after the last one:
\* then the trace is accepted.
Reached ==
    line > TLCGet(1) /\ owing = Nothing =>
        /\ TLCSet(1, line) /\ PrintT(<<"REACHED", line>>)
        /\ line > Length => PrintT("TRACE_ACCEPTED") /\ TLCSet("exit", TRUE)

\* Prints the state before ShownLine, to find out why a line was rejected.
Show ==
    line = ShownLine /\ owing = Nothing =>
        /\ PrintT(<<"SHOWN", "store", [partitionEpoch |-> PartitionEpoch - 1, leader |-> Now.leader, isr |-> Now.isr,
                                       leaderEpoch |-> Now.leaderEpoch, eligible |-> Eligible,
                                       proposed |-> {<<each.leader, DOMAIN each.isr>> : each \in requests}]>>)
        /\ \A b \in Brokers :
              PrintT(<<"SHOWN", b, [up |-> b \in up, view |-> view[b] - 1, logEnd |-> LogEnd(b),
                                    highWatermark |-> highWatermark[b],
                                    fetching |-> [i \in DOMAIN asked[b] |-> asked[b][i].offset]]>>)
        /\ \A l \in Brokers : Leads(l) =>
              PrintT(<<"SHOWN", l, [isr |-> Seen(l).isr, proposed |-> DOMAIN leading[l].proposed, minIsr |-> MinIsr,
                                    epochStart |-> leading[l].epochStart,
                                    fetched |-> {<<f, leading[l].fetched[f].end>> : f \in Brokers \ {l}}]>>)
=============================================================================
