----------------------- MODULE RefCooperativeRebalance -----------------------
(* Every step of CooperativeRebalance is a step of CooperativeRebalanceCore, the transition system that proof.py proves,
   or changes none of its variables. A member of the core is a member id. Where this is narrower than the module:
   spec/proofs/README.md, "The link to the modules". *)
EXTENDS MCCooperativeRebalance

CONSTANT MaxSequence    \* so many JoinGroup requests of one member id

VARIABLE memory     \* history: what the core still knows of former ids, generations and messages

Ids == Clients \X (1 .. MaxIds)
\* MCCooperativeRebalance has its own Generations(claims).
Begun == 0 .. MaxGeneration

-----------------------------------------------------------------------------
(* The mapping *)

InUse == {m \in Ids : client[m[1]].id = m}
Of(m) == IF m \in InUse THEN client[m[1]] ELSE NewClient

\* The phase out is none of the core's: the process will join, and the core's member waits or owns as before.
State(m, old) ==
    LET c == Of(m) IN
    CASE c.phase = "joining"                                                                    -> "Joining"
      [] c.phase = "syncing"                                                                    -> "Syncing"
      [] c.phase = "member"                                                                     -> "Joined"
      [] m \in InUse /\ c.generation = NoGeneration /\ old.client[m].generation # NoGeneration  -> "Unjoined"
      [] m \notin InUse                                                                         -> "Unjoined"
      [] OTHER                                                                                  -> old.state[m]

\* JoinGroup requests have no number: the core counts those of a member id.
Sequence(m, old) == old.sequence[m] + IF Of(m).phase = "joining" /\ old.client[m].phase # "joining" THEN 1 ELSE 0

JoinCalls(m, at) == {call \in calls : call.kind = "JoinGroup" /\ call.id = m /\ call.at = at}
Awaited(those) == {call \in those : call.awaited}

\* An awaited request that the coordinator has received is the last that was sent.
Received(m) == Awaited(JoinCalls(m, "parked") \union JoinCalls(m, "answered")) # {}
LastSequence(m, old) == IF Received(m) THEN Sequence(m, old) ELSE old.lastSequence[m]

LastClaim(m, old) ==
    IF JoinCalls(m, "parked") = {} THEN old.claim[m] ELSE (CHOOSE call \in JoinCalls(m, "parked") : TRUE).claim

BeginsNow(old) == group.state = "CompletingRebalance" /\ group.generation # old.group.generation

Answers(m, old) ==
    (IF BeginsNow(old) /\ m \in Members THEN {<<LastSequence(m, old), group.generation>>} ELSE {}) \union
    {<<Sequence(m, old), call.generation>> : call \in Awaited(JoinCalls(m, "answered"))}

Requests(old) ==
    {[member |-> call.id, sequence |-> Sequence(call.id, old), owned |-> call.claim.partitions,
      generation |-> call.claim.generation] : call \in Sent("JoinGroup")}

\* A stable group has answered its members.
Assigns(m) == group.state = "Stable" /\ m \in Members

Granted(m, old) ==
    IF Assigns(m) THEN [old.granted[m] EXCEPT ![group.generation] = Assigned(m)] ELSE old.granted[m]

Joined(old) ==
    CASE group.state = "PreparingRebalance" -> Waiting("JoinGroup")
      [] group.state = "Empty" -> {}
      [] OTHER -> old.joined

Memory(old) ==
    LET each(Value(_, _)) == [m \in Ids |-> Value(m, old)] IN
    [state        |-> each(State),
     known        |-> [m \in Ids |-> IF Of(m).generation = NoGeneration THEN old.known[m] ELSE Of(m).generation],
     sequence     |-> each(Sequence),
     lastSequence |-> each(LastSequence),
     claim        |-> each(LastClaim),
     joined       |-> Joined(old),
     fenced       |-> old.fenced \union (DOMAIN old.group.claims \ Members),
     requests     |-> old.requests \union Requests(old),
     joinReply    |-> [m \in Ids |-> old.joinReply[m] \union Answers(m, old)],
     syncReply    |-> [m \in Ids |-> old.syncReply[m] \union IF Assigns(m) THEN {group.generation} ELSE {}],
     granted      |-> each(Granted),
     \* to notice what has changed
     client |-> [m \in Ids |-> [phase |-> Of(m).phase, generation |-> Of(m).generation]], group |-> group]

Blank ==
    LET each(value) == [m \in Ids |-> value] IN
    [state |-> each("Unjoined"), known |-> each(0), sequence |-> each(0), lastSequence |-> each(0),
     claim |-> each(Nothing), joined |-> {}, fenced |-> {}, requests |-> {}, joinReply |-> each({}),
     syncReply |-> each({}), granted |-> each([g \in Begun |-> {}]),
     client |-> each([phase |-> "out", generation |-> NoGeneration]), group |-> group]

Remember == \E old \in {memory} : memory' = Memory(old)'

RefSpec == MCInit /\ memory = Blank /\ [][MCNext /\ Remember]_<<mcVars, memory>>

Core == INSTANCE CooperativeRebalanceCore WITH
    Members <- Ids,
    none <- None,
    MaxRequests <- 0,
    group <- group.state,
    generation <- group.generation,
    member <- Members,
    joined <- memory.joined,
    fenced <- memory.fenced,
    assigned <- group.assignment,
    claimed <- [m \in Ids |-> memory.claim[m].partitions],
    claimGeneration <- [m \in Ids |-> memory.claim[m].generation],
    lastSequence <- memory.lastSequence,
    used <- {m \in Ids : m[2] <= issued[m[1]]},
    client <- memory.state,
    sequence <- memory.sequence,
    knownGeneration <- memory.known,
    grantedGeneration <- [m \in Ids |-> Of(m).since],
    owned <- [m \in Ids |-> Of(m).owned],
    revoking <- [m \in Ids |-> Of(m).revoking],
    requests <- memory.requests,
    joinReplySent <- [m \in Ids |-> [n \in 0 .. MaxSequence |-> {reply[2] : reply \in {each \in memory.joinReply[m] : each[1] = n}}]],
    syncReplySent <- memory.syncReply,
    granted <- memory.granted
RefinesCore == Core!Spec
=============================================================================
