--------------------------- MODULE EagerRebalance ---------------------------
(***************************************************************************)
(* The classic consumer group protocol, eager: on every change of members  *)
(* each member revokes all its partitions, joins again (JoinGroup), and    *)
(* receives its assignment (SyncGroup). The coordinator counts generations *)
(* and lets one member, the leader, assign the partitions.                 *)
(*                                                                         *)
(* A member may give up waiting and send its request again, so that two    *)
(* requests of one member are in flight. Sessions expire, processes        *)
(* restart, and the coordinator fails over and knows only what it has      *)
(* stored. Static members (KIP-345) return under a new member id while the *)
(* old process may still run.                                              *)
(*                                                                         *)
(* A guard is on, as in the protocol, unless GuardsOff names it: then the  *)
(* module has a historical bug; spec/guards.toml lists them. README.md maps *)
(* the names in this module to the broker and the wire protocol.           *)
(***************************************************************************)
EXTENDS Integers, FiniteSets

CONSTANTS
    Clients,        \* consumer processes
    Twins,          \* the clients that were started with one group.instance.id; the others are dynamic members
    Partitions,     \* the partitions of the group
    None,           \* the value for "no member id" and "no assignment"
    LateJoins       \* BOOLEAN: a JoinGroup that its sender abandoned may still be handled (README.md, "A late JoinGroup")

CONSTANT GuardsOff      \* the guards that are switched off; {} is the protocol

RevokeBeforeJoin == "RevokeBeforeJoin" \notin GuardsOff
DropOnLost == "DropOnLost" \notin GuardsOff
RejoinOnRebalance == "RejoinOnRebalance" \notin GuardsOff
MatchReplies == "MatchReplies" \notin GuardsOff
LeaderAssignsMembersOnly == "LeaderAssignsMembersOnly" \notin GuardsOff
AwaitAllMembers == "AwaitAllMembers" \notin GuardsOff
ExpireUnsyncedMembers == "ExpireUnsyncedMembers" \notin GuardsOff
RequireMemberId == "RequireMemberId" \notin GuardsOff
PersistBeforeSyncReply == "PersistBeforeSyncReply" \notin GuardsOff
FenceStaleGeneration == "FenceStaleGeneration" \notin GuardsOff
FenceStaleSync == "FenceStaleSync" \notin GuardsOff
FenceStaleHeartbeat == "FenceStaleHeartbeat" \notin GuardsOff
MembersCommitOnly == "MembersCommitOnly" \notin GuardsOff
FenceInstance == "FenceInstance" \notin GuardsOff
NewMemberIdOnStaticRejoin == "NewMemberIdOnStaticRejoin" \notin GuardsOff
PersistStaticRejoin == "PersistStaticRejoin" \notin GuardsOff

Guards ==
    {"RevokeBeforeJoin", "DropOnLost", "RejoinOnRebalance", "MatchReplies", "LeaderAssignsMembersOnly",
     "AwaitAllMembers", "ExpireUnsyncedMembers", "RequireMemberId", "PersistBeforeSyncReply",
     "FenceStaleGeneration", "FenceStaleSync", "FenceStaleHeartbeat", "MembersCommitOnly", "FenceInstance",
     "NewMemberIdOnStaticRejoin", "PersistStaticRejoin"}
ASSUME GuardsOff \subseteq Guards
ASSUME Twins \subseteq Clients /\ LateJoins \in BOOLEAN

VARIABLE group      \* in the coordinator's memory: state, generation, members (their ids), leader, assignment
VARIABLE stored     \* the group as last written to __consumer_offsets
VARIABLE pending    \* member ids issued to clients that have not joined with them yet (KIP-394)
VARIABLE issued     \* of a client: how many member ids were issued to it
coordinator == <<group, stored, pending, issued>>

VARIABLE client     \* of a client: phase, member id, generation, partitions owned (see NewClient)
VARIABLE calls      \* requests in flight or waiting at the coordinator, and replies in flight (see NewCall)

VARIABLE committed  \* of a partition: the member that committed last, and its generation
VARIABLE replaced   \* history: member ids that a newer id of the same static member has replaced; none is forgotten
                    \* but by a failover during a rebalance, since the new id is stored with the next generation
histories == <<committed, replaced>>

vars == <<coordinator, client, calls, histories>>

-----------------------------------------------------------------------------
(* Definitions *)

NoGeneration == 0

Nobody == [p \in Partitions |-> None]

NewGroup == [state      |-> "Empty",    \* Empty, PreparingRebalance, CompletingRebalance, Stable
             generation |-> NoGeneration,
             members    |-> {},
             leader     |-> None,
             assignment |-> Nobody]     \* of a partition: the member that has it

NewClient == [phase      |-> "out",     \* out: it must join; joining and syncing: it waits; member; closed: finally
              id         |-> None,
              generation |-> NoGeneration,
              owned      |-> {}]

\* A request is sent, may be parked at the coordinator until the other members have sent theirs, and is answered.
NewCall == [client     |-> None,
            kind       |-> "JoinGroup", \* JoinGroup, SyncGroup, OffsetCommit
            at         |-> "sent",      \* sent, parked, answered
            awaited    |-> TRUE,        \* its sender still waits for it
            id         |-> None,
            generation |-> NoGeneration,
            members    |-> {},          \* in a leader's JoinGroup reply
            assignment |-> None,        \* in a leader's SyncGroup
            partitions |-> {}]          \* in a SyncGroup reply: the member's partitions; in an OffsetCommit: those committed

MemberId == Clients \X Nat              \* the client that it was issued to, and a number

IsStatic(id) == id # None /\ id[1] \in Twins
Alike(c, d) == {c, d} \subseteq Twins      \* started with one group.instance.id
Assigned(id) == {p \in Partitions : group.assignment[p] = id}

Sent(kind) == {call \in calls : call.kind = kind /\ call.at = "sent"}
Answered(kind) == {call \in calls : call.kind = kind /\ call.at = "answered"}
Parked(kind) == {call \in calls : call.kind = kind /\ call.at = "parked"}
Waiting(kind) == {call.id : call \in Parked(kind)}

\* A reply that the client does not await counts as lost, unless replies are not matched.
Heard(replies) == {reply \in replies : reply.awaited \/ ~MatchReplies}

\* The sender abandoned the call or has ended: the call is late or lost.
Forgotten(c, late) ==
    LET mine == {call \in calls : call.client = c /\ call.awaited}
        kept == {call \in mine : \/ call.at = "parked"
                                 \/ call.at = "sent" /\ late /\ (call.kind = "JoinGroup" => LateJoins)
                                 \/ call.at = "answered" /\ late /\ ~MatchReplies} IN
    (calls \ mine) \union {[call EXCEPT !.awaited = FALSE] : call \in kept}

Awaits(c) == \E call \in calls : call.client = c /\ call.awaited

\* Another process has replaced this static member.
Fenced(id) == IsStatic(id) /\ id \notin group.members /\ \E m \in group.members : Alike(m[1], id[1])

-----------------------------------------------------------------------------
(* Members *)

\* The client is no longer a member, or not of this generation: other members may own its partitions.
Lost(c, id) == [NewClient EXCEPT !.id = id, !.owned = IF DropOnLost THEN {} ELSE client[c].owned]

\* The client's state after an error: it closes if another process has its instance id, and keeps an id that is still
\* known.
After(c, error) ==
    CASE error = "FENCED_INSTANCE_ID"                       -> [NewClient EXCEPT !.phase = "closed"]
      [] error = "UNKNOWN_MEMBER_ID"                        -> Lost(c, None)
      [] error = "ILLEGAL_GENERATION"                       -> Lost(c, client[c].id)
      [] error = "REBALANCE_IN_PROGRESS"                    -> [client[c] EXCEPT !.phase = "out"]

\* JoinGroup without a member id is answered with MEMBER_ID_REQUIRED and the id for the next JoinGroup (KIP-394).
TakeMemberId(c) ==
    LET id == <<c, issued[c] + 1>> IN
    /\ RequireMemberId /\ c \notin Twins
    /\ client[c].phase = "out" /\ client[c].id = None
    /\ client' = [client EXCEPT ![c].id = id]
    /\ pending' = pending \union {id}
    /\ issued' = [issued EXCEPT ![c] = @ + 1]
    /\ UNCHANGED <<group, stored, calls, histories>>

\* An expelled client has dropped its partitions before; a member revokes them now.
SendJoin(c) ==
    LET keeps == client[c].generation = NoGeneration \/ ~RevokeBeforeJoin IN
    /\ client[c].phase = "out"
    /\ RequireMemberId /\ c \notin Twins => client[c].id # None
    /\ client' = [client EXCEPT ![c].phase = "joining", ![c].owned = IF keeps THEN @ ELSE {}]
    /\ calls' = calls \union {[NewCall EXCEPT !.client = c, !.id = client[c].id]}
    /\ UNCHANGED <<coordinator, histories>>

\* The leader assigns the partitions in any way to the members in the reply.
Assignments(members) ==
    IF members = {} THEN {None}
    ELSE [Partitions -> IF LeaderAssignsMembersOnly THEN members ELSE {<<c, n>> \in Clients \X {1, 2} : n <= issued[c]}]

SyncRequest(call, assignment) ==
    [NewCall EXCEPT !.client = call.client, !.kind = "SyncGroup", !.id = call.id, !.generation = call.generation,
                    !.assignment = assignment]

TakeJoinReply(call) ==
    LET c == call.client IN
    /\ call \in Heard(Answered("JoinGroup"))
    /\ client[c].phase = "joining"
    /\ client' = [client EXCEPT ![c].phase = "syncing", ![c].id = call.id, ![c].generation = call.generation]
    /\ \E assignment \in Assignments(call.members) :
          calls' = (Forgotten(c, TRUE) \ {call}) \union {SyncRequest(call, assignment)}
    /\ UNCHANGED <<coordinator, histories>>

TakeSyncReply(call) ==
    LET c == call.client IN
    /\ call \in Heard(Answered("SyncGroup"))
    /\ client[c].phase = "syncing"
    /\ client' = [client EXCEPT ![c].phase = "member", ![c].owned = call.partitions]
    /\ calls' = Forgotten(c, TRUE) \ {call}
    /\ UNCHANGED <<coordinator, histories>>

\* No reply arrived in time, the connection broke, or the coordinator dropped the call: the client sends it again.
GiveUp(c, late) ==
    /\ client[c].phase \in {"joining", "syncing"}
    /\ client' = [client EXCEPT ![c].phase = "out"]
    /\ calls' = Forgotten(c, late)
    /\ UNCHANGED <<coordinator, histories>>

CommitRequest(c, p) ==
    [NewCall EXCEPT !.client = c, !.kind = "OffsetCommit", !.id = client[c].id, !.generation = client[c].generation,
                    !.awaited = FALSE, !.partitions = {p}]

SendCommit(c, p) ==
    /\ p \in client[c].owned
    /\ calls' = calls \union {CommitRequest(c, p)}
    /\ UNCHANGED <<coordinator, client, histories>>

\* The process restarts without memory.  The coordinator notices it when the session expires.
Restart(c) ==
    /\ client[c].phase # "closed"
    /\ client' = [client EXCEPT ![c] = NewClient]
    /\ calls' = Forgotten(c, FALSE)
    /\ UNCHANGED <<coordinator, histories>>

\* Request and reply in one step: a heartbeat changes only the session, and a late one does no harm.
HeartbeatError(c) ==
    LET id == client[c].id
        current == client[c].generation = group.generation IN
    CASE Fenced(id) /\ FenceInstance                                        -> "FENCED_INSTANCE_ID"
      [] id \notin group.members                                            -> "UNKNOWN_MEMBER_ID"
      [] ~current /\ FenceStaleHeartbeat                                    -> "ILLEGAL_GENERATION"
      [] group.state = "PreparingRebalance" /\ RejoinOnRebalance            -> "REBALANCE_IN_PROGRESS"
      [] OTHER                                                              -> "NONE"

Heartbeat(c) ==
    /\ client[c].phase = "member"
    /\ HeartbeatError(c) # "NONE"
    /\ client' = [client EXCEPT ![c] = After(c, HeartbeatError(c))]
    /\ UNCHANGED <<coordinator, calls, histories>>

-----------------------------------------------------------------------------
(* Coordinator: joining *)

\* A rejection arrives immediately, if the sender still awaits the reply.
Refuse(call, error) ==
    /\ calls' = calls \ {call}
    /\ client' = IF call.awaited THEN [client EXCEPT ![call.client] = After(call.client, error)] ELSE client

\* Waiting SyncGroup calls are answered with REBALANCE_IN_PROGRESS, and of two JoinGroup calls of a member one is
\* answered.
Park(call, id) ==
    LET dropped == {call} \union Parked("SyncGroup") \union {other \in Parked("JoinGroup") : other.id = id} IN
    calls' = (calls \ dropped) \union {[call EXCEPT !.at = "parked", !.id = id]}

Preparing(members, assignment) ==
    [group EXCEPT !.state = "PreparingRebalance", !.members = members, !.leader = None, !.assignment = assignment]

\* A new member id replaces the old one and takes over its assignment; also during a rebalance (KAFKA-8500).  A process
\* that waits under the old id receives an error.  A member that `keeps` its assignment joins no rebalance.
ReplaceStatic(call, old, new, keeps) ==
    LET assignment == [p \in Partitions |-> IF group.assignment[p] = old THEN new ELSE group.assignment[p]]
        members == (group.members \ {old}) \union {new}
        successor == [group EXCEPT !.members = members, !.assignment = assignment,
                                   !.leader = IF @ = old THEN new ELSE @]
        told == [call EXCEPT !.at = "answered", !.id = new, !.generation = group.generation]
        ousted == {other \in calls : other.at = "parked" /\ other.id = old} IN
    /\ issued' = [issued EXCEPT ![call.client] = @ + 1]
    /\ replaced' = replaced \union {old}
    /\ client' = [c \in Clients |-> IF FenceInstance /\ \E other \in ousted : other.client = c /\ other.awaited
                                    THEN After(c, "FENCED_INSTANCE_ID") ELSE client[c]]
    /\ IF keeps
       THEN /\ group' = successor
            /\ stored' = IF PersistStaticRejoin THEN successor ELSE stored
            /\ calls' = (calls \ {call}) \union {told}
       ELSE /\ group' = Preparing(members, assignment)
            /\ stored' = stored
            /\ calls' = (calls \ (ousted \union {call} \union Parked("SyncGroup"))) \union
                            {[call EXCEPT !.at = "parked", !.id = new]}
    /\ UNCHANGED <<pending, committed>>

JoinStatic(call) ==
    LET old == CHOOSE m \in group.members : Alike(m[1], call.client) IN
    IF NewMemberIdOnStaticRejoin \/ group.state = "Stable"
    THEN ReplaceStatic(call, old, <<call.client, issued[call.client] + 1>>, group.state = "Stable")
    ELSE /\ group' = Preparing(group.members, group.assignment)
         /\ Park(call, old)
         /\ UNCHANGED <<stored, pending, issued, client, histories>>

JoinNew(call) ==
    LET id == IF call.id = None THEN <<call.client, issued[call.client] + 1>> ELSE call.id IN
    /\ issued' = [issued EXCEPT ![call.client] = IF call.id = None THEN @ + 1 ELSE @]
    /\ pending' = pending \ {id}
    /\ group' = Preparing(group.members \union {id}, group.assignment)
    /\ Park(call, id)
    /\ UNCHANGED <<stored, client, histories>>

JoinReply(call, id, g) ==
    [call EXCEPT !.at = "answered", !.id = id, !.generation = g.generation,
                 !.members = IF id = g.leader THEN g.members ELSE {}]

\* JoinGroup contains no generation.  From a known member it starts a rebalance, unless it may be a repeated one.
JoinKnown(call) ==
    IF \/ group.state = "CompletingRebalance"
       \/ group.state = "Stable" /\ call.id # group.leader
    THEN /\ calls' = (calls \ {call}) \union {JoinReply(call, call.id, group)}
         /\ UNCHANGED <<coordinator, client, histories>>
    ELSE /\ group' = Preparing(group.members, group.assignment)
         /\ Park(call, call.id)
         /\ UNCHANGED <<stored, pending, issued, client, histories>>

JoinRefused(call) ==
    /\ Refuse(call, IF Fenced(call.id) /\ FenceInstance THEN "FENCED_INSTANCE_ID" ELSE "UNKNOWN_MEMBER_ID")
    /\ UNCHANGED <<coordinator, histories>>

HandleJoin(call) ==
    /\ call \in Sent("JoinGroup")
    /\ CASE call.id = None /\ (\E m \in group.members : Alike(m[1], call.client))  -> JoinStatic(call)
         [] call.id = None \/ call.id \in pending                                   -> JoinNew(call)
         [] call.id \in group.members                                               -> JoinKnown(call)
         [] OTHER                                                                   -> JoinRefused(call)

\* All members have joined, or the timeout has passed: then the members that have not joined are removed, except static
\* ones.
CompleteJoin(timedOut) ==
    LET present == group.members \intersect Waiting("JoinGroup")
        absent == group.members \ present
        members == IF timedOut THEN {m \in group.members : m \in present \/ IsStatic(m)} ELSE group.members IN
    /\ group.state = "PreparingRebalance" /\ present # {}
    /\ IF timedOut THEN absent # {} ELSE AwaitAllMembers => absent = {}
    /\ \E leader \in present :
          LET next == [state |-> "CompletingRebalance", generation |-> group.generation + 1,
                       members |-> members, leader |-> leader, assignment |-> Nobody]
              replies == {JoinReply(call, call.id, next) : call \in Parked("JoinGroup")} IN
          /\ group' = next
          /\ calls' = (calls \ Parked("JoinGroup")) \union Heard(replies)
    /\ UNCHANGED <<stored, pending, issued, client, histories>>

-----------------------------------------------------------------------------
(* Coordinator: syncing *)

SyncReply(call, g) ==
    [call EXCEPT !.at = "answered", !.assignment = None, !.partitions = {p \in Partitions : g.assignment[p] = call.id}]

\* Partitions that the leader assigns to non-members stay unassigned.  The assignment is stored before any reply.
LeaderSync(call) ==
    LET given == [p \in Partitions |-> IF call.assignment[p] \in group.members THEN call.assignment[p] ELSE None]
        next == [group EXCEPT !.state = "Stable", !.assignment = given]
        waiting == {call} \union Parked("SyncGroup") IN
    /\ group' = next
    /\ stored' = IF PersistBeforeSyncReply THEN next ELSE stored
    /\ calls' = (calls \ waiting) \union Heard({SyncReply(each, next) : each \in waiting})
    /\ UNCHANGED <<pending, issued, client, histories>>

SyncError(call) ==
    CASE Fenced(call.id) /\ FenceInstance                               -> "FENCED_INSTANCE_ID"
      [] call.id \notin group.members                                   -> "UNKNOWN_MEMBER_ID"
      [] call.generation # group.generation /\ FenceStaleSync           -> "ILLEGAL_GENERATION"
      [] group.state = "PreparingRebalance"                             -> "REBALANCE_IN_PROGRESS"
      [] OTHER                                                          -> "NONE"

HandleSync(call) ==
    /\ call \in Sent("SyncGroup")
    /\ CASE SyncError(call) # "NONE" ->
                Refuse(call, SyncError(call)) /\ UNCHANGED <<coordinator, histories>>
         [] SyncError(call) = "NONE" /\ group.state = "Stable" ->
                /\ calls' = (calls \ {call}) \union Heard({SyncReply(call, group)})
                /\ UNCHANGED <<coordinator, client, histories>>
         [] SyncError(call) = "NONE" /\ group.state # "Stable" /\ call.id = group.leader /\ call.assignment # None ->
                LeaderSync(call)
         [] OTHER ->
                /\ calls' = (calls \ {call}) \union {[call EXCEPT !.at = "parked"]}
                /\ UNCHANGED <<coordinator, client, histories>>

-----------------------------------------------------------------------------
(* Coordinator: commits, sessions, failover *)

\* Before the leader's SyncGroup no member of the generation can commit (REBALANCE_IN_PROGRESS).
CommitAccepted(call) ==
    /\ group.state \in {"Stable", "PreparingRebalance"}
    /\ ~(Fenced(call.id) /\ FenceInstance)
    /\ MembersCommitOnly => call.id \in group.members
    /\ FenceStaleGeneration => call.generation = group.generation

HandleCommit(call) ==
    LET commit == [member |-> call.id, generation |-> call.generation]
        accepted == IF CommitAccepted(call) THEN call.partitions ELSE {} IN
    /\ call \in Sent("OffsetCommit")
    /\ calls' = calls \ {call}
    /\ committed' = [p \in Partitions |-> IF p \in accepted THEN commit ELSE committed[p]]
    /\ UNCHANGED <<coordinator, client, replaced>>

\* Removes members.  Without the last member the group is Empty, in a new generation, and is stored.
Expel(gone) ==
    LET members == group.members \ gone
        left == [p \in Partitions |-> IF group.assignment[p] \in gone THEN None ELSE group.assignment[p]]
        empty == [NewGroup EXCEPT !.generation = group.generation + 1] IN
    /\ gone # {}
    /\ group' = IF members = {} THEN empty ELSE Preparing(members, left)
    /\ stored' = IF members = {} THEN empty ELSE stored
    /\ calls' = {call \in calls \ Parked("SyncGroup") : ~(call.at = "parked" /\ call.id \in gone)}
    /\ UNCHANGED <<pending, issued, client, histories>>

\* No heartbeat arrived in time.  For the other members LeaveGroup has the same effect.
ExpireSession(id) ==
    /\ id \in group.members \ (Waiting("JoinGroup") \union Waiting("SyncGroup"))
    /\ Expel({id})

\* A member sends heartbeats, but no SyncGroup: the other members wait for it (KAFKA-12890).
ExpireUnsynced ==
    /\ ExpireUnsyncedMembers
    /\ group.state = "CompletingRebalance"
    /\ Expel(group.members \ Waiting("SyncGroup"))

\* Another broker takes over with the stored state.  Requests to the old one are rejected (NOT_COORDINATOR).
Failover ==
    /\ group' = stored
    /\ pending' = {}
    /\ calls' = {call \in calls : call.at = "answered"}
    /\ replaced' = IF group.state = "Stable" THEN replaced ELSE replaced \ stored.members
    /\ UNCHANGED <<stored, issued, client, committed>>

-----------------------------------------------------------------------------
Init ==
    /\ group = NewGroup
    /\ stored = NewGroup
    /\ pending = {}
    /\ issued = [c \in Clients |-> 0]
    /\ client = [c \in Clients |-> NewClient]
    /\ calls = {}
    /\ committed = [p \in Partitions |-> None]
    /\ replaced = {}

Next ==
    \/ \E c \in Clients : TakeMemberId(c) \/ SendJoin(c) \/ Heartbeat(c) \/ Restart(c)
    \/ \E c \in Clients : (\E late \in BOOLEAN : GiveUp(c, late)) \/ \E p \in Partitions : SendCommit(c, p)
    \/ \E call \in calls : TakeJoinReply(call) \/ TakeSyncReply(call)
    \/ \E call \in calls : HandleJoin(call) \/ HandleSync(call) \/ HandleCommit(call)
    \/ \E timedOut \in BOOLEAN : CompleteJoin(timedOut)
    \/ \E id \in group.members : ExpireSession(id)
    \/ ExpireUnsynced \/ Failover

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* What holds *)

States == {"Empty", "PreparingRebalance", "CompletingRebalance", "Stable"}
Group == [state : States, generation : Nat, members : SUBSET MemberId, leader : {None} \union MemberId,
          assignment : [Partitions -> {None} \union MemberId]]
Client == [phase : {"out", "joining", "syncing", "member", "closed"}, id : {None} \union MemberId, generation : Nat,
           owned : SUBSET Partitions]
Call == [client : Clients, kind : {"JoinGroup", "SyncGroup", "OffsetCommit"}, at : {"sent", "parked", "answered"},
         awaited : BOOLEAN, id : {None} \union MemberId, generation : Nat, members : SUBSET MemberId,
         assignment : {None} \union [Partitions -> MemberId], partitions : SUBSET Partitions]

TypeOK ==
    /\ group \in Group /\ stored \in Group
    /\ pending \subseteq MemberId
    /\ issued \in [Clients -> Nat]
    /\ client \in [Clients -> Client]
    /\ calls \subseteq Call
    /\ committed \in [Partitions -> {None} \union [member : MemberId, generation : Nat]]
    /\ replaced \subseteq MemberId

\* A client waits for one reply at a time.
OneAwaited == \A a, b \in calls : a.awaited /\ b.awaited /\ a.client = b.client => a = b

\* A reply that its client does not await is lost, unless abandoned JoinGroups are handled.
RepliesAwaited == \A call \in calls : call.at = "answered" => call.awaited \/ ~MatchReplies \/ LateJoins

\* The members and partitions for which the coordinator would accept a commit.
Grants ==
    IF group.state \in {"Stable", "PreparingRebalance"}
    THEN {<<group.assignment[p], p>> : p \in {each \in Partitions : group.assignment[each] # None}} ELSE {}

\* A stable group has stored its members: a new id of a static member is answered there when it is stored.
ReplacedForEver == {id \in replaced : group.state = "Stable" \/ id \notin stored.members}

OneStaticMember(a, b) == Alike(a[1], b[1])

Contract ==
    INSTANCE GroupOwnership
    WITH generation <- stored.generation, grants <- Grants, replaced <- ReplacedForEver, OneMember <- OneStaticMember
OwnershipKept == Contract!Spec

Current(c) == client[c].id \in group.members /\ client[c].generation = group.generation

\* No two processes own a partition in the current generation.  A process of an older generation may own it as well.
OneOwner == \A c, d \in Clients : c # d /\ Current(c) /\ Current(d) => client[c].owned \intersect client[d].owned = {}

\* The barrier: when a generation is complete, no member owns a partition, except static members, which may be late.  It
\* does not hold if an abandoned JoinGroup may be handled.
AllRevoked ==
    group.state = "CompletingRebalance" =>
        \A c \in Clients \ Twins : client[c].id \in group.members => client[c].owned = {}

Barrier == ~LateJoins => AllRevoked

\* A generation that has begun leaves no partition without a member.
AllAssigned == group.state = "Stable" => \A p \in Partitions : group.assignment[p] \in group.members

\* The leader and assignment of a stored generation never change, except for the member id of a static member.
OneAssignmentAGeneration ==
    [][stored' # stored =>
        \/ stored'.generation > stored.generation
        \/ stored'.generation = stored.generation /\ replaced' # replaced]_vars

-----------------------------------------------------------------------------
(* The promises of the protocol: README.md says how each is checked, and within which bounds *)

Protocol == Spec /\ GuardsOff = {}

THEOREM Protocol => []TypeOK
THEOREM Protocol => []OneAwaited
THEOREM Protocol => []RepliesAwaited
THEOREM Protocol => []OneOwner
THEOREM Protocol => []Barrier
THEOREM Protocol => OwnershipKept
THEOREM Protocol => OneAssignmentAGeneration
THEOREM Protocol /\ [][~Failover]_vars => []AllAssigned
=============================================================================
