--------------------------- MODULE SequenceWindow ---------------------------
(***************************************************************************)
(* How an idempotent producer's batches are stored once, without a gap and *)
(* in their order: sequence numbers, and a window of batches that the      *)
(* leader of the partition remembers (KIP-98, KIP-360, KAFKA-5494).        *)
(*                                                                         *)
(* One producer with one id and epoch, and one partition. A request is     *)
(* never removed: a batch may arrive late, again, in any order, or never.  *)
(* The leader changes: the next one has all committed batches, and any     *)
(* number of the others, and its window follows from its log.              *)
(*                                                                         *)
(* Left out: new producer epochs (Transactions), expired producer ids,     *)
(* sequence numbers that wrap, deletion of the log's beginning, and a      *)
(* restart from a producer snapshot, which has only the last batch. Guards:*)
(* spec/guards.toml.                                                       *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
    Size                \* how many batches a leader remembers, and how many may be in flight: 5 in Kafka

CONSTANT GuardsOff      \* the guards that are switched off; {} is the protocol

RefuseSequenceGap == "RefuseSequenceGap" \notin GuardsOff
RefuseUsedSequence == "RefuseUsedSequence" \notin GuardsOff
BeginAtZero == "BeginAtZero" \notin GuardsOff
RememberBatches == "RememberBatches" \notin GuardsOff
LimitInFlight == "LimitInFlight" \notin GuardsOff
RetryKeepsSequence == "RetryKeepsSequence" \notin GuardsOff
RebuildWindow == "RebuildWindow" \notin GuardsOff
ForgetTruncatedBatches == "ForgetTruncatedBatches" \notin GuardsOff
AckAfterCommit == "AckAfterCommit" \notin GuardsOff

Guards ==
    {"RefuseSequenceGap", "RefuseUsedSequence", "BeginAtZero", "RememberBatches", "LimitInFlight", "RetryKeepsSequence",
     "RebuildWindow", "ForgetTruncatedBatches", "AckAfterCommit"}
ASSUME GuardsOff \subseteq Guards
ASSUME Size \in Nat \ {0}

VARIABLE sent           \* how many batches the producer has sent; they are numbered from 0
VARIABLE next           \* its next sequence number
VARIABLE acked          \* the batches of which it knows that they are stored
producer == <<sent, next, acked>>

VARIABLE requests       \* every request that was ever sent: a batch and its sequence number

VARIABLE log            \* the leader's log: batches with their sequence numbers
VARIABLE committed      \* how many of them are committed
VARIABLE window         \* the sequence numbers of the batches that the leader remembers, oldest first
VARIABLE leaderEpoch    \* the number of changes of the leader
partition == <<log, committed, window, leaderEpoch>>

vars == <<producer, requests, partition>>

-----------------------------------------------------------------------------
(* Definitions *)

Min(a, b) == IF a < b THEN a ELSE b
Newest(s, n) == SubSeq(s, Len(s) - Min(n, Len(s)) + 1, Len(s))
Remembered(sequences) == Newest(sequences, IF RememberBatches THEN Size ELSE 1)     \* guard off: the last one (before 1.0)

Sequences(batches) == [n \in DOMAIN batches |-> batches[n].sequence]
IsStored(batch) == \E n \in DOMAIN log : log[n].batch = batch
InWindow(sequence) == \E n \in DOMAIN window : window[n] = sequence
Last == window[Len(window)]

\* The oldest batch without an acknowledgement limits what is sent.
Oldest == CHOOSE b \in 0 .. sent : b \notin acked /\ \A earlier \in 0 .. b - 1 : earlier \in acked

-----------------------------------------------------------------------------
(* The producer *)

\* At most so many batches are in flight as the leader remembers (max.in.flight.requests.per.connection).
Send ==
    /\ LimitInFlight => sent < Oldest + Size
    /\ requests' = requests \union {[batch |-> sent, sequence |-> next]}
    /\ sent' = sent + 1 /\ next' = next + 1
    /\ UNCHANGED <<acked, partition>>

\* Without a response the producer sends the same request again, which is still there.  Guard off: it is a new batch.
SendAsNew(b) ==
    /\ ~RetryKeepsSequence /\ b \in 0 .. sent - 1 /\ b \notin acked
    /\ requests' = requests \union {[batch |-> b, sequence |-> next]}
    /\ next' = next + 1
    /\ UNCHANGED <<sent, acked, partition>>

-----------------------------------------------------------------------------
(* The leader *)

\* A producer that the partition does not know begins with sequence number 0.  Idempotent producers without transactions
\* may begin anywhere (KIP-360): README.md, "Where a producer begins".
IsNext(sequence) ==
    IF window = <<>> THEN BeginAtZero => sequence = 0
    ELSE /\ RefuseSequenceGap => sequence <= Last + 1
         /\ RefuseUsedSequence => sequence > Last

Store(request) ==
    /\ ~InWindow(request.sequence) /\ IsNext(request.sequence)
    /\ log' = log \o <<request>>
    /\ window' = Remembered(window \o <<request.sequence>>)
    /\ UNCHANGED <<producer, requests, committed, leaderEpoch>>

\* The response to the first copy or to a repeated one, which the leader recognises.
Acknowledge(request) ==
    /\ InWindow(request.sequence)
    /\ AckAfterCommit => \E n \in 1 .. committed : log[n].sequence = request.sequence
    /\ acked' = acked \union {request.batch}
    /\ UNCHANGED <<sent, next, requests, partition>>

Commit(end) ==
    /\ end \in committed + 1 .. Len(log)
    /\ committed' = end
    /\ UNCHANGED <<producer, requests, log, window, leaderEpoch>>

\* The next leader has every committed batch; of the others those that it has fetched.
ChangeLeader(end) ==
    /\ end \in committed .. Len(log)
    /\ log' = SubSeq(log, 1, end)
    /\ window' = IF ~RebuildWindow THEN <<>>
                 ELSE IF ~ForgetTruncatedBatches THEN window ELSE Remembered(Sequences(log'))
    /\ leaderEpoch' = leaderEpoch + 1
    /\ UNCHANGED <<producer, requests, committed>>

-----------------------------------------------------------------------------
Init ==
    /\ sent = 0 /\ next = 0 /\ acked = {}
    /\ requests = {}
    /\ log = <<>> /\ committed = 0 /\ window = <<>> /\ leaderEpoch = 0

Next ==
    \/ Send
    \/ \E b \in 0 .. sent : SendAsNew(b)
    \/ \E request \in requests : Store(request) \/ Acknowledge(request)
    \/ \E end \in 0 .. Len(log) : Commit(end) \/ ChangeLeader(end)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* What holds *)

TypeOK ==
    /\ {sent, next, committed, leaderEpoch} \subseteq Nat
    /\ acked \subseteq 0 .. sent - 1
    /\ requests \subseteq [batch : 0 .. sent - 1, sequence : 0 .. next - 1]
    /\ {log[n] : n \in DOMAIN log} \subseteq requests /\ committed <= Len(log)
    /\ Len(window) <= Min(Size, Len(log)) /\ {window[n] : n \in DOMAIN window} \subseteq 0 .. next - 1

\* The log has the batches in the order in which they were sent, each once, and none is left out.
InOrderOnce == \A n \in DOMAIN log : log[n].batch = n - 1

\* An acknowledged batch is committed.
AckedIsStored == \A b \in acked : \E n \in 1 .. committed : log[n].batch = b

\* A repeated batch that is stored, and not acknowledged yet, is recognised: otherwise the producer could not know whether
\* its records are stored, and would have to stop.
RepeatsAreAnswered == \A request \in requests : IsStored(request.batch) /\ request.batch \notin acked => InWindow(request.sequence)

\* What was committed is never lost or moved.
CommittedStays == [][SubSeq(log', 1, committed) = SubSeq(log, 1, committed) /\ committed' >= committed]_vars

-----------------------------------------------------------------------------
(* The promises of the protocol: README.md says how each is checked, and within which bounds *)

Protocol == Spec /\ GuardsOff = {}

THEOREM Protocol => []TypeOK
THEOREM Protocol => []InOrderOnce
THEOREM Protocol => []AckedIsStored
THEOREM Protocol => []RepeatsAreAnswered
THEOREM Protocol => CommittedStays
=============================================================================
