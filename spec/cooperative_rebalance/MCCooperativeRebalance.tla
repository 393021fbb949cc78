----------------------- MODULE MCCooperativeRebalance -----------------------
(* CooperativeRebalance, bounded so that TLC can explore every state: README.md, "Bounds". *)
EXTENDS CooperativeRebalance, Sequences, TLC

CONSTANTS
    MaxGeneration, MaxIds, MaxLate, MaxRetries, MaxExpiries, MaxTimeouts, MaxRestarts, MaxFailovers, MaxCommits,
    MaxUpgrades     \* restarts with other assignors

VARIABLE spent      \* how often each kind of fault has happened

Troubles == {"retries", "expiries", "timeouts", "restarts", "failovers", "commits", "upgrades"}

MCInit == Init /\ spent = [trouble \in Troubles |-> 0]

Once(trouble, bound) == spent[trouble] < bound /\ spent' = [spent EXCEPT ![trouble] = @ + 1]

Late == Cardinality({call \in calls : ~call.awaited /\ call.at = "sent"})

MCTakeMemberId(c) == issued[c] < MaxIds /\ TakeMemberId(c) /\ UNCHANGED spent
MCSendJoin(c) == SendJoin(c) /\ UNCHANGED spent
MCTakeJoinReply == (\E call \in calls : TakeJoinReply(call)) /\ UNCHANGED spent
MCTakeSyncReply == (\E call \in calls : TakeSyncReply(call)) /\ UNCHANGED spent
MCRevoke(c) == Revoke(c) /\ UNCHANGED spent
MCHeartbeat(c) == Heartbeat(c) /\ UNCHANGED spent

\* A repeated request does not count as a fault if no reply can arrive any more.
MCGiveUp(c) ==
    \/ Awaits(c) /\ Once("retries", MaxRetries) /\ \E late \in BOOLEAN : (late => Late < MaxLate) /\ GiveUp(c, late)
    \/ ~Awaits(c) /\ GiveUp(c, FALSE) /\ UNCHANGED spent

MCSendCommit(c) == Once("commits", MaxCommits) /\ \E p \in Partitions : SendCommit(c, p)
MCRestart(c) == Once("restarts", MaxRestarts) /\ Restart(c, client[c].list)

\* The two bounces: first the cooperative assignor is listed with the eager one, then the eager one is removed.
NextList == [eager |-> "both", both |-> "cooperative"]
MCUpgrade(c) ==
    /\ client[c].list # "cooperative"
    /\ Once("upgrades", MaxUpgrades)
    /\ Restart(c, NextList[client[c].list])

MCHandleJoin == (\E call \in calls : HandleJoin(call)) /\ UNCHANGED spent

\* No client acts for this member any more.
Abandoned(id) ==
    /\ \A c \in Clients : client[c].id # id
    /\ \A call \in calls : call.awaited => call.id # id

\* A timeout of a member that is only slow counts as a fault; other timeouts must happen.
Timeout(trouble, bound, victims) ==
    \/ Once(trouble, bound)
    \/ (\A id \in victims : Abandoned(id)) /\ UNCHANGED spent

MCCompleteJoin == group.generation < MaxGeneration /\ CompleteJoin(FALSE) /\ UNCHANGED spent

MCJoinTimeout ==
    /\ group.generation < MaxGeneration
    /\ Timeout("timeouts", MaxTimeouts, Members \ Waiting("JoinGroup"))
    /\ CompleteJoin(TRUE)

MCHandleSync == (\E call \in calls : HandleSync(call)) /\ UNCHANGED spent
MCHandleCommit == (\E call \in calls : HandleCommit(call)) /\ UNCHANGED spent

MCExpireSession ==
    /\ group.generation < MaxGeneration
    /\ \E id \in Members : Timeout("expiries", MaxExpiries, {id}) /\ ExpireSession(id)

MCFailover == Once("failovers", MaxFailovers) /\ Failover

MCNext ==
    \/ \E c \in Clients : \/ MCTakeMemberId(c) \/ MCSendJoin(c) \/ MCRevoke(c) \/ MCHeartbeat(c)
                          \/ MCGiveUp(c) \/ MCSendCommit(c) \/ MCRestart(c) \/ MCUpgrade(c)
    \/ MCTakeJoinReply \/ MCTakeSyncReply \/ MCHandleJoin \/ MCHandleSync \/ MCHandleCommit
    \/ MCCompleteJoin \/ MCJoinTimeout \/ MCExpireSession \/ MCFailover

mcVars == <<vars, spent>>

MCSpec == MCInit /\ [][MCNext]_mcVars

Symmetry == {a @@ b : a \in Permutations(Clients), b \in Permutations(Partitions)}

-----------------------------------------------------------------------------
(* After the faults have stopped *)

\* With a leader that wants another assignment in each generation the group never becomes stable.  A sticky leader moves
\* only as many partitions as balance requires.
Load(wish, m) == Cardinality({p \in Partitions : wish[p] = m})
Balanced(wish, claims) == \A m, n \in DOMAIN claims : Load(wish, m) <= Load(wish, n) + 1
Kept(wish, claims) == Cardinality({p \in Partitions : wish[p] \in Claimants(claims, p)})
StickyWishes(claims) ==
    LET balanced == {wish \in [Partitions -> DOMAIN claims] : Balanced(wish, claims)} IN
    {wish \in balanced : \A other \in balanced : Kept(other, claims) <= Kept(wish, claims)}

\* Weak fairness of the steps that are certain to happen is enough: a message in flight that is awaited arrives, a
\* running client continues and sends heartbeats, and the timeouts of absent members expire.
Told(c) == (\E call \in calls : call.client = c /\ (TakeJoinReply(call) \/ TakeSyncReply(call))) /\ UNCHANGED spent

Handled(c) ==
    (\E call \in calls : call.client = c /\ call.awaited /\ (HandleJoin(call) \/ HandleSync(call))) /\ UNCHANGED spent

OwnSteps(c) ==
    /\ WF_mcVars(MCTakeMemberId(c))
    /\ WF_mcVars(MCSendJoin(c))
    /\ WF_mcVars(MCRevoke(c))
    /\ WF_mcVars(MCHeartbeat(c))
    /\ WF_mcVars(~Awaits(c) /\ MCGiveUp(c))
    /\ WF_mcVars(Told(c))

Fairness ==
    /\ \A c \in Clients : OwnSteps(c) /\ WF_mcVars(Handled(c))
    /\ WF_mcVars(MCCompleteJoin)
    /\ WF_mcVars(MCJoinTimeout /\ UNCHANGED spent)
    /\ WF_mcVars(MCExpireSession /\ UNCHANGED spent)

MCLiveSpec == MCSpec /\ Fairness

\* Every client is a member of the current generation and owns its assignment, and every partition is assigned.
Settled ==
    /\ group.state = "Stable"
    /\ \A p \in Partitions : group.assignment[p] \in Members
    /\ \A c \in Clients : /\ client[c].phase = "member" /\ client[c].generation = group.generation
                          /\ client[c].owned = Assigned(client[c].id)

EventuallySettled == <>[]Settled

\* The bounds of the model are not reached: there are few follow-up rebalances.
Room == group.generation < MaxGeneration /\ \A c \in Clients : issued[c] < MaxIds

-----------------------------------------------------------------------------
(* Situations that must be reachable *)

Withheld == group.state = "Stable" /\ \E p \in Partitions : group.assignment[p] = None
PartitionMoved ==
    /\ group.state = "Stable"
    /\ \E p \in Partitions : committed[p] # None /\ group.assignment[p] \notin {None, committed[p].member}
KeptThroughRebalance == group.state = "CompletingRebalance" /\ \E c \in Clients : IsMember(c) /\ client[c].owned # {}
OlderClaim ==
    /\ group.state = "CompletingRebalance"
    /\ \E m, n \in Members : group.claims[m].generation < group.claims[n].generation /\ group.claims[m].partitions # {}
CommitsWhileRevoking ==
    \E c \in Clients, p \in Partitions :
        p \in client[c].revoking /\ committed[p] = [member |-> client[c].id, generation |-> group.generation]
ZombieStillOwns == \E c, d \in Clients : c # d /\ client[c].owned \intersect client[d].owned # {}
Lists == {group.claims[m].list : m \in Members}
MixedGroup == group.state = "Stable" /\ {"both", "cooperative"} \subseteq Lists
StillEager == group.state = "Stable" /\ group.protocol = "eager" /\ {"both", "eager"} \subseteq Lists
Upgraded == group.state = "Stable" /\ Lists = {"cooperative"}
ShutOut == \E call \in Sent("JoinGroup") : call.id \in pending /\ Inconsistent(call)
=============================================================================
