---------------------- MODULE TraceControllerFailover ----------------------
(***************************************************************************)
(* Checks whether the trace of a partition's brokers and of the            *)
(* controllers is a behaviour of ControllerFailover. Each line contains    *)
(* the action, the choices made and values after the step; the spec must   *)
(* have such a step. trace.toml defines the fields of a line.              *)
(*                                                                         *)
(* Sessions, reads and requests are not traced. So a controller may read   *)
(* at any time, a session may have ended, and a request with any state     *)
(* that a controller knew may be in flight to any broker; but only a state *)
(* that the store has held, under a controller epoch that was claimed no   *)
(* earlier than the state was written.                                     *)
(***************************************************************************)
EXTENDS ControllerFailover, Sequences, TLC

CONSTANTS Logged(_),      \* a line of the trace: <<action, node, unused, ...>>
          Length,       \* how many lines there are
          ShownLine     \* print the state before this one (0: none)

VARIABLES
    line,               \* the next line to explain
    written             \* every state of the partition, oldest first, and the controller epoch under which it was written

Lines(action) == {n \in 1 .. Length : Logged(n)[1] = action}
First(S) == CHOOSE n \in S : \A m \in S : n <= m
Creation == First(Lines("ElectLeader") \union {Length + 1})
TraceNone == -1
TraceOriginal == IF Creation > Length THEN {} ELSE Logged(Creation)[6]
TracePreferred == IF Creation > Length THEN TraceNone ELSE Logged(Creation)[4]

Writes == {"ElectLeader", "ControllerShrinkIsr"}
Heard == {"BecomeLeader", "BecomeFollower"}
Written(state) == [state |-> state, controllerEpoch |-> election.epoch]

-----------------------------------------------------------------------------
(* Controllers *)

\* Epochs only increase, with gaps: a claim whose reply was lost has no line.  Or the controller resumes the same term.
IsClaim(c, epoch) ==
    /\ \/ epoch > election.epoch
       \/ epoch = election.epoch /\ election.node = c
    /\ election' = [node |-> c, epoch |-> epoch]
    /\ controller' = [controller EXCEPT ![c] = [Idle EXCEPT !.active = TRUE, !.epoch = epoch, !.loaded = TRUE,
                                                            !.partition = partition, !.replicas = Brokers]]
    /\ claims' = claims \union {<<epoch, c>>}
    /\ UNCHANGED <<partition, assignment, live, brokerEpoch, sent, role, replica, elected, written>>

\* The controller has read the state in the store.
Read ==
    LET c == Logged(line)[2] IN
    /\ Logged(line)[1] \in Writes /\ line # Creation /\ c \in Controllers
    /\ controller[c].active /\ Believed(c) # partition
    /\ controller' = [controller EXCEPT ![c].partition = partition]
    /\ UNCHANGED <<store, sent, role, replica, claims, elected, line, written>>

\* A member that restarted uncleanly, and has not led since.
RestartedUncleanly(b) ==
    \E n \in Lines("Restart") :
        /\ n < line /\ Logged(n)[2] = b /\ ~Logged(n)[4]
        /\ \A m \in n + 1 .. line - 1 : Logged(m)[1] \in Writes \union {"LeaderChangeIsr"} => Logged(m)[4] # b

\* If all members restarted uncleanly, the broker that led last is elected (KIP-966).  The module has no such election,
\* because disks survive there.  The metadata log has named it as the last known leader.
Led == {i \in 1 .. Len(written) : written[i].state.leader # None}
LastKnown(leader) ==
    /\ partition.leader = None /\ \A b \in partition.isr : RestartedUncleanly(b)
    /\ \E i \in Led : written[i].state.leader = leader /\ \A later \in Led : later <= i

IsWrite(c, leader, epoch, isr, version, lastKnown) ==
    /\ Works(c) /\ IsCurrent(c) /\ IsFresh(c)
    /\ leader \in isr \union {None}
    /\ isr \subseteq partition.isr \/ (lastKnown /\ LastKnown(leader) /\ isr = {leader})
    /\ Write(c, leader, isr, controller[c].step)
    /\ partition' = [leader |-> leader, leaderEpoch |-> epoch, isr |-> isr, version |-> version]
    /\ written' = Append(written, Written(partition'))
    /\ UNCHANGED <<election, assignment, live, brokerEpoch, role, replica, claims>>

IsElectLeader(c, leader, epoch, isr, version, lastKnown) ==
    IF line = Creation THEN controller[c].active /\ epoch = 0 /\ version = 0 /\ UNCHANGED <<vars, written>>
    ELSE IsWrite(c, leader, epoch, isr, version, lastKnown)

\* KRaft since 3.6: without a leader, a broker that restarted uncleanly leaves the ISR in the same leader epoch.
ShrinkInEpoch(isr, version) ==
    /\ isr \subseteq partition.isr /\ version = partition.version + 1
    /\ partition' = [partition EXCEPT !.isr = isr, !.version = version]
    /\ written' = Append(written, Written(partition'))
    /\ UNCHANGED <<election, assignment, live, brokerEpoch, controller, sent, role, replica, claims, elected>>

IsControllerShrinkIsr(c, leader, epoch, isr, version) ==
    /\ leader = partition.leader /\ isr # partition.isr
    /\ IF leader = None /\ epoch = partition.leaderEpoch THEN ShrinkInEpoch(isr, version)
       ELSE IsWrite(c, leader, epoch, isr, version, FALSE)

\* The leader's own write: only the ISR changes, and it contains the leader.
IsLeaderChangeIsr(leader, epoch, isr, version) ==
    /\ leader = partition.leader /\ epoch = partition.leaderEpoch /\ version = partition.version + 1
    /\ leader \in isr /\ isr # partition.isr
    /\ partition' = [partition EXCEPT !.isr = isr, !.version = version]
    /\ written' = Append(written, Written(partition'))
    /\ UNCHANGED <<election, assignment, live, brokerEpoch, controller, sent, role, replica, claims, elected>>

-----------------------------------------------------------------------------
(* Reassignment *)

\* Steps are in order, and start again after a failover or for another target.
IsReassignmentStep(c, step, target) ==
    /\ controller[c].active
    /\ \/ step = 1
       \/ step = controller[c].step + 1 /\ target = controller[c].target
    /\ step = 4 => \E i \in 1 .. Len(written) : target \subseteq written[i].state.isr
    /\ step = 7 => partition.leader \in target \union {None}
    /\ step = 8 => partition.isr \subseteq target \/ ~IsCurrent(c)
    /\ controller' = [controller EXCEPT ![c].step = step, ![c].target = target]
    /\ UNCHANGED <<store, sent, role, replica, claims, elected, written>>

\* The last step only informs brokers: when it is done, another reassignment may have begun.
IsLateLastStep(c, step, target) ==
    /\ step = 11 /\ target # controller[c].target
    /\ \E n \in 1 .. line - 1 :
          LET s == Logged(n) IN s[1] = "ReassignmentStep" /\ s[2] = c /\ s[4] = 10 /\ s[5] = target
    /\ UNCHANGED <<vars, written>>

-----------------------------------------------------------------------------
(* Brokers *)

Asks(s) == [type |-> "LeaderAndIsr", controllerEpoch |-> s[5], brokerEpoch |-> brokerEpoch, to |-> Brokers,
            leaderEpoch |-> s[4], version |-> s[6]]
Told(s) == {w \in {written[i] : i \in 1 .. Len(written)} : w.state.leaderEpoch = s[4] /\ w.state.version = s[6]}

\* A request arrives that matches the one applied in the next line.
Arrive ==
    LET s == Logged(line) IN
    /\ s[1] \in Heard /\ s[2] \in Brokers
    /\ \E claim \in claims : claim[1] = s[5]
    /\ \E w \in Told(s) :
          LET request == Asks(s) @@ [leader |-> w.state.leader, isr |-> w.state.isr] IN
          /\ w.controllerEpoch <= s[5]
          /\ sent # {request} /\ sent' = {request}
    /\ UNCHANGED <<store, controller, role, replica, claims, elected, line, written>>

Follow(b, s) ==
    /\ \E request \in sent : request.leaderEpoch = s[4] /\ request.controllerEpoch = s[5] /\ request.version = s[6]
    /\ ApplyLeaderAndIsr(b)
    /\ UNCHANGED written

IsBecomeLeader(b, s) == Follow(b, s) /\ role'[b].leader = b /\ role'[b].isr = s[7]
IsBecomeFollower(b, s) == Follow(b, s) /\ role'[b].leader = s[7] /\ s[7] # b

\* The process is gone; but if it was controller, the store may still receive its requests.
IsCrash(b) ==
    /\ IF b \in live THEN live' = live \ {b} /\ role' = [role EXCEPT ![b] = NoRole] ELSE UNCHANGED <<live, role>>
    /\ UNCHANGED <<election, partition, assignment, brokerEpoch, controller, sent, replica, claims, elected, written>>

\* Or a replica is created again, on a broker that had none or that received a StopReplica with deletion.
IsRestart(b) ==
    /\ IF b \notin live THEN Return(b)
       ELSE /\ b \notin partition.isr
            /\ role' = [role EXCEPT ![b] = NoRole]
            /\ UNCHANGED <<store, controller, sent, replica, claims, elected>>
    /\ UNCHANGED written

-----------------------------------------------------------------------------
Explained(s) ==
    CASE s[1] = "Claim"               -> IsClaim(s[2], s[4])
      [] s[1] = "ElectLeader"         -> IsElectLeader(s[2], s[4], s[5], s[6], s[7], s[8])
      [] s[1] = "ControllerShrinkIsr" -> IsControllerShrinkIsr(s[2], s[4], s[5], s[6], s[7])
      [] s[1] = "LeaderChangeIsr"     -> IsLeaderChangeIsr(s[4], s[5], s[6], s[7])
      [] s[1] = "ReassignmentStep"    -> IsReassignmentStep(s[2], s[4], s[5]) \/ IsLateLastStep(s[2], s[4], s[5])
      [] s[1] = "BecomeLeader"        -> IsBecomeLeader(s[2], s)
      [] s[1] = "BecomeFollower"      -> IsBecomeFollower(s[2], s)
      [] s[1] = "Crash"               -> IsCrash(s[2])
      [] s[1] = "Restart"             -> IsRestart(s[2])

TraceStep == line <= Length /\ Logged(line)[2] \in Brokers /\ line' = line + 1 /\ Explained(Logged(line))

\* The partition as it was created; no broker has learned of it.
TraceInit ==
    /\ Init!1 /\ Init!2 /\ Init!3 /\ Init!4 /\ Init!5 /\ Init!6 /\ Init!7
    /\ role = [b \in Brokers |-> NoRole]
    /\ replica = [b \in Brokers |-> "none"]
    /\ claims = {} /\ elected = {<<0, Preferred>>}
    /\ line = 1 /\ TLCSet(1, 0)
    /\ written = << [state |-> partition, controllerEpoch |-> 0] >>

TraceSpec == TraceInit /\ [][TraceStep \/ (line <= Length /\ (Read \/ Arrive))]_<<vars, line, written>>

Milestone == line > Length \/ (line > 1 /\ Logged(line - 1)[1] = "BecomeLeader")
Promises ==
    [OneControllerPerEpoch |-> OneControllerPerEpoch,
     OneLeaderPerEpoch     |-> OneLeaderPerEpoch,
     BrokersAgree          |-> BrokersAgree,
     BrokersNotAhead       |-> BrokersNotAhead]

\* Checked as an invariant, and after the last line: what the theorems of the module promise.
PromisesKept == Milestone => \A promise \in DOMAIN Promises : Promises[promise] \/ (PrintT(<<"BROKEN", line - 1, promise>>) /\ FALSE)

\* Checked as an invariant: prints each line that is reached for the first time, and ends the run after the last one:
\* then the trace is accepted.
Reached ==
    line > TLCGet(1) =>
        /\ TLCSet(1, line) /\ PrintT(<<"REACHED", line>>)
        /\ line > Length => PrintT("TRACE_ACCEPTED") /\ TLCSet("exit", TRUE)

\* Prints the state before ShownLine, to find out why a line was rejected.
Show ==
    line = ShownLine =>
        /\ PrintT(<<"SHOWN", "store", [controllerEpoch |-> election.epoch, controller |-> election.node,
                                       leader |-> partition.leader, leaderEpoch |-> partition.leaderEpoch,
                                       isr |-> partition.isr, partitionEpoch |-> partition.version]>>)
        /\ \A b \in Brokers :
              PrintT(<<"SHOWN", b, [up |-> b \in live, leader |-> role[b].leader, leaderEpoch |-> role[b].leaderEpoch,
                                    controllerEpoch |-> role[b].controllerEpoch,
                                    isController |-> controller[b].active, reassignmentStep |-> controller[b].step]>>)
=============================================================================
