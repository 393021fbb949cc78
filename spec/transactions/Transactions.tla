---------------------------- MODULE Transactions ----------------------------
(***************************************************************************)
(* Transactions of one transactional id: instances of a producer, of which *)
(* the newest one fences the others; the coordinator, which decides a      *)
(* transaction in its log and then has a marker written to every           *)
(* partition of it; the partitions, which refuse what is stale; and        *)
(* readers with read_committed (KIP-98, 360, 447, 588, 890, 1228).         *)
(*                                                                         *)
(* A request is never removed: it may be handled late, again, or never,    *)
(* and its response may be lost. Requests of a kind that is not in Late    *)
(* are gone when the client begins its next transaction, and markers when  *)
(* the coordinator has completed theirs.                                   *)
(*                                                                         *)
(* Version 2 is KIP-890: every end of a transaction increments the         *)
(* producer epoch, and the leader of a partition adds it to the            *)
(* transaction. In version 1 all transactions of an instance share an      *)
(* epoch, and the producer adds the partitions itself. Version 1 keeps the *)
(* contract only if no request but a record is late (README.md, "Classic").*)
(*                                                                         *)
(* The offsets of a consumer group are a partition (Offsets) like any      *)
(* other: AddOffsetsToTxn is AddPartitionsToTxn, TxnOffsetCommit is        *)
(* Produce. Left out: the replication of each log, other transactional ids *)
(* (GroupTransactions has two), batches of more than one record, and more  *)
(* than one record of a transaction in a partition. Guards:                *)
(* spec/guards.toml.                                                       *)
(*                                                                         *)
(* A producer id has LargestEpoch epochs. The transactional id then gets a *)
(* new producer id, whose epochs begin at 0. An `epoch` here is both, as   *)
(* one number, so that comparing two of them compares id and epoch.        *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
    Clients,            \* the instances of the producer; each initialises once, or again after an unresolved abort
    Partitions,         \* the partitions that they write to
    Offsets,            \* the partition of the group's offsets; if it is not in Partitions, nothing is consumed
    Transactions,       \* the numbers of all transactions: 1 .. n
    Version,            \* the transaction version of the clients: 1 or 2
    LargestEpoch,       \* of a producer id; Short.MaxValue in Kafka
    Late                \* the kinds of requests that may be late: a subset of add, produce, end, marker

CONSTANT GuardsOff      \* the guards that are switched off; {} is the protocol

EndTxnBumpsEpoch == "EndTxnBumpsEpoch" \notin GuardsOff
InitBumpsEpoch == "InitBumpsEpoch" \notin GuardsOff
InitAbortsOpen == "InitAbortsOpen" \notin GuardsOff
InitAwaitsMarkers == "InitAwaitsMarkers" \notin GuardsOff
AddAwaitsMarkers == "AddAwaitsMarkers" \notin GuardsOff
FenceStaleAdd == "FenceStaleAdd" \notin GuardsOff
FenceStaleEndTxn == "FenceStaleEndTxn" \notin GuardsOff
TimeoutFences == "TimeoutFences" \notin GuardsOff
VerifyBeforeAppend == "VerifyBeforeAppend" \notin GuardsOff
RefuseEndedMeanwhile == "RefuseEndedMeanwhile" \notin GuardsOff
FenceStaleProduce == "FenceStaleProduce" \notin GuardsOff
PersistDecision == "PersistDecision" \notin GuardsOff
CompleteAwaitsMarkers == "CompleteAwaitsMarkers" \notin GuardsOff
ResumePrepared == "ResumePrepared" \notin GuardsOff
FenceStaleMarker == "FenceStaleMarker" \notin GuardsOff
FenceOldCoordinator == "FenceOldCoordinator" \notin GuardsOff
MarkerNeedsNewEpoch == "MarkerNeedsNewEpoch" \notin GuardsOff
AnswerRepeatedMarker == "AnswerRepeatedMarker" \notin GuardsOff
StableBeforeOpen == "StableBeforeOpen" \notin GuardsOff
HideAborted == "HideAborted" \notin GuardsOff
NewIdWhenExhausted == "NewIdWhenExhausted" \notin GuardsOff
NewIdAfterFence == "NewIdAfterFence" \notin GuardsOff
FenceOldProducerId == "FenceOldProducerId" \notin GuardsOff
MarkersKeepOldId == "MarkersKeepOldId" \notin GuardsOff
PersistNextId == "PersistNextId" \notin GuardsOff
AnswerPreviousId == "AnswerPreviousId" \notin GuardsOff

Guards ==
    {"EndTxnBumpsEpoch", "InitBumpsEpoch", "InitAbortsOpen", "InitAwaitsMarkers", "AddAwaitsMarkers", "FenceStaleAdd",
     "FenceStaleEndTxn", "TimeoutFences", "VerifyBeforeAppend", "RefuseEndedMeanwhile", "FenceStaleProduce",
     "PersistDecision", "CompleteAwaitsMarkers", "ResumePrepared", "FenceStaleMarker", "FenceOldCoordinator",
     "MarkerNeedsNewEpoch", "AnswerRepeatedMarker", "StableBeforeOpen", "HideAborted", "NewIdWhenExhausted",
     "NewIdAfterFence", "FenceOldProducerId", "MarkersKeepOldId", "PersistNextId", "AnswerPreviousId"}
ASSUME GuardsOff \subseteq Guards
ASSUME Version \in {1, 2} /\ Late \subseteq {"add", "produce", "end", "marker"}

VARIABLE client         \* of an instance: what it knows (see Idle)
VARIABLE requests       \* every request that was ever sent
VARIABLE stored         \* the last state of the transaction in the coordinator's log
VARIABLE cached         \* the same in the coordinator's memory; its partitions are those without a confirmed marker
VARIABLE coordinatorEpoch   \* the number of changes of the coordinator
coordinator == <<stored, cached, coordinatorEpoch>>

VARIABLE log            \* of a partition: records and markers
VARIABLE verified       \* batches that the coordinator has verified, and that are not appended yet; with the number of
                        \* markers in the log when the verification began

VARIABLE members        \* history: the transactions with a partition in the coordinator's open transaction
VARIABLE transactions   \* history: of each transaction what was asked, its outcome, and the input that it consumes
history == <<members, transactions>>

vars == <<client, requests, coordinator, log, verified, history>>

-----------------------------------------------------------------------------
(* Definitions *)

Classic == Version = 1 \/ ~EndTxnBumpsEpoch

None == 0
Idle == [phase    |-> "new",        \* new, ready, open, commit or abort (it has sent EndTxn), unresolved (KIP-360)
         epoch    |-> None,         \* the producer epoch
         txn      |-> None,         \* the number of its transaction, which no request contains
         added    |-> {},           \* the partitions that are in the transaction; only in version 1
         sent     |-> {},           \* the partitions to which it has sent a record
         acked    |-> {},           \* those of which it knows that the record is stored
         sequence |-> [p \in Partitions |-> 0],
         position |-> None]         \* the next input that it consumes

Prepared == {"commit", "abort"}     \* PrepareCommit, PrepareAbort: decided, but not every marker is written
\* Empty, CompleteCommit and CompleteAbort are one state, "done", with the outcome of the last transaction.
\* `next` is the epoch of the producer id that replaces this one when the markers are written; None: this one goes on.
Beginning == [epoch |-> 0, state |-> "done", ended |-> "nothing", partitions |-> {}, next |-> None]

Id(epoch) == epoch \div (LargestEpoch + 1)
InId(epoch) == epoch % (LargestEpoch + 1)
\* The largest epoch is for fencing and for the last marker: no instance receives it.
IsExhausted(epoch) == NewIdWhenExhausted /\ InId(epoch) >= LargestEpoch - 1
Bumped(epoch) == IF InId(epoch) = LargestEpoch THEN epoch ELSE epoch + 1

Given == {cached.epoch, cached.next, stored.epoch, stored.next} \union {client[c].epoch : c \in Clients}
NewId == (1 + CHOOSE id \in 0 .. Cardinality(Transactions) * 2 + 2 :      \* no broker has given this id before
                 (\E epoch \in Given : Id(epoch) = id) /\ \A epoch \in Given : Id(epoch) <= id) * (LargestEpoch + 1)

IsMarker(entry) == entry.kind # "record"
Markers(p) == Cardinality({n \in DOMAIN log[p] : IsMarker(log[p][n])})
Last(s) == s[Len(s)]

\* What the leader of a partition knows of the producer: all of it follows from the log.
OfId(p, id) == LET IsOfId(entry) == Id(entry.epoch) = id IN SelectSeq(log[p], IsOfId)
KnownEpoch(p, id) == LET entries == OfId(p, id) IN IF entries = <<>> THEN None ELSE Last(entries).epoch
OpenFor(p, id) == LET entries == OfId(p, id) IN entries # <<>> /\ ~IsMarker(Last(entries))
Open(p) == \E n \in DOMAIN log[p] : OpenFor(p, Id(log[p][n].epoch))
OpenIn(p, epoch) == OpenFor(p, Id(epoch)) /\ KnownEpoch(p, Id(epoch)) = epoch
NextSequence(p, epoch) == Cardinality({n \in DOMAIN log[p] : ~IsMarker(log[p][n]) /\ log[p][n].epoch = epoch})
KnownCoordinator(p, id) ==
    LET markers == SelectSeq(OfId(p, id), IsMarker) IN IF markers = <<>> THEN None ELSE Last(markers).coordinatorEpoch

\* The end of a record's transaction in its partition: the first marker behind it of its producer id.
Fate(p, n) ==
    LET behind == {m \in n + 1 .. Len(log[p]) : IsMarker(log[p][m]) /\ Id(log[p][m].epoch) = Id(log[p][n].epoch)} IN
    IF behind = {} THEN "open" ELSE log[p][CHOOSE m \in behind : \A other \in behind : m <= other].kind

\* What readers with read_committed receive: the records below the last stable offset, without those that were aborted.
Visible(p) ==
    LET open == {n \in DOMAIN log[p] : ~IsMarker(log[p][n]) /\ Fate(p, n) = "open"}
        stable == IF open = {} \/ ~StableBeforeOpen THEN Len(log[p])
                  ELSE (CHOOSE n \in open : \A other \in open : n <= other) - 1
        IsShown(n) == ~IsMarker(log[p][n]) /\ (HideAborted => Fate(p, n) # "abort")
        shown == SelectSeq([n \in 1 .. stable |-> n], IsShown) IN
    [n \in DOMAIN shown |-> log[p][shown[n]].txn]

\* The input that an instance consumes first: the offset that is committed when the coordinator has initialised it.
Position == IF Offsets \in Partitions THEN Len(Visible(Offsets)) + 1 ELSE None

\* AddPartitionsToTxn and EndTxn use one connection: unless they are late, they are answered before the producer goes on.
\* A record may be in flight until the producer begins its next transaction.
InTime(request) ==
    LET c == request.client IN
    request.kind \in Late \/ (request.txn = client[c].txn
                              /\ client[c].phase \in CASE request.kind = "add"     -> {"open"}
                                                       [] request.kind = "end"     -> Prepared
                                                       [] request.kind = "produce" -> {"open", "abort", "unresolved"})
From(c, kind) == {request \in requests : request.kind = kind /\ request.client = c /\ InTime(request)}

-----------------------------------------------------------------------------
(* The coordinator decides, and sends the markers *)

MarkerRequests(transaction, epoch) ==
    {[kind |-> "marker", partition |-> p, epoch |-> transaction.epoch, outcome |-> transaction.state,
      coordinatorEpoch |-> epoch, ends |-> members] : p \in transaction.partitions}

\* (`ends` names the transactions for the history, and for the response, which belongs to one request.)
\* The decision is in the coordinator's log before a marker is sent: the next coordinator cannot decide otherwise.
\* The markers have the producer id of the records that they end, also if `next` replaces it.  (In version 1 only
\* InitProducerId replaces it.)
Decide(outcome, epoch, mayReplace) ==
    LET next == IF ~Classic /\ mayReplace /\ IsExhausted(cached.epoch) THEN NewId ELSE None
        marked == IF next # None /\ ~MarkersKeepOldId THEN next ELSE IF Classic THEN epoch ELSE Bumped(epoch)
        decided == [cached EXCEPT !.state = outcome, !.ended = outcome, !.epoch = marked, !.next = next] IN
    /\ cached' = decided
    /\ stored' = IF ~PersistDecision THEN stored ELSE IF PersistNextId THEN decided ELSE [decided EXCEPT !.next = None]
    /\ requests' = requests \union MarkerRequests(decided, coordinatorEpoch)
    /\ transactions' = [t \in DOMAIN transactions |-> IF t \in members THEN [transactions[t] EXCEPT !.outcome = outcome]
                                                      ELSE transactions[t]]
    /\ UNCHANGED coordinatorEpoch

\* The epoch of the next transaction.
NextEpoch(transaction) == IF transaction.next # None THEN transaction.next ELSE transaction.epoch

Write(transaction) == cached' = transaction /\ stored' = transaction /\ UNCHANGED coordinatorEpoch

\* A transaction that is open for too long is aborted, and its producer is fenced.
TimeOut ==
    /\ cached.state = "ongoing"
    /\ Decide("abort", IF TimeoutFences THEN Bumped(cached.epoch) ELSE cached.epoch, NewIdAfterFence)
    /\ UNCHANGED <<client, log, verified, members>>

Complete ==
    /\ cached.state \in Prepared
    /\ CompleteAwaitsMarkers => cached.partitions = {}
    /\ Write([cached EXCEPT !.state = "done", !.partitions = {}, !.epoch = NextEpoch(cached), !.next = None])
    /\ members' = {}
    /\ UNCHANGED <<client, requests, log, verified, transactions>>

\* Another broker becomes the coordinator, with what is stored.  It sends the markers of a decided transaction again.
FailOver ==
    /\ coordinatorEpoch' = coordinatorEpoch + 1
    /\ cached' = stored
    /\ requests' = IF stored.state \in Prepared /\ ResumePrepared
                   THEN requests \union MarkerRequests(stored, coordinatorEpoch') ELSE requests
    /\ UNCHANGED <<client, stored, log, verified, history>>

-----------------------------------------------------------------------------
(* The producer *)

\* A response to InitProducerId is not late: an instance that gave up waiting does not need it.
Initialised(c, epoch) ==
    client' = [client EXCEPT ![c] = [Idle EXCEPT !.phase = "ready", !.epoch = epoch, !.position = Position, !.txn = client[c].txn]]

\* InitProducerId fences the instances before.  If their transaction is open, it is aborted first, and the instance asks
\* again (CONCURRENT_TRANSACTIONS).  An instance whose abort left a record unresolved keeps its id (KIP-360).
InitProducerId(c) ==
    /\ client[c].phase \in {"new", "unresolved"}
    /\ client[c].phase = "unresolved" => client[c].epoch = cached.epoch
    /\ InitAwaitsMarkers => cached.state \notin Prepared
    /\ IF cached.state = "ongoing" /\ InitAbortsOpen
       THEN /\ Decide("abort", Bumped(cached.epoch), NewIdAfterFence)
            /\ UNCHANGED <<client, log, verified, members>>
       ELSE LET epoch == IF IsExhausted(cached.epoch) THEN NewId
                         ELSE IF InitBumpsEpoch \/ cached.epoch = 0 THEN Bumped(cached.epoch) ELSE cached.epoch IN
            /\ Write(IF cached.state = "ongoing" THEN [cached EXCEPT !.epoch = epoch]
                     ELSE [cached EXCEPT !.epoch = epoch, !.state = "done", !.ended = "nothing", !.partitions = {}])
            /\ Initialised(c, epoch)
            /\ UNCHANGED <<requests, log, verified, history>>

Begin(c) ==
    LET t == Len(transactions) + 1 IN
    /\ client[c].phase = "ready" /\ t \in Transactions
    /\ client' = [client EXCEPT ![c] = [@ EXCEPT !.phase = "open", !.txn = t, !.added = {}, !.sent = {}, !.acked = {}]]
    /\ transactions' = Append(transactions, [asked |-> "nothing", outcome |-> "open", input |-> None])
    /\ UNCHANGED <<requests, coordinator, log, verified, members>>

Request(c, kind, p) ==
    [kind |-> kind, client |-> c, txn |-> client[c].txn, epoch |-> client[c].epoch, partition |-> p,
     sequence |-> IF kind = "add" THEN 0 ELSE client[c].sequence[p]]

SendAdd(c, p) ==
    /\ Classic /\ client[c].phase = "open" /\ p \notin client[c].added
    /\ requests' = requests \union {Request(c, "add", p)}
    /\ requests' # requests
    /\ UNCHANGED <<client, coordinator, log, verified, history>>

SendRecord(c, p) ==
    /\ client[c].phase = "open" /\ p \notin client[c].sent
    /\ Classic => p \in client[c].added
    /\ requests' = requests \union {Request(c, "produce", p)}
    /\ client' = [client EXCEPT ![c].sent = @ \union {p}, ![c].sequence[p] = @ + 1]
    /\ transactions' = IF p = Offsets THEN [transactions EXCEPT ![client[c].txn].input = client[c].position] ELSE transactions
    /\ UNCHANGED <<coordinator, log, verified, members>>

\* It commits only when all of its records are stored, and may abort at any time.
SendEnd(c, outcome) ==
    LET t == client[c].txn IN
    /\ client[c].phase = "open"
    /\ IF Classic THEN client[c].added # {} ELSE client[c].sent # {}
    /\ outcome = "commit" => client[c].acked = client[c].sent
    /\ client' = [client EXCEPT ![c].phase = outcome]
    /\ transactions' = [transactions EXCEPT ![t].asked = outcome]
    /\ requests' = requests \union {[kind |-> "end", client |-> c, txn |-> t, epoch |-> client[c].epoch, outcome |-> outcome]}
    /\ UNCHANGED <<coordinator, log, verified, members>>

\* The response to EndTxn: in version 2 it contains the next epoch, with which sequence numbers begin at 0.
Ended(request, epoch) ==
    LET c == request.client
        at == client[c]
        next == IF Classic /\ at.acked # at.sent THEN "unresolved" ELSE "ready"
        consumed == request.outcome = "commit" /\ Offsets \in at.sent IN
    IF at.txn = request.txn /\ at.phase = request.outcome
    THEN [client EXCEPT ![c] = [@ EXCEPT !.phase = next, !.epoch = IF Classic THEN @ ELSE epoch,
                                         !.sequence = IF Classic THEN @ ELSE [p \in Partitions |-> 0],
                                         !.position = IF consumed THEN @ + 1 ELSE @]]
    ELSE client

-----------------------------------------------------------------------------
(* The coordinator answers the producer, and the leaders that verify a batch *)

\* The coordinator knows the producer id; `fences`: and the epoch.
IsFromCurrent(request, fences) ==
    /\ FenceOldProducerId => Id(request.epoch) = Id(cached.epoch)
    /\ fences => InId(request.epoch) = InId(cached.epoch)

MayAdd(request) ==
    /\ IsFromCurrent(request, FenceStaleAdd)
    /\ AddAwaitsMarkers => cached.state \notin Prepared

\* The partition is added to the open transaction, or begins one.
Adds(request) ==
    /\ Write([cached EXCEPT !.state = "ongoing", !.partitions = @ \union {request.partition}])
    /\ members' = members \union {request.txn}

HandleAdd(c, answered) ==
    \E request \in From(c, "add") :
        /\ MayAdd(request)
        /\ Adds(request)
        /\ client' = IF answered /\ client[c].phase = "open" /\ client[c].txn = request.txn
                     THEN [client EXCEPT ![c].added = @ \union {request.partition}] ELSE client
        /\ UNCHANGED <<requests, log, verified, transactions>>

\* A repeated EndTxn is answered as the first one.  In version 2 the epoch before the current one shows that it is
\* repeated: behind the last marker of a producer id that is the last one that an instance had.
Repeats(request) ==
    /\ request.epoch = IF Classic THEN cached.epoch
                       ELSE IF InId(cached.epoch) = 0 /\ AnswerPreviousId THEN cached.epoch - 2 ELSE cached.epoch - 1
    /\ cached.state = "done" /\ cached.ended = request.outcome

HandleEnd(c, answered) ==
    \E request \in From(c, "end") :
        LET current == IsFromCurrent(request, FenceStaleEndTxn)
            empty == ~Classic /\ cached.state = "done" /\ request.outcome = "abort" IN      \* no record was verified
        /\ \/ /\ current /\ (cached.state = "ongoing" \/ empty)
              /\ Decide(request.outcome, cached.epoch, TRUE)
              /\ client' = IF answered THEN Ended(request, NextEpoch(cached')) ELSE client
           \/ /\ Repeats(request) /\ answered
              /\ client' = Ended(request, cached.epoch) /\ client' # client
              /\ UNCHANGED <<requests, coordinator, transactions>>
        /\ UNCHANGED <<log, verified, members>>

-----------------------------------------------------------------------------
(* The leader of a partition: records *)

Stored(request) ==
    IF client[request.client].txn = request.txn /\ client[request.client].phase = "open"
    THEN [client EXCEPT ![request.client].acked = @ \union {request.partition}] ELSE client

\* A record whose sequence number was used is answered and not stored again (SequenceWindow).
IsRepeated(request) ==
    LET p == request.partition IN
    request.epoch = KnownEpoch(p, Id(request.epoch)) /\ request.sequence < NextSequence(p, request.epoch)
MayAppend(request) ==
    /\ FenceStaleProduce => request.epoch >= KnownEpoch(request.partition, Id(request.epoch))
    /\ request.sequence = NextSequence(request.partition, request.epoch)
Store(request) ==
    log' = [log EXCEPT ![request.partition] = Append(@, [kind |-> "record", epoch |-> request.epoch, txn |-> request.txn])]

\* The first record of a transaction is verified by the coordinator; in version 2 this adds the partition.
Verify(c) ==
    \E request \in From(c, "produce") :
        LET p == request.partition IN
        /\ VerifyBeforeAppend /\ ~OpenIn(p, request.epoch) /\ MayAppend(request)
        /\ IF Classic
           THEN /\ IsFromCurrent(request, FenceStaleAdd)
                /\ cached.state = "ongoing" /\ p \in cached.partitions
                /\ UNCHANGED <<coordinator, members>>
           ELSE MayAdd(request) /\ Adds(request)
        /\ verified' = verified \union {[request |-> request, markers |-> Markers(p)]}
        /\ UNCHANGED <<client, requests, log, transactions>>

AppendVerified(c, answered) ==
    \E batch \in {each \in verified : each.request \in From(c, "produce")} :
        /\ Classic /\ RefuseEndedMeanwhile => batch.markers = Markers(batch.request.partition)
        /\ MayAppend(batch.request)
        /\ Store(batch.request)
        /\ client' = IF answered THEN Stored(batch.request) ELSE client
        /\ verified' = verified \ {batch}
        /\ UNCHANGED <<requests, coordinator, history>>

\* A record of a transaction that is open in the partition, or one that is repeated.
HandleRecord(c, answered) ==
    \E request \in From(c, "produce") :
        /\ IF IsRepeated(request) THEN answered /\ Stored(request) # client /\ UNCHANGED log
           ELSE MayAppend(request) /\ (VerifyBeforeAppend => OpenIn(request.partition, request.epoch)) /\ Store(request)
        /\ client' = IF answered THEN Stored(request) ELSE client
        /\ UNCHANGED <<requests, coordinator, verified, history>>

-----------------------------------------------------------------------------
(* The leader of a partition: markers *)

\* In version 2 the marker's epoch is higher than that of the records that it ends (KIP-1228): if it is not, the marker
\* was written before, and is not written again.
WasWritten(request) == ~Classic /\ MarkerNeedsNewEpoch /\ request.epoch = KnownEpoch(request.partition, Id(request.epoch))
MayEnd(request) ==
    /\ FenceStaleMarker => request.epoch >= KnownEpoch(request.partition, Id(request.epoch))
    /\ FenceOldCoordinator => request.coordinatorEpoch >= KnownCoordinator(request.partition, Id(request.epoch))

\* A second marker directly behind the same one has no effect, and is left out.
WithMarker(request) ==
    LET p == request.partition
        marker == [kind |-> request.outcome, epoch |-> request.epoch, coordinatorEpoch |-> request.coordinatorEpoch,
                   ends |-> request.ends] IN
    IF log[p] # <<>> /\ Last(log[p]) = marker THEN log ELSE [log EXCEPT ![p] = Append(@, marker)]

IsCurrent(request) ==
    /\ cached.state = request.outcome /\ cached.epoch = request.epoch /\ members = request.ends
    /\ coordinatorEpoch = request.coordinatorEpoch

\* Unless markers may be late, one of a former coordinator arrives late only where the new one has written already:
\* elsewhere version 1 could not refuse it.
Marker(p) ==
    {request \in requests : /\ request.kind = "marker" /\ request.partition = p
                            /\ "marker" \in Late \/ request.coordinatorEpoch < KnownCoordinator(p, Id(request.epoch)) \/ IsCurrent(request)}

HandleMarker(p, answered) ==
    \E request \in Marker(p) :
        /\ MayEnd(request)
        /\ IF WasWritten(request) THEN answered /\ AnswerRepeatedMarker /\ ~OpenFor(p, Id(request.epoch)) /\ UNCHANGED log
           ELSE log' = WithMarker(request)
        /\ cached' = IF answered /\ IsCurrent(request) THEN [cached EXCEPT !.partitions = @ \ {p}] ELSE cached
        /\ <<log, cached>>' # <<log, cached>>
        /\ UNCHANGED <<client, requests, stored, coordinatorEpoch, verified, history>>

-----------------------------------------------------------------------------
Init ==
    /\ client = [c \in Clients |-> Idle]
    /\ requests = {}
    /\ stored = Beginning /\ cached = Beginning /\ coordinatorEpoch = 0
    /\ log = [p \in Partitions |-> <<>>]
    /\ verified = {}
    /\ members = {}
    /\ transactions = <<>>

Next ==
    \/ TimeOut \/ Complete \/ FailOver
    \/ \E c \in Clients : InitProducerId(c) \/ Begin(c) \/ Verify(c) \/ \E outcome \in Prepared : SendEnd(c, outcome)
    \/ \E c \in Clients, p \in Partitions : SendAdd(c, p) \/ SendRecord(c, p)
    \/ \E c \in Clients, answered \in BOOLEAN :
          HandleAdd(c, answered) \/ HandleEnd(c, answered) \/ AppendVerified(c, answered) \/ HandleRecord(c, answered)
    \/ \E p \in Partitions, answered \in BOOLEAN : HandleMarker(p, answered)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* What holds *)

Outcome(t) == IF t \in DOMAIN transactions THEN transactions[t].outcome ELSE "open"

States == [epoch : Nat, state : {"done", "ongoing"} \union Prepared, ended : {"nothing"} \union Prepared,
           partitions : SUBSET Partitions, next : Nat]
TypeOK ==
    /\ \A c \in Clients :
          /\ client[c].phase \in {"new", "ready", "open", "unresolved"} \union Prepared
          /\ client[c].epoch \in Nat /\ client[c].txn \in 0 .. Len(transactions) /\ client[c].position \in Nat
          /\ client[c].acked \subseteq client[c].sent /\ {client[c].added, client[c].sent} \subseteq SUBSET Partitions
          /\ client[c].sequence \in [Partitions -> Nat]
    /\ \A request \in requests : request.kind \in {"add", "produce", "end", "marker"} /\ request.epoch \in 1 .. NextEpoch(cached)
    /\ {stored, cached} \subseteq States /\ coordinatorEpoch \in Nat
    /\ \A p \in Partitions : \A n \in DOMAIN log[p] : log[p][n].kind \in {"record"} \union Prepared
    /\ \A batch \in verified : batch.request \in requests /\ batch.markers \in 0 .. Markers(batch.request.partition)
    /\ members \subseteq DOMAIN transactions
    /\ \A t \in DOMAIN transactions :
          /\ transactions[t].asked \in {"nothing"} \union Prepared
          /\ transactions[t].outcome \in {"open"} \union Prepared /\ transactions[t].input \in Nat

\* No two records of a transaction have different ends, in whatever partitions they are.
AllOrNothing ==
    \A p, q \in Partitions : \A n \in DOMAIN log[p], m \in DOMAIN log[q] :
        ~IsMarker(log[p][n]) /\ ~IsMarker(log[q][m]) /\ log[p][n].txn = log[q][m].txn
            => {Fate(p, n), Fate(q, m)} # {"commit", "abort"}

\* A record is visible only if its own transaction has committed, which its producer has asked for.
CommitsAreAsked ==
    \A p \in Partitions : \A n \in DOMAIN Visible(p) :
        LET t == Visible(p)[n] IN Outcome(t) = "commit" /\ transactions[t].asked = "commit"

\* No transaction is open in a partition that the coordinator does not know of: it would never end (a hanging transaction).
NoneHangs == \A p \in Partitions : Open(p) => cached.state # "done" /\ p \in cached.partitions

\* One instance at a time: two instances never have the same epoch.
OneInstancePerEpoch ==
    \A c, d \in Clients : client[c].epoch = client[d].epoch /\ client[c].phase # "new" /\ client[d].phase # "new" => c = d

\* The mapping to the contract.
RECURSIVE Written(_, _, _)
Written(entries, n, txns) ==
    IF n > Len(entries) THEN txns
    ELSE Written(entries, n + 1, IF IsMarker(entries[n]) THEN txns ELSE Append(txns, entries[n].txn))
Promise == INSTANCE AtomicCommit WITH
    asked <- [t \in Transactions |-> IF t \in DOMAIN transactions THEN transactions[t].asked ELSE "nothing"],
    outcome <- [t \in Transactions |-> Outcome(t)],
    input <- [t \in Transactions |-> IF t \in DOMAIN transactions THEN transactions[t].input ELSE 0],
    log <- [p \in Partitions |-> Written(log[p], 1, <<>>)],
    visible <- [p \in Partitions |-> Visible(p)]
RefinesAtomicCommit == Promise!Spec

-----------------------------------------------------------------------------
(* The promises of the protocol: README.md says how each is checked, and within which bounds *)

Protocol == Spec /\ GuardsOff = {} /\ (Version = 2 \/ Late \subseteq {"produce"})

THEOREM Protocol => []TypeOK
THEOREM Protocol => []AllOrNothing
THEOREM Protocol => []CommitsAreAsked
THEOREM Protocol => []NoneHangs
THEOREM Protocol => []OneInstancePerEpoch
THEOREM Protocol => RefinesAtomicCommit
=============================================================================
