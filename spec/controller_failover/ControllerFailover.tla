------------------------- MODULE ControllerFailover -------------------------
(***************************************************************************)
(* One controller at a time decides for a partition: which broker leads    *)
(* it, which brokers hold its replicas, and whether it is deleted.         *)
(* Controllers are elected through a store with conditional writes         *)
(* (ZooKeeper) and may be replaced at any moment without noticing: such a  *)
(* zombie continues to write and to send requests.                         *)
(*                                                                         *)
(* The model includes brokers that receive decisions late, twice or in any *)
(* order, and that restart; the leader's own writes of the ISR;            *)
(* reassignment in its eleven steps, each of which may end with a failure  *)
(* of the controller; election of the preferred replica; and deletion of   *)
(* the topic, which waits for brokers that are down.                       *)
(*                                                                         *)
(* Messages are never removed: each one may arrive late, twice, or never.  *)
(* Guards: spec/guards.toml.                                               *)
(***************************************************************************)
EXTENDS Integers, FiniteSets

CONSTANTS
    Controllers,    \* brokers that may become controller
    Brokers,        \* brokers that may hold a replica
    Original,       \* the initial replicas of the partition
    Preferred,      \* the first of the initial replicas
    None            \* the value for "no broker"

CONSTANT GuardsOff      \* the guards that are switched off; {} is the protocol

ClaimCas == "ClaimCas" \notin GuardsOff
ControllerEpochCas == "ControllerEpochCas" \notin GuardsOff
VersionCas == "VersionCas" \notin GuardsOff
IsrCas == "IsrCas" \notin GuardsOff
PersistBeforeSend == "PersistBeforeSend" \notin GuardsOff
BumpLeaderEpoch == "BumpLeaderEpoch" \notin GuardsOff
FenceStaleController == "FenceStaleController" \notin GuardsOff
FenceStaleLeaderAndIsr == "FenceStaleLeaderAndIsr" \notin GuardsOff
FenceOldBrokerEpoch == "FenceOldBrokerEpoch" \notin GuardsOff
FenceStaleStopReplica == "FenceStaleStopReplica" \notin GuardsOff
PreferOnlyInSync == "PreferOnlyInSync" \notin GuardsOff
AnnounceBothReplicaSets == "AnnounceBothReplicaSets" \notin GuardsOff
AwaitTargetInSync == "AwaitTargetInSync" \notin GuardsOff
MoveLeaderToTarget == "MoveLeaderToTarget" \notin GuardsOff
ShrinkBeforeDelete == "ShrinkBeforeDelete" \notin GuardsOff
PersistAssignmentLast == "PersistAssignmentLast" \notin GuardsOff
DeletionAwaitsReplicas == "DeletionAwaitsReplicas" \notin GuardsOff
DeletionWaitsForReassignment == "DeletionWaitsForReassignment" \notin GuardsOff

Guards ==
    {"ClaimCas", "ControllerEpochCas", "VersionCas", "IsrCas", "PersistBeforeSend", "BumpLeaderEpoch",
     "FenceStaleController", "FenceStaleLeaderAndIsr", "FenceOldBrokerEpoch", "FenceStaleStopReplica",
     "PreferOnlyInSync", "AnnounceBothReplicaSets", "AwaitTargetInSync", "MoveLeaderToTarget",
     "ShrinkBeforeDelete", "PersistAssignmentLast", "DeletionAwaitsReplicas", "DeletionWaitsForReassignment"}
ASSUME GuardsOff \subseteq Guards

VARIABLE election       \* in the store: the controller's ephemeral node, and the epoch that every claim increments
VARIABLE partition      \* in the store: leader, leaderEpoch, isr, and the node's version
VARIABLE assignment     \* in the store: the assigned replicas, the target of a reassignment ({}: none), and whether the topic
                        \* exists, is being deleted, or is gone
VARIABLE live           \* brokers that have a session
VARIABLE brokerEpoch    \* of a broker: the number of its re-registrations (KIP-380)
store == <<election, partition, assignment, live, brokerEpoch>>

VARIABLE controller     \* of a controller: what it believes (see Idle)
VARIABLE sent           \* LeaderAndIsr and StopReplica requests, each to all brokers concerned
VARIABLE role           \* of a broker: its state after the last request (see NoRole)
VARIABLE replica        \* of a broker: "all" (it has every committed record), "behind", or "none" (no replica)

VARIABLE claims         \* history: which controller claimed which controller epoch
VARIABLE elected        \* history: which broker was elected in which leader epoch

vars == <<store, controller, sent, role, replica, claims, elected>>

-----------------------------------------------------------------------------
(* Definitions *)

Unknown == -1

Idle == [active    |-> FALSE,                   \* it believes that it is the controller
         reads     |-> FALSE,                   \* it is about to claim the epoch after
         epoch     |-> 0,                       \* this one; once active, its own
         loaded    |-> FALSE,                   \* it has read
         partition |-> [version |-> Unknown],   \* the partition's state,
         replicas  |-> {},                      \* the assigned replicas,
         step      |-> 0,                       \* and of a reassignment: the next step,
         target    |-> {},                      \* the new replicas,
         leaving   |-> {}]                      \* and the replicas to remove

NoRole == [controllerEpoch |-> 0, leader |-> None, leaderEpoch |-> Unknown, isr |-> {}, version |-> Unknown]

Zombie(c) == controller[c].active /\ controller[c].epoch < election.epoch
LeadsByItself(b) == role[b].leader = b
Believed(c) == controller[c].partition
Works(c) == controller[c].active /\ controller[c].loaded

-----------------------------------------------------------------------------
(* Election of the controller *)

\* A candidate reads the controller epoch that it will increment.
ReadEpoch(c) ==
    /\ ~controller[c].active /\ ~controller[c].reads
    /\ controller' = [controller EXCEPT ![c] = [Idle EXCEPT !.reads = TRUE, !.epoch = election.epoch]]
    /\ UNCHANGED <<store, sent, role, replica, claims, elected>>

\* Writes node and next epoch in one conditional write; guard off: writes the epoch unconditionally (KAFKA-6082).
Claim(c) ==
    LET epoch == controller[c].epoch + 1 IN
    /\ controller[c].reads
    /\ election.node = None
    /\ ClaimCas => controller[c].epoch = election.epoch
    /\ election' = [node |-> c, epoch |-> epoch]
    /\ controller' = [controller EXCEPT ![c] = [Idle EXCEPT !.active = TRUE, !.epoch = epoch]]
    /\ claims' = claims \union {<<epoch, c>>}
    /\ UNCHANGED <<partition, assignment, live, brokerEpoch, sent, role, replica, elected>>

\* Another candidate was faster.
LoseClaim(c) ==
    /\ controller[c].reads
    /\ election.node # None \/ election.epoch # controller[c].epoch
    /\ controller' = [controller EXCEPT ![c] = Idle]
    /\ UNCHANGED <<store, sent, role, replica, claims, elected>>

\* The controller's session ends; it has not noticed that, or it has crashed.
LoseSession(c, crashes) ==
    /\ election.node = c
    /\ election' = [election EXCEPT !.node = None]
    /\ controller' = [controller EXCEPT ![c] = IF crashes THEN Idle ELSE @]
    /\ UNCHANGED <<partition, assignment, live, brokerEpoch, sent, role, replica, claims, elected>>

-----------------------------------------------------------------------------
(* What a controller reads, writes and sends *)

LeaderAndIsr(c, state) ==
    [type |-> "LeaderAndIsr", controllerEpoch |-> controller[c].epoch, brokerEpoch |-> brokerEpoch, to |-> controller[c].replicas,
     leader |-> state.leader, leaderEpoch |-> state.leaderEpoch, isr |-> state.isr, version |-> state.version]

StopReplica(c, brokers, deletes) ==
    [type |-> "StopReplica", controllerEpoch |-> controller[c].epoch, brokerEpoch |-> brokerEpoch, to |-> brokers,
     leaderEpoch |-> Believed(c).leaderEpoch, deletes |-> deletes]

\* Loads all state, and sends it to all replicas; but not for a topic being deleted, or brokers would create it again.
Load(c) ==
    /\ controller[c].active /\ ~controller[c].loaded
    /\ controller' = [controller EXCEPT ![c].loaded = TRUE, ![c].partition = partition, ![c].step = 0,
                                        ![c].replicas = assignment.replicas]
    /\ sent' = IF assignment.topic = "exists"
               THEN sent \union {[LeaderAndIsr(c, partition) EXCEPT !.to = assignment.replicas]} ELSE sent
    /\ UNCHANGED <<store, role, replica, claims, elected>>

\* A write carries the controller's epoch, and the version of the state that it read.
IsCurrent(c) == ControllerEpochCas => controller[c].epoch = election.epoch
IsFresh(c) == VersionCas => Believed(c).version = partition.version

\* The store accepts the new state, then brokers receive it; if it is rejected, the controller reads again, or resigns.
Write(c, leader, isr, step) ==
    LET bumped == Believed(c).leaderEpoch + IF BumpLeaderEpoch THEN 1 ELSE 0
        state == [leader |-> leader, leaderEpoch |-> bumped, isr |-> isr, version |-> partition.version + 1]
        told == LeaderAndIsr(c, state) IN
    IF IsCurrent(c) /\ IsFresh(c)
    THEN /\ partition' = state
         /\ elected' = elected \union {<<bumped, leader>>}
         /\ controller' = [controller EXCEPT ![c].partition = state, ![c].step = step]
         /\ sent' = sent \union {told}
    ELSE /\ controller' = [controller EXCEPT ![c] = IF IsCurrent(c) THEN [@ EXCEPT !.loaded = FALSE] ELSE Idle]
         /\ sent' = IF PersistBeforeSend THEN sent ELSE sent \union {told}
         /\ UNCHANGED <<partition, elected>>

\* The leader failed: a live member of the ISR is elected, or no broker leads.
ElectLeader(c, leader) ==
    /\ Works(c) /\ assignment.topic = "exists"
    /\ Believed(c).leader \notin live
    /\ IF Believed(c).isr \intersect live = {} THEN leader = None /\ Believed(c).leader # None
       ELSE leader \in Believed(c).isr \intersect live
    /\ Write(c, leader, IF leader = None THEN Believed(c).isr ELSE Believed(c).isr \intersect live, controller[c].step)
    /\ UNCHANGED <<election, assignment, live, brokerEpoch, role, replica, claims>>

\* The first replica becomes the leader again.
ElectPreferred(c) ==
    /\ Works(c) /\ assignment.target = {} /\ assignment.topic = "exists"
    /\ Believed(c).leader \notin {None, Preferred} /\ Preferred \in live \intersect assignment.replicas
    /\ PreferOnlyInSync => Preferred \in Believed(c).isr
    /\ Write(c, Preferred, Believed(c).isr \union {Preferred}, controller[c].step)
    /\ UNCHANGED <<election, assignment, live, brokerEpoch, role, replica, claims>>

-----------------------------------------------------------------------------
(* Brokers *)

\* Not from an older controller, not with an old broker epoch, and only with a newer state.
Accepts(b, request) ==
    /\ b \in live /\ b \in request.to
    /\ FenceStaleController => request.controllerEpoch >= role[b].controllerEpoch
    /\ FenceOldBrokerEpoch => request.brokerEpoch[b] = brokerEpoch[b]

ApplyLeaderAndIsr(b) ==
    \E request \in {each \in sent : each.type = "LeaderAndIsr"} :
        /\ Accepts(b, request)
        /\ FenceStaleLeaderAndIsr => request.leaderEpoch > role[b].leaderEpoch
        /\ request.leaderEpoch # role[b].leaderEpoch \/ request.version # role[b].version
        /\ role' = [role EXCEPT ![b] = [controllerEpoch |-> request.controllerEpoch, leader |-> request.leader,
                                        leaderEpoch |-> request.leaderEpoch, isr |-> request.isr,
                                        version |-> request.version]]
        /\ replica' = [replica EXCEPT ![b] = IF @ = "none" THEN "behind" ELSE @]
        /\ UNCHANGED <<store, controller, sent, claims, elected>>

\* The leader epoch shows whether the replica has been assigned to the broker again (KIP-570).
ApplyStopReplica(b) ==
    \E request \in {each \in sent : each.type = "StopReplica"} :
        /\ Accepts(b, request)
        /\ FenceStaleStopReplica => request.leaderEpoch >= role[b].leaderEpoch
        /\ role' = [role EXCEPT ![b].leader = None, ![b].isr = {}, ![b].controllerEpoch = request.controllerEpoch,
                                ![b].leaderEpoch = request.leaderEpoch]
        /\ replica' = [replica EXCEPT ![b] = IF request.deletes THEN "none" ELSE @]
        /\ <<role', replica'>> # <<role, replica>>
        /\ UNCHANGED <<store, controller, sent, claims, elected>>

Follows(b, l) == b # l /\ {b, l} \subseteq live /\ role[b].leader = l /\ LeadsByItself(l)
                 /\ role[b].leaderEpoch = role[l].leaderEpoch

CatchUp(b, l) ==
    /\ Follows(b, l) /\ replica[b] = "behind" /\ replica[l] = "all"
    /\ replica' = [replica EXCEPT ![b] = "all"]
    /\ UNCHANGED <<store, controller, sent, role, claims, elected>>

\* Every replica that the leader counts has the new record; every other replica now is behind.
Commit(l) ==
    /\ l \in live /\ LeadsByItself(l) /\ replica[l] = "all"
    /\ \A b \in role[l].isr \ {l} : Follows(b, l) /\ replica[b] = "all"
    /\ replica' = [b \in Brokers |-> IF b \notin role[l].isr \union {l} /\ replica[b] = "all" THEN "behind" ELSE replica[b]]
    /\ replica' # replica
    /\ UNCHANGED <<store, controller, sent, role, claims, elected>>

\* The leader itself writes the ISR, with the version that it knows.
LeaderChangeIsr(l, b) ==
    /\ l \in live /\ LeadsByItself(l) /\ l # b
    /\ IsrCas => role[l].version = partition.version
    /\ b \notin role[l].isr => Follows(b, l) /\ replica[b] = "all" /\ replica[l] = "all"
    /\ LET isr == IF b \in role[l].isr THEN role[l].isr \ {b} ELSE role[l].isr \union {b} IN
       /\ partition' = [leader |-> l, leaderEpoch |-> role[l].leaderEpoch, isr |-> isr, version |-> partition.version + 1]
       /\ role' = [role EXCEPT ![l].isr = isr, ![l].version = partition.version + 1]
    /\ UNCHANGED <<election, assignment, live, brokerEpoch, controller, sent, replica, claims, elected>>

\* A broker loses its session and its memory; its disk survives.
Crash(b) ==
    /\ b \in live
    /\ live' = live \ {b}
    /\ role' = [role EXCEPT ![b] = NoRole]
    /\ UNCHANGED <<election, partition, assignment, brokerEpoch, controller, sent, replica, claims, elected>>

Return(b) ==
    /\ b \notin live
    /\ live' = live \union {b}
    /\ brokerEpoch' = [brokerEpoch EXCEPT ![b] = @ + 1]
    /\ UNCHANGED <<election, partition, assignment, controller, sent, role, replica, claims, elected>>

\* The controller sees that a broker has restarted, and sends it the current state.
Welcome(c, b) ==
    /\ Works(c) /\ b \in live /\ assignment.topic = "exists" /\ b \in assignment.replicas
    /\ role[b] = NoRole
    /\ sent' = sent \union {LeaderAndIsr(c, Believed(c))}
    /\ sent' # sent
    /\ UNCHANGED <<store, controller, role, replica, claims, elected>>

-----------------------------------------------------------------------------
(* Reassignment, in eleven steps.  Only the store survives a controller: its successor starts again, and must complete it. *)

Target(c) == controller[c].target
Leaving(c) == controller[c].leaving

AskReassignment(target) ==
    /\ assignment.topic = "exists" /\ assignment.target = {} /\ target # assignment.replicas
    /\ assignment' = [assignment EXCEPT !.target = target]
    /\ UNCHANGED <<election, partition, live, brokerEpoch, controller, sent, role, replica, claims, elected>>

At(c, step) == Works(c) /\ controller[c].step = step
Step(c, step) == controller' = [controller EXCEPT ![c].step = step]

\* A write to another node of the store; a controller that is not current resigns.
WriteAssignment(c, value, step) ==
    IF IsCurrent(c)
    THEN assignment' = value /\ controller' = [controller EXCEPT ![c].step = step, ![c].replicas = value.replicas]
    ELSE controller' = [controller EXCEPT ![c] = Idle] /\ UNCHANGED assignment
Elsewhere == UNCHANGED <<election, partition, live, brokerEpoch, sent, role, replica, claims, elected>>

Begin(c) ==
    /\ At(c, 0)
    /\ assignment.target # {}
    /\ controller' = [controller EXCEPT ![c].step = 1, ![c].target = assignment.target,
                                        ![c].leaving = assignment.replicas \ assignment.target]
    /\ UNCHANGED <<store, sent, role, replica, claims, elected>>

\* 1: old and new replicas together.
AnnounceReplicas(c) ==
    /\ At(c, 1)
    /\ LET both == IF AnnounceBothReplicaSets THEN Leaving(c) \union Target(c) ELSE Target(c) IN
       WriteAssignment(c, [assignment EXCEPT !.replicas = both], 2)
    /\ Elsewhere

\* 2: a new leader epoch, so that all of them accept the request.
RaiseEpoch(c) ==
    /\ At(c, 2)
    /\ Write(c, Believed(c).leader, Believed(c).isr, 3)
    /\ UNCHANGED <<election, assignment, live, brokerEpoch, role, replica, claims>>

\* 3: the new replicas get the state NewReplica.
StartNewReplicas(c) == At(c, 3) /\ Step(c, 4) /\ UNCHANGED <<store, sent, role, replica, claims, elected>>

\* 4: wait until every new replica is in sync.
AwaitTarget(c) ==
    /\ At(c, 4)
    /\ AwaitTargetInSync => Target(c) \subseteq partition.isr
    /\ controller' = [controller EXCEPT ![c].step = 5, ![c].partition = partition]
    /\ UNCHANGED <<store, sent, role, replica, claims, elected>>

\* 5: the new replicas get the state OnlineReplica.
BringOnline(c) == At(c, 5) /\ Step(c, 6) /\ UNCHANGED <<store, sent, role, replica, claims, elected>>

\* 6: the cache, and so every request, contains only the new replicas; the store still has the old ones, so that a
\* successor knows which replicas to stop.
ReplaceCache(c) ==
    /\ At(c, 6)
    /\ IF PersistAssignmentLast
       THEN UNCHANGED assignment /\ controller' = [controller EXCEPT ![c].step = 7, ![c].replicas = Target(c)]
       ELSE WriteAssignment(c, [assignment EXCEPT !.replicas = Target(c)], 7)
    /\ Elsewhere

\* 7: a leader among the new replicas.
MoveLeader(c, leader) ==
    /\ At(c, 7)
    /\ IF Believed(c).leader \in Target(c) \intersect live \/ ~MoveLeaderToTarget THEN leader = Believed(c).leader
       ELSE leader \in Target(c) \intersect Believed(c).isr \intersect live
    /\ Write(c, leader, Believed(c).isr, 8)
    /\ UNCHANGED <<election, assignment, live, brokerEpoch, role, replica, claims>>

\* 8: the old replicas leave the ISR, and stop.
ShrinkToTarget(c) ==
    /\ At(c, 8)
    /\ Write(c, Believed(c).leader, IF ShrinkBeforeDelete THEN Believed(c).isr \intersect Target(c) ELSE Believed(c).isr, 9)
    /\ UNCHANGED <<election, assignment, live, brokerEpoch, role, replica, claims>>

\* 9: the data of the old replicas are deleted.
DeleteOldReplicas(c) ==
    /\ At(c, 9)
    /\ Step(c, 10)
    /\ sent' = sent \union {StopReplica(c, Leaving(c), TRUE)}
    /\ UNCHANGED <<store, role, replica, claims, elected>>

\* 10: the old replicas are removed from the store.
PersistAssignment(c) ==
    /\ At(c, 10)
    /\ WriteAssignment(c, [assignment EXCEPT !.replicas = Target(c)], 11)
    /\ Elsewhere

\* 11: done.
FinishReassignment(c) ==
    /\ At(c, 11)
    /\ WriteAssignment(c, [assignment EXCEPT !.target = {}], 0)
    /\ Elsewhere

-----------------------------------------------------------------------------
(* Deletion of the topic: halted while replicas are reassigned or their brokers are down, and resumed *)

AskDeletion ==
    /\ assignment.topic = "exists"
    /\ assignment' = [assignment EXCEPT !.topic = "deleting"]
    /\ UNCHANGED <<election, partition, live, brokerEpoch, controller, sent, role, replica, claims, elected>>

MayDelete(c) ==
    /\ Works(c) /\ assignment.topic = "deleting"
    /\ DeletionWaitsForReassignment => assignment.target = {}

DeleteReplicas(c) ==
    /\ MayDelete(c)
    /\ sent' = sent \union {StopReplica(c, assignment.replicas, TRUE)}
    /\ sent' # sent
    /\ UNCHANGED <<store, controller, role, replica, claims, elected>>

\* The broker answered this controller, and will reject requests that were sent before.
Deleted(c, b) ==
    /\ b \in live /\ replica[b] = "none"
    /\ role[b].controllerEpoch = controller[c].epoch /\ role[b].leaderEpoch >= Believed(c).leaderEpoch

\* When every replica is known to be deleted, the topic is removed from the store.
ForgetTopic(c) ==
    /\ MayDelete(c)
    /\ DeletionAwaitsReplicas => \A b \in assignment.replicas : Deleted(c, b)
    /\ WriteAssignment(c, [assignment EXCEPT !.topic = "gone"], controller[c].step)
    /\ Elsewhere

-----------------------------------------------------------------------------
Init ==
    /\ election = [node |-> None, epoch |-> 0]
    /\ partition = [leader |-> Preferred, leaderEpoch |-> 0, isr |-> Original, version |-> 0]
    /\ assignment = [replicas |-> Original, target |-> {}, topic |-> "exists"]
    /\ live = Brokers
    /\ brokerEpoch = [b \in Brokers |-> 0]
    /\ controller = [c \in Controllers |-> Idle]
    /\ sent = {}
    /\ role = [b \in Brokers |-> IF b \in Original THEN [NoRole EXCEPT !.leader = Preferred, !.leaderEpoch = 0, !.isr = Original,
                                                                        !.version = 0]
                                                                ELSE NoRole]
    /\ replica = [b \in Brokers |-> IF b \in Original THEN "all" ELSE "none"]
    /\ claims = {}
    /\ elected = {<<0, Preferred>>}

Reassign(c) ==
    \/ Begin(c) \/ AnnounceReplicas(c) \/ RaiseEpoch(c) \/ StartNewReplicas(c) \/ AwaitTarget(c) \/ BringOnline(c)
    \/ ReplaceCache(c) \/ \E leader \in Brokers : MoveLeader(c, leader)
    \/ ShrinkToTarget(c) \/ DeleteOldReplicas(c) \/ PersistAssignment(c) \/ FinishReassignment(c)

Next ==
    \/ \E c \in Controllers : ReadEpoch(c) \/ Claim(c) \/ LoseClaim(c) \/ Load(c) \/ ElectPreferred(c) \/ Reassign(c)
    \/ \E c \in Controllers, crashes \in BOOLEAN : LoseSession(c, crashes)
    \/ \E c \in Controllers, b \in Brokers \union {None} : ElectLeader(c, b)
    \/ \E c \in Controllers, b \in Brokers : Welcome(c, b)
    \/ \E b \in Brokers : ApplyLeaderAndIsr(b) \/ ApplyStopReplica(b) \/ Commit(b) \/ Crash(b) \/ Return(b)
    \/ \E l, b \in Brokers : CatchUp(b, l) \/ LeaderChangeIsr(l, b)
    \/ \E target \in SUBSET Brokers \ {{}} : AskReassignment(target)
    \/ AskDeletion
    \/ \E c \in Controllers : DeleteReplicas(c) \/ ForgetTopic(c)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* What holds *)

Epochs == Nat \union {Unknown}
TypeOK ==
    /\ election \in [node : Controllers \union {None}, epoch : Nat]
    /\ partition \in [leader : Brokers \union {None}, leaderEpoch : Nat, isr : SUBSET Brokers, version : Nat]
    /\ assignment \in [replicas : SUBSET Brokers, target : SUBSET Brokers, topic : {"exists", "deleting", "gone"}]
    /\ live \subseteq Brokers /\ brokerEpoch \in [Brokers -> Nat]
    /\ \A c \in Controllers :
          /\ {controller[c].active, controller[c].reads, controller[c].loaded} \subseteq BOOLEAN
          /\ controller[c].epoch \in Nat /\ controller[c].step \in 0 .. 11
          /\ {controller[c].replicas, controller[c].target, controller[c].leaving} \subseteq SUBSET Brokers
    /\ \A request \in sent :
          /\ request.type \in {"LeaderAndIsr", "StopReplica"} /\ request.to \subseteq Brokers
          /\ request.controllerEpoch \in Nat /\ request.leaderEpoch \in Nat /\ request.brokerEpoch \in [Brokers -> Nat]
    /\ role \in [Brokers -> [controllerEpoch : Nat, leader : Brokers \union {None}, leaderEpoch : Epochs,
                             isr : SUBSET Brokers, version : Epochs]]
    /\ replica \in [Brokers -> {"all", "behind", "none"}]

\* Every claim has its own controller epoch.
OneControllerPerEpoch == Cardinality({claim[1] : claim \in claims}) = Cardinality(claims)

\* A leader epoch belongs to one leader, in the store ...
OneLeaderPerEpoch == Cardinality({choice[1] : choice \in elected}) = Cardinality(elected)

\* ... and on the brokers.
BrokersAgree == \A a, b \in Brokers :
    LeadsByItself(a) /\ LeadsByItself(b) /\ role[a].leaderEpoch = role[b].leaderEpoch => a = b

\* No broker is ahead of the store.
BrokersNotAhead == \A b \in Brokers :
    role[b].leaderEpoch <= partition.leaderEpoch /\ role[b].controllerEpoch <= election.epoch

\* Every member of the ISR has every committed record, while the topic exists.
IsrHoldsAll == assignment.topic = "exists" => \A b \in partition.isr : replica[b] = "all"

\* The leader is one of the assigned replicas, unless a reassignment is in progress.
LeaderIsAssigned ==
    assignment.target = {} /\ assignment.topic = "exists" => partition.leader \in assignment.replicas \union {None}

\* After a reassignment, any other broker with a replica was sent a request to delete it; it may be down or receive it
\* late.
NoOrphans == assignment.target = {} => \A b \in Brokers \ assignment.replicas :
    replica[b] # "none" => \E request \in sent : request.type = "StopReplica" /\ request.deletes /\ b \in request.to

\* When the topic is gone, its replicas are gone.
NothingLeft == assignment.topic = "gone" => \A b \in assignment.replicas : replica[b] = "none"

\* A controller that was replaced changes nothing in the store.
ZombiesWriteNothing ==
    [][\A c \in Controllers : Zombie(c) /\ controller'[c] # controller[c] => UNCHANGED <<partition, assignment>>]_vars

\* Until it restarts, a broker's epochs never decrease.
BrokersGoForward ==
    [][\A b \in Brokers : b \in live /\ b \in live' =>
          role'[b].leaderEpoch >= role[b].leaderEpoch /\ role'[b].controllerEpoch >= role[b].controllerEpoch]_vars

\* A broker with a newer state remembers which controller it is from: by that it refuses older ones.
BrokersKnowTheirController ==
    [][\A b \in live \intersect live' : role'[b].leaderEpoch > role[b].leaderEpoch =>
          \E request \in sent : /\ b \in request.to /\ request.leaderEpoch = role'[b].leaderEpoch
                                /\ request.controllerEpoch = role'[b].controllerEpoch]_vars

-----------------------------------------------------------------------------
(* The promises of the protocol: README.md says how each is checked, and within which bounds *)

Protocol == Spec /\ GuardsOff = {}

THEOREM Protocol => []TypeOK
THEOREM Protocol => []OneControllerPerEpoch
THEOREM Protocol => []OneLeaderPerEpoch
THEOREM Protocol => []BrokersAgree
THEOREM Protocol => []BrokersNotAhead
THEOREM Protocol => []IsrHoldsAll
THEOREM Protocol => []LeaderIsAssigned
THEOREM Protocol => []NoOrphans
THEOREM Protocol => []NothingLeft
THEOREM Protocol => ZombiesWriteNothing
THEOREM Protocol => BrokersGoForward
THEOREM Protocol => BrokersKnowTheirController
=============================================================================
