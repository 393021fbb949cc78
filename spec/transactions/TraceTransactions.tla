------------------------- MODULE TraceTransactions -------------------------
(***************************************************************************)
(* Checks whether the trace of one producer id is a behaviour of           *)
(* Transactions: what its coordinators stored, and the records and markers *)
(* that the leaders of the partitions committed. trace.toml defines the    *)
(* fields of a line.                                                       *)
(*                                                                         *)
(* Clients and requests are not traced, so the module says nothing about   *)
(* them, and the steps here are wider than those of Transactions where     *)
(* they would need them: a transaction may hold several records in a       *)
(* partition, a record may be committed after its transaction is decided,  *)
(* and one that was committed without a line (its leader stopped) is not   *)
(* missed. An aborted transaction may increment the epoch once more, if it *)
(* is fenced first. A coordinator that takes over may find a transition    *)
(* that the one before had stored and not traced. Records of __consumer_-  *)
(* offsets are not traced, its markers are. In version 1 a marker does not *)
(* say which transaction it ends: it is taken for that of the last one, if *)
(* that was decided so. Deleted topics, and a producer                     *)
(* id whose epochs are exhausted, are rejected.                            *)
(***************************************************************************)
EXTENDS Transactions, TLC

CONSTANTS Step(_),      \* a line of the trace: <<action, node, high watermark, ...>>
          Length,       \* how many lines there are
          ShownLine     \* print the state before this one (0: none)

VARIABLES
    line,               \* the next line to explain
    epochOf,            \* the epoch of the transaction that was begun last
    decisions,          \* every decision: epoch, outcome, partitions and transaction
    found               \* the last transition was found by a new coordinator, without a line

traceVars == <<epochOf, decisions>>

Unlogged == -2
Current == Len(transactions)
Outcomes == [PrepareCommit |-> "commit", PrepareAbort |-> "abort", CompleteCommit |-> "commit", CompleteAbort |-> "abort"]

-----------------------------------------------------------------------------
(* The coordinator *)

\* A repeated InitProducerId receives the same epoch (KIP-360).
IsInit(epoch, partitions) ==
    /\ cached.state = "done"
    /\ epoch \in cached.epoch .. cached.epoch + 1 /\ partitions = {}
    /\ cached' = [cached EXCEPT !.epoch = epoch, !.ended = "nothing"]
    /\ UNCHANGED <<members, transactions, traceVars>>

IsAdd(epoch, partitions) ==
    /\ cached.state \notin Prepared
    /\ epoch = cached.epoch
    /\ stored.partitions \subseteq partitions /\ partitions # {}
    /\ cached' = [cached EXCEPT !.state = "ongoing", !.partitions = partitions]
    /\ IF cached.state = "done"
       THEN /\ transactions' = Append(transactions, [asked |-> "nothing", outcome |-> "open", input |-> None])
            /\ members' = {Current + 1} /\ epochOf' = epoch
       ELSE UNCHANGED <<transactions, members, epochOf>>
    /\ UNCHANGED decisions

\* Version 2 increments the epoch; so does a timeout, and an instance that fences this one.
IsDecide(outcome, epoch, partitions, version) ==
    /\ version \in {0, 2}      \* of the client; version 1 is 0 there
    /\ \/ cached.state = "ongoing"
       \/ cached.state = "done" /\ outcome = "abort" /\ version = 2
    /\ epoch - cached.epoch \in IF version = 2 THEN 1 .. 2 ELSE IF outcome = "commit" THEN {0} ELSE 0 .. 1
    /\ partitions = stored.partitions
    /\ cached' = [cached EXCEPT !.state = outcome, !.ended = outcome, !.epoch = epoch]
    /\ transactions' = [t \in DOMAIN transactions |-> IF t \in members THEN [transactions[t] EXCEPT !.outcome = outcome]
                                                      ELSE transactions[t]]
    /\ decisions' = decisions \union {[epoch |-> epoch, outcome |-> outcome, partitions |-> partitions, ends |-> members]}
    /\ UNCHANGED <<members, epochOf>>

IsComplete(outcome, epoch, partitions) ==
    /\ cached.state = outcome /\ epoch = cached.epoch /\ partitions = {}
    /\ cached.partitions = {}
    /\ cached' = [cached EXCEPT !.state = "done"]
    /\ members' = {}
    /\ UNCHANGED <<transactions, traceVars>>

IsTransition(state, epoch, partitions, version) ==
    /\ CASE state = "Empty"           -> IsInit(epoch, partitions)
         [] state = "Ongoing"         -> IsAdd(epoch, partitions)
         [] state = "PrepareCommit"   -> IsDecide("commit", epoch, partitions, version)
         [] state = "PrepareAbort"    -> IsDecide("abort", epoch, partitions, version)
         [] state = "CompleteCommit"  -> IsComplete("commit", epoch, partitions)
         [] state = "CompleteAbort"   -> IsComplete("abort", epoch, partitions)
    /\ stored' = [cached' EXCEPT !.partitions = partitions]

\* Another broker becomes the coordinator.
IsUnchanged(state, epoch, partitions) ==
    /\ stored.epoch = epoch /\ stored.partitions = partitions
    /\ stored.state = CASE state = "Ongoing" -> "ongoing"
                        [] state \in {"PrepareCommit", "PrepareAbort"} -> Outcomes[state]
                        [] OTHER -> "done"
    /\ cached' = stored
    /\ UNCHANGED <<stored, members, transactions, traceVars>>

IsLoad(state, epoch, partitions, version) ==
    /\ coordinatorEpoch' = coordinatorEpoch + 1
    /\ \/ IsUnchanged(state, epoch, partitions) /\ UNCHANGED found
       \/ IsTransition(state, epoch, partitions, version) /\ found' = TRUE
    /\ UNCHANGED log

\* The coordinator that wrote a transition learns that it is committed after the next one has found it.
IsLate(state, epoch, partitions) ==
    /\ found /\ found' = FALSE
    /\ IsUnchanged(state, epoch, partitions) /\ cached' = cached
    /\ UNCHANGED <<coordinatorEpoch, log>>

-----------------------------------------------------------------------------
(* The partitions *)

EndedHere(p) == log[p] # <<>> /\ IsMarker(Last(log[p])) /\ Last(log[p]).ends = members

IsAppend(p, epoch) ==
    /\ cached.state # "done" /\ p \in stored.partitions
    /\ epoch = epochOf
    /\ epoch >= KnownEpoch(p, 0)
    /\ ~EndedHere(p)
    /\ log' = [log EXCEPT ![p] = Append(@, [kind |-> "record", epoch |-> epoch, txn |-> Current])]
    /\ UNCHANGED <<coordinator, members, transactions, traceVars>>

IsWriteMarker(p, outcome, epoch, sender) ==
    /\ epoch >= KnownEpoch(p, 0)
    /\ sender >= KnownCoordinator(p, 0)
    /\ LET sent == {each \in decisions : each.epoch = epoch /\ each.outcome = outcome /\ p \in each.partitions}
           current == {each \in sent : each.ends = members} IN
       /\ sent # {}
       /\ log' = [log EXCEPT ![p] = Append(@, [kind |-> outcome, epoch |-> epoch, coordinatorEpoch |-> sender,
              ends |-> (CHOOSE each \in IF current # {} THEN current ELSE sent : TRUE).ends])]
    /\ cached' = IF cached.state = outcome /\ cached.epoch = epoch THEN [cached EXCEPT !.partitions = @ \ {p}] ELSE cached
    /\ UNCHANGED <<stored, coordinatorEpoch, members, transactions, traceVars>>

-----------------------------------------------------------------------------
InLog(s, version) == IsTransition(s[4], s[5], s[6], version) /\ UNCHANGED coordinatorEpoch /\ found' = FALSE

\* What is behind the last marker; nothing before it matters once the transaction is complete, and a trace is long.
RECURSIVE Behind(_, _)
Behind(entries, n) == IF n = 0 THEN entries ELSE IF IsMarker(entries[n]) THEN SubSeq(entries, n, Len(entries)) ELSE Behind(entries, n - 1)
Shortened == log' = [p \in Partitions |-> Behind(log[p], Len(log[p]))]

Explained(s) ==
    CASE s[1] = "InitProducerId"      -> s[4] = "Empty" /\ InLog(s, Unlogged) /\ UNCHANGED log
      [] s[1] = "AddPartitions"       -> s[4] = "Ongoing" /\ InLog(s, Unlogged) /\ UNCHANGED log
      [] s[1] = "DecideTransaction"   -> s[4] \in {"PrepareCommit", "PrepareAbort"} /\ InLog(s, s[7]) /\ UNCHANGED log
      [] s[1] = "CompleteTransaction" -> s[4] \in {"CompleteCommit", "CompleteAbort"} /\ InLog(s, Unlogged) /\ Shortened
      [] s[1] = "LoadTransaction"     -> IsLoad(s[4], s[5], s[6], s[7])
      [] s[1] = "AppendTransactional" -> IsAppend(s[4], s[5])
      [] s[1] = "WriteMarker"         -> IsWriteMarker(s[4], s[5], s[6], s[7])

StatesOf == [InitProducerId |-> {"Empty"}, AddPartitions |-> {"Ongoing"}, DecideTransaction |-> {"PrepareCommit", "PrepareAbort"},
             CompleteTransaction |-> {"CompleteCommit", "CompleteAbort"}]

TraceStep ==
    /\ line <= Length
    /\ line' = line + 1
    /\ \/ Explained(Step(line)) /\ (Step(line)[1] \in {"AppendTransactional", "WriteMarker"} => UNCHANGED found)
       \/ /\ Step(line)[1] \in DOMAIN StatesOf /\ Step(line)[4] \in StatesOf[Step(line)[1]]
          /\ IsLate(Step(line)[4], Step(line)[5], Step(line)[6])
    /\ UNCHANGED <<client, requests, verified>>

TraceInit ==
    /\ client = [c \in Clients |-> Idle] /\ requests = {} /\ verified = {}
    /\ cached = [Beginning EXCEPT !.epoch = -1] /\ stored = cached /\ coordinatorEpoch = 0
    /\ log = [p \in Partitions |-> <<>>]
    /\ members = {} /\ transactions = <<>>
    /\ epochOf = -1 /\ decisions = {} /\ found = FALSE
    /\ line = 1 /\ TLCSet(1, 0)

TraceSpec == TraceInit /\ [][TraceStep]_<<vars, traceVars, found, line>>

\* The first marker behind a record is that of its own transaction.
EndsAreOwn ==
    \A p \in Partitions : \A n \in 1 .. Len(log[p]) - 1 :
        ~IsMarker(log[p][n]) /\ IsMarker(log[p][n + 1]) => log[p][n].txn \in log[p][n + 1].ends

Milestone == line > Length \/ (line > 1 /\ Step(line - 1)[1] \in {"CompleteTransaction", "WriteMarker"})
Promises == [AllOrNothing |-> AllOrNothing, NoneHangs |-> NoneHangs, EndsAreOwn |-> EndsAreOwn]

\* Checked as an invariant, and after the last line: what the theorems of the module promise.
PromisesKept == Milestone => \A promise \in DOMAIN Promises : Promises[promise] \/ (PrintT(<<"BROKEN", line - 1, promise>>) /\ FALSE)

\* Checked as an invariant: prints each line that is reached for the first time, and ends the run after the last one:
\* then the trace is accepted.
Reached ==
    line > TLCGet(1) =>
        /\ TLCSet(1, line) /\ PrintT(<<"REACHED", line>>)
        /\ line > Length => PrintT("TRACE_ACCEPTED") /\ TLCSet("exit", TRUE)

\* Prints the state before ShownLine, to find out why a line was rejected.
Show ==
    line = ShownLine =>
        /\ PrintT(<<"SHOWN", "coordinator", [epoch |-> cached.epoch, state |-> cached.state, waiting |-> cached.partitions,
                                             stored |-> stored.partitions, begun |-> epochOf]>>)
        /\ \A p \in Partitions : PrintT(<<"SHOWN", p, [epoch |-> KnownEpoch(p, 0), open |-> Open(p), entries |-> Len(log[p])]>>)
=============================================================================
