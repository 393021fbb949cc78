------------------------- MODULE ControllerFailover -------------------------
(***************************************************************************)
(* One controller at a time decides for a partition: who leads it, where   *)
(* its replicas are, that it goes away.  Controllers are elected through a *)
(* store with conditional writes (ZooKeeper) and may be replaced at any    *)
(* moment without noticing: a zombie goes on writing and sending.          *)
(*                                                                         *)
(* Underneath: brokers that hear of decisions late, doubled, in any order, *)
(* and restart; the leader's own writes of the ISR; reassignment in its    *)
(* eleven steps, each of which a controller may not survive; election of   *)
(* the preferred replica; deletion of the topic, which waits for brokers   *)
(* that are down.                                                          *)
(*                                                                         *)
(* Whatever is sent stays on its way for good: a message may arrive late,  *)
(* twice, or never.  Guards: spec/guards.toml.                             *)
(***************************************************************************)
EXTENDS Integers, FiniteSets

CONSTANTS
    Controllers,    \* brokers that may become controller
    Brokers,        \* brokers that may hold a replica
    Original,       \* the replicas that the partition begins with
    Preferred,      \* the first of them
    None            \* nobody

CONSTANTS
    ClaimCas, ControllerEpochCas, VersionCas, IsrCas,
    PersistBeforeSend, BumpLeaderEpoch,
    FenceStaleController, FenceStaleLeaderAndIsr, FenceOldBrokerEpoch, FenceStaleStopReplica,
    PreferOnlyInSync,
    AnnounceBothReplicaSets, AwaitTargetInSync, MoveLeaderToTarget, ShrinkBeforeDelete, PersistAssignmentLast,
    DeletionAwaitsReplicas, DeletionWaitsForReassignment

ASSUME {ClaimCas, ControllerEpochCas, VersionCas, IsrCas, PersistBeforeSend, BumpLeaderEpoch, FenceStaleController,
        FenceStaleLeaderAndIsr, FenceOldBrokerEpoch, FenceStaleStopReplica, PreferOnlyInSync, AnnounceBothReplicaSets,
        AwaitTargetInSync, MoveLeaderToTarget, ShrinkBeforeDelete, PersistAssignmentLast, DeletionAwaitsReplicas,
        DeletionWaitsForReassignment} \subseteq BOOLEAN

VARIABLE election       \* in the store: the controller's ephemeral node, and the epoch that every claim raises
VARIABLE partition      \* in the store: leader, leaderEpoch, isr, and the node's version
VARIABLE assignment     \* in the store: the assigned replicas, where they are to move ({}: nowhere), and whether the topic
                        \* exists, is to be deleted, or is gone
VARIABLE live           \* brokers that have a session
VARIABLE brokerEpoch    \* of a broker: how often it has registered anew (KIP-380)
store == <<election, partition, assignment, live, brokerEpoch>>

VARIABLE controller     \* of a controller: what it believes (see Idle)
VARIABLE sent           \* LeaderAndIsr and StopReplica requests, to all brokers that they concern
VARIABLE role           \* of a broker: what the last request made of it (see NoRole)
VARIABLE replica        \* of a broker: it holds "all" that was committed, is "behind", or has "none"

VARIABLE claims         \* history: who claimed which controller epoch
VARIABLE elected        \* history: who was made leader in which leader epoch

vars == <<store, controller, sent, role, replica, claims, elected>>

-----------------------------------------------------------------------------
(* Words *)

Unknown == -1

Idle == [active    |-> FALSE,                   \* it takes itself for the controller
         reads     |-> FALSE,                   \* it is about to claim the epoch after
         epoch     |-> 0,                       \* this one; once active, its own
         loaded    |-> FALSE,                   \* it has read
         partition |-> [version |-> Unknown],   \* the partition's state,
         replicas  |-> {},                      \* who is assigned,
         step      |-> 0,                       \* and, of a reassignment: the step that comes next,
         target    |-> {},                      \* where replicas are to move,
         leaving   |-> {}]                      \* and which go

NoRole == [controllerEpoch |-> 0, leader |-> None, leaderEpoch |-> Unknown, isr |-> {}, version |-> Unknown]

Zombie(c) == controller[c].active /\ controller[c].epoch < election.epoch
LeadsByItself(b) == role[b].leader = b
Believed(c) == controller[c].partition
Works(c) == controller[c].active /\ controller[c].loaded

-----------------------------------------------------------------------------
(* Who is controller *)

\* It wants to be, and looks which epoch to raise.
ReadEpoch(c) ==
    /\ ~controller[c].active /\ ~controller[c].reads
    /\ controller' = [controller EXCEPT ![c] = [Idle EXCEPT !.reads = TRUE, !.epoch = election.epoch]]
    /\ UNCHANGED <<store, sent, role, replica, claims, elected>>

\* The node and the next epoch in one conditional write; off: the epoch is written unconditionally (KAFKA-6082).
Claim(c) ==
    LET epoch == controller[c].epoch + 1 IN
    /\ controller[c].reads
    /\ election.node = None
    /\ ClaimCas => controller[c].epoch = election.epoch
    /\ election' = [node |-> c, epoch |-> epoch]
    /\ controller' = [controller EXCEPT ![c] = [Idle EXCEPT !.active = TRUE, !.epoch = epoch]]
    /\ claims' = claims \union {<<epoch, c>>}
    /\ UNCHANGED <<partition, assignment, live, brokerEpoch, sent, role, replica, elected>>

\* Another was faster.
LoseClaim(c) ==
    /\ controller[c].reads
    /\ election.node # None \/ election.epoch # controller[c].epoch
    /\ controller' = [controller EXCEPT ![c] = Idle]
    /\ UNCHANGED <<store, sent, role, replica, claims, elected>>

\* Its session is over; it has not noticed, or it is dead.
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

\* It loads everything, and tells everybody; but nothing of what is to be deleted, or it would come back.
Load(c) ==
    /\ controller[c].active /\ ~controller[c].loaded
    /\ controller' = [controller EXCEPT ![c].loaded = TRUE, ![c].partition = partition, ![c].step = 0,
                                        ![c].replicas = assignment.replicas]
    /\ sent' = IF assignment.topic = "exists"
               THEN sent \union {[LeaderAndIsr(c, partition) EXCEPT !.to = assignment.replicas]} ELSE sent
    /\ UNCHANGED <<store, role, replica, claims, elected>>

\* A write carries the controller's epoch, and the version of what it read.
IsCurrent(c) == ControllerEpochCas => controller[c].epoch = election.epoch
IsFresh(c) == VersionCas => Believed(c).version = partition.version

\* The store takes the new state, then brokers hear of it; refused, the controller reads again, or resigns.
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

\* The leader is gone: a live member of the ISR leads, or nobody does.
ElectLeader(c, leader) ==
    /\ Works(c) /\ assignment.topic = "exists"
    /\ Believed(c).leader \notin live
    /\ IF Believed(c).isr \intersect live = {} THEN leader = None /\ Believed(c).leader # None
       ELSE leader \in Believed(c).isr \intersect live
    /\ Write(c, leader, IF leader = None THEN Believed(c).isr ELSE Believed(c).isr \intersect live, controller[c].step)
    /\ UNCHANGED <<election, assignment, live, brokerEpoch, role, replica, claims>>

\* Leadership goes back to the first replica.
ElectPreferred(c) ==
    /\ Works(c) /\ assignment.target = {} /\ assignment.topic = "exists"
    /\ Believed(c).leader \notin {None, Preferred} /\ Preferred \in live \intersect assignment.replicas
    /\ PreferOnlyInSync => Preferred \in Believed(c).isr
    /\ Write(c, Preferred, Believed(c).isr \union {Preferred}, controller[c].step)
    /\ UNCHANGED <<election, assignment, live, brokerEpoch, role, replica, claims>>

-----------------------------------------------------------------------------
(* Brokers *)

\* Not of an older controller, not for a former life, and only forward.
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

\* The leader epoch tells whether the broker has got the replica back since (KIP-570).
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

\* Everybody whom the leader counts has a new record; whoever else had all has it no more.
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

\* It loses its session, and all that it was; its disk stays.
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

\* The controller sees that a broker is back, and tells it what it is.
Welcome(c, b) ==
    /\ Works(c) /\ b \in live /\ assignment.topic = "exists" /\ b \in assignment.replicas
    /\ role[b] = NoRole
    /\ sent' = sent \union {LeaderAndIsr(c, Believed(c))}
    /\ sent' # sent
    /\ UNCHANGED <<store, controller, role, replica, claims, elected>>

-----------------------------------------------------------------------------
(* Reassignment, in eleven steps.  Only the store survives a controller: its successor begins anew, and must end well. *)

Target(c) == controller[c].target
Leaving(c) == controller[c].leaving

AskReassignment(target) ==
    /\ assignment.topic = "exists" /\ assignment.target = {} /\ target # assignment.replicas
    /\ assignment' = [assignment EXCEPT !.target = target]
    /\ UNCHANGED <<election, partition, live, brokerEpoch, controller, sent, role, replica, claims, elected>>

At(c, step) == Works(c) /\ controller[c].step = step
Step(c, step) == controller' = [controller EXCEPT ![c].step = step]

\* A write elsewhere in the store; a controller that is not current resigns.
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

\* 2: a new leader epoch, so that all of them listen.
RaiseEpoch(c) ==
    /\ At(c, 2)
    /\ Write(c, Believed(c).leader, Believed(c).isr, 3)
    /\ UNCHANGED <<election, assignment, live, brokerEpoch, role, replica, claims>>

\* 3: the new ones are NewReplica.
StartNewReplicas(c) == At(c, 3) /\ Step(c, 4) /\ UNCHANGED <<store, sent, role, replica, claims, elected>>

\* 4: until every one of them is in sync.
AwaitTarget(c) ==
    /\ At(c, 4)
    /\ AwaitTargetInSync => Target(c) \subseteq partition.isr
    /\ controller' = [controller EXCEPT ![c].step = 5, ![c].partition = partition]
    /\ UNCHANGED <<store, sent, role, replica, claims, elected>>

\* 5: all new ones are OnlineReplica.
BringOnline(c) == At(c, 5) /\ Step(c, 6) /\ UNCHANGED <<store, sent, role, replica, claims, elected>>

\* 6: the cache, and so whatever is sent, names them alone; not yet the store, or a successor would not know whom to stop.
ReplaceCache(c) ==
    /\ At(c, 6)
    /\ IF PersistAssignmentLast
       THEN UNCHANGED assignment /\ controller' = [controller EXCEPT ![c].step = 7, ![c].replicas = Target(c)]
       ELSE WriteAssignment(c, [assignment EXCEPT !.replicas = Target(c)], 7)
    /\ Elsewhere

\* 7: a leader among them.
MoveLeader(c, leader) ==
    /\ At(c, 7)
    /\ IF Believed(c).leader \in Target(c) \intersect live \/ ~MoveLeaderToTarget THEN leader = Believed(c).leader
       ELSE leader \in Target(c) \intersect Believed(c).isr \intersect live
    /\ Write(c, leader, Believed(c).isr, 8)
    /\ UNCHANGED <<election, assignment, live, brokerEpoch, role, replica, claims>>

\* 8: the old ones leave the ISR, and stop.
ShrinkToTarget(c) ==
    /\ At(c, 8)
    /\ Write(c, Believed(c).leader, IF ShrinkBeforeDelete THEN Believed(c).isr \intersect Target(c) ELSE Believed(c).isr, 9)
    /\ UNCHANGED <<election, assignment, live, brokerEpoch, role, replica, claims>>

\* 9: their data go.
DeleteOldReplicas(c) ==
    /\ At(c, 9)
    /\ Step(c, 10)
    /\ sent' = sent \union {StopReplica(c, Leaving(c), TRUE)}
    /\ UNCHANGED <<store, role, replica, claims, elected>>

\* 10: now the store forgets the old ones.
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
(* Deletion of the topic: halted while replicas move or their brokers are down, and resumed *)

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

\* It answered this controller, and will not take up again what was sent before.
Deleted(c, b) ==
    /\ b \in live /\ replica[b] = "none"
    /\ role[b].controllerEpoch = controller[c].epoch /\ role[b].leaderEpoch >= Believed(c).leaderEpoch

\* When every replica is known to be gone, the names go.
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

\* Every claim has an epoch of its own.
OneControllerPerEpoch == \A one, other \in claims : one[1] = other[1] => one = other

\* A leader epoch belongs to one leader, in the store ...
OneLeaderPerEpoch == \A one, other \in elected : one[1] = other[1] => one = other

\* ... and on the brokers.
BrokersAgree == \A a, b \in Brokers :
    LeadsByItself(a) /\ LeadsByItself(b) /\ role[a].leaderEpoch = role[b].leaderEpoch => a = b

\* No broker is ahead of the store.
BrokersNotAhead == \A b \in Brokers :
    role[b].leaderEpoch <= partition.leaderEpoch /\ role[b].controllerEpoch <= election.epoch

\* Whoever is in the ISR has all that was committed, while the topic is there.
IsrHoldsAll == assignment.topic = "exists" => \A b \in partition.isr : replica[b] = "all"

\* The leader is one of the assigned, once nothing moves.
LeaderIsAssigned ==
    assignment.target = {} /\ assignment.topic = "exists" => partition.leader \in assignment.replicas \union {None}

\* When nothing moves any more, whoever else has a replica was told to delete it; it may be down, or hear of it late.
NoOrphans == assignment.target = {} => \A b \in Brokers \ assignment.replicas :
    replica[b] # "none" => \E request \in sent : request.type = "StopReplica" /\ request.deletes /\ b \in request.to

\* When the topic is gone, its replicas are.
NothingLeft == assignment.topic = "gone" => \A b \in assignment.replicas : replica[b] = "none"

\* A controller that was replaced changes nothing in the store.
ZombiesWriteNothing ==
    [][\A c \in Controllers : Zombie(c) /\ controller'[c] # controller[c] => UNCHANGED <<partition, assignment>>]_vars

\* A broker goes forward only, in one life.
BrokersGoForward ==
    [][\A b \in Brokers : b \in live /\ b \in live' =>
          role'[b].leaderEpoch >= role[b].leaderEpoch /\ role'[b].controllerEpoch >= role[b].controllerEpoch]_vars
=============================================================================
