------------------------- MODULE GroupTransactions -------------------------
(***************************************************************************)
(* Several producers, each with a transactional id of its own, that write  *)
(* to one partition: the members of a group consume a partition, produce   *)
(* a result for each input, and commit the offset of the group in the same *)
(* transaction (KIP-447).  No member fences another one by its producer    *)
(* epoch; what does is the generation of the group.                        *)
(*                                                                         *)
(* A rebalance may happen at any time, and a member learns of it late or   *)
(* never: it goes on as the owner of its generation.  Its TxnOffsetCommit  *)
(* may be handled late, again, or never, and any response may be lost.     *)
(*                                                                         *)
(* Left out: everything between one producer and its coordinator, which is *)
(* the subject of Transactions, and how a group agrees on an owner         *)
(* (EagerRebalance).  Here a decision is one step, and markers are written *)
(* one by one.  Guards: spec/guards.toml.                                  *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
    Members,            \* of the group; each has a transactional id
    Transactions        \* the numbers of all transactions: 1 .. n

CONSTANT GuardsOff      \* the guards that are switched off; {} is the protocol

FenceStaleGeneration == "FenceStaleGeneration" \notin GuardsOff
AwaitStableOffsets == "AwaitStableOffsets" \notin GuardsOff
StableBeforeOpen == "StableBeforeOpen" \notin GuardsOff
HideAborted == "HideAborted" \notin GuardsOff

Guards ==
    {"FenceStaleGeneration", "AwaitStableOffsets", "StableBeforeOpen", "HideAborted"}
ASSUME GuardsOff \subseteq Guards

VARIABLE generation     \* of the group, at its coordinator
VARIABLE owner          \* the member to which this generation gives the input partition
VARIABLE committed      \* the number of inputs that the group has consumed: its committed offset
VARIABLE pending        \* of a member: the offset that its transaction will commit; None: none
group == <<generation, owner, committed, pending>>

VARIABLE member         \* what it knows (see Idle)
VARIABLE waiting        \* of a member: where its transaction lacks a marker
VARIABLE log            \* the output partition: records and markers
VARIABLE transactions   \* history: of each transaction what was asked, its outcome, and the input that it consumes

vars == <<group, member, waiting, log, transactions>>

-----------------------------------------------------------------------------
(* Definitions *)

None == 0
Idle == [phase      |-> "idle",     \* idle, ready, open or commit (it has sent EndTxn)
         generation |-> None,
         position   |-> None,       \* the next input that it consumes
         txn        |-> None,
         committed  |-> FALSE]      \* it knows that the group coordinator has its offset
Markers == {"output", "offsets"}

Outcome(t) == IF t \in DOMAIN transactions THEN transactions[t].outcome ELSE "open"
IsMarker(entry) == entry.kind # "record"

\* The end of a record's transaction: the first marker behind it of its producer.
Fate(n) ==
    LET behind == {m \in n + 1 .. Len(log) : IsMarker(log[m]) /\ log[m].member = log[n].member} IN
    IF behind = {} THEN "open" ELSE log[CHOOSE m \in behind : \A other \in behind : m <= other].kind

\* What readers with read_committed receive: nothing from the first record on whose transaction is open, of any producer,
\* and of what is before it no record of an aborted transaction, although those of others are between them.
Visible ==
    LET open == {n \in DOMAIN log : ~IsMarker(log[n]) /\ Fate(n) = "open"}
        stable == IF open = {} \/ ~StableBeforeOpen THEN Len(log) ELSE (CHOOSE n \in open : \A other \in open : n <= other) - 1
        IsShown(n) == ~IsMarker(log[n]) /\ (HideAborted => Fate(n) # "abort")
        shown == SelectSeq([n \in 1 .. stable |-> n], IsShown) IN
    [n \in DOMAIN shown |-> log[shown[n]].txn]

-----------------------------------------------------------------------------
(* The group *)

Rebalance(m) ==
    /\ owner # m
    /\ owner' = m /\ generation' = generation + 1
    /\ UNCHANGED <<committed, pending, member, waiting, log, transactions>>

\* OffsetFetch with require_stable: while a transaction may change the offset, the member waits (UNSTABLE_OFFSET_COMMIT).
FetchOffset(m) ==
    /\ owner = m /\ member[m].phase \in {"idle", "ready"} /\ member[m].generation # generation
    /\ AwaitStableOffsets => \A other \in Members : pending[other] = None
    /\ member' = [member EXCEPT ![m] = [@ EXCEPT !.phase = "ready", !.generation = generation, !.position = committed + 1]]
    /\ UNCHANGED <<group, waiting, log, transactions>>

-----------------------------------------------------------------------------
(* A member: it produces the result of an input, commits the offset, and ends the transaction *)

Produce(m) ==
    LET t == Len(transactions) + 1 IN
    /\ member[m].phase = "ready" /\ waiting[m] = {} /\ t \in Transactions
    /\ member' = [member EXCEPT ![m] = [@ EXCEPT !.phase = "open", !.txn = t, !.committed = FALSE]]
    /\ log' = Append(log, [kind |-> "record", member |-> m, txn |-> t])
    /\ transactions' = Append(transactions, [asked |-> "nothing", outcome |-> "open", input |-> member[m].position])
    /\ UNCHANGED <<group, waiting>>

\* TxnOffsetCommit.  Its leader has verified that the transaction is open (Transactions), so the request, however late, is
\* of the member's present transaction, and has the generation that the member had when it began.
HandleOffset(m, answered) ==
    /\ member[m].phase \in {"open", "commit"} /\ Outcome(member[m].txn) = "open"
    /\ FenceStaleGeneration => member[m].generation = generation
    /\ pending' = [pending EXCEPT ![m] = member[m].position]
    /\ member' = IF answered THEN [member EXCEPT ![m].committed = TRUE] ELSE member
    /\ <<pending, member>>' # <<pending, member>>
    /\ UNCHANGED <<generation, owner, committed, waiting, log, transactions>>

SendCommit(m) ==
    /\ member[m].phase = "open" /\ member[m].committed
    /\ member' = [member EXCEPT ![m].phase = "commit"]
    /\ transactions' = [transactions EXCEPT ![member[m].txn].asked = "commit"]
    /\ UNCHANGED <<group, waiting, log>>

-----------------------------------------------------------------------------
(* The transaction coordinators, and the markers *)

\* It aborts when the member asks for it, or when the transaction has been open for too long.
Decide(m, outcome) ==
    LET t == member[m].txn IN
    /\ member[m].phase \in IF outcome = "commit" THEN {"commit"} ELSE {"open", "commit"}
    /\ Outcome(t) = "open"
    /\ transactions' = [transactions EXCEPT ![t].outcome = outcome]
    /\ waiting' = [waiting EXCEPT ![m] = IF pending[m] = None THEN {"output"} ELSE Markers]
    /\ UNCHANGED <<group, member, log>>

WriteMarker(m, place) ==
    LET outcome == Outcome(member[m].txn) IN
    /\ place \in waiting[m]
    /\ waiting' = [waiting EXCEPT ![m] = @ \ {place}]
    /\ log' = IF place = "output" THEN Append(log, [kind |-> outcome, member |-> m, txn |-> member[m].txn]) ELSE log
    /\ IF place = "offsets"
       THEN /\ pending' = [pending EXCEPT ![m] = None]
            /\ committed' = IF outcome = "commit" THEN pending[m] ELSE committed
       ELSE UNCHANGED <<pending, committed>>
    /\ UNCHANGED <<generation, owner, member, transactions>>

\* The response to EndTxn.  After an abort the member fetches the offset again.
Ended(m) ==
    LET outcome == Outcome(member[m].txn) IN
    /\ member[m].phase \in {"open", "commit"} /\ outcome # "open"
    /\ member' = [member EXCEPT ![m] = [@ EXCEPT
           !.phase = IF outcome = "commit" THEN "ready" ELSE "idle",
           !.position = IF outcome = "commit" THEN @ + 1 ELSE @,
           !.generation = IF outcome = "commit" THEN @ ELSE None]]
    /\ UNCHANGED <<group, waiting, log, transactions>>

-----------------------------------------------------------------------------
Init ==
    /\ generation = 0 /\ owner = None /\ committed = 0 /\ pending = [m \in Members |-> None]
    /\ member = [m \in Members |-> Idle]
    /\ waiting = [m \in Members |-> {}]
    /\ log = <<>> /\ transactions = <<>>

Next ==
    \/ \E m \in Members : Rebalance(m) \/ FetchOffset(m) \/ Produce(m) \/ SendCommit(m) \/ Ended(m)
    \/ \E m \in Members, answered \in BOOLEAN : HandleOffset(m, answered)
    \/ \E m \in Members, outcome \in {"commit", "abort"} : Decide(m, outcome)
    \/ \E m \in Members, place \in Markers : WriteMarker(m, place)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* What holds *)

TypeOK ==
    /\ generation \in Nat /\ owner \in Members \union {None} /\ committed \in Nat
    /\ pending \in [Members -> Nat] /\ waiting \in [Members -> SUBSET Markers]
    /\ \A m \in Members :
          /\ member[m].phase \in {"idle", "ready", "open", "commit"} /\ member[m].committed \in BOOLEAN
          /\ member[m].generation \in 0 .. generation /\ member[m].txn \in 0 .. Len(transactions)
    /\ \A n \in DOMAIN log : log[n].kind \in {"record", "commit", "abort"} /\ log[n].txn \in DOMAIN transactions

\* The results that readers receive are those of inputs 1, 2, 3 and so on: none twice, none left out.
EachInputOnce == \A n \in DOMAIN Visible : transactions[Visible[n]].input = n

\* The mapping to the contract.
Promise == INSTANCE AtomicCommit WITH
    Partitions <- {"output"},
    asked <- [t \in Transactions |-> IF t \in DOMAIN transactions THEN transactions[t].asked ELSE "nothing"],
    outcome <- [t \in Transactions |-> Outcome(t)],
    input <- [t \in Transactions |-> IF t \in DOMAIN transactions THEN transactions[t].input ELSE 0],
    log <- [p \in {"output"} |-> LET IsRecord(entry) == ~IsMarker(entry)
                                     records == SelectSeq(log, IsRecord) IN [n \in DOMAIN records |-> records[n].txn]],
    visible <- [p \in {"output"} |-> Visible]
RefinesAtomicCommit == Promise!Spec

-----------------------------------------------------------------------------
(* The promises of the protocol *)

Protocol == Spec /\ GuardsOff = {}

THEOREM Protocol => []TypeOK
THEOREM Protocol => []EachInputOnce
THEOREM Protocol => RefinesAtomicCommit
=============================================================================
