---------------------------- MODULE PartitionLog ----------------------------
(***************************************************************************)
(* What Kafka promises to the writers and readers of one partition. The    *)
(* replication protocols refine this; the auditor checks histories against *)
(* it. README.md describes in words what each setting promises.            *)
(*                                                                         *)
(* There is one log. It only grows. Once an append with acks=all is        *)
(* acknowledged, its record has its offset in the log, from before the     *)
(* acknowledgement on: acknowledged appends are linearizable. A read       *)
(* returns a prefix of the log. It may be an old prefix, and a shorter one *)
(* than the last, when another replica answers: reads are prefix-          *)
(* consistent, not linearizable.                                           *)
(*                                                                         *)
(* All of this holds within the fault budget: at every moment some replica *)
(* that may be elected has lost nothing that it ever acknowledged. Beyond  *)
(* it, and with unclean election, the log may lose its end (LosesItsEnd).  *)
(***************************************************************************)
EXTENDS Integers, Sequences

CONSTANTS
    Replicas,       \* the replicas that may answer a read
    LosesItsEnd     \* BOOLEAN: unclean elections are allowed, or more tails are lost than the budget allows

VARIABLE log        \* the valid records: a sequence; the index of a record is its offset
VARIABLE acked      \* how many of them were acknowledged: acks=all acknowledges in the order of offsets
VARIABLE served     \* of a replica: the records that it returns to readers

contract == <<log, acked, served>>

Prefix(s, t) == Len(s) <= Len(t) /\ SubSeq(t, 1, Len(s)) = s

Init ==
    /\ log = <<>>
    /\ acked = 0
    /\ served = [r \in Replicas |-> <<>>]

\* Append: existing records keep their offsets.
Grows == Prefix(log, log')

\* Acknowledge: only records in the log; an acknowledgement is never withdrawn.
Acknowledges == acked <= acked' /\ acked' <= Len(log')

\* Read: any replica returns a prefix, perhaps an old one.
Serves == \A r \in Replicas : Prefix(served'[r], log')

\* Unclean election removes the end of the log, acknowledged or not.  Readers may have received it.
Loses == LosesItsEnd /\ log' = SubSeq(log, 1, Len(log')) /\ acked' <= acked

Next == (Grows /\ Acknowledges /\ Serves) \/ Loses

Spec == Init /\ [][Next]_contract
=============================================================================
