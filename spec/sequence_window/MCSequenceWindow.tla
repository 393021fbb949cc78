-------------------------- MODULE MCSequenceWindow --------------------------
(* SequenceWindow, bounded so that TLC can explore every state. *)
EXTENDS SequenceWindow, TLC

CONSTANTS MaxBatches, MaxRetries, MaxLeaderEpoch

MCSend == sent < MaxBatches /\ Send
MCSendAsNew(b) == next < sent + MaxRetries /\ SendAsNew(b)
MCStore(b) == \E request \in requests : request.batch = b /\ Store(request) /\ Len(log) < MaxBatches + MaxRetries
MCAcknowledge(b) == \E request \in requests : request.batch = b /\ Acknowledge(request)
MCCommit(end) == Commit(end)
MCChangeLeader(end) == leaderEpoch < MaxLeaderEpoch /\ ChangeLeader(end)

MCNext ==
    \/ MCSend
    \/ \E b \in 0 .. MaxBatches - 1 : MCSendAsNew(b) \/ MCStore(b) \/ MCAcknowledge(b)
    \/ \E end \in 0 .. MaxBatches + MaxRetries : MCCommit(end) \/ MCChangeLeader(end)

MCSpec == Init /\ [][MCNext]_vars

-----------------------------------------------------------------------------
(* Liveness: what was sent arrives, is appended, committed and acknowledged.  Leaders change only so often. *)

LiveSpec ==
    /\ MCSpec
    /\ \A b \in 0 .. MaxBatches - 1 : WF_vars(MCStore(b)) /\ WF_vars(MCAcknowledge(b))
    /\ WF_vars(\E end \in 0 .. MaxBatches + MaxRetries : MCCommit(end))

EveryBatchIsAcknowledged == \A b \in 0 .. MaxBatches - 1 : b < sent ~> b \in acked

-----------------------------------------------------------------------------
(* Situations that must be reachable; otherwise the claims would hold vacuously *)

Overtaken == \E request \in requests : window # <<>> /\ request.sequence > Last + 1
OldCopy == \E request \in requests : request.batch \in acked /\ window # <<>> /\ request.sequence < window[1]
LostTail == leaderEpoch > 0 /\ Len(log) < sent /\ \E n \in 1 .. sent : n > Len(log) /\ n > committed
AckedAfterChange == leaderEpoch > 0 /\ acked # {} /\ Len(log) = MaxBatches
WholeWindow == Len(window) = Size /\ acked = {}
=============================================================================
