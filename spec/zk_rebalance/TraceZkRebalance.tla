-------------------------- MODULE TraceZkRebalance --------------------------
(***************************************************************************)
(* Checks whether the trace of a group of 0.7 is a behaviour of            *)
(* ZkRebalance. The store's lines say what each request changed, and the   *)
(* consumers' lines what they did by themselves. Each line contains the    *)
(* action and the choices made; the spec must have such a step. trace.toml *)
(* defines the fields of a line.                                           *)
(*                                                                         *)
(* The spec reads the registries in one step, and releases all partitions  *)
(* in one step; a real consumer sends a request for each node. What is     *)
(* therefore added to the spec is defined below as StopFetching, Release,  *)
(* ReadLate, Interrupted, LateClaim and ReadAgain. A killed process is one *)
(* that takes no more steps. A consumer that has not noticed the end of    *)
(* its session cannot change the store, so its lines change nothing here.  *)
(* The store's own restarts are not described: a write that was durable,   *)
(* but had no line yet, is missing in the trace.                           *)
(***************************************************************************)
EXTENDS ZkRebalance, Sequences, TLC

CONSTANTS Step(_),          \* a line of the trace: <<action, node, unused, consumer, ...>>
          Length,           \* how many lines there are
          ShownLine,        \* print the state before this one (0: none)
          ConsumerNames,    \* the consumers, in their order
          PartitionNames,   \* the partitions, in their order
          MaxRetries        \* rebalance.max.retries of the consumers; -1: they never give up

VARIABLES
    line,                   \* the next line to explain
    ids_since,              \* of a consumer: who was registered at some time, and who always, since it began to read
    refused,                \* of a consumer: partitions that another one has owned since it began to claim
    asked                   \* of a consumer: claims of an interrupted rebalance, which may still reach the store

traceVars == <<ids_since, refused, asked>>

TraceConsumers == 1 .. Len(ConsumerNames)
TracePartitions == 1 .. Len(PartitionNames)
TraceFirst == {}
TracePatience == IF MaxRetries = -1 THEN None ELSE MaxRetries

-----------------------------------------------------------------------------
(* What is added to the spec *)

\* An event that was under way when the consumer read, or a connection that was lost and found again: it reads again.
ReadAgain(c) ==
    /\ Live(c) /\ consumer[c].phase \in {"idle", "failed"} /\ ~consumer[c].changed
    /\ consumer' = [consumer EXCEPT ![c].phase = "reading"]
    /\ UNCHANGED <<store, committed>>

\* The end of reading, which took several requests.  What differs from its beginning has fired a watch.
ReadLate(c, view) ==
    /\ Live(c) /\ consumer[c].phase = "releasing"
    /\ view = consumer[c].view \/ consumer[c].changed
    /\ consumer' = [consumer EXCEPT ![c].view = view]
    /\ UNCHANGED <<store, committed>>

\* The first part of ReleaseAll.
StopFetching(c) ==
    /\ Live(c) /\ consumer[c].phase = "releasing"
    /\ consumer' = [consumer EXCEPT ![c].fetching = {}]
    /\ UNCHANGED <<store, committed>>

\* The second part of ReleaseAll, which is interrupted if the phase is "reading".
Release(c, p) ==
    /\ Live(c) /\ consumer[c].phase \in {"releasing", "reading"} /\ consumer[c].fetching = {}
    /\ owner[p] = c
    /\ owner' = [owner EXCEPT ![p] = None]
    /\ UNCHANGED <<ids, topic, session, watched, consumer, committed>>

\* The connection was lost during a rebalance; the consumer will start again.
Interrupted(c) ==
    /\ consumer[c].phase \in {"reading", "releasing", "claiming", "idle"}
    /\ consumer' = [consumer EXCEPT ![c].phase = "reading", ![c].todo = {}]
    /\ UNCHANGED <<store, committed>>

\* A claim of an interrupted rebalance reaches the store, or one whose reply was lost is sent again.
LateClaim(c, p) ==
    /\ Live(c) /\ owner[p] = None /\ p \in asked[c]
    /\ owner' = [owner EXCEPT ![p] = c]
    /\ UNCHANGED <<ids, topic, session, watched, consumer, committed>>

\* The session ended before the consumer was registered.
NoticeUnregistered(c) ==
    /\ Live(c) /\ c \notin ids
    /\ consumer' = [consumer EXCEPT ![c] = [NewConsumer EXCEPT !.phase = "out"]]
    /\ UNCHANGED <<store, committed>>

\* Another consumer owned the partition when the store replied.
RetryAfterRefusal(c, p) ==
    /\ Live(c) /\ consumer[c].phase = "claiming" /\ p \in consumer[c].todo /\ p \in refused[c]
    /\ LET again == Patience = None \/ consumer[c].retries < Patience IN
       consumer' = [consumer EXCEPT ![c].phase = IF again THEN "reading" ELSE "failed", ![c].todo = {},
                                    ![c].retries = IF Patience = None \/ ~again THEN 0 ELSE @ + 1]
    /\ UNCHANGED <<store, committed>>

-----------------------------------------------------------------------------
(* Lines *)

Unchanged == UNCHANGED vars

IsView(c, members, partitions) ==
    /\ ids_since[c].always \subseteq members /\ members \subseteq ids_since[c].ever
    /\ consumer[c].view.partitions \subseteq partitions /\ partitions \subseteq topic
    /\ ReadLate(c, [members |-> members, partitions |-> partitions])

IsReleaseAll(c, todo) ==
    /\ Owned(c) = {} /\ consumer[c].fetching = {}
    /\ ReleaseAll(c) /\ consumer'[c].todo = todo

IsClaim(c, p) ==
    \/ Claim(c, p)
    \/ Live(c) /\ owner[p] = c /\ Unchanged
    \/ p \notin consumer[c].todo /\ LateClaim(c, p)

IsRetryOrGiveUp(c, p, gaveUp) ==
    /\ IF MayClaim(c, p) THEN RetryAfterRefusal(c, p) ELSE RetryOrGiveUp(c, p)
    /\ (consumer'[c].phase = "failed") = gaveUp

IsFetching(c, fetching) == consumer[c].phase = "idle" /\ consumer[c].fetching = fetching /\ Unchanged

IsNoticeExpiry(c, fetching) ==
    /\ NoticeExpiry(c) \/ NoticeUnregistered(c)
    /\ consumer'[c].fetching = fetching

\* What the consumer does by itself.
Local == {"ReadMembers", "View", "StopFetching", "ReleaseAll", "Fetching", "RetryOrGiveUp", "Interrupted"}

FromItsNode(s) == s[2] = IF s[1] \in Local \union {"NoticeExpiry"} THEN ConsumerNames[s[4]] ELSE "store"

Explained(s) ==
    LET c == s[4] IN
    CASE s[1] \in Local /\ session[c] = "expired" -> Unchanged
      [] s[1] = "Register"      -> Register(c)
      [] s[1] = "Claim"         -> IsClaim(c, s[5])
      [] s[1] = "Release"       -> Release(c, s[5])
      [] s[1] = "Commit"        -> Commit(c, s[5])
      [] s[1] = "SessionExpire" -> SessionExpire(c)
      [] s[1] = "AddPartition"  -> AddPartition(c)
      [] s[1] = "ReadMembers"   -> ReadMembers(c)
      [] s[1] = "View"          -> IsView(c, s[5], s[6])
      [] s[1] = "StopFetching"  -> StopFetching(c)
      [] s[1] = "ReleaseAll"    -> IsReleaseAll(c, s[5])
      [] s[1] = "Fetching"      -> IsFetching(c, s[5])
      [] s[1] = "RetryOrGiveUp" -> IsRetryOrGiveUp(c, s[5], s[6])
      [] s[1] = "NoticeExpiry"  -> IsNoticeExpiry(c, s[5])
      [] s[1] = "Interrupted"   -> Interrupted(c)
      [] OTHER                  -> FALSE

\* Before a consumer reads, it notices that a watch has fired.
Notice ==
    LET s == Step(line) IN
    /\ s[1] = "ReadMembers"
    /\ NoticeChange(s[4]) \/ ReadAgain(s[4])
    /\ UNCHANGED <<line, traceVars>>

Remember(s) ==
    LET c == s[4] IN
    /\ ids_since' = [d \in Consumers |->
            IF s[1] = "ReadMembers" /\ d = c THEN [ever |-> ids, always |-> ids]
            ELSE [ever |-> ids_since[d].ever \union ids', always |-> ids_since[d].always \intersect ids']]
    /\ refused' = [d \in Consumers |->
            IF consumer'[d].phase # "claiming" THEN {}
            ELSE refused[d] \union {p \in consumer'[d].todo : owner'[p] \notin {None, d}}]
    /\ asked' = CASE s[1] = "Interrupted" -> [asked EXCEPT ![c] = @ \union consumer[c].todo]
                  [] s[1] = "SessionExpire" -> [asked EXCEPT ![c] = {}]
                  [] OTHER -> asked

TraceStep ==
    /\ line <= Length /\ line' = line + 1
    /\ FromItsNode(Step(line))
    /\ Explained(Step(line))
    /\ Remember(Step(line))

TraceInit ==
    /\ Init /\ line = 1 /\ TLCSet(1, 0)
    /\ ids_since = [c \in Consumers |-> [ever |-> {}, always |-> {}]]
    /\ refused = [c \in Consumers |-> {}] /\ asked = [c \in Consumers |-> {}]

TraceSpec == TraceInit /\ [][TraceStep \/ (line <= Length /\ Notice)]_<<vars, line, traceVars>>

\* Every step of an accepted trace is one of the module, or one of those that are added above.
Views == {[members |-> Step(line)[5], partitions |-> Step(line)[6]]}
More ==
    \E c \in Consumers :
        \/ ReadAgain(c) \/ StopFetching(c) \/ Interrupted(c) \/ NoticeUnregistered(c)
        \/ \E p \in Partitions : Release(c, p) \/ LateClaim(c, p) \/ RetryAfterRefusal(c, p)
        \/ Step(line)[1] = "View" /\ \E view \in Views : ReadLate(c, view)
StepsOfModule == [][Next \/ More]_vars

Promises ==
    [SessionsFirst    |-> SessionsFirst,
     OwnRangeOnly     |-> OwnRangeOnly,
     FetchOnlyClaimed |-> FetchOnlyClaimed,
     OneFetcher       |-> OneFetcher,
     FiresOnce        |-> FiresOnce]

\* Checked as an invariant: what the theorems of the module promise.
PromisesKept == \A promise \in DOMAIN Promises : Promises[promise] \/ (PrintT(<<"BROKEN", line - 1, promise>>) /\ FALSE)

\* Checked as an invariant: prints each line that is reached for the first time, and ends the run after the last one:
\* then the trace is accepted.
Reached ==
    line > TLCGet(1) =>
        /\ TLCSet(1, line) /\ PrintT(<<"REACHED", line>>)
        /\ line > Length => PrintT("TRACE_ACCEPTED") /\ TLCSet("exit", TRUE)

\* Prints the state before ShownLine, to find out why a line was rejected.
Names(S) == {PartitionNames[p] : p \in S}
Show ==
    line = ShownLine =>
        /\ PrintT(<<"SHOWN", "store", [registered |-> {ConsumerNames[c] : c \in ids}, topic |-> Names(topic),
                                       free |-> Names({p \in topic : owner[p] = None})]>>)
        /\ \A c \in Consumers :
              PrintT(<<"SHOWN", ConsumerNames[c],
                       [session |-> session[c], phase |-> consumer[c].phase, changed |-> consumer[c].changed,
                        members |-> {ConsumerNames[d] : d \in consumer[c].view.members}, owns |-> Names(Owned(c)),
                        todo |-> Names(consumer[c].todo), fetching |-> Names(consumer[c].fetching)]>>)
=============================================================================
