--------------------------- MODULE MCHwTruncation ---------------------------
(* HwTruncation, bounded so that TLC can explore every state: README.md, "Bounds". *)
EXTENDS HwTruncation, TLC

CONSTANTS MaxLeaderEpoch, MaxRecords, MaxIsrChanges, MaxCrashes
CONSTANT Rare           \* what most rows leave out: a set of "WrongDetection", "OldCheckpoint" and "CleanRestart"

Records == UNION {{<<n, log[b][n]>> : n \in 1 .. LogEnd(b)} : b \in Brokers}
IsrChanges == IF metadata = <<>> THEN 0 ELSE Store.partitionEpoch - Epoch
Crashes == Cardinality({<<b, n>> \in Brokers \X (1 .. MaxCrashes) : n <= brokerEpoch[b] + IF Registered(b) THEN 0 ELSE 1})

\* The controller keeps the members that may stay and are up.  If its detection of failures is wrong, it keeps members
\* that are down, even as leader, and removes others that are up; to the fault budget that is like a crash.
MCElectLeader(l) ==
    /\ Epoch < MaxLeaderEpoch
    /\ \/ metadata # <<>> /\ LastKnown(l) /\ ElectLeader(l, {l})
       \/ IF metadata = <<>>
          THEN \E isr \in SUBSET Brokers : l \in isr /\ ElectLeader(l, isr)
          ELSE IF "WrongDetection" \in Rare
          THEN \E isr \in SUBSET Stays :
                  /\ (\E b \in Store.isr : Clean(b)) => \E b \in isr : Clean(b)
                  /\ ElectLeader(l, isr)
          ELSE LET live == {b \in Stays : Up(b)} IN
               \/ l \in live /\ ElectLeader(l, live)
               \/ l = None /\ live = {} /\ ElectLeader(None, Stays)
               \/ ~ElectFromIsr /\ l \in Brokers \ Stays /\ Up(l) /\ ElectLeader(l, {l})

MCBecomeLeader(b) == \E e \in 0 .. Epoch : BecomeLeader(b, e)
MCBecomeFollower(b) == \E e \in 0 .. Epoch : BecomeFollower(b, e)

MCLeaderWrite(l) ==
    /\ Cardinality(Records) < MaxRecords
    /\ LeaderWrite(l, 1)

MCLeaderAdvanceHw(l) == LeaderAdvanceHw(l, CommittedEnd(l, leading[l]))

MCLeaderAck(l) ==
    /\ ~AckAfterCommit          \* otherwise it changes nothing
    /\ LogEnd(l) > 0
    /\ LeaderAck(l, LogEnd(l) - 1)

MCLeaderProposeIsr(l) ==
    /\ IsrChanges < MaxIsrChanges
    /\ Leads(l)
    /\ \E f \in Brokers \ {l} :
          LeaderProposeIsr(l, IF f \in leading[l].isr THEN leading[l].isr \ {f} ELSE leading[l].isr \union {f})

\* A fetch in one step: sent, served, and its reply taken or lost (README.md, "Fewer states").
FetchAtOnce(l, f, hw, taken) ==
    LET request == Request(f)
        lead == AfterFetch(l, f, request) IN
    /\ LeaderOf(f) = l /\ f # l /\ Up(l)
    /\ FetchResult(l, request) = "records"
    /\ leading' = [leading EXCEPT ![l] = lead]
    /\ committed' = Told(l, hw)
    /\ IF taken
       THEN LET records == log[f] \o SubSeq(log[l], request.offset + 1, LogEnd(l)) IN
            /\ log' = [log EXCEPT ![f] = records]
            /\ latestEpoch' = [latestEpoch EXCEPT ![f] = IF LogEnd(l) = request.offset THEN @ ELSE LastEpoch(records)]
            /\ highWatermark' = [highWatermark EXCEPT ![l] = hw, ![f] = Max(@, Min(hw, Len(records)))]
       ELSE /\ LogEnd(l) > request.offset        \* otherwise the reply contains nothing new
            /\ UNCHANGED <<log, latestEpoch>>
            /\ highWatermark' = [highWatermark EXCEPT ![l] = hw]
    /\ UNCHANGED <<store, roles, messages>>

MCFetchTaken(l, f) == FetchAtOnce(l, f, CommittedEnd(l, AfterFetch(l, f, Request(f))), TRUE)
MCFetch(l, f) == MCFetchTaken(l, f) \/ FetchAtOnce(l, f, CommittedEnd(l, AfterFetch(l, f, Request(f))), FALSE)

\* The same if the leader returns the point of divergence.
MCTruncate(l, f) ==
    /\ LeaderOf(f) = l /\ f # l /\ Up(l)
    /\ FetchResult(l, Request(f)) = "diverging"
    /\ LET end == TruncationPoint(f, DivergingReply(l, Request(f))) IN
       /\ Truncate(f, end)
       /\ highWatermark' = [highWatermark EXCEPT ![f] = Min(@, end)]
    /\ UNCHANGED <<store, roles, leading, messages, committed>>

MCCrash(b) ==
    /\ Crashes < MaxCrashes
    /\ Crash(b)

\* The checkpoint of the high watermark is written now and then, and so may be old.  A clean shutdown loses nothing.
MCRestart(b) ==
    \E end \in 0 .. LogEnd(b), clean \in {FALSE} \union IF "CleanRestart" \in Rare THEN {TRUE} ELSE {} :
        LET newest == Min(highWatermark[b], end) IN
        \E hw \in IF "OldCheckpoint" \in Rare THEN 0 .. newest ELSE {newest} : Restart(b, end, hw, clean)

Others ==
    \/ \E l \in Brokers \union {None} : MCElectLeader(l)
    \/ \E b \in Brokers : MCBecomeLeader(b) \/ MCBecomeFollower(b)
    \/ \E l \in Brokers : MCLeaderWrite(l) \/ MCLeaderAdvanceHw(l) \/ MCLeaderAck(l)
    \/ \E l \in Brokers : MCLeaderProposeIsr(l) \/ LeaderChangeIsr(l) \/ LeaderLearnIsr(l, TRUE) \/ LeaderLearnIsr(l, FALSE)
    \/ \E b \in Brokers : MCCrash(b) \/ MCRestart(b) \/ Register(b)
    \/ \E f, l \in Brokers : FollowerRaiseHw(f, l)

MCSpec == Init /\ [][Others \/ \E l, f \in Brokers : MCFetch(l, f) \/ MCTruncate(l, f)]_vars

\* For simulation: separate messages, late and in any order.
SIMFollowerAppend(f) == FollowerAppend(f, Len(reply[f].records))

SIMSpec ==
    /\ Init
    /\ [][\/ Others
          \/ \E f \in Brokers : SendFetch(f) \/ SIMFollowerAppend(f) \/ TruncateToEpochEnd(f)
          \/ \E l, f \in Brokers, i \in 1 .. InFlight : LeaderServeFetch(l, f, i) \/ LeaderParkFetch(l, f, i)]_vars

Symmetry == Permutations(Brokers)

-----------------------------------------------------------------------------
(* Liveness: after elections, crashes and writes have stopped, every follower that is up has the leader's log.  Each step
   that a broker takes by itself must happen if it stays enabled (weak fairness); clients and controller are not forced. *)

LiveSpec ==
    /\ MCSpec
    /\ \A b \in Brokers :
          /\ WF_vars(MCBecomeLeader(b)) /\ WF_vars(MCBecomeFollower(b))
          /\ WF_vars(MCRestart(b)) /\ WF_vars(Register(b))
          /\ \A l \in Brokers : WF_vars(MCFetchTaken(l, b)) /\ WF_vars(MCTruncate(l, b))

\* The same with separate messages: a follower sends a request when it awaits nothing, and no message is lost.
MessagesLiveSpec ==
    /\ Init
    /\ [][\/ Others
          \/ \E f \in Brokers : \/ fetch[f] = <<>> /\ reply[f] = NoReply /\ SendFetch(f)
                                \/ SIMFollowerAppend(f) \/ TruncateToEpochEnd(f)
          \/ \E l, f \in Brokers : LeaderServeFetch(l, f, 1)]_vars
    /\ \A b \in Brokers :
          /\ WF_vars(MCBecomeLeader(b)) /\ WF_vars(MCBecomeFollower(b))
          /\ WF_vars(fetch[b] = <<>> /\ reply[b] = NoReply /\ SendFetch(b))
          /\ WF_vars(SIMFollowerAppend(b)) /\ WF_vars(TruncateToEpochEnd(b))
          /\ \A l \in Brokers : WF_vars(LeaderServeFetch(l, b, 1))

Settled ==
    metadata # <<>> /\ Store.leader # None /\ Leads(Store.leader) /\ leaderEpoch[Store.leader] = Epoch =>
        \A f \in Brokers : leaderEpoch[f] = Epoch /\ log[f] = log[Store.leader]
FollowersConverge == <>[]Settled

-----------------------------------------------------------------------------
(* Situations that must be reachable; otherwise the claims would hold vacuously *)

ZombieLeader == \E l \in Brokers : Leads(l) /\ leaderEpoch[l] < Epoch
DivergingLogs == \E a, b \in Brokers : LogEnd(a) > 0 /\ LogEnd(b) > 0 /\ ~Agree(log[a], log[b])
CommittedAndCrashed == committed # <<>> /\ \E b \in Brokers : ~Up(b)
MemberDown == metadata # <<>> /\ \E b \in Store.isr \ unclean : ~Up(b)
UncleanLeads == metadata # <<>> /\ Store.leader \in unclean
UncleanInIsr == metadata # <<>> /\ unclean # {}
LastMemberReturns ==       \* the only member restarted uncleanly, registered, and was elected again
    /\ Epoch > 0 /\ Store.leader # None /\ InEpoch(Epoch - 1).isr = {Store.leader}
    /\ status[Store.leader] = "idle" /\ brokerEpoch[Store.leader] > 0 /\ leaderEpoch[Store.leader] < Epoch
LastKnownReturns == Epoch > 0 /\ Store.leader # None /\ Store.leader \notin InEpoch(Epoch - 1).isr
ElectedThoughDown == Epoch > 0 /\ Store.leader # None /\ ~Up(Store.leader) /\ leaderEpoch[Store.leader] < Epoch
RemovedThoughUp == Epoch > 0 /\ \E b \in InEpoch(Epoch - 1).isr \ Store.isr : Clean(b) /\ brokerEpoch[b] = 0
OldCheckpoint ==
    /\ Epoch = 0 /\ Store.leader # None /\ status[Store.leader] \in {"starting", "starting clean"}
    /\ highWatermark[Store.leader] < Min(Len(committed), LogEnd(Store.leader))
TailLost == Epoch = 0 /\ \E b \in Store.isr : status[b] = "starting" /\ LogEnd(b) < Len(committed)
NobodyLeads == metadata # <<>> /\ Store.leader = None
=============================================================================
