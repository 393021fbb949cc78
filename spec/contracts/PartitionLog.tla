---------------------------- MODULE PartitionLog ----------------------------
(***************************************************************************)
(* What Kafka promises to those who write to one partition and read it.    *)
(* The replication protocols refine this; the auditor holds histories to   *)
(* it.  README.md says in words what each setting promises.                *)
(*                                                                         *)
(* There is one log.  It only grows.  Once an append with acks=all is      *)
(* acknowledged, its record has its place in the log, from before the      *)
(* acknowledgement on: acknowledged appends are linearizable.  A read sees *)
(* a prefix of the log.  It may be an old prefix, and a shorter one than   *)
(* the last, when another replica answers: reads are prefix-consistent,    *)
(* not linearizable.                                                       *)
(*                                                                         *)
(* All of this holds within the fault budget: at every moment some replica *)
(* that may be elected has lost nothing that it ever acknowledged.  Beyond *)
(* it, and with unclean election, the log may lose its end (LosesItsEnd).      *)
(***************************************************************************)
EXTENDS Integers, Sequences

CONSTANTS
    Replicas,       \* whoever may answer a read
    LosesItsEnd     \* BOOLEAN: unclean elections are allowed, or more tails are lost than the budget has

VARIABLE log        \* the records that count: a sequence; a record's place in it is its offset
VARIABLE acked      \* how many of them were acknowledged: acks=all acknowledges in the order of offsets
VARIABLE served     \* of a replica: the records that it shows to readers

contract == <<log, acked, served>>

Prefix(s, t) == Len(s) <= Len(t) /\ SubSeq(t, 1, Len(s)) = s

Init ==
    /\ log = <<>>
    /\ acked = 0
    /\ served = [r \in Replicas |-> <<>>]

\* Append: what is there stays where it is.
Grows == Prefix(log, log')

\* Acknowledge: only what is in the log, and once said it stays said.
Acknowledges == acked <= acked' /\ acked' <= Len(log')

\* Read: whoever answers shows a prefix, perhaps an old one.
Serves == \A r \in Replicas : Prefix(served'[r], log')

\* What unclean election takes away: an end of the log, acknowledged or not.  Readers may have seen it.
Loses == LosesItsEnd /\ log' = SubSeq(log, 1, Len(log')) /\ acked' <= acked

Next == (Grows /\ Acknowledges /\ Serves) \/ Loses

Spec == Init /\ [][Next]_contract
=============================================================================
