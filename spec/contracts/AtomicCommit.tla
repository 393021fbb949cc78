---------------------------- MODULE AtomicCommit ----------------------------
(***************************************************************************)
(* What transactions promise to the users of one transactional id. The     *)
(* transaction protocol refines this module.                               *)
(*                                                                         *)
(*   1. A transaction is decided once, for all of its partitions, and the  *)
(*      offsets that it commits are a partition as well.                   *)
(*   2. It commits only if its own producer has asked for that. A request  *)
(*      for an earlier or a later transaction decides nothing.             *)
(*   3. When it commits, it is complete: no record is added afterwards.    *)
(*   4. Readers with read_committed receive the records of committed       *)
(*      transactions, in the order of the log, and nothing behind the      *)
(*      first record whose transaction is not decided yet.                 *)
(*   5. A loop that consumes an input, and produces the result and commits *)
(*      the offset in one transaction, processes every input once: the     *)
(*      transactions that commit have consumed inputs 1, 2, 3 and so on.   *)
(*                                                                         *)
(* A transaction may always abort: then nothing of it is visible. That no  *)
(* record is stored twice is the subject of SequenceWindow.                *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
    Transactions,   \* all transactions, of all instances of the producer
    Partitions      \* the partitions that they write to

VARIABLE asked      \* of a transaction: what its producer has asked for: "nothing", "commit" or "abort"
VARIABLE outcome    \* of a transaction: "open", "commit" or "abort"
VARIABLE input      \* of a transaction: the number of the input that it consumes; 0: none
VARIABLE log        \* of a partition: the transaction of each record
VARIABLE visible    \* of a partition: the transaction of each record that readers with read_committed receive
contract == <<asked, outcome, input, log, visible>>

Prefix(s, t) == Len(s) <= Len(t) /\ SubSeq(t, 1, Len(s)) = s
Committed(t) == outcome[t] = "commit"
HasEnded(t) == outcome[t] # "open"

Init ==
    /\ asked = [t \in Transactions |-> "nothing"]
    /\ outcome = [t \in Transactions |-> "open"]
    /\ input = [t \in Transactions |-> 0]
    /\ log = [p \in Partitions |-> <<>>]
    /\ visible = [p \in Partitions |-> <<>>]

\* The producer decides what it consumes, and asks once how the transaction shall end.
Asks ==
    /\ \A t \in Transactions : asked'[t] = asked[t] \/ asked[t] = "nothing"
    /\ \A t \in Transactions : input'[t] = input[t] \/ (input[t] = 0 /\ ~Committed(t))

\* Append: late records of a transaction that aborts may still arrive; those of one that has committed may not.
Stores ==
    \A p \in Partitions :
        LET records == log'[p]
            old == log[p] IN
        /\ Prefix(old, records)
        /\ \A n \in Len(old) + 1 .. Len(records) : ~Committed(records[n])

\* Decide: once, and to commit only if the producer asked for it.  Of the transactions that consume an input, one commits
\* at a time, and it has consumed the next input.
Decides ==
    LET consumed == {t \in Transactions : Committed(t) /\ input[t] # 0}
        commits == {t \in Transactions : outcome[t] = "open" /\ outcome'[t] = "commit"} IN
    /\ \A t \in Transactions : HasEnded(t) => outcome'[t] = outcome[t]
    /\ \A t \in commits : asked'[t] = "commit"
    /\ {input'[t] : t \in commits} \subseteq {0, Cardinality(consumed) + 1}
    /\ Cardinality({t \in commits : input'[t] # 0}) <= 1

\* Read: the committed records below an offset below which every transaction is decided.
Below(records, ends, n) ==
    LET IsCommitted(t) == ends[t] = "commit" IN SelectSeq(SubSeq(records, 1, n), IsCommitted)
Shows ==
    LET ends == outcome' IN
    \A p \in Partitions :
        LET records == log'[p]
            shown == visible'[p] IN
        /\ Prefix(visible[p], shown)
        /\ \E n \in 0 .. Len(records) :
              /\ \A i \in 1 .. n : ends[records[i]] # "open"
              /\ shown = Below(records, ends, n)

Next == Asks /\ Stores /\ Decides /\ Shows

Spec == Init /\ [][Next]_contract
=============================================================================
