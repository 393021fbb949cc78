-------------------------- MODULE RefEagerRebalance --------------------------
(* Every step of EagerRebalance is a step of EagerRebalanceCore, the transition system that proof.py proves, or changes
   none of its variables. A member of the core is a member id. Where this is narrower than the module:
   spec/proofs/README.md, "The link to the modules". *)
EXTENDS MCEagerRebalance

VARIABLE memory     \* history: what the core still knows of former ids, generations and messages

Ids == Clients \X (1 .. MaxIds)
Generations == 0 .. MaxGeneration

-----------------------------------------------------------------------------
(* The mapping *)

InUse == {m \in Ids : client[m[1]].id = m}
Dropped(m, old) == m \in old.inUse \ InUse

\* Which of a client's phases is none of the core's: it is out and will join.
State(m, old) ==
    LET c == client[m[1]] IN
    CASE m \in InUse /\ c.phase = "joining"                                                     -> "Joining"
      [] m \in InUse /\ c.phase = "syncing"                                                     -> "Syncing"
      [] m \in InUse /\ c.phase = "member"                                                      -> "Joined"
      [] m \in InUse /\ c.generation = NoGeneration /\ old.generation[m] # NoGeneration         -> "Unjoined"
      [] Dropped(m, old) /\ m \notin group.members                                              -> "Unjoined"
      [] OTHER                                                                                  -> old.state[m]

\* A process that restarts forgets its id; in the core the id keeps what it owned, until it hears of its loss.
Owned(m, old) ==
    CASE m \in InUse                                    -> client[m[1]].owned
      [] Dropped(m, old) /\ m \notin group.members      -> {}
      [] OTHER                                          -> old.owned[m]

Known(m, old) ==
    IF m \in InUse /\ client[m[1]].generation # NoGeneration THEN client[m[1]].generation ELSE old.known[m]

Began(old, field, value) == [old[field] EXCEPT ![group.generation] = IF group.state = "CompletingRebalance" THEN value ELSE @]

Committed(m, g) == UNION {call.partitions : call \in {each \in Sent("OffsetCommit") : each.id = m /\ each.generation = g}}

Sync(call) ==
    [member |-> call.id, generation |-> call.generation, leads |-> call.assignment # None,
     assignment |-> IF call.assignment = None THEN Nobody ELSE call.assignment]

\* A stable group has answered its members.
Answers(m) == group.state = "Stable" /\ m \in group.members

Granted(m, old) ==
    IF Answers(m) THEN [old.granted[m] EXCEPT ![group.generation] = Assigned(m)] ELSE old.granted[m]

Memory(old) ==
    [state      |-> [m \in Ids |-> State(m, old)],
     owned      |-> [m \in Ids |-> Owned(m, old)],
     known      |-> [m \in Ids |-> Known(m, old)],
     leaderIn   |-> Began(old, "leaderIn", group.leader),
     memberIn   |-> Began(old, "memberIn", group.members),
     joinSent   |-> old.joinSent \union {call.id : call \in Sent("JoinGroup")},
     commitSent |-> [m \in Ids |-> [g \in Generations |-> old.commitSent[m][g] \union Committed(m, g)]],
     syncs      |-> old.syncs \union {Sync(call) : call \in Sent("SyncGroup")},
     syncReply  |-> [m \in Ids |-> old.syncReply[m] \union IF Answers(m) THEN {group.generation} ELSE {}],
     granted    |-> [m \in Ids |-> Granted(m, old)],
     \* to notice what has changed
     inUse |-> InUse, generation |-> [m \in Ids |-> IF m \in InUse THEN client[m[1]].generation ELSE NoGeneration]]

Nothing ==
    LET each(value) == [m \in Ids |-> value]
        ever(value) == [g \in Generations |-> value] IN
    [state |-> each("Unjoined"), owned |-> each({}), known |-> each(0), leaderIn |-> ever(None), memberIn |-> ever({}),
     joinSent |-> {}, commitSent |-> each(ever({})), syncs |-> {}, syncReply |-> each({}), granted |-> each(ever({})),
     inUse |-> {}, generation |-> each(NoGeneration)]

Remember == \E old \in {memory} : memory' = Memory(old)'

RefSpec == MCInit /\ memory = Nothing /\ [][MCNext /\ Remember]_<<mcVars, memory>>

Core == INSTANCE EagerRebalanceCore WITH
    Members <- Ids,
    none <- None,
    MaxSyncs <- 0,
    group <- group.state,
    generation <- group.generation,
    member <- group.members,
    joined <- IF group.state = "PreparingRebalance" THEN Waiting("JoinGroup") ELSE {},
    leader <- group.leader,
    assigned <- group.assignment,
    committedGeneration <- [p \in Partitions |-> IF committed[p] = None THEN 0 ELSE committed[p].generation],
    committedBy <- [p \in Partitions |-> IF committed[p] = None THEN None ELSE committed[p].member],
    leaderIn <- memory.leaderIn,
    memberIn <- memory.memberIn,
    client <- memory.state,
    knownGeneration <- memory.known,
    owned <- memory.owned,
    joinSent <- memory.joinSent,
    joinReplySent <- [m \in Ids |-> {g \in Generations : m \in memory.memberIn[g]}],
    commitSent <- memory.commitSent,
    syncs <- memory.syncs,
    syncReplySent <- memory.syncReply,
    granted <- memory.granted
RefinesCore == Core!Spec
=============================================================================
