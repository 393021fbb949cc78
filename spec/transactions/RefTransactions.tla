-------------------------- MODULE RefTransactions --------------------------
(* Every step of Transactions in version 2 is a step of TransactionsCore, the transition system that proof.py proves, or
   changes none of its variables.  An epoch names a transaction there. *)
EXTENDS MCTransactions

CONSTANT no_client

VARIABLE memory     \* history, by epoch: the instance that has received it, or will when a response arrives; and the decision
                    \* that began it

Epochs == 0 .. MaxEpoch + 2

\* An end by EndTxn increments the epoch by one, and the next epoch belongs to the same instance; a timeout, and an abort
\* by InitProducerId, which is the same step in the core, increment it by two.
Holder ==
    LET next == cached'.epoch IN
    IF next # cached.epoch + 1 THEN memory.holder
    ELSE [memory.holder EXCEPT ![next] = IF cached'.state \in Prepared THEN memory.holder[cached.epoch]
                                         ELSE CHOOSE c \in Clients : client'[c].epoch = next /\ client[c].epoch # next]
Began == IF cached'.epoch # cached.epoch THEN [memory.began EXCEPT ![cached'.epoch] = cached'.state] ELSE memory.began

RefSpec ==
    /\ Init /\ memory = [holder |-> [e \in Epochs |-> no_client], began |-> [e \in Epochs |-> "done"]]
    /\ [][MCNext /\ memory' = [holder |-> Holder, began |-> Began]]_<<vars, memory>>

In(kind, e) == {request \in requests : request.kind = kind /\ request.epoch = e}
To(kind, e) == {request.partition : request \in In(kind, e)}
OutcomeOf(kind, e) == IF In(kind, e) = {} THEN "done" ELSE (CHOOSE request \in In(kind, e) : TRUE).outcome

Core == INSTANCE TransactionsCore WITH
    MaxEpoch <- MaxEpoch + 2,
    epoch <- cached.epoch,
    state <- cached.state,
    waiting <- cached.partitions,
    stored <- stored.partitions,
    marker <- [e \in Epochs |-> To("marker", e)],
    outcome <- memory.began,
    clientEpoch <- [c \in Clients |-> client[c].epoch],
    holder <- memory.holder,
    sent <- [e \in Epochs |-> To("produce", e)],
    asked <- [e \in Epochs |-> OutcomeOf("end", e)],
    known <- [p \in Partitions |-> KnownEpoch(p, 0)],
    open <- {p \in Partitions : Open(p)},
    record <- [e \in Epochs |-> {p \in Partitions : \E n \in DOMAIN log[p] : ~IsMarker(log[p][n]) /\ log[p][n].epoch = e}],
    verified <- [e \in Epochs |-> {batch.request.partition : batch \in {each \in verified : each.request.epoch = e}}]
RefinesCore == Core!Spec
=============================================================================
