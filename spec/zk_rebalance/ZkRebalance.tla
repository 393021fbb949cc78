----------------------------- MODULE ZkRebalance -----------------------------
(***************************************************************************)
(* Consumer groups without a coordinator (0.7, 0.8): every consumer        *)
(* registers itself in ZooKeeper, watches the list of consumers, computes  *)
(* its own partitions, and claims them by owner nodes.                     *)
(*                                                                         *)
(* A rebalance: read members and partitions, stop fetching, release own    *)
(* claims, claim again; if another consumer still holds a partition, start *)
(* again. Sessions expire while the consumer continues, watches fire once, *)
(* and between a change and the watch the consumers' views may differ.     *)
(*                                                                         *)
(* A guard is on, as in the algorithm, unless GuardsOff names it: a        *)
(* mistake; spec/guards.toml lists them. README.md maps the names in this  *)
(* module to the paths in ZooKeeper.                                       *)
(***************************************************************************)
EXTENDS Integers, FiniteSets

CONSTANTS
    Consumers,      \* numbers, in the order of their ids
    Partitions,     \* numbers, in the order of broker and partition
    None,           \* the value for "no owner"
    Patience        \* how often a consumer retries before it gives up (rebalance.max.retries); None: it never gives up

CONSTANT GuardsOff      \* the guards that are switched off; {} is the protocol

EphemeralOwners == "EphemeralOwners" \notin GuardsOff
ClaimIfFree == "ClaimIfFree" \notin GuardsOff
ReleaseBeforeClaim == "ReleaseBeforeClaim" \notin GuardsOff
StopBeforeRelease == "StopBeforeRelease" \notin GuardsOff
StopFetchingOnExpiry == "StopFetchingOnExpiry" \notin GuardsOff
RetryRebalance == "RetryRebalance" \notin GuardsOff
RewatchOnRead == "RewatchOnRead" \notin GuardsOff
SameViewOrder == "SameViewOrder" \notin GuardsOff

Guards ==
    {"EphemeralOwners", "ClaimIfFree", "ReleaseBeforeClaim", "StopBeforeRelease", "StopFetchingOnExpiry",
     "RetryRebalance", "RewatchOnRead", "SameViewOrder"}
ASSUME GuardsOff \subseteq Guards

VARIABLE ids        \* /consumers/[group]/ids: the registered consumers; ephemeral
VARIABLE owner      \* /consumers/[group]/owners/[topic]: of a partition, the consumer that claimed it
VARIABLE topic      \* /brokers/topics/[topic]: the existing partitions
VARIABLE session    \* of a consumer: "none", "live", or "expired" until it notices that
VARIABLE watched    \* consumers whose watches on ids and topic are armed; a watch fires once
store == <<ids, owner, topic, session, watched>>

VARIABLE consumer   \* of a consumer: phase, view, partitions to claim and fetched (see NewConsumer)

VARIABLE committed  \* /consumers/[group]/offsets/[topic]: of a partition, the consumer that committed last

vars == <<store, consumer, committed>>

-----------------------------------------------------------------------------
(* Definitions *)

NoView == [members |-> {}, partitions |-> {}]

\* down: not started; out: not registered; reading, releasing, claiming: in a rebalance; idle; failed: gave up;
\* gone: finally, since a restarted process has another id.
NewConsumer == [phase    |-> "down",
                changed  |-> FALSE,     \* a watch has fired, and the consumer has not read yet
                view     |-> NoView,    \* members and partitions as it last read them
                todo     |-> {},        \* the partitions that it must still claim
                fetching |-> {},        \* the partitions that it processes
                retries  |-> 0]         \* in this rebalance; counted only if Patience is not None

Owned(c) == {p \in Partitions : owner[p] = c}
Live(c) == session[c] = "live"

Rank(x, S) == Cardinality({y \in S : y < x})
Reversed(x, S) == Cardinality(S) - 1 - Rank(x, S)

\* The consumer's position among the members.  All consumers must use the same order.
Place(c, members) == IF SameViewOrder \/ c % 2 = 0 THEN Rank(c, members) ELSE Reversed(c, members)

\* Divides the sorted partitions into ranges for the sorted consumers; the first ones get one more.
Range(c, view) ==
    LET n == Cardinality(view.members)
        each == Cardinality(view.partitions) \div n
        more == Cardinality(view.partitions) % n
        i == Place(c, view.members)
        first == i * each + IF i < more THEN i ELSE more
        count == each + IF i < more THEN 1 ELSE 0 IN
    {p \in view.partitions : Rank(p, view.partitions) \in first .. (first + count - 1)}

\* Members or partitions changed: every armed watch fires, all at once (the herd).
Fired(now) == [c \in Consumers |-> IF c \in watched THEN [now[c] EXCEPT !.changed = TRUE] ELSE now[c]]

-----------------------------------------------------------------------------
(* Consumers *)

\* Adds the consumer to the ids of the group, sets a watch on them, and starts the first rebalance.
Register(c) ==
    /\ \/ consumer[c].phase = "down" /\ session[c] = "none"
       \/ consumer[c].phase = "out" /\ Live(c)
    /\ session' = [session EXCEPT ![c] = "live"]
    /\ ids' = ids \union {c}
    /\ consumer' = [Fired(consumer) EXCEPT ![c].phase = "reading"]
    /\ watched' = {c}
    /\ UNCHANGED <<owner, topic, committed>>

NoticeChange(c) ==
    /\ Live(c) /\ consumer[c].phase \in {"idle", "failed"}
    /\ consumer[c].changed
    /\ consumer' = [consumer EXCEPT ![c].phase = "reading", ![c].changed = FALSE, ![c].retries = 0]
    /\ UNCHANGED <<store, committed>>

\* A read without a new watch would miss the next change.
ReadMembers(c) ==
    /\ Live(c) /\ consumer[c].phase = "reading"
    /\ consumer' = [consumer EXCEPT ![c].phase = "releasing", ![c].changed = FALSE,
                                    ![c].view = [members |-> ids, partitions |-> topic]]
    /\ watched' = IF RewatchOnRead THEN watched \union {c} ELSE watched
    /\ UNCHANGED <<ids, owner, topic, session, committed>>

\* Stops fetching, and commits, before other consumers can claim its partitions.
ReleaseAll(c) ==
    LET todo == Range(c, consumer[c].view) IN
    /\ Live(c) /\ consumer[c].phase = "releasing"
    /\ owner' = [p \in Partitions |-> IF owner[p] = c /\ ReleaseBeforeClaim THEN None ELSE owner[p]]
    /\ consumer' = [consumer EXCEPT ![c].phase = IF todo = {} THEN "idle" ELSE "claiming", ![c].todo = todo,
                                    ![c].fetching = IF StopBeforeRelease THEN {} ELSE @]
    /\ UNCHANGED <<ids, topic, session, watched, committed>>

MayClaim(c, p) == owner[p] \in {None, c} \/ ~ClaimIfFree

\* After it has claimed the last of its partitions, it fetches all of them.
Claim(c, p) ==
    LET last == consumer[c].todo = {p} IN
    /\ Live(c) /\ consumer[c].phase = "claiming" /\ p \in consumer[c].todo
    /\ MayClaim(c, p)
    /\ owner' = [owner EXCEPT ![p] = c]
    /\ consumer' = [consumer EXCEPT ![c].todo = @ \ {p},
                                    ![c].phase = IF last THEN "idle" ELSE @,
                                    ![c].fetching = IF last THEN Range(c, consumer[c].view) ELSE @,
                                    ![c].retries = IF last THEN 0 ELSE @]
    /\ UNCHANGED <<ids, topic, session, watched, committed>>

\* The former owner has not released the partition yet, or has another view of the members: restart after a delay.
RetryOrGiveUp(c, p) ==
    LET again == RetryRebalance /\ (Patience = None \/ consumer[c].retries < Patience) IN
    /\ Live(c) /\ consumer[c].phase = "claiming" /\ p \in consumer[c].todo
    /\ ~MayClaim(c, p)
    /\ consumer' = [consumer EXCEPT ![c].phase = IF again THEN "reading" ELSE "failed", ![c].todo = {},
                                    ![c].retries = IF Patience = None \/ ~again THEN 0 ELSE @ + 1]
    /\ UNCHANGED <<store, committed>>

\* ZooKeeper accepts an offset from any consumer that has a session.
Commit(c, p) ==
    /\ Live(c) /\ p \in consumer[c].fetching
    /\ committed' = [committed EXCEPT ![p] = [member |-> c, generation |-> 0]]
    /\ UNCHANGED <<store, consumer>>

-----------------------------------------------------------------------------
(* Faults *)

Crash(c) ==
    /\ consumer[c].phase \notin {"down", "gone"}
    /\ consumer' = [consumer EXCEPT ![c] = [NewConsumer EXCEPT !.phase = "gone"]]
    /\ session' = [session EXCEPT ![c] = IF @ = "expired" THEN "none" ELSE @]
    /\ UNCHANGED <<ids, owner, topic, watched, committed>>

\* ZooKeeper received no heartbeat in time: the ephemeral nodes are deleted.  The consumer may still run, and fetch.
SessionExpire(c) ==
    /\ Live(c)
    /\ session' = [session EXCEPT ![c] = IF consumer[c].phase = "gone" THEN "none" ELSE "expired"]
    /\ ids' = ids \ {c}
    /\ owner' = [p \in Partitions |-> IF owner[p] = c /\ EphemeralOwners THEN None ELSE owner[p]]
    /\ consumer' = IF c \in ids THEN [Fired(consumer) EXCEPT ![c] = consumer[c]] ELSE consumer
    /\ watched' = IF c \in ids THEN {} ELSE watched \ {c}
    /\ UNCHANGED <<topic, committed>>

\* The consumer connects with a new session: another consumer may have claimed its partitions.
NoticeExpiry(c) ==
    LET fetching == IF StopFetchingOnExpiry THEN {} ELSE consumer[c].fetching IN
    /\ session[c] = "expired"
    /\ session' = [session EXCEPT ![c] = "live"]
    /\ consumer' = [consumer EXCEPT ![c] = [NewConsumer EXCEPT !.phase = "out", !.fetching = fetching]]
    /\ UNCHANGED <<ids, owner, topic, watched, committed>>

\* A broker joins, or a topic grows.
AddPartition(p) ==
    /\ p \notin topic
    /\ topic' = topic \union {p}
    /\ consumer' = Fired(consumer)
    /\ watched' = {}
    /\ UNCHANGED <<ids, owner, session, committed>>

-----------------------------------------------------------------------------
FirstPartitions == Partitions

Init ==
    /\ ids = {}
    /\ owner = [p \in Partitions |-> None]
    /\ topic = FirstPartitions
    /\ session = [c \in Consumers |-> "none"]
    /\ watched = {}
    /\ consumer = [c \in Consumers |-> NewConsumer]
    /\ committed = [p \in Partitions |-> None]

Next ==
    \/ \E c \in Consumers : Register(c) \/ NoticeChange(c) \/ ReadMembers(c) \/ ReleaseAll(c)
    \/ \E c \in Consumers, p \in Partitions : Claim(c, p) \/ RetryOrGiveUp(c, p) \/ Commit(c, p)
    \/ \E c \in Consumers : Crash(c) \/ SessionExpire(c) \/ NoticeExpiry(c)
    \/ \E p \in Partitions : AddPartition(p)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* What holds *)

View == [members : SUBSET Consumers, partitions : SUBSET Partitions]
Consumer == [phase : {"down", "out", "reading", "releasing", "claiming", "idle", "failed", "gone"}, changed : BOOLEAN,
             view : View, todo : SUBSET Partitions, fetching : SUBSET Partitions,
             retries : IF Patience = None THEN {0} ELSE 0 .. Patience]

TypeOK ==
    /\ ids \subseteq Consumers
    /\ owner \in [Partitions -> {None} \union Consumers]
    /\ topic \subseteq Partitions
    /\ session \in [Consumers -> {"none", "live", "expired"}]
    /\ watched \subseteq Consumers
    /\ consumer \in [Consumers -> Consumer]
    /\ committed \in [Partitions -> {None} \union [member : Consumers, generation : {0}]]

\* A consumer that is registered, owns a partition or has a watch has a session.
SessionsFirst == \A c \in Consumers : c \in ids \union watched \/ Owned(c) # {} => Live(c)

Grants == {<<owner[p], p>> : p \in {each \in Partitions : owner[each] # None}}

\* The session is the fence: with it end the owner nodes and the right to commit.  There are no generations.
NoStaticMembers(a, b) == FALSE
Contract == INSTANCE GroupOwnership WITH generation <- 0, grants <- Grants, replaced <- {},
                                            OneMember <- NoStaticMembers
OwnershipKept == Contract!Spec

\* A consumer that has completed a rebalance has claimed its own range, and nothing else.
OwnRangeOnly == \A c \in Consumers : Live(c) /\ consumer[c].phase = "idle" => Owned(c) = Range(c, consumer[c].view)

\* A consumer with a session fetches only partitions that it has claimed.  Without a session it may continue: see
\* Zombie.
FetchOnlyClaimed == \A c \in Consumers : Live(c) => consumer[c].fetching \subseteq Owned(c)

OneFetcher ==
    \A c, d \in Consumers : c # d /\ Live(c) /\ Live(d) => consumer[c].fetching \intersect consumer[d].fetching = {}

\* A watch that has fired is not armed any more.
FiresOnce == \A c \in watched : ~consumer[c].changed

\* A rebalance reads, releases and claims; a watch or a claim that failed starts the next one.  A consumer without a
\* session does nothing until it notices that.
NextPhases == [down |-> {"reading"}, out |-> {"reading"}, reading |-> {"releasing"}, releasing |-> {"claiming", "idle"},
               claiming |-> {"idle", "reading", "failed"}, idle |-> {"reading"}, failed |-> {"reading"}, gone |-> {}]
PhasesInOrder ==
    [][\A c \in Consumers :
          /\ \/ consumer'[c].phase \in {consumer[c].phase, "gone"}
             \/ session[c] = "expired" /\ consumer'[c].phase = "out"
             \/ session[c] # "expired" /\ consumer'[c].phase \in NextPhases[consumer[c].phase]
          /\ session[c] = "none" => session'[c] # "expired"]_vars     \* only a session that exists can end

-----------------------------------------------------------------------------
(* The promises of the protocol: README.md says how each is checked, and within which bounds *)

Protocol == Spec /\ GuardsOff = {}

THEOREM Protocol => []TypeOK
THEOREM Protocol => []SessionsFirst
THEOREM Protocol => []OwnRangeOnly
THEOREM Protocol => []FetchOnlyClaimed
THEOREM Protocol => []OneFetcher
THEOREM Protocol => []FiresOnce
THEOREM Protocol => PhasesInOrder
THEOREM Protocol => OwnershipKept
=============================================================================
