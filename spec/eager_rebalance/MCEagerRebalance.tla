-------------------------- MODULE MCEagerRebalance --------------------------
(* EagerRebalance, bounded so that TLC can explore every state: README.md, "Bounds". *)
EXTENDS EagerRebalance, Sequences, TLC

CONSTANTS
    MaxGeneration, MaxIds, MaxLate, MaxRetries, MaxExpiries, MaxTimeouts, MaxRestarts, MaxFailovers, MaxCommits,
    Stuck       \* clients that hang forever after they have joined, while their heartbeats continue

VARIABLE spent      \* how often each kind of fault has happened

Troubles == {"retries", "expiries", "timeouts", "restarts", "failovers", "commits"}

MCInit == Init /\ spent = [trouble \in Troubles |-> 0]

Once(trouble, bound) == spent[trouble] < bound /\ spent' = [spent EXCEPT ![trouble] = @ + 1]

Late == Cardinality({call \in calls : ~call.awaited /\ call.at = "sent"})

MCTakeMemberId(c) == issued[c] < MaxIds /\ TakeMemberId(c) /\ UNCHANGED spent
MCSendJoin(c) == SendJoin(c) /\ UNCHANGED spent
MCTakeJoinReply == (\E call \in calls : call.client \notin Stuck /\ TakeJoinReply(call)) /\ UNCHANGED spent
MCTakeSyncReply == (\E call \in calls : TakeSyncReply(call)) /\ UNCHANGED spent
MCHeartbeat(c) == Heartbeat(c) /\ UNCHANGED spent

\* A repeated request does not count as a fault if no reply can arrive any more.
MCGiveUp(c) ==
    \/ Awaits(c) /\ Once("retries", MaxRetries) /\ \E late \in BOOLEAN : (late => Late < MaxLate) /\ GiveUp(c, late)
    \/ ~Awaits(c) /\ GiveUp(c, FALSE) /\ UNCHANGED spent

MCSendCommit(c) == Once("commits", MaxCommits) /\ \E p \in Partitions : SendCommit(c, p)
MCRestart(c) == Once("restarts", MaxRestarts) /\ Restart(c)

MCHandleJoin ==
    /\ \E call \in calls : (call.id = None => issued[call.client] < MaxIds) /\ HandleJoin(call)
    /\ UNCHANGED spent

\* No client acts for this member any more; for a hopeless member at most a heartbeat is sent.
Abandoned(id) ==
    /\ \A c \in Clients : client[c].id # id
    /\ \A call \in calls : call.awaited => call.id # id
Hopeless(id) == Abandoned(id) \/ \E c \in Stuck : client[c].id = id

\* A timeout of a member that is only slow counts as a fault; other timeouts must happen.
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
(* After the faults have stopped *)

\* Weak fairness of the steps that are certain to happen is enough: a message in flight that is awaited arrives, a
\* running client continues and sends heartbeats, and the timeouts of absent members expire.
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

\* Every running client is a member of the current generation and owns its assignment, and every partition is assigned.
Settled ==
    /\ group.state = "Stable"
    /\ \A p \in Partitions : group.assignment[p] \in group.members
    /\ \A c \in Clients \ Stuck :
          \/ client[c].phase = "closed"
          \/ client[c].phase = "member" /\ Current(c) /\ client[c].owned = Assigned(client[c].id)

EventuallySettled == <>[]Settled

\* If only members are missing that will never sync, a timeout can end the wait.
WayOut ==
    group.state = "CompletingRebalance" /\ (\A id \in group.members \ Waiting("SyncGroup") : Hopeless(id))
        => ENABLED MCExpireUnsynced

\* The bounds of the model are not reached.
Room == group.generation < MaxGeneration /\ \A c \in Clients : issued[c] < MaxIds

-----------------------------------------------------------------------------
(* What holds within the bounds *)

Quiet(troubles) == \A trouble \in troubles : spent[trouble] = 0

\* The group has no member whose process does not know its member id (KIP-394).
NoGhosts == Quiet({"restarts", "failovers"}) => \A m, n \in group.members : m[1] = n[1] => m = n

\* A static process that was replaced does not join again.
ReplacedStayOut ==
    Quiet({"restarts", "failovers", "retries", "expiries", "timeouts"}) => \A id \in replaced : issued[id[1]] = id[2]

Symmetry ==
    {a @@ b @@ d : a \in Permutations(Clients \ Twins), b \in Permutations(Twins), d \in Permutations(Partitions)}

-----------------------------------------------------------------------------
(* Situations that must be reachable *)

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
OldIdReturned ==
    spent.failovers > 0 /\ \E p \in Partitions : group.assignment[p] # None /\ client[group.assignment[p][1]].phase = "closed"
GenerationReissued ==
    \E call \in calls : /\ call.kind = "JoinGroup" /\ call.at = "answered" /\ call.generation = group.generation
                        /\ call.members # {} /\ call.id # group.leader
BarrierBroken == ~AllRevoked
EmptyAgain == group.state = "Empty" /\ group.generation > NoGeneration
=============================================================================
