-------------------------- MODULE MCEagerRebalance --------------------------
(* EagerRebalance, bounded so that TLC sees every state: README.md, "Bounds". *)
EXTENDS EagerRebalance, Sequences, TLC

CONSTANTS
    MaxGeneration, MaxIds, MaxLate, MaxRetries, MaxExpiries, MaxTimeouts, MaxRestarts, MaxFailovers, MaxCommits,
    Stuck       \* clients that hang for good once they have joined, while their heartbeats go on

VARIABLE spent      \* how often each kind of trouble has happened

Troubles == {"retries", "expiries", "timeouts", "restarts", "failovers", "commits"}

MCInit == Init /\ spent = [trouble \in Troubles |-> 0]

Once(trouble, bound) == spent[trouble] < bound /\ spent' = [spent EXCEPT ![trouble] = @ + 1]

Late == Cardinality({call \in calls : ~call.awaited /\ call.at = "sent"})

MCTakeMemberId(c) == issued[c] < MaxIds /\ TakeMemberId(c) /\ UNCHANGED spent
MCSendJoin(c) == SendJoin(c) /\ UNCHANGED spent
MCTakeJoinReply == (\E call \in calls : call.client \notin Stuck /\ TakeJoinReply(call)) /\ UNCHANGED spent
MCTakeSyncReply == (\E call \in calls : TakeSyncReply(call)) /\ UNCHANGED spent
MCHeartbeat(c) == Heartbeat(c) /\ UNCHANGED spent

\* Asking again is free if nobody will ever answer.
MCGiveUp(c) ==
    \/ Awaits(c) /\ Once("retries", MaxRetries) /\ \E late \in BOOLEAN : (late => Late < MaxLate) /\ GiveUp(c, late)
    \/ ~Awaits(c) /\ GiveUp(c, FALSE) /\ UNCHANGED spent

MCSendCommit(c) == Once("commits", MaxCommits) /\ \E p \in Partitions : SendCommit(c, p)
MCRestart(c) == Once("restarts", MaxRestarts) /\ Restart(c)

MCHandleJoin ==
    /\ \E call \in calls : (call.id = None => issued[call.client] < MaxIds) /\ HandleJoin(call)
    /\ UNCHANGED spent

\* Nobody speaks for this member any more, or only a heartbeat does.
Abandoned(id) ==
    /\ \A c \in Clients : client[c].id # id
    /\ \A call \in calls : call.awaited => call.id # id
Hopeless(id) == Abandoned(id) \/ \E c \in Stuck : client[c].id = id

\* A timeout that hits who is only slow is counted; the others come as they must.
Timeout(trouble, bound, victims, Justified(_)) ==
    \/ Once(trouble, bound)
    \/ (\A id \in victims : Justified(id)) /\ UNCHANGED spent

MCCompleteJoin == group.generation < MaxGeneration /\ CompleteJoin(FALSE) /\ UNCHANGED spent

MCJoinTimeout ==
    /\ group.generation < MaxGeneration
    /\ Timeout("timeouts", MaxTimeouts, group.members \ Waiting("JoinGroup"), Hopeless)
    /\ CompleteJoin(TRUE)

MCHandleSync == (\E call \in calls : HandleSync(call)) /\ UNCHANGED spent

MCExpireUnsynced ==
    /\ group.generation < MaxGeneration
    /\ Timeout("timeouts", MaxTimeouts, group.members \ Waiting("SyncGroup"), Hopeless)
    /\ ExpireUnsynced

MCHandleCommit == (\E call \in calls : HandleCommit(call)) /\ UNCHANGED spent

MCExpireSession ==
    /\ group.generation < MaxGeneration
    /\ \E id \in group.members : Timeout("expiries", MaxExpiries, {id}, Abandoned) /\ ExpireSession(id)

MCFailover == Once("failovers", MaxFailovers) /\ Failover

MCNext ==
    \/ \E c \in Clients : \/ MCTakeMemberId(c) \/ MCSendJoin(c) \/ MCHeartbeat(c)
                          \/ MCGiveUp(c) \/ MCSendCommit(c) \/ MCRestart(c)
    \/ MCTakeJoinReply \/ MCTakeSyncReply \/ MCHandleJoin \/ MCHandleSync \/ MCHandleCommit
    \/ MCCompleteJoin \/ MCJoinTimeout \/ MCExpireSession \/ MCExpireUnsynced \/ MCFailover

mcVars == <<vars, spent>>

MCSpec == MCInit /\ [][MCNext]_mcVars

-----------------------------------------------------------------------------
(* Once the troubles are over *)

\* Weak fairness is enough, of what really is certain to happen: a message that is on its way and awaited arrives, a
\* client that runs goes on and sends heartbeats, timeouts fire on who will not come.
Told(c) == (\E call \in calls : call.client = c /\ (TakeJoinReply(call) \/ TakeSyncReply(call))) /\ UNCHANGED spent

Handled(c) ==
    (\E call \in calls : call.client = c /\ call.awaited /\ (HandleJoin(call) \/ HandleSync(call))) /\ UNCHANGED spent

OwnSteps(c) ==
    /\ WF_mcVars(MCTakeMemberId(c))
    /\ WF_mcVars(MCSendJoin(c))
    /\ WF_mcVars(MCHeartbeat(c))
    /\ WF_mcVars(~Awaits(c) /\ MCGiveUp(c))
    /\ WF_mcVars(Told(c))

Fairness ==
    /\ \A c \in Clients \ Stuck : OwnSteps(c)
    /\ \A c \in Clients : WF_mcVars(Handled(c))
    /\ WF_mcVars(MCCompleteJoin)
    /\ WF_mcVars(MCJoinTimeout /\ UNCHANGED spent)
    /\ WF_mcVars(MCExpireUnsynced /\ UNCHANGED spent)
    /\ WF_mcVars(MCExpireSession /\ UNCHANGED spent)

MCLiveSpec == MCSpec /\ Fairness

\* Everybody who runs is a member of the current generation and owns what it was given, and nothing is left over.
Settled ==
    /\ group.state = "Stable"
    /\ \A p \in Partitions : group.assignment[p] \in group.members
    /\ \A c \in Clients \ Stuck :
          \/ client[c].phase = "closed"
          \/ client[c].phase = "member" /\ Current(c) /\ client[c].owned = Assigned(client[c].id)

EventuallySettled == <>[]Settled

\* If only those are missing who will not come, a timeout is about to end the wait.
WayOut ==
    group.state = "CompletingRebalance" /\ (\A id \in group.members \ Waiting("SyncGroup") : Hopeless(id))
        => ENABLED MCExpireUnsynced

\* The bounds of the model do not get in the way.
Room == group.generation < MaxGeneration /\ \A c \in Clients : issued[c] < MaxIds

-----------------------------------------------------------------------------
(* What holds within the bounds *)

Quiet(troubles) == \A trouble \in troubles : spent[trouble] = 0

\* No member of the group is one that its process never heard of (KIP-394).
NoGhosts == Quiet({"restarts", "failovers"}) => \A m, n \in group.members : m[1] = n[1] => m = n

\* A static process whose place another took does not come back for it.
ReplacedStayOut == Quiet({"restarts", "failovers", "retries", "expiries"}) => \A id \in replaced : issued[id[1]] = id[2]

Symmetry ==
    {a @@ b @@ d : a \in Permutations(Clients \ Twins), b \in Permutations(Twins), d \in Permutations(Partitions)}

-----------------------------------------------------------------------------
(* What comes up *)

TwoRequestsInFlight ==
    \E a, b \in calls : a # b /\ a.client = b.client /\ a.at = "sent" /\ b.at = "sent" /\ b.kind = "SyncGroup"
PartitionMoved ==
    group.state = "Stable" /\ \E p \in Partitions : committed[p] # None /\ committed[p].member # group.assignment[p]
ZombieStillOwns == \E c, d \in Clients : c # d /\ client[c].owned \intersect client[d].owned # {}
ZombieCommits == group.state = "Stable" /\ \E call \in Sent("OffsetCommit") : call.generation < group.generation
StrangerCommits == \E call \in Sent("OffsetCommit") : call.generation = group.generation /\ call.id \notin group.members
StaticReplacedInStable == group.state = "Stable" /\ \E call \in Answered("JoinGroup") : IsStatic(call.id)
StaticReplacedElsewhere == replaced # {} /\ \E call \in Parked("JoinGroup") : IsStatic(call.id)
StaticTwinFenced == \E c \in Twins : client[c].phase = "closed"
StaticMemberAbsent ==
    /\ group.state = "CompletingRebalance"
    /\ \E c \in Twins : client[c].id \in group.members /\ client[c].generation \in 1 .. (group.generation - 1)
GenerationReissued ==
    \E call \in calls : /\ call.kind = "JoinGroup" /\ call.at = "answered" /\ call.generation = group.generation
                        /\ call.members # {} /\ call.id # group.leader
BarrierBroken == ~Barrier
EmptyAgain == group.state = "Empty" /\ group.generation > NoGeneration
=============================================================================
