------------------------- MODULE WalkEagerRebalance -------------------------
(***************************************************************************)
(* Behaviours of EagerRebalance that a client can cause, for walks.py,     *)
(* which runs them against a broker. A call is sent when the model handles *)
(* it, and a step that can happen at once happens at once: a JoinGroup     *)
(* arrives when it is sent, a round ends when all members have joined, a   *)
(* reply is read when it arrives. The free choices are those that a broker *)
(* can observe: when members join, leave and commit, and which SyncGroup   *)
(* or OffsetCommit is late. No request is sent twice, because the protocol *)
(* does not define which of two equal calls a broker answers.              *)
(***************************************************************************)
EXTENDS MCEagerRebalance

VARIABLE step       \* the last step: action, client, call, and the coordinator's expected answer

Step(action, c, call, says) == step' = [action |-> action, client |-> c, call |-> call, says |-> says]
Quietly(action, c) == Step(action, c, [NewCall EXCEPT !.id = client[c].id], "NONE")

Complete == group.state = "PreparingRebalance" /\ group.members # {} /\ group.members \subseteq Waiting("JoinGroup")
Replies == {call \in calls : call.at = "answered" /\ call.awaited}
Unheard(c) == client[c].phase \in {"joining", "syncing"} /\ ~Awaits(c)

Join ==
    LET call == CHOOSE call \in Sent("JoinGroup") : TRUE
        known == call.id \in pending \union group.members IN
    HandleJoin(call) /\ Step("HandleJoin", call.client, call, IF known THEN "NONE" ELSE "UNKNOWN_MEMBER_ID")

Hear ==
    LET call == CHOOSE call \in Replies : TRUE IN
    IF call.kind = "JoinGroup"
    THEN TakeJoinReply(call) /\ Step("TakeJoinReply", call.client, call, "NONE")
    ELSE TakeSyncReply(call) /\ Step("TakeSyncReply", call.client, call, "NONE")

Refused ==
    LET c == CHOOSE c \in Clients : Unheard(c) IN
    GiveUp(c, FALSE) /\ Quietly("GiveUp", c)

Free ==
    \/ \E c \in Clients :
          \/ TakeMemberId(c) /\ issued[c] < MaxIds /\ UNCHANGED spent
             /\ Step("TakeMemberId", c, [NewCall EXCEPT !.id = <<c, issued[c] + 1>>], "MEMBER_ID_REQUIRED")
          \/ SendJoin(c) /\ UNCHANGED spent /\ Quietly("SendJoin", c)
          \/ Heartbeat(c) /\ UNCHANGED spent
             /\ Step("Heartbeat", c, [NewCall EXCEPT !.id = client[c].id, !.generation = client[c].generation],
                     HeartbeatError(c))
          \/ MCSendCommit(c) /\ Quietly("SendCommit", c)
    \/ \E call \in Sent("SyncGroup") :
          HandleSync(call) /\ UNCHANGED spent /\ Step("HandleSync", call.client, call, SyncError(call))
    \/ \E call \in Sent("OffsetCommit") :
          /\ HandleCommit(call) /\ UNCHANGED spent
          /\ Step("HandleCommit", call.client, call, IF CommitAccepted(call) THEN "NONE" ELSE "REFUSED")
    \/ \E id \in group.members :
          ExpireSession(id) /\ Once("expiries", MaxExpiries) /\ Step("Leave", id[1], [NewCall EXCEPT !.id = id], "NONE")

WalkNext ==
    IF Sent("JoinGroup") # {} THEN Join /\ UNCHANGED spent
    ELSE IF Complete
    THEN /\ group.generation < MaxGeneration
         /\ CompleteJoin(FALSE) /\ UNCHANGED spent
         /\ Step("CompleteJoin", group'.leader[1],
                 [NewCall EXCEPT !.id = group'.leader, !.generation = group'.generation], "NONE")
    ELSE IF Replies # {} THEN Hear /\ UNCHANGED spent
    ELSE IF \E c \in Clients : Unheard(c) THEN Refused /\ UNCHANGED spent
    \* A broker may wait for a client to which it issued a member id, so the client always continues.
    ELSE IF pending # {} THEN \E id \in pending : SendJoin(id[1]) /\ UNCHANGED spent /\ Quietly("SendJoin", id[1])
    ELSE Free

WalkSpec ==
    /\ MCInit /\ step = [action |-> "Init", client |-> None, call |-> NewCall, says |-> "NONE"]
    /\ [][WalkNext]_<<mcVars, step>>
=============================================================================
