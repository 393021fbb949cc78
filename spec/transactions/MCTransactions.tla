--------------------------- MODULE MCTransactions ---------------------------
(* Transactions, bounded so that TLC can explore every state. *)
EXTENDS Transactions, TLC

CONSTANTS MaxFailOvers, MayTimeOut, MaxEpoch

MCFailOver == coordinatorEpoch < MaxFailOvers /\ FailOver
MCTimeOut == MayTimeOut /\ cached.epoch < MaxEpoch /\ TimeOut
MCInitProducerId(c) == cached.epoch < MaxEpoch /\ InitProducerId(c)

MCNext ==
    \/ MCTimeOut \/ Complete \/ MCFailOver
    \/ \E c \in Clients : MCInitProducerId(c) \/ Begin(c) \/ Verify(c) \/ \E outcome \in Prepared : SendEnd(c, outcome)
    \/ \E c \in Clients, p \in Partitions : SendAdd(c, p) \/ SendRecord(c, p)
    \/ \E c \in Clients, answered \in BOOLEAN :
          HandleAdd(c, answered) \/ HandleEnd(c, answered) \/ AppendVerified(c, answered) \/ HandleRecord(c, answered)
    \/ \E p \in Partitions, answered \in BOOLEAN : HandleMarker(p, answered)

MCSpec == Init /\ [][MCNext]_vars

Symmetry == Permutations(Clients) \union Permutations(Partitions \ {Offsets})

-----------------------------------------------------------------------------
(* Liveness: what the coordinator and the leaders do by themselves happens.  The producer may stop at any time, and any
   response may be lost, but not for ever.  At the bound on epochs nothing times out any more. *)

LiveSpec ==
    /\ MCSpec
    /\ WF_vars(MCTimeOut) /\ WF_vars(Complete)
    /\ \A p \in Partitions : SF_vars(HandleMarker(p, TRUE))

Bounded == cached.epoch >= MaxEpoch
EveryTransactionIsDecided == cached.state = "ongoing" ~> cached.state # "ongoing" \/ Bounded
EveryMarkerIsWritten == cached.state \in Prepared ~> cached.state = "done"
NothingStaysOpen == \A p \in Partitions : Open(p) ~> ~Open(p) \/ Bounded

-----------------------------------------------------------------------------
(* Situations that must be reachable; otherwise the claims would hold vacuously *)

InstanceFenced == \E c \in Clients : client[c].phase = "open" /\ client[c].epoch < cached.epoch /\ cached.state = "ongoing"
EndedInPart ==
    /\ cached.state \in Prepared
    /\ \E p, q \in Partitions : Open(p) /\ log[q] # <<>> /\ Last(log[q]).kind = cached.state /\ Last(log[q]).ends = members
LateEnd == \E request \in requests : request.kind = "end" /\ request.txn < Len(transactions) /\ cached.state = "ongoing"
LateMarker ==
    \E request \in requests : request.kind = "marker" /\ OpenIn(request.partition, request.epoch)
EndedWhileVerified == \E batch \in verified : batch.markers < Markers(batch.request.partition)
CommittedTwice == \E t, u \in DOMAIN transactions : t # u /\ Outcome(t) = "commit" /\ Outcome(u) = "commit"
ConsumedTwo == Offsets \in Partitions /\ Len(Visible(Offsets)) = 2
FailedOverPrepared == cached.state \in Prepared /\ cached.partitions # {} /\ coordinatorEpoch > 0
TimedOutWhileCommitting == \E c \in Clients : client[c].phase = "commit" /\ Outcome(client[c].txn) = "abort"
Resumed == \E c \in Clients : client[c].phase = "open" /\ client[c].txn > 1 /\ transactions[1].outcome = "abort"
NewIdPrepared == cached.state \in Prepared /\ cached.next # None /\ \E p \in Partitions : Open(p)
OldIdIsLate == \E request \in requests : request.kind \in {"end", "produce"} /\ Id(request.epoch) < Id(cached.epoch) /\ cached.state = "ongoing"
RepeatedAcrossIds == cached.state = "done" /\ \E c \in Clients : client[c].phase = cached.ended /\ Id(client[c].epoch) < Id(cached.epoch)

-----------------------------------------------------------------------------
(* One instance, without timeouts: nothing fences it, so it may always go on.  What it knows of its producer id and epoch is
   what the coordinator knows, or it can ask again. *)

InstanceGoesOn ==
    \A c \in Clients :
        LET end == [epoch |-> client[c].epoch, outcome |-> client[c].phase] IN
        /\ client[c].phase = "ready" => client[c].epoch = NextEpoch(cached)
        /\ client[c].phase \in Prepared /\ Outcome(client[c].txn) # "open" /\ cached.state = "done" => Repeats(end)
=============================================================================
