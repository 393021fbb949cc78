----------------------------- MODULE ZkRebalance -----------------------------
(***************************************************************************)
(* Consumer groups before there was a coordinator (0.7, 0.8): every        *)
(* consumer registers itself in ZooKeeper, watches who else is there,      *)
(* works out by itself which partitions are its own, and claims them by    *)
(* owner nodes.                                                            *)
(*                                                                         *)
(* A rebalance: read members and partitions, stop fetching, release own    *)
(* claims, claim anew; if another still holds one, begin again.  Sessions  *)
(* expire while the consumer goes on, watches fire once, and between a     *)
(* change and the watch everybody has a view of its own.                   *)
(*                                                                         *)
(* A guard is a BOOLEAN constant: TRUE is the protocol, FALSE a mistake;   *)
(* spec/guards.toml lists them.  README.md ties the names here to the      *)
(* paths in ZooKeeper.                                                     *)
(***************************************************************************)
EXTENDS Integers, FiniteSets

CONSTANTS
    Consumers,      \* numbers, in the order of their ids
    Partitions,     \* numbers, in the order of broker and partition
    None,           \* in place of an owner: there is none
    Patience        \* how often a consumer tries again before it gives up (rebalance.max.retries); None: it never does

CONSTANTS
    EphemeralOwners, ClaimIfFree, ReleaseBeforeClaim, StopBeforeRelease, StopFetchingOnExpiry,
    RetryRebalance, RewatchOnRead, SameViewOrder

ASSUME {EphemeralOwners, ClaimIfFree, ReleaseBeforeClaim, StopBeforeRelease, StopFetchingOnExpiry,
        RetryRebalance, RewatchOnRead, SameViewOrder} \subseteq BOOLEAN

VARIABLE ids        \* /consumers/[group]/ids: who is registered; ephemeral
VARIABLE owner      \* /consumers/[group]/owners/[topic]: of a partition, who claimed it
VARIABLE topic      \* /brokers/topics/[topic]: the partitions that there are
VARIABLE session    \* of a consumer: "none", "live", or "expired" until it hears of that
VARIABLE watched    \* consumers whose watches on ids and topic are armed; a watch fires once
store == <<ids, owner, topic, session, watched>>

VARIABLE consumer   \* of a consumer: phase, view, partitions to claim and fetched (see NewConsumer)

VARIABLE committed  \* /consumers/[group]/offsets/[topic]: of a partition, who committed last

vars == <<store, consumer, committed>>

-----------------------------------------------------------------------------
(* Words *)

NoView == [members |-> {}, partitions |-> {}]

\* down: not started; out: not registered; reading, releasing, claiming: in a rebalance; idle; failed: gave up;
\* gone: for good, since a process that is started anew has another id.
NewConsumer == [phase    |-> "down",
                changed  |-> FALSE,     \* a watch has fired, and the consumer has not looked yet
                view     |-> NoView,    \* members and partitions as it last read them
                todo     |-> {},        \* what it has still to claim
                fetching |-> {},        \* what it processes
                retries  |-> 0]         \* in this rebalance; counted only if Patience is not None

Owned(c) == {p \in Partitions : owner[p] = c}
Live(c) == session[c] = "live"

Rank(x, S) == Cardinality({y \in S : y < x})
Reversed(x, S) == Cardinality(S) - 1 - Rank(x, S)

\* The consumer's place among the members.  Everybody must count alike.
Place(c, members) == IF SameViewOrder \/ c % 2 = 0 THEN Rank(c, members) ELSE Reversed(c, members)

\* Sorted partitions over sorted consumers, in ranges; the first ones get one more.
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

\* Into the ids of the group, with a watch on them, and on to the first rebalance.
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

\* To read without setting the watch again is to miss the next change.
ReadMembers(c) ==
    /\ Live(c) /\ consumer[c].phase = "reading"
    /\ consumer' = [consumer EXCEPT ![c].phase = "releasing", ![c].changed = FALSE,
                                    ![c].view = [members |-> ids, partitions |-> topic]]
    /\ watched' = IF RewatchOnRead THEN watched \union {c} ELSE watched
    /\ UNCHANGED <<ids, owner, topic, session, committed>>

\* It stops to fetch, and commits, before others can claim what it had.
ReleaseAll(c) ==
    LET todo == Range(c, consumer[c].view) IN
    /\ Live(c) /\ consumer[c].phase = "releasing"
    /\ owner' = [p \in Partitions |-> IF owner[p] = c /\ ReleaseBeforeClaim THEN None ELSE owner[p]]
    /\ consumer' = [consumer EXCEPT ![c].phase = IF todo = {} THEN "idle" ELSE "claiming", ![c].todo = todo,
                                    ![c].fetching = IF StopBeforeRelease THEN {} ELSE @]
    /\ UNCHANGED <<ids, topic, session, watched, committed>>

MayClaim(c, p) == owner[p] \in {None, c} \/ ~ClaimIfFree

\* With the last of its partitions claimed it fetches them all.
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

\* Its former owner has not released it yet, or sees other members than we do: again from the start, after a while.
RetryOrGiveUp(c, p) ==
    LET again == RetryRebalance /\ (Patience = None \/ consumer[c].retries < Patience) IN
    /\ Live(c) /\ consumer[c].phase = "claiming" /\ p \in consumer[c].todo
    /\ ~MayClaim(c, p)
    /\ consumer' = [consumer EXCEPT ![c].phase = IF again THEN "reading" ELSE "failed", ![c].todo = {},
                                    ![c].retries = IF Patience = None \/ ~again THEN 0 ELSE @ + 1]
    /\ UNCHANGED <<store, committed>>

\* ZooKeeper takes an offset from whoever has a session.
Commit(c, p) ==
    /\ Live(c) /\ p \in consumer[c].fetching
    /\ committed' = [committed EXCEPT ![p] = [member |-> c, generation |-> 0]]
    /\ UNCHANGED <<store, consumer>>

-----------------------------------------------------------------------------
(* Troubles *)

Crash(c) ==
    /\ consumer[c].phase \notin {"down", "gone"}
    /\ consumer' = [consumer EXCEPT ![c] = [NewConsumer EXCEPT !.phase = "gone"]]
    /\ session' = [session EXCEPT ![c] = IF @ = "expired" THEN "none" ELSE @]
    /\ UNCHANGED <<ids, owner, topic, watched, committed>>

\* ZooKeeper has not heard of it for too long: its ephemeral nodes go.  It may live, and fetch, and not know.
SessionExpire(c) ==
    /\ Live(c)
    /\ session' = [session EXCEPT ![c] = IF consumer[c].phase = "gone" THEN "none" ELSE "expired"]
    /\ ids' = ids \ {c}
    /\ owner' = [p \in Partitions |-> IF owner[p] = c /\ EphemeralOwners THEN None ELSE owner[p]]
    /\ consumer' = IF c \in ids THEN [Fired(consumer) EXCEPT ![c] = consumer[c]] ELSE consumer
    /\ watched' = IF c \in ids THEN {} ELSE watched \ {c}
    /\ UNCHANGED <<topic, committed>>

\* Connected again, under a new session: what it had may be another's.
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

-----------------------------------------------------------------------------
(* What holds *)

View == [members : SUBSET Consumers, partitions : SUBSET Partitions]
Consumer == [phase : {"down", "out", "reading", "releasing", "claiming", "idle", "failed", "gone"}, changed : BOOLEAN,
             view : View, todo : SUBSET Partitions, fetching : SUBSET Partitions, retries : Nat]

TypeOK ==
    /\ ids \subseteq Consumers
    /\ owner \in [Partitions -> {None} \union Consumers]
    /\ topic \subseteq Partitions
    /\ session \in [Consumers -> {"none", "live", "expired"}]
    /\ watched \subseteq Consumers
    /\ consumer \in [Consumers -> Consumer]
    /\ committed \in [Partitions -> {None} \union [member : Consumers, generation : {0}]]

\* Who is registered, or owns, or watches has a session.
SessionsFirst == \A c \in Consumers : c \in ids \union watched \/ Owned(c) # {} => Live(c)

Grants == {<<owner[p], p>> : p \in {each \in Partitions : owner[each] # None}}

\* A session is what fences: an owner node goes with it, and so does the right to commit.  There are no generations.
Contract == INSTANCE GroupOwnership WITH generation <- 0, grants <- Grants, replaced <- {}
OwnershipKept == Contract!Spec

\* Who has come to the end of a rebalance has claimed its own range, and nothing else.
OwnRangeOnly == \A c \in Consumers : Live(c) /\ consumer[c].phase = "idle" => Owned(c) = Range(c, consumer[c].view)

\* A consumer with a session fetches only what it has claimed.  Who lost its session may go on for a while: see Zombie.
FetchOnlyClaimed == \A c \in Consumers : Live(c) => consumer[c].fetching \subseteq Owned(c)

OneFetcher ==
    \A c, d \in Consumers : c # d /\ Live(c) /\ Live(d) => consumer[c].fetching \intersect consumer[d].fetching = {}
=============================================================================
