------------------------ MODULE CooperativeRebalance ------------------------
(***************************************************************************)
(* The classic consumer group protocol, cooperative (KIP-429): a member    *)
(* keeps its partitions while the group rebalances, and claims them in its *)
(* JoinGroup. The leader withholds a partition that it wants to move: no   *)
(* member gets it in this generation. The member that loses it revokes it  *)
(* and joins again; in that second rebalance no member claims it, and it   *)
(* is assigned to its new member.                                          *)
(*                                                                         *)
(* Coordinator, calls and faults are those of EagerRebalance, which has    *)
(* the guards of the coordinator; static members are left out. Members     *)
(* that still list an eager assignor behave like eager members: this       *)
(* allows to upgrade a running group in two rounds of restarts.            *)
(*                                                                         *)
(* A guard is on, as in the protocol, unless GuardsOff names it: then the  *)
(* module has a historical bug; spec/guards.toml lists them. README.md maps *)
(* the names in this module to the broker and the wire protocol.           *)
(***************************************************************************)
EXTENDS Integers, FiniteSets

CONSTANTS
    Clients,        \* consumer processes
    Partitions,     \* the partitions of the group
    None,           \* the value for "no member id" and "no assignment"
    FirstList,      \* the assignors that every client lists initially: "eager", "both" or "cooperative"
    LateJoins       \* BOOLEAN: a JoinGroup that its sender abandoned may still be handled (README.md, "A late JoinGroup")

CONSTANT GuardsOff      \* the guards that are switched off; {} is the protocol

WithholdClaimed == "WithholdClaimed" \notin GuardsOff
HighestClaimWins == "HighestClaimWins" \notin GuardsOff
NobodyKeepsOnConflict == "NobodyKeepsOnConflict" \notin GuardsOff
ClaimsBearGeneration == "ClaimsBearGeneration" \notin GuardsOff
RevokeBeforeRejoin == "RevokeBeforeRejoin" \notin GuardsOff
RejoinAfterRevoke == "RejoinAfterRevoke" \notin GuardsOff
UnaffectedKeep == "UnaffectedKeep" \notin GuardsOff
DropOnLost == "DropOnLost" \notin GuardsOff
ResetClaimOnLost == "ResetClaimOnLost" \notin GuardsOff
MatchReplies == "MatchReplies" \notin GuardsOff
EagerMembersRevokeAll == "EagerMembersRevokeAll" \notin GuardsOff
OneProtocolForAll == "OneProtocolForAll" \notin GuardsOff

Guards ==
    {"WithholdClaimed", "HighestClaimWins", "NobodyKeepsOnConflict", "ClaimsBearGeneration", "RevokeBeforeRejoin",
     "RejoinAfterRevoke", "UnaffectedKeep", "DropOnLost", "ResetClaimOnLost", "MatchReplies",
     "EagerMembersRevokeAll", "OneProtocolForAll"}
ASSUME GuardsOff \subseteq Guards
ASSUME FirstList \in {"eager", "both", "cooperative"} /\ LateJoins \in BOOLEAN

VARIABLE group      \* in the coordinator's memory: state, generation, protocol, leader, claims, assignment
VARIABLE stored     \* the group as last written to __consumer_offsets
VARIABLE pending    \* member ids issued to clients that have not joined with them yet (KIP-394)
VARIABLE issued     \* of a client: how many member ids were issued to it
coordinator == <<group, stored, pending, issued>>

VARIABLE client     \* of a client: phase, member id, generation, what it owns and claims (see NewClient)
VARIABLE calls      \* requests in flight or waiting at the coordinator, and replies in flight (see NewCall)

VARIABLE committed  \* of a partition: the member that committed last, and its generation

vars == <<coordinator, client, calls, committed>>

-----------------------------------------------------------------------------
(* Definitions *)

NoGeneration == 0

List == {"eager", "both", "cooperative"}    \* the assignors that a client lists

Nobody == [p \in Partitions |-> None]

Nothing == [partitions |-> {}, generation |-> NoGeneration, list |-> FirstList]

NewGroup == [state      |-> "Empty",        \* Empty, PreparingRebalance, CompletingRebalance, Stable
             generation |-> NoGeneration,
             protocol   |-> "cooperative",  \* the assignor of this generation: eager ones withhold nothing
             leader     |-> None,
             claims     |-> [m \in {} |-> Nothing],     \* of each member: the claim in its last JoinGroup
             assignment |-> Nobody]         \* of a partition: the member that has it

NewClient == [phase      |-> "out",         \* out: it must join; joining and syncing: it waits; member
              id         |-> None,
              generation |-> NoGeneration,  \* of the last JoinGroup reply
              list       |-> FirstList,
              owned      |-> {},            \* the partitions that it processes
              revoking   |-> {},            \* the owned partitions that it must give up
              since      |-> NoGeneration,  \* the generation that assigned its partitions
              stale      |-> {}]            \* what it claims although it has lost it: nothing, with ResetClaimOnLost

\* A request is sent, may be parked at the coordinator until the other members have sent theirs, and is answered.
NewCall == [client     |-> None,
            kind       |-> "JoinGroup",     \* JoinGroup, SyncGroup, OffsetCommit
            at         |-> "sent",          \* sent, parked, answered
            awaited    |-> TRUE,            \* its sender still waits for it
            id         |-> None,
            generation |-> NoGeneration,
            claim      |-> Nothing,         \* in a JoinGroup
            claims     |-> None,            \* in a leader's JoinGroup reply: the claims of all members
            protocol   |-> "cooperative",   \* in a JoinGroup reply
            assignment |-> None,            \* in a leader's SyncGroup
            partitions |-> {}]              \* in a SyncGroup reply: the member's partitions; in an OffsetCommit: those committed

Members == DOMAIN group.claims
Assigned(id) == {p \in Partitions : group.assignment[p] = id}
Max(S) == CHOOSE x \in S : \A y \in S : x >= y

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

-----------------------------------------------------------------------------
(* Claims and assignment: the leader's part *)

Generations(claims) == {claims[m].generation : m \in DOMAIN claims}

\* The members with a valid claim to p.  Guard off: only claims of the latest generation, as if a member that missed a
\* generation owned nothing (KAFKA-14639).
Claimants(claims, p) ==
    {m \in DOMAIN claims : /\ p \in claims[m].partitions
                           /\ HighestClaimWins \/ claims[m].generation = Max(Generations(claims))}

\* The owner of p.  If two members claim it, the later generation is right; if both have the same generation, one of
\* them is wrong, and neither keeps it (KAFKA-12984).
Owners(claims, p) ==
    LET all == Claimants(claims, p)
        latest == {m \in all : \A n \in all : claims[m].generation >= claims[n].generation} IN
    IF NobodyKeepsOnConflict /\ Cardinality(latest) > 1 THEN {} ELSE latest

\* The assignments that the leader may want: any partition for any member.
Wishes(claims) == [Partitions -> DOMAIN claims]

\* A partition that another member owns, or that two members claim, is withheld until they have revoked it.
MayGet(claims, p, m) == Claimants(claims, p) = {} \/ m \in Owners(claims, p)

Adjusted(wish, claims) ==
    [p \in Partitions |-> IF WithholdClaimed => MayGet(claims, p, wish[p]) THEN wish[p] ELSE None]

Assignments(claims, protocol) ==
    IF claims = None THEN {None}
    ELSE {IF protocol = "eager" THEN wish ELSE Adjusted(wish, claims) : wish \in Wishes(claims)}

-----------------------------------------------------------------------------
(* Members *)

\* A member that lists an eager assignor may join a group that withholds nothing, and must own nothing when it joins.
ActsEager(c) == client[c].list = "eager" \/ (client[c].list = "both" /\ EagerMembersRevokeAll)

\* The client is no longer a member, or not of this generation: other members may own its partitions, and it claims
\* none.
Lost(c, id) ==
    [client[c] EXCEPT !.phase = "out", !.id = id, !.generation = NoGeneration, !.revoking = {},
                      !.owned = IF DropOnLost THEN {} ELSE @,
                      !.since = IF ResetClaimOnLost THEN NoGeneration ELSE @,
                      !.stale = IF ResetClaimOnLost THEN {} ELSE client[c].owned]

After(c, error) ==
    CASE error = "UNKNOWN_MEMBER_ID"                        -> Lost(c, None)
      [] error = "ILLEGAL_GENERATION"                       -> Lost(c, client[c].id)
      [] error = "REBALANCE_IN_PROGRESS"                    -> [client[c] EXCEPT !.phase = "out"]

TakeMemberId(c) ==
    LET id == <<c, issued[c] + 1>> IN
    /\ client[c].phase = "out" /\ client[c].id = None
    /\ client' = [client EXCEPT ![c].id = id]
    /\ pending' = pending \union {id}
    /\ issued' = [issued EXCEPT ![c] = @ + 1]
    /\ UNCHANGED <<group, stored, calls, committed>>

\* Partitions that it must give up are revoked before.  An eager member revokes everything here, a cooperative one
\* nothing.
SendJoin(c) ==
    LET keeps == IF ActsEager(c) \/ ~UnaffectedKeep THEN {} ELSE client[c].owned
        owned == IF client[c].generation = NoGeneration THEN client[c].owned ELSE keeps
        claimed == IF ActsEager(c) THEN {} ELSE (owned \ client[c].revoking) \union client[c].stale
        claim == [partitions |-> claimed,
                  generation |-> IF ClaimsBearGeneration THEN client[c].since ELSE NoGeneration,
                  list       |-> client[c].list] IN
    /\ client[c].phase = "out" /\ client[c].id # None
    /\ client[c].revoking # {} => ~RevokeBeforeRejoin
    /\ client' = [client EXCEPT ![c].phase = "joining", ![c].owned = owned, ![c].stale = {}]
    /\ calls' = calls \union {[NewCall EXCEPT !.client = c, !.id = client[c].id, !.claim = claim]}
    /\ UNCHANGED <<coordinator, committed>>

SyncRequest(call, assignment) ==
    [NewCall EXCEPT !.client = call.client, !.kind = "SyncGroup", !.id = call.id, !.generation = call.generation,
                    !.assignment = assignment]

TakeJoinReply(call) ==
    LET c == call.client IN
    /\ call \in Heard(Answered("JoinGroup"))
    /\ client[c].phase = "joining"
    /\ client' = [client EXCEPT ![c].phase = "syncing", ![c].id = call.id, ![c].generation = call.generation]
    /\ \E assignment \in Assignments(call.claims, call.protocol) :
          calls' = (Forgotten(c, TRUE) \ {call}) \union {SyncRequest(call, assignment)}
    /\ UNCHANGED <<coordinator, committed>>

\* It continues with the partitions that are assigned to it again, adds new ones, and must revoke the others.  If there
\* are such, it joins again: only then are they assigned to another member.
TakeSyncReply(call) ==
    LET c == call.client
        revoking == client[c].owned \ call.partitions IN
    /\ call \in Heard(Answered("SyncGroup"))
    /\ client[c].phase = "syncing"
    /\ client' = [client EXCEPT ![c].phase = IF revoking # {} /\ ~RevokeBeforeRejoin THEN "out" ELSE "member",
                                ![c].owned = @ \union call.partitions,
                                ![c].revoking = revoking,
                                ![c].since = client[c].generation]
    /\ calls' = Forgotten(c, TRUE) \ {call}
    /\ UNCHANGED <<coordinator, committed>>

Revoke(c) ==
    /\ client[c].revoking # {}
    /\ client' = [client EXCEPT ![c].owned = @ \ client[c].revoking,
                                ![c].revoking = {},
                                ![c].phase = IF RejoinAfterRevoke /\ @ = "member" THEN "out" ELSE @]
    /\ UNCHANGED <<coordinator, calls, committed>>

\* No reply arrived in time, the connection broke, or the coordinator dropped the call: the client sends it again.
GiveUp(c, late) ==
    /\ client[c].phase \in {"joining", "syncing"}
    /\ client' = [client EXCEPT ![c].phase = "out"]
    /\ calls' = Forgotten(c, late)
    /\ UNCHANGED <<coordinator, committed>>

CommitRequest(c, p) ==
    [NewCall EXCEPT !.client = c, !.kind = "OffsetCommit", !.id = client[c].id, !.generation = client[c].generation,
                    !.awaited = FALSE, !.partitions = {p}]

\* Between JoinGroup and the SyncGroup reply a member commits nothing: it may be about to lose its partitions.
SendCommit(c, p) ==
    /\ client[c].phase = "member" /\ p \in client[c].owned
    /\ calls' = calls \union {CommitRequest(c, p)}
    /\ UNCHANGED <<coordinator, client, committed>>

\* The process restarts without memory, and perhaps with other assignors.
Restart(c, list) ==
    /\ client' = [client EXCEPT ![c] = [NewClient EXCEPT !.list = list]]
    /\ calls' = Forgotten(c, FALSE)
    /\ UNCHANGED <<coordinator, committed>>

\* Request and reply in one step: a heartbeat changes only the session, and a late one does no harm.
HeartbeatError(c) ==
    CASE client[c].id \notin Members                                -> "UNKNOWN_MEMBER_ID"
      [] client[c].generation # group.generation                    -> "ILLEGAL_GENERATION"
      [] group.state = "PreparingRebalance"                         -> "REBALANCE_IN_PROGRESS"
      [] OTHER                                                      -> "NONE"

\* A member that still has to revoke partitions does that first.
Heartbeat(c) ==
    /\ client[c].phase = "member"
    /\ HeartbeatError(c) # "NONE"
    /\ HeartbeatError(c) = "REBALANCE_IN_PROGRESS" => client[c].revoking = {}
    /\ client' = [client EXCEPT ![c] = After(c, HeartbeatError(c))]
    /\ UNCHANGED <<coordinator, calls, committed>>

-----------------------------------------------------------------------------
(* Coordinator *)

\* A rejection arrives immediately, if the sender still awaits the reply.
Refuse(call, error) ==
    /\ calls' = calls \ {call}
    /\ client' = IF call.awaited THEN [client EXCEPT ![call.client] = After(call.client, error)] ELSE client

\* Waiting SyncGroup calls are answered with REBALANCE_IN_PROGRESS, and of two JoinGroup calls of a member one is
\* answered.
Park(call) ==
    LET dropped == {call} \union Parked("SyncGroup") \union {other \in Parked("JoinGroup") : other.id = call.id} IN
    calls' = (calls \ dropped) \union {[call EXCEPT !.at = "parked"]}

With(claims, m, claim) == [n \in DOMAIN claims \union {m} |-> IF n = m THEN claim ELSE claims[n]]
Only(claims, set) == [n \in DOMAIN claims \intersect set |-> claims[n]]

Preparing(claims, assignment) ==
    [group EXCEPT !.state = "PreparingRebalance", !.claims = claims, !.leader = None, !.assignment = assignment]

Supports(list, protocol) == list \in {protocol, "both"}
Common(lists) == {protocol \in {"eager", "cooperative"} : \A list \in lists : Supports(list, protocol)}

\* INCONSISTENT_GROUP_PROTOCOL: the client shares no assignor with the members.  The group does not change.
Inconsistent(call) ==
    /\ OneProtocolForAll
    /\ Common({call.claim.list} \union {group.claims[m].list : m \in Members \ {call.id}}) = {}

\* The claim is valid from the end of this rebalance on: the member may still commit for its partitions of this
\* generation.
StartRebalance(call) ==
    LET newcomer == [Nothing EXCEPT !.list = call.claim.list]
        claims == IF call.id \in Members THEN group.claims ELSE With(group.claims, call.id, newcomer) IN
    /\ group' = Preparing(claims, group.assignment)
    /\ pending' = pending \ {call.id}
    /\ Park(call)
    /\ UNCHANGED <<stored, issued, client, committed>>

JoinReply(call, g) ==
    [call EXCEPT !.at = "answered", !.generation = g.generation, !.protocol = g.protocol, !.claim = Nothing,
                 !.claims = IF call.id = g.leader THEN g.claims ELSE None]

\* The same claim as before: a repeated request.  A changed claim starts a rebalance.
Repeated(call) ==
    /\ call.id \in Members /\ group.claims[call.id] = call.claim
    /\ \/ group.state = "CompletingRebalance"
       \/ group.state = "Stable" /\ call.id # group.leader

HandleJoin(call) ==
    /\ call \in Sent("JoinGroup")
    /\ CASE call.id \notin Members \union pending ->
                Refuse(call, "UNKNOWN_MEMBER_ID") /\ UNCHANGED <<coordinator, committed>>
         [] call.id \in Members \union pending /\ Inconsistent(call) ->
                /\ calls' = calls \ {call}
                /\ UNCHANGED <<coordinator, client, committed>>
         [] call.id \in Members \union pending /\ ~Inconsistent(call) /\ Repeated(call) ->
                /\ calls' = (calls \ {call}) \union {JoinReply(call, group)}
                /\ UNCHANGED <<coordinator, client, committed>>
         [] OTHER ->
                StartRebalance(call)

\* All members have joined, or the timeout has passed: then the members that have not joined are removed.
CompleteJoin(timedOut) ==
    LET present == Members \intersect Waiting("JoinGroup")
        claims == [m \in present |-> (CHOOSE call \in Parked("JoinGroup") : call.id = m).claim]
        common == Common({claims[m].list : m \in present}) IN
    /\ group.state = "PreparingRebalance" /\ present # {}
    /\ timedOut <=> present # Members
    /\ \E leader \in present, protocol \in IF common = {} THEN {"eager"} ELSE common :
          LET next == [state |-> "CompletingRebalance", generation |-> group.generation + 1, protocol |-> protocol,
                       leader |-> leader, claims |-> claims, assignment |-> Nobody]
              replies == {JoinReply(call, next) : call \in Parked("JoinGroup")} IN
          /\ group' = next
          /\ calls' = (calls \ Parked("JoinGroup")) \union Heard(replies)
    /\ UNCHANGED <<stored, pending, issued, client, committed>>

SyncReply(call, g) ==
    [call EXCEPT !.at = "answered", !.assignment = None, !.partitions = {p \in Partitions : g.assignment[p] = call.id}]

LeaderSync(call) ==
    LET next == [group EXCEPT !.state = "Stable", !.assignment = call.assignment]
        waiting == {call} \union Parked("SyncGroup") IN
    /\ group' = next
    /\ stored' = next
    /\ calls' = (calls \ waiting) \union Heard({SyncReply(each, next) : each \in waiting})
    /\ UNCHANGED <<pending, issued, client, committed>>

SyncError(call) ==
    CASE call.id \notin Members                                     -> "UNKNOWN_MEMBER_ID"
      [] call.generation # group.generation                         -> "ILLEGAL_GENERATION"
      [] group.state = "PreparingRebalance"                         -> "REBALANCE_IN_PROGRESS"
      [] OTHER                                                      -> "NONE"

HandleSync(call) ==
    /\ call \in Sent("SyncGroup")
    /\ CASE SyncError(call) # "NONE" ->
                Refuse(call, SyncError(call)) /\ UNCHANGED <<coordinator, committed>>
         [] SyncError(call) = "NONE" /\ group.state = "Stable" ->
                /\ calls' = (calls \ {call}) \union Heard({SyncReply(call, group)})
                /\ UNCHANGED <<coordinator, client, committed>>
         [] SyncError(call) = "NONE" /\ group.state # "Stable" /\ call.id = group.leader /\ call.assignment # None ->
                LeaderSync(call)
         [] OTHER ->
                /\ calls' = (calls \ {call}) \union {[call EXCEPT !.at = "parked"]}
                /\ UNCHANGED <<coordinator, client, committed>>

CommitAccepted(call) ==
    /\ group.state \in {"Stable", "PreparingRebalance"}
    /\ call.id \in Members /\ call.generation = group.generation

HandleCommit(call) ==
    LET commit == [member |-> call.id, generation |-> call.generation]
        accepted == IF CommitAccepted(call) THEN call.partitions ELSE {} IN
    /\ call \in Sent("OffsetCommit")
    /\ calls' = calls \ {call}
    /\ committed' = [p \in Partitions |-> IF p \in accepted THEN commit ELSE committed[p]]
    /\ UNCHANGED <<coordinator, client>>

\* Removes members.  Without the last member the group is Empty, in a new generation, and is stored.
Expel(gone) ==
    LET members == Members \ gone
        left == [p \in Partitions |-> IF group.assignment[p] \in gone THEN None ELSE group.assignment[p]]
        empty == [NewGroup EXCEPT !.generation = group.generation + 1] IN
    /\ gone # {}
    /\ group' = IF members = {} THEN empty ELSE Preparing(Only(group.claims, members), left)
    /\ stored' = IF members = {} THEN empty ELSE stored
    /\ calls' = {call \in calls \ Parked("SyncGroup") : ~(call.at = "parked" /\ call.id \in gone)}
    /\ UNCHANGED <<pending, issued, client, committed>>

\* No heartbeat arrived in time.  For the other members LeaveGroup has the same effect.
ExpireSession(id) ==
    /\ id \in Members \ (Waiting("JoinGroup") \union Waiting("SyncGroup"))
    /\ Expel({id})

\* Another broker takes over with the stored state.  Requests to the old one are rejected (NOT_COORDINATOR).
Failover ==
    /\ group' = stored
    /\ pending' = {}
    /\ calls' = {call \in calls : call.at = "answered"}
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

Next ==
    \/ \E c \in Clients : TakeMemberId(c) \/ SendJoin(c) \/ Revoke(c) \/ Heartbeat(c)
    \/ \E c \in Clients : (\E late \in BOOLEAN : GiveUp(c, late)) \/ \E p \in Partitions : SendCommit(c, p)
    \/ \E c \in Clients, list \in List : Restart(c, list)
    \/ \E call \in calls : TakeJoinReply(call) \/ TakeSyncReply(call)
    \/ \E call \in calls : HandleJoin(call) \/ HandleSync(call) \/ HandleCommit(call)
    \/ \E timedOut \in BOOLEAN : CompleteJoin(timedOut)
    \/ \E id \in Members : ExpireSession(id)
    \/ Failover

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* What holds *)

States == {"Empty", "PreparingRebalance", "CompletingRebalance", "Stable"}
MemberId == Clients \X Nat              \* the client that it was issued to, and a number
Claim == [partitions : SUBSET Partitions, generation : Nat, list : List]
Client == [phase : {"out", "joining", "syncing", "member"}, id : {None} \union MemberId, generation : Nat, list : List,
           owned : SUBSET Partitions, revoking : SUBSET Partitions, since : Nat, stale : SUBSET Partitions]

IsClaims(claims) == \A m \in DOMAIN claims : m \in MemberId /\ claims[m] \in Claim

IsGroup(g) ==
    /\ g.state \in States /\ g.generation \in Nat /\ g.protocol \in {"eager", "cooperative"}
    /\ g.leader \in {None} \union DOMAIN g.claims
    /\ IsClaims(g.claims)
    /\ g.assignment \in [Partitions -> {None} \union MemberId]

IsCall(call) ==
    /\ call.client \in Clients /\ call.awaited \in BOOLEAN
    /\ call.kind \in {"JoinGroup", "SyncGroup", "OffsetCommit"} /\ call.at \in {"sent", "parked", "answered"}
    /\ call.id \in MemberId /\ call.generation \in Nat
    /\ call.claim \in Claim
    /\ call.claims # None => IsClaims(call.claims)
    /\ call.assignment \in {None} \union [Partitions -> {None} \union MemberId]
    /\ call.partitions \subseteq Partitions

TypeOK ==
    /\ IsGroup(group) /\ IsGroup(stored)
    /\ pending \subseteq MemberId
    /\ issued \in [Clients -> Nat]
    /\ client \in [Clients -> Client]
    /\ \A call \in calls : IsCall(call)
    /\ committed \in [Partitions -> {None} \union [member : MemberId, generation : Nat]]

\* A client waits for one reply at a time.
OneAwaited == \A a, b \in calls : a.awaited /\ b.awaited /\ a.client = b.client => a = b

\* A reply that its client does not await is lost, unless abandoned JoinGroups are handled.
RepliesAwaited == \A call \in calls : call.at = "answered" => call.awaited \/ ~MatchReplies \/ LateJoins

\* The owner of p according to the claims of this generation.
Claimed(p) == LET owners == Owners(group.claims, p) IN IF owners = {} THEN None ELSE CHOOSE m \in owners : TRUE

\* Before the leader's SyncGroup the claims count, after it the assignment; a withheld partition keeps its holder.
Holder(p) ==
    IF group.state \in {"Stable", "PreparingRebalance"} /\ group.assignment[p] # None
    THEN group.assignment[p] ELSE Claimed(p)

Grants == {<<Holder(p), p>> : p \in {each \in Partitions : Holder(each) # None}}

NoStaticMembers(a, b) == FALSE
Contract == INSTANCE GroupOwnership WITH generation <- stored.generation, grants <- Grants, replaced <- {},
                                            OneMember <- NoStaticMembers
OwnershipKept == Contract!Spec

IsMember(c) == client[c].id \in Members

\* No two members of the group ever own the same partition, not even during a rebalance.
OneOwner == \A c, d \in Clients : c # d /\ IsMember(c) /\ IsMember(d) => client[c].owned \intersect client[d].owned = {}

\* A partition that a member owns is not assigned to another member: it is claimed, assigned to the owner, or withheld.
NothingTaken ==
    \A c \in Clients : IsMember(c) /\ group.state = "Stable" =>
        \A p \in client[c].owned : group.assignment[p] \in {client[c].id, None}

\* Claims never conflict: a member that loses a partition in a group no longer claims it.
ClaimsAgree == \A m, n \in Members : m # n => group.claims[m].partitions \intersect group.claims[n].partitions = {}

\* A cooperative member gives up only partitions that a SyncGroup reply omits, unless it loses its membership or ends.
Undisturbed ==
    [][\A c \in Clients : client[c].list = "cooperative" =>
        \A p \in client[c].owned \ client'[c].owned :
            p \in client[c].revoking \/ client'[c].generation = NoGeneration]_vars

-----------------------------------------------------------------------------
(* The promises of the protocol: README.md says how each is checked, and within which bounds *)

Protocol == Spec /\ GuardsOff = {}

THEOREM Protocol => []TypeOK
THEOREM Protocol => []OneAwaited
THEOREM Protocol => []RepliesAwaited
THEOREM Protocol => []OneOwner
THEOREM Protocol => []NothingTaken
THEOREM Protocol => []ClaimsAgree
THEOREM Protocol => OwnershipKept
THEOREM Protocol => Undisturbed
=============================================================================
