---------------------------- MODULE MCZkRebalance ----------------------------
(* ZkRebalance, bounded so that TLC can explore every state: README.md, "Bounds". *)
EXTENDS ZkRebalance, Sequences, TLC

CONSTANTS MaxExpiries, MaxCrashes, MaxGrowths, MaxCommits

VARIABLE spent      \* how often each kind of fault has happened

MCInit == Init /\ spent = [expiries |-> 0, crashes |-> 0, growths |-> 0, commits |-> 0]

Once(trouble, bound) == spent[trouble] < bound /\ spent' = [spent EXCEPT ![trouble] = @ + 1]

MCRegister(c) == Register(c) /\ UNCHANGED spent
MCNoticeChange(c) == NoticeChange(c) /\ UNCHANGED spent
MCReadMembers(c) == ReadMembers(c) /\ UNCHANGED spent
MCReleaseAll(c) == ReleaseAll(c) /\ UNCHANGED spent
MCClaim(c) == (\E p \in Partitions : Claim(c, p)) /\ UNCHANGED spent
MCRetryOrGiveUp(c) == (\E p \in Partitions : RetryOrGiveUp(c, p)) /\ UNCHANGED spent
MCNoticeExpiry(c) == NoticeExpiry(c) /\ UNCHANGED spent

MCCommit(c) == Once("commits", MaxCommits) /\ \E p \in Partitions : Commit(c, p)
MCCrash(c) == Once("crashes", MaxCrashes) /\ Crash(c)

\* The session of a crashed consumer must end.
MCSessionExpire(c) ==
    /\ Once("expiries", MaxExpiries) \/ (consumer[c].phase = "gone" /\ UNCHANGED spent)
    /\ SessionExpire(c)

MCAddPartition == Once("growths", MaxGrowths) /\ \E p \in Partitions : AddPartition(p)

\* A growing topic starts without its last partition.
MCFirstPartitions == IF MaxGrowths = 0 THEN Partitions ELSE {p \in Partitions : \E q \in Partitions : p < q}

MCNext ==
    \/ \E c \in Consumers : \/ MCRegister(c) \/ MCNoticeChange(c) \/ MCReadMembers(c) \/ MCReleaseAll(c)
                            \/ MCClaim(c) \/ MCRetryOrGiveUp(c) \/ MCCommit(c)
                            \/ MCCrash(c) \/ MCSessionExpire(c) \/ MCNoticeExpiry(c)
    \/ MCAddPartition

mcVars == <<vars, spent>>

MCSpec == MCInit /\ [][MCNext]_mcVars

-----------------------------------------------------------------------------
(* After the faults have stopped *)

\* Weak fairness: a running consumer continues, receives its watches and the end of its session, and retries; the
\* session of a crashed consumer ends.
Fairness ==
    \A c \in Consumers :
        /\ WF_mcVars(MCRegister(c))
        /\ WF_mcVars(MCNoticeChange(c))
        /\ WF_mcVars(MCReadMembers(c))
        /\ WF_mcVars(MCReleaseAll(c))
        /\ WF_mcVars(MCClaim(c) \/ MCRetryOrGiveUp(c))
        /\ WF_mcVars(MCNoticeExpiry(c))
        /\ WF_mcVars(MCSessionExpire(c) /\ UNCHANGED spent)

MCLiveSpec == MCSpec /\ Fairness

\* Every partition is claimed, and fetched by the consumer that claimed it.
AllClaimed == \A p \in topic : owner[p] # None /\ Live(owner[p]) /\ p \in consumer[owner[p]].fetching

EventuallyAllClaimed == <>[]AllClaimed

\* Every consumer that runs is registered, and fetches its range of all partitions among all registered consumers.
EachHasItsRange ==
    \A c \in Consumers : consumer[c].phase # "gone" =>
        c \in ids /\ consumer[c].fetching = Range(c, [members |-> ids, partitions |-> topic])

EventuallyEachHasItsRange == <>[]EachHasItsRange

-----------------------------------------------------------------------------
(* Situations that must be reachable *)

Zombie ==
    \E c, d \in Consumers :
        session[c] = "expired" /\ Live(d) /\ consumer[c].fetching \intersect consumer[d].fetching # {}
SplitViews ==
    \E c, d \in ids : /\ consumer[c].phase = "claiming" /\ consumer[d].phase = "claiming"
                      /\ consumer[c].view # consumer[d].view /\ consumer[c].todo \intersect consumer[d].todo # {}
Herd == \E c \in Consumers : Cardinality({d \in ids \ {c} : consumer[d].changed}) > 1
StillHeld ==
    \E c \in Consumers, p \in Partitions : consumer[c].phase = "claiming" /\ p \in consumer[c].todo /\ ~MayClaim(c, p)
GivenUp ==
    /\ ids = Consumers /\ \A c \in Consumers : consumer[c].phase \in {"idle", "failed"} /\ ~consumer[c].changed
    /\ \E p \in topic : owner[p] = None
Spare ==
    \E c \in ids :
        consumer[c].phase = "idle" /\ consumer[c].view.members = Consumers /\ Range(c, consumer[c].view) = {}
Grown == topic # MCFirstPartitions /\ AllClaimed
=============================================================================
