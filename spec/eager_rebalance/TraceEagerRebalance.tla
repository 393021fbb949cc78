------------------------ MODULE TraceEagerRebalance ------------------------
(***************************************************************************)
(* Checks whether the trace of a group's coordinators is a behaviour of    *)
(* EagerRebalance. Each line contains the action, the choices made and     *)
(* values after the step; the spec must have such a step. trace.toml       *)
(* defines the fields of a line.                                           *)
(*                                                                         *)
(* The requests of clients are not constrained: a request in a line has    *)
(* arrived. A client is identified by its member id; a process that        *)
(* returns under another id is another client. In addition to the spec: a  *)
(* broker that was replaced continues with its memory until it learns of   *)
(* its replacement; stored content is appended first, and a successor may  *)
(* load it from then on.                                                   *)
(***************************************************************************)
EXTENDS EagerRebalance, Sequences, TLC

CONSTANTS Step(_),      \* a line of the trace: <<action, node, unused, generation, members, ...>>
          Length,       \* how many lines there are
          ShownLine     \* print the state before this one (0: none)

VARIABLES
    line,               \* the next line to explain
    active,             \* the broker whose memory is in `group`, `pending` and `calls`
    memory,             \* the memory of other brokers that coordinate or have coordinated the group
    appended,           \* what was written to __consumer_offsets, oldest first
    confirmed,          \* how many of the appended entries are known to be replicated
    owned               \* of a member process: the partitions that it was assigned and has not given up since

traceVars == <<active, memory, appended, confirmed, owned>>

-----------------------------------------------------------------------------
(* Derived from the trace: static members, partitions *)

Lines(action) == {n \in 1 .. Length : Step(n)[1] = action}
InstanceOf == {<<Step(n)[6], Step(n)[8]>> : n \in {m \in Lines("HandleJoin") : Step(m)[8] # ""}}
TraceTwins == {pair[1] : pair \in InstanceOf}
TraceAlike(c, d) == \E instance \in {pair[2] : pair \in InstanceOf} : {<<c, instance>>, <<d, instance>>} \subseteq InstanceOf
TracePartitions == {pair[2] : pair \in UNION {Step(n)[9] : n \in Lines("HandleSync")}}

Id(name) == IF name = "" THEN None ELSE <<name, 1>>
Ids(names) == {Id(name) : name \in names}
AssignmentOf(pairs) ==
    [p \in Partitions |-> IF \E pair \in pairs : pair[2] = p THEN Id((CHOOSE pair \in pairs : pair[2] = p)[1]) ELSE None]
OneOwnerEach(pairs) == \A one, other \in pairs : one[2] = other[2] => one = other
Content(generation, members, leader, pairs) ==
    [generation |-> generation, members |-> Ids(members), leader |-> Id(leader), assignment |-> AssignmentOf(pairs)]
ContentOf(g) == [generation |-> g.generation, members |-> g.members, leader |-> g.leader, assignment |-> g.assignment]
Same == UNCHANGED <<vars, traceVars>>

-----------------------------------------------------------------------------
(* Requests arrive *)

Request(s) ==
    LET call == [NewCall EXCEPT !.client = s[6], !.awaited = FALSE] IN
    CASE s[1] = "HandleJoin"   -> [call EXCEPT !.id = Id(s[7])]
      [] s[1] = "HandleSync"   -> [call EXCEPT !.kind = "SyncGroup", !.id = Id(s[6]), !.generation = s[7],
                                               !.assignment = IF Id(s[6]) = group.leader THEN AssignmentOf(s[9]) ELSE None]
      [] s[1] = "HandleCommit" -> [call EXCEPT !.kind = "OffsetCommit", !.id = Id(s[6]), !.generation = s[7],
                                               !.partitions = s[9]]

AtWork == {call \in calls : call.at = "sent"}

Arrive ==
    /\ Step(line)[1] \in {"HandleJoin", "HandleSync", "HandleCommit"}
    /\ active = Step(line)[2] /\ AtWork = {}
    /\ calls' = {call \in calls : call.at = "parked"} \union {Request(Step(line))}
    /\ UNCHANGED <<coordinator, client, histories, traceVars, line>>

-----------------------------------------------------------------------------
(* Joining *)

\* A known member sends a changed subscription: that starts a rebalance, for any member.
Reconsider(call) ==
    /\ call.id \in group.members
    /\ group' = Preparing(group.members, group.assignment)
    /\ Park(call, call.id)
    /\ UNCHANGED <<stored, pending, issued, client, histories>>

\* So does a static member that returns with a changed subscription.
ReplaceAnew(call) ==
    /\ call.id = None
    /\ \E old \in group.members : Alike(old[1], call.client) /\ ReplaceStatic(call, old, <<call.client, 1>>, FALSE)

\* An issued id was not used in time.
ForgetPending(call) ==
    /\ call.id \in pending
    /\ pending' = pending \ {call.id}
    /\ calls' = calls \ {call}
    /\ UNCHANGED <<group, stored, issued, client, histories>>

\* Older request versions do not have MEMBER_ID_REQUIRED.
MayJoin(member, asked, version) == asked # "" \/ member \in Twins \/ version < 4

IsHandleJoin(member, asked, result, changed) == \E call \in AtWork :
    LET becomes(at) == \E next \in calls' : next.kind = "JoinGroup" /\ next.at = at /\ next.id = Id(member)
        error == IF Fenced(call.id) THEN "FENCED_INSTANCE_ID" ELSE "UNKNOWN_MEMBER_ID" IN
    CASE result = "parked" ->
             /\ IF changed THEN Reconsider(call)
                ELSE IF asked = "" /\ group.state = "Stable" THEN ReplaceAnew(call) \/ HandleJoin(call)
                ELSE HandleJoin(call)
             /\ group'.state = "PreparingRebalance" /\ becomes("parked")
      [] result = "answered" -> HandleJoin(call) /\ group'.state = group.state /\ becomes("answered")
      [] OTHER ->
             /\ result = error
             /\ IF call.id \in pending THEN ForgetPending(call)
                ELSE call.id \notin group.members /\ HandleJoin(call)

\* No member is left, and no pending id delays the end of the rebalance.
Emptied ==
    /\ group.state = "PreparingRebalance" /\ group.members = {}
    /\ group' = [NewGroup EXCEPT !.generation = group.generation + 1]
    /\ UNCHANGED <<stored, pending, issued, client, calls, histories>>

IsCompleteJoin(members, leader) ==
    IF members = {} THEN leader = "" /\ Emptied
    ELSE (\E timedOut \in BOOLEAN : CompleteJoin(timedOut)) /\ group'.leader = Id(leader)

-----------------------------------------------------------------------------
(* Syncing and storing *)

\* The leader's call waits until its assignment is stored.
ParkLeader(call) ==
    /\ SyncError(call) = "NONE" /\ group.state = "CompletingRebalance"
    /\ calls' = (calls \ {call}) \union {[call EXCEPT !.at = "parked"]}
    /\ UNCHANGED <<coordinator, client, histories>>

IsHandleSync(result, pairs) == \E call \in AtWork :
    CASE result = "parked" ->
             /\ SyncError(call) = "NONE" /\ group.state = "CompletingRebalance"
             /\ IF call.id = group.leader
                THEN ParkLeader(call) /\ OneOwnerEach(pairs) /\ {pair[1] : pair \in pairs} \subseteq {m[1] : m \in group.members}
                ELSE HandleSync(call)
      [] result = "answered" -> SyncError(call) = "NONE" /\ group.state = "Stable" /\ HandleSync(call)
      [] OTHER               -> SyncError(call) = result /\ HandleSync(call)

FromLeader == {call \in Parked("SyncGroup") : call.id = group.leader}

\* The current state of the group, or that with the leader's assignment.
IsStoreGroup(content) ==
    /\ content = ContentOf(group) \/ \E call \in FromLeader : content = ContentOf([group EXCEPT !.assignment = call.assignment])
    /\ appended' = Append(appended, content)
    /\ UNCHANGED <<vars, active, memory, confirmed, owned>>

IsGroupStored(content) ==
    /\ \E i \in confirmed + 1 .. Len(appended) :
          /\ appended[i] = content
          /\ \A j \in confirmed + 1 .. i - 1 : appended[j] # content
          /\ confirmed' = i
    /\ UNCHANGED <<vars, active, memory, appended, owned>>

IsLeaderSync(content) ==
    /\ group.state = "CompletingRebalance"
    /\ \E i \in 1 .. confirmed : appended[i] = content
    /\ \E call \in FromLeader : LeaderSync(call)
    /\ ContentOf(group') = content

\* All members must join again.
StoreFailed ==
    /\ group.state = "CompletingRebalance"
    /\ group' = Preparing(group.members, group.assignment)
    /\ calls' = calls \ Parked("SyncGroup")
    /\ UNCHANGED <<stored, pending, issued, client, histories>>

-----------------------------------------------------------------------------
(* Commits, sessions, failover *)

\* A member commits only for partitions that its coordinator assigned to it, although the coordinator does not check that.
IsHandleCommit(result, partitions) == \E call \in AtWork :
    /\ HandleCommit(call)
    /\ CommitAccepted(call) = (result = "NONE")
    /\ result = "NONE" => \A p \in partitions : p \in Partitions /\ group.assignment[p] = call.id

\* A group without members becomes Empty when the rebalance ends; issued ids may delay that.
Leave(gone) ==
    IF group.members # gone THEN Expel(gone)
    ELSE /\ group' = Preparing({}, Nobody)
         /\ calls' = {}
         /\ UNCHANGED <<stored, pending, issued, client, histories>>

IsExpireSession(id) == id \in group.members \ (Waiting("JoinGroup") \union Waiting("SyncGroup")) /\ Leave({id})

\* If all members have synced and the assignment could not be stored in time, they join again.
IsExpireUnsynced ==
    LET late == group.members \ Waiting("SyncGroup") IN
    group.state = "CompletingRebalance" /\ IF late = {} THEN StoreFailed ELSE Leave(late)

Shelf == [group |-> group, pending |-> pending, calls |-> {call \in calls : call.at = "parked"}]
Shelved == IF active = None THEN memory ELSE (active :> Shelf) @@ memory

\* The broker loads the last stored entry, or one that was appended since and survived.
IsFailover(node, content) ==
    LET loaded == [state      |-> IF content.members = {} THEN "Empty" ELSE "Stable",
                   generation |-> content.generation,
                   members    |-> content.members,
                   leader     |-> content.leader,
                   assignment |-> content.assignment] IN
    /\ \/ confirmed = 0 /\ loaded = NewGroup
       \/ \E i \in confirmed .. Len(appended) : i > 0 /\ appended[i] = content
    /\ group' = loaded /\ stored' = loaded /\ pending' = {} /\ calls' = {}
    /\ active' = node /\ memory' = Shelved
    /\ UNCHANGED <<issued, client, histories, appended, confirmed, owned>>

IsDeleteGroup ==
    /\ group.members = {}
    /\ appended' = Append(appended, ContentOf(NewGroup)) /\ confirmed' = Len(appended')
    /\ UNCHANGED <<vars, active, memory, owned>>

\* The next line is from another broker: switch to the memory of that broker.
Turn ==
    LET node == Step(line)[2] IN
    /\ Step(line)[1] \notin {"Failover", "Assigned", "Revoked", "Lost"}
    /\ node # active /\ node \in DOMAIN memory
    /\ active' = node /\ memory' = Shelved
    /\ group' = memory[node].group /\ pending' = memory[node].pending /\ calls' = memory[node].calls
    /\ UNCHANGED <<stored, issued, client, histories, appended, confirmed, owned, line>>

-----------------------------------------------------------------------------
(* Lines of member processes *)

Owned(process) == IF process \in DOMAIN owned THEN owned[process] ELSE {}

\* A process is assigned only partitions that are stored as those of one member.
IsAssigned(process, generation, partitions) ==
    /\ \E i \in 1 .. Len(appended) :
          /\ appended[i].generation = generation
          /\ \E m \in appended[i].members : \A p \in partitions : p \in Partitions /\ appended[i].assignment[p] = m
    /\ owned' = (process :> (Owned(process) \union partitions)) @@ owned
    /\ UNCHANGED <<vars, active, memory, appended, confirmed>>

IsGivenUp(process, partitions) ==
    /\ partitions \subseteq Owned(process)
    /\ owned' = (process :> (Owned(process) \ partitions)) @@ owned
    /\ UNCHANGED <<vars, active, memory, appended, confirmed>>

-----------------------------------------------------------------------------
InSpec(s) ==
    CASE s[1] = "TakeMemberId"   -> TakeMemberId(s[6])
      [] s[1] = "HandleJoin"     -> MayJoin(s[6], s[7], s[11]) /\ IsHandleJoin(s[6], s[7], s[9], s[10])
      [] s[1] = "CompleteJoin"   -> IsCompleteJoin(s[5], s[6])
      [] s[1] = "HandleSync"     -> IsHandleSync(s[8], s[9])
      [] s[1] = "LeaderSync"     -> IsLeaderSync(Content(s[4], s[5], s[6], s[7]))
      [] s[1] = "StoreFailed"    -> StoreFailed
      [] s[1] = "HandleCommit"   -> IsHandleCommit(s[8], s[9])
      [] s[1] = "ExpireSession"  -> IsExpireSession(Id(s[6]))
      [] s[1] = "Expel"          -> Id(s[6]) \in group.members /\ Leave({Id(s[6])})
      [] s[1] = "ExpireUnsynced" -> IsExpireUnsynced

Explained(s) ==
    CASE s[1] = "StoreGroup"          -> OneOwnerEach(s[9]) /\ IsStoreGroup(Content(s[6], s[7], s[8], s[9]))
      [] s[1] = "GroupStored"         -> IsGroupStored(Content(s[6], s[7], s[8], s[9]))
      [] s[1] = "Failover"            -> IsFailover(s[2], Content(s[4], s[5], s[6], s[7]))
      [] s[1] = "DeleteGroup"         -> IsDeleteGroup
      [] s[1] = "Assigned"            -> IsAssigned(s[2], s[4], s[5])
      [] s[1] \in {"Revoked", "Lost"} -> IsGivenUp(s[2], s[5])
      [] OTHER                        -> InSpec(s) /\ active = s[2] /\ UNCHANGED traceVars

TraceStep ==
    /\ line <= Length
    /\ line' = line + 1
    /\ Explained(Step(line))
    /\ Step(line)[1] \notin {"Assigned", "Revoked", "Lost"} =>
          active' = Step(line)[2] /\ group'.generation = Step(line)[4] /\ group'.members = Ids(Step(line)[5])

TraceInit ==
    /\ Init /\ line = 1 /\ TLCSet(1, 0)
    /\ active = None /\ memory = << >> /\ appended = << >> /\ confirmed = 0 /\ owned = << >>

TraceSpec == TraceInit /\ [][TraceStep \/ (line <= Length /\ (Arrive \/ Turn))]_<<vars, traceVars, line>>

\* Checked as an invariant: prints each line that is reached for the first time, and ends the run after the last one:
\* then the trace is accepted.
Reached ==
    line > TLCGet(1) =>
        /\ TLCSet(1, line) /\ PrintT(<<"REACHED", line>>)
        /\ line > Length => PrintT("TRACE_ACCEPTED") /\ TLCSet("exit", TRUE)

\* Prints the state before ShownLine, to find out why a line was rejected.
Show ==
    line = ShownLine =>
        /\ PrintT(<<"SHOWN", "group", [coordinator |-> active, state |-> group.state, generation |-> group.generation,
                                       members |-> {m[1] : m \in group.members}, leader |-> group.leader,
                                       assignment |-> group.assignment, pending |-> {m[1] : m \in pending}]>>)
        /\ PrintT(<<"SHOWN", "waiting", [joining |-> {m[1] : m \in Waiting("JoinGroup")},
                                         syncing |-> {m[1] : m \in Waiting("SyncGroup")},
                                         arrived |-> {call.kind : call \in AtWork}]>>)
        /\ PrintT(<<"SHOWN", "stored", [appended |-> Len(appended), confirmed |-> confirmed]>>)
=============================================================================
