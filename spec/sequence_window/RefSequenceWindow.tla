------------------------- MODULE RefSequenceWindow -------------------------
(* Every step of SequenceWindow is a step of SequenceWindowCore, the transition system that proof.py proves, or changes
   none of its variables.  Batches and sequence numbers are the same while RetryKeepsSequence is on. *)
EXTENDS MCSequenceWindow

VARIABLE memory     \* history: what the core still has behind the end of the log

\* The producer of the core notices acknowledgements in a step of its own, before it sends.
RefNext == MCNext /\ (sent' # sent => memory.base = Oldest)
Notice == memory.base < Oldest /\ memory' = [memory EXCEPT !.base = @ + 1] /\ UNCHANGED vars

MaxSequence == MaxBatches + MaxRetries
Remember ==
    memory' = [memory EXCEPT !.log = [o \in 0 .. MaxSequence |-> IF o < Len(log') THEN log'[o + 1].sequence ELSE @[o]]]

RefSpec ==
    /\ Init /\ memory = [base |-> 0, log |-> [o \in 0 .. MaxSequence |-> 0]]
    /\ [][(RefNext /\ Remember) \/ Notice]_<<vars, memory>>

Core == INSTANCE SequenceWindowCore WITH
    MaxRequests <- 0,
    FirstSize <- Size,
    size <- Size,
    next <- next,
    acked <- acked,
    base <- memory.base,
    log <- memory.log,
    logEnd <- Len(log),
    committed <- committed,
    requests <- {[sequence |-> request.sequence] : request \in requests}
RefinesCore == Core!Spec
=============================================================================
