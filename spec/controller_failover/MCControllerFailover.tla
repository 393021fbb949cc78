------------------------ MODULE MCControllerFailover ------------------------
(* ControllerFailover, bounded so that TLC can explore every state. *)
EXTENDS ControllerFailover, TLC

CONSTANTS MaxControllerEpoch, MaxLeaderEpoch, MaxVersion, MaxCrashes, MaxIsrChanges, Zombies, Late, Targets, Deletes

Bounded == partition'.leaderEpoch <= MaxLeaderEpoch /\ partition'.version <= MaxVersion
Crashes == Cardinality({<<b, n>> \in Brokers \X (1 .. MaxCrashes) : n <= brokerEpoch[b] + IF b \in live THEN 0 ELSE 1})
IsrChanges == partition.version - partition.leaderEpoch

MCReadEpoch(c) == (Zombies \/ election.node = None) /\ election.epoch < MaxControllerEpoch /\ ReadEpoch(c)
\* The last controller keeps its session; otherwise eventually there would be no leader.
MCLoseSession(c, crashes) ==
    (crashes \/ Zombies) /\ election.epoch < MaxControllerEpoch /\ LoseSession(c, crashes)
MCElectLeader(c, b) == ElectLeader(c, b) /\ Bounded
MCElectPreferred(c) == ElectPreferred(c) /\ Bounded
MCLeaderChangeIsr(l, b) == IsrChanges < MaxIsrChanges /\ LeaderChangeIsr(l, b) /\ Bounded
MCApplyLeaderAndIsr(b) == ApplyLeaderAndIsr(b) /\ (Late \/ role'[b].version = partition.version)
MCCrash(b) == Crashes < MaxCrashes /\ Crash(b)
MCAskReassignment(target) == (sent = {} \/ assignment.replicas # Original) /\ AskReassignment(target)
MCAskDeletion == Deletes /\ AskDeletion
MCRaiseEpoch(c) == RaiseEpoch(c) /\ Bounded
MCMoveLeader(c, b) == MoveLeader(c, b) /\ Bounded
MCShrinkToTarget(c) == ShrinkToTarget(c) /\ Bounded

MCNext ==
    \/ \E c \in Controllers : MCReadEpoch(c) \/ Claim(c) \/ LoseClaim(c) \/ Load(c) \/ MCElectPreferred(c)
    \/ \E c \in Controllers, crashes \in BOOLEAN : MCLoseSession(c, crashes)
    \/ \E c \in Controllers, b \in Brokers \union {None} : MCElectLeader(c, b)
    \/ \E c \in Controllers, b \in Brokers : Welcome(c, b) \/ MCMoveLeader(c, b)
    \/ \E b \in Brokers : MCApplyLeaderAndIsr(b) \/ ApplyStopReplica(b) \/ Commit(b) \/ MCCrash(b) \/ Return(b)
    \/ \E l, b \in Brokers : CatchUp(b, l) \/ MCLeaderChangeIsr(l, b)
    \/ \E c \in Controllers : Begin(c) \/ AnnounceReplicas(c) \/ MCRaiseEpoch(c) \/ StartNewReplicas(c) \/ AwaitTarget(c)
    \/ \E c \in Controllers : BringOnline(c) \/ ReplaceCache(c) \/ MCShrinkToTarget(c) \/ DeleteOldReplicas(c)
    \/ \E c \in Controllers : PersistAssignment(c) \/ FinishReassignment(c) \/ DeleteReplicas(c) \/ ForgetTopic(c)
    \/ \E target \in Targets : MCAskReassignment(target)
    \/ MCAskDeletion

Symmetry == Permutations(Controllers)

MCSpec == Init /\ [][MCNext]_vars

-----------------------------------------------------------------------------
(* Liveness: if controllers keep their sessions and brokers stay up, the partition has a leader that knows its role, a
   reassignment completes, and a topic deletion completes.  Each step that a controller or broker takes by itself must
   happen if it stays enabled (weak fairness); Welcome sends again what a restarted broker missed.  A leader must add a
   follower that catches up repeatedly (strong fairness: new records make it lag in between).  Crashes, lost sessions,
   requests of administrators, and shrinking the ISR are not forced. *)

Expand(l, b) == b \notin role[l].isr /\ MCLeaderChangeIsr(l, b)
LiveSpec ==
    /\ MCSpec
    /\ \A c \in Controllers :
          /\ WF_vars(MCReadEpoch(c)) /\ WF_vars(Claim(c)) /\ WF_vars(LoseClaim(c)) /\ WF_vars(Load(c))
          /\ WF_vars(\E b \in Brokers \union {None} : MCElectLeader(c, b))
          /\ WF_vars(\E b \in Brokers : Welcome(c, b))
          /\ WF_vars(Begin(c) \/ AnnounceReplicas(c) \/ MCRaiseEpoch(c) \/ StartNewReplicas(c) \/ AwaitTarget(c))
          /\ WF_vars(BringOnline(c) \/ ReplaceCache(c) \/ (\E b \in Brokers : MCMoveLeader(c, b)) \/ MCShrinkToTarget(c))
          /\ WF_vars(DeleteOldReplicas(c) \/ PersistAssignment(c) \/ FinishReassignment(c))
          /\ WF_vars(DeleteReplicas(c)) /\ WF_vars(ForgetTopic(c))
    /\ \A b \in Brokers :
          /\ WF_vars(Return(b)) /\ WF_vars(MCApplyLeaderAndIsr(b)) /\ WF_vars(ApplyStopReplica(b))
          /\ \A l \in Brokers : WF_vars(CatchUp(b, l)) /\ SF_vars(Expand(l, b))

Led == partition.leader \in live /\ LeadsByItself(partition.leader)
LedInTheEnd == <>[](assignment.topic = "exists" => Led)
DeletedInTheEnd == (assignment.topic = "deleting") ~> (assignment.topic = "gone")
MovedInTheEnd == (assignment.target # {}) ~> (assignment.target = {})

-----------------------------------------------------------------------------
(* Situations that must be reachable; otherwise the claims would hold vacuously *)

TwoActive == Cardinality({c \in Controllers : controller[c].active}) > 1
ZombieController == \E c \in Controllers : Zombie(c)
Leaderless == partition.leader = None
ZombieLeader == \E b \in Brokers : LeadsByItself(b) /\ role[b].leaderEpoch < partition.leaderEpoch
LateMessage == \E m \in sent : \E b \in m.to : m.brokerEpoch[b] < brokerEpoch[b]
SuccessorTakesOver == \E c \in Controllers : controller[c].step > 0 /\ election.epoch > 1
TargetLeftIsr == \E c \in Controllers : controller[c].step = 8 /\ ~(controller[c].target \subseteq partition.isr)
ControllerDied == election.node = None /\ election.epoch > 0 /\ \A c \in Controllers : ~controller[c].active
Moved == assignment.replicas # Original /\ assignment.target = {}
HaltedDeletion == assignment.topic = "deleting" /\ assignment.replicas \ live # {}
DeletedTopic == assignment.topic = "gone"
=============================================================================
