------------------------- MODULE TraceHwTruncation -------------------------
(***************************************************************************)
(* Checks whether the trace of a broker is a behaviour of HwTruncation.    *)
(* Each line contains the action, the choices made and values after the    *)
(* step; the spec must have such a step. trace.toml defines the fields of  *)
(* a line.                                                                 *)
(***************************************************************************)
EXTENDS HwTruncation, TLC

CONSTANTS Step(_),      \* a line of the trace: <<action, node, high watermark, ...>>
          Length,       \* how many lines there are
          ShownLine     \* print the state before this one (0: none)

VARIABLES
    line,               \* the next line to explain
    withinBudget        \* no crash has gone beyond the fault budget (README.md, "Budget")

Unlogged == -2
Same(logged, actual) == logged = Unlogged \/ logged = actual

TraceNone == -1
TraceInFlight == 4

\* A run may go beyond the fault budget; from then on less is promised.
TraceMayLose(b) == TRUE
TraceMayCrash(b) == TRUE

\* The metadata log has named the elected broker as the last known leader.
TraceLastKnownLeads == line <= Length /\ Step(line)[1] = "ElectLeader" /\ Step(line)[8]

\* The broker may hold back the high watermark, so the logged value decides.
TraceHwChoices(l, lead) ==
    LET logged == Step(line)[3] IN
    IF logged = Unlogged THEN {CommittedEnd(l, lead)} ELSE {logged} \intersect (highWatermark[l] .. CommittedEnd(l, lead))

Now(partitionEpoch) == Same(partitionEpoch, metadata'[Len(metadata')].partitionEpoch)
Ends(b, end) == Same(end, Len(log'[b]))

IsElectLeader(leader, epoch, isr, partitionEpoch) ==
    ElectLeader(leader, isr) /\ Same(epoch, Len(metadata)) /\ Now(partitionEpoch)

\* KRaft since 3.6: without a leader, a broker that restarted uncleanly leaves the ISR in the same leader epoch.
ShrinkInEpoch(isr) ==
    /\ metadata # <<>> /\ Store.leader = None
    /\ isr # {} /\ isr \subseteq Store.isr /\ isr # Store.isr
    /\ metadata' = [metadata EXCEPT ![Epoch + 1].isr = isr, ![Epoch + 1].partitionEpoch = @ + 1]
    /\ unclean' = unclean \intersect isr
    /\ UNCHANGED <<roles, replicas, leading, messages, committed>>

IsControllerShrinkIsr(leader, epoch, isr, partitionEpoch) ==
    /\ IF leader = None /\ epoch = Epoch THEN ShrinkInEpoch(isr) ELSE ControllerShrinkIsr(isr) /\ Same(epoch, Len(metadata))
    /\ leader = Store.leader /\ Now(partitionEpoch)

IsLeaderChangeIsr(l, leader, epoch, isr, partitionEpoch) ==
    /\ LeaderChangeIsr(l)
    /\ Same(leader, Store.leader) /\ Same(epoch, Epoch) /\ isr = DOMAIN leading[l].proposed /\ Now(partitionEpoch)

IsLeaderLearnIsr(l, accepted, isr, partitionEpoch) ==
    LeaderLearnIsr(l, accepted) /\ leading'[l].isr = isr /\ Same(partitionEpoch, leading'[l].partitionEpoch)

IsBecomeLeader(b, epoch, end, isr) ==
    epoch \in 0 .. Epoch /\ BecomeLeader(b, epoch) /\ isr = leading'[b].isr /\ Ends(b, end)

IsBecomeFollower(b, epoch, leader, end) ==
    epoch \in 0 .. Epoch /\ BecomeFollower(b, epoch) /\ leader = InEpoch(epoch).leader /\ Ends(b, end)

IsSendFetch(f, leader, offset, epoch, lastEpoch) ==
    /\ SendFetch(f)
    /\ leader = LeaderOf(f)
    /\ offset = Request(f).offset /\ epoch = Request(f).leaderEpoch /\ Same(lastEpoch, Request(f).lastEpoch)

\* In an orderly stop another broker is elected first; then the old leader receives a StopReplica, which has no line.
RefuseStopped(l, f, i) ==
    /\ Arrived(l, f, i) /\ Store.leader # l
    /\ Answer(f, i, NoReply)
    /\ UNCHANGED <<store, roles, log, latestEpoch, leading, highWatermark, committed>>

IsLeaderServeFetch(l, f, offset, result, answerEnd, end) ==
    \E i \in DOMAIN fetch[f] :
        /\ fetch[f][i].offset = offset
        /\ IF result = "parked" THEN LeaderParkFetch(l, f, i)
           ELSE IF result = "not_leader" /\ Leads(l) THEN RefuseStopped(l, f, i)
           ELSE /\ LeaderServeFetch(l, f, i)
                /\ result = FetchResult(l, fetch[f][i])
                /\ result = "diverging" => Same(answerEnd, DivergingReply(l, fetch[f][i]).end)
        /\ Ends(l, end)

IsTruncateToEpochEnd(f, offset, end) ==
    TruncateToEpochEnd(f) /\ Same(offset, TruncationPoint(f, reply[f])) /\ Ends(f, end)

\* A replica is created again, on a broker that had none or that received a StopReplica with deletion.
Recreate(b) ==
    /\ ~InIsr(b)
    /\ status' = [status EXCEPT ![b] = CASE @ = "active" -> "idle" [] @ = "down" -> "starting clean" [] OTHER -> @]
    /\ log' = [log EXCEPT ![b] = <<>>] /\ latestEpoch' = [latestEpoch EXCEPT ![b] = Unknown]
    /\ highWatermark' = [highWatermark EXCEPT ![b] = 0]
    /\ leading' = [leading EXCEPT ![b] = NotLeading] /\ reply' = [reply EXCEPT ![b] = NoReply]
    /\ UNCHANGED <<store, brokerEpoch, leaderEpoch, fetch, committed>>

IsRestart(b, end, hw, clean) == Restart(b, end, hw, clean) \/ (end = 0 /\ hw = 0 /\ Recreate(b))

\* The folder of a broker: the leader epoch of each record, and a checkpoint of the high watermark.  Not a step.
IsStored(b, content, hw) ==
    /\ content = {<<n, log[b][n]>> : n \in 1 .. LogEnd(b)}
    /\ hw <= Min(Len(committed), LogEnd(b))
    /\ Agree(Take(log[b], hw), committed)
    /\ UNCHANGED vars

\* A broker that restarts without a replica has no Restart line, and may crash again.
Explained(s) ==
    LET node == s[2] IN
    CASE s[1] = "ElectLeader"         -> IsElectLeader(s[4], s[5], s[6], s[7])
      [] s[1] = "ControllerShrinkIsr" -> IsControllerShrinkIsr(s[4], s[5], s[6], s[7])
      [] s[1] = "LeaderProposeIsr"    -> LeaderProposeIsr(node, s[4])
      [] s[1] = "LeaderChangeIsr"     -> IsLeaderChangeIsr(node, s[4], s[5], s[6], s[7])
      [] s[1] = "LeaderLearnIsr"      -> IsLeaderLearnIsr(node, s[4], s[5], s[6])
      [] s[1] = "BecomeLeader"        -> IsBecomeLeader(node, s[4], s[5], s[6])
      [] s[1] = "BecomeFollower"      -> IsBecomeFollower(node, s[4], s[5], s[6])
      [] s[1] = "LeaderWrite"         -> LeaderWrite(node, s[4]) /\ Ends(node, s[5]) /\ Same(s[6], leaderEpoch[node])
      [] s[1] = "LeaderAdvanceHw"     -> LeaderAdvanceHw(node, s[3])
      [] s[1] = "LeaderAck"           -> LeaderAck(node, s[4])
      [] s[1] = "SendFetch"           -> IsSendFetch(node, s[4], s[5], s[6], s[7])
      [] s[1] = "LeaderServeFetch"    -> IsLeaderServeFetch(node, s[4], s[5], s[6], s[7], s[8])
      [] s[1] = "FollowerAppend"      -> FollowerAppend(node, s[4]) /\ Ends(node, s[5])
      [] s[1] = "TruncateToEpochEnd"  -> IsTruncateToEpochEnd(node, s[4], s[5])
      [] s[1] = "Crash"               -> IF Up(node) THEN Crash(node) ELSE UNCHANGED vars
      [] s[1] = "Restart"             -> IsRestart(node, s[4], s[3], s[5])
      [] s[1] = "RegisterBroker"      -> Register(node)
      [] s[1] = "Stored"              -> IsStored(node, s[4], s[3])

\* The only step without a line, unless the trace has such lines: the registration of a broker that restarted.
RegistersInLines == \E n \in 1 .. Length : Step(n)[1] = "RegisterBroker"
Unseen == ~RegistersInLines /\ \E b \in Brokers : Register(b) /\ UNCHANGED <<line, withinBudget>>

\* A killed process may have stored records without writing a trace line; the log end after its restart shows how many.
Unsaid ==
    /\ line <= Length /\ Step(line)[1] = "Crash" /\ Step(line)[4]
    /\ LET b == Step(line)[2]
           lives == {n \in line + 1 .. Length : Step(n)[1] = "Restart" /\ Step(n)[2] = b} IN
       /\ lives # {}
       /\ LET more == Step(CHOOSE n \in lives : \A m \in lives : n <= m)[4] - LogEnd(b) IN
          more > 0 /\ (LeaderWrite(b, more) \/ FollowerAppend(b, more))
    /\ UNCHANGED <<line, withinBudget>>

\* MayCrash and MayLose of the module.
Affordable(s) ==
    LET b == s[2] IN
    CASE s[1] = "Crash"   -> InIsr(b) /\ (\E other \in Store.isr \ {b} : Up(other) /\ ~Clean(other)) => OtherIsClean(b)
      [] s[1] = "Restart" -> InIsr(b) /\ s[4] < LogEnd(b) => OtherIsClean(b)
      [] s[1] = "ElectLeader" -> ~TraceLastKnownLeads
      [] OTHER            -> TRUE

TraceStep ==
    /\ line <= Length
    /\ line' = line + 1
    /\ withinBudget' = (withinBudget /\ Affordable(Step(line)))
    /\ Explained(Step(line))
    /\ Step(line)[1] \notin {"ElectLeader", "ControllerShrinkIsr", "LeaderChangeIsr", "Stored"} =>
          Same(Step(line)[3], highWatermark'[Step(line)[2]])

TraceSpec ==
    Init /\ line = 1 /\ withinBudget = TRUE /\ TLCSet(1, 0) /\ [][TraceStep \/ Unseen \/ Unsaid]_<<vars, line, withinBudget>>

\* Several records in one batch, which Next writes one after the other.
WriteBatch(l) == LET count == Len(log'[l]) - LogEnd(l) IN count > 1 /\ LeaderWrite(l, count)

\* Every step of an accepted trace is one of the module, or one of these: they are not in it.  Only so many lines are
\* compared, since Next tries every offset.
Compared == 2000
More ==
    \/ \E b \in Brokers : WriteBatch(b) \/ Recreate(b)
    \/ \E isr \in SUBSET Brokers : ShrinkInEpoch(isr)
    \/ \E l, f \in Brokers : \E i \in DOMAIN fetch[f] : RefuseStopped(l, f, i)
StepsOfModule == [][line <= Compared => Next \/ More]_vars

Milestone == line > Length \/ (line > 1 /\ Step(line - 1)[1] = "BecomeLeader")
Promises ==
    [HwWithinLog    |-> HwWithinLog,
     EpochsAscend   |-> EpochsAscend,
     LogMatching    |-> LogMatching,
     CommittedOnIsr |-> withinBudget => CommittedOnIsr,
     AckedSurvives  |-> withinBudget => AckedSurvives,
     LeadersAgree   |-> withinBudget => LeadersAgree,
     ReadersAgree   |-> withinBudget => ReadersAgree]

\* Checked as an invariant, and after the last line: what the theorems of the module promise.
PromisesKept == Milestone => \A promise \in DOMAIN Promises : Promises[promise] \/ (PrintT(<<"BROKEN", line - 1, promise>>) /\ FALSE)

\* Checked as an invariant: prints each line that is reached for the first time, and ends the run after the last one:
\* then the trace is accepted.
Reached ==
    line > TLCGet(1) =>
        /\ TLCSet(1, line) /\ PrintT(<<"REACHED", line>>)
        /\ line > Length => PrintT("TRACE_ACCEPTED") /\ TLCSet("exit", TRUE)

\* Prints the state before ShownLine, to find out why a line was rejected.
Show ==
    line = ShownLine =>
        /\ metadata # <<>> =>
              PrintT(<<"SHOWN", "store", [leaderEpoch |-> Epoch, leader |-> Store.leader, isr |-> Store.isr,
                                          partitionEpoch |-> Store.partitionEpoch, unclean |-> unclean]>>)
        /\ \A b \in Brokers :
              PrintT(<<"SHOWN", b, [status |-> status[b], leaderEpoch |-> leaderEpoch[b], logEnd |-> LogEnd(b),
                                    latestEpoch |-> latestEpoch[b], highWatermark |-> highWatermark[b],
                                    fetching |-> [i \in DOMAIN fetch[b] |-> fetch[b][i].offset],
                                    reply |-> reply[b].result]>>)
        /\ \A l \in Brokers : Leads(l) =>
              PrintT(<<"SHOWN", l, [isr |-> leading[l].isr, proposed |-> DOMAIN leading[l].proposed,
                                    partitionEpoch |-> leading[l].partitionEpoch, epochStart |-> leading[l].epochStart,
                                    fetched |-> {<<f, leading[l].fetched[f].end>> : f \in Brokers \ {l}}]>>)
=============================================================================
