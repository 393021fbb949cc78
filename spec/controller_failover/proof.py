"""Controller failover, for any number of controllers, brokers, partitions and epochs.

A controller that was replaced notices it only by a rejected write; until then it elects leaders and sends requests.
LeaderAndIsr requests may be late, lost, duplicated and out of order.

The invariant uses history variables: `leader_in[p, e]` is the leader of p in leader epoch e according to the store,
`claimant_of[e]` the controller that claimed controller epoch e.  Store, caches, requests and brokers agree with them at
the epoch that they know, and none is ahead of the store.  So two brokers that lead in one epoch are the same broker.
"""

from typing import Final

from highwater.spec.proofs.language import (
    Action,
    And,
    Claim,
    Drop,
    Finite,
    Formula,
    If,
    Implies,
    Message,
    Not,
    Number,
    Or,
    Protocol,
    Sort,
    State,
    Step,
    Term,
    in_turn,
    relation,
    step,
    table,
    value,
)

CONTROLLER: Final = Sort("Controller")
BROKER: Final = Sort("Broker")
PARTITION: Final = Sort("Partition")
EPOCH: Final = Number("ControllerEpoch")
LEADER_EPOCH: Final = Number("LeaderEpoch")
VERSION: Final = Number("PartitionEpoch")
LIFE: Final = Number("BrokerEpoch")

LEADER_AND_ISR: Final = Message(
    "request",
    {
        "partition": value(PARTITION),
        "controller_epoch": value(EPOCH),
        "leader": value(BROKER),
        "leader_epoch": value(LEADER_EPOCH),
        "isr": relation(BROKER),
        "partition_epoch": value(VERSION),
        "broker_epoch": table(BROKER, to=LIFE),  # of each receiver, as the controller knows it
    },
)

VARIABLES: Final = {
    # The store.
    "controller_epoch": value(EPOCH),
    "leader": table(PARTITION, to=BROKER),
    "leader_epoch": table(PARTITION, to=LEADER_EPOCH),
    "isr": relation(PARTITION, BROKER),
    "partition_epoch": table(PARTITION, to=VERSION),
    # A controller: the epoch that it read as a candidate, the epoch that it claimed, its cache of partition states.
    "candidate": relation(CONTROLLER),
    "read_epoch": table(CONTROLLER, to=EPOCH),
    "active": relation(CONTROLLER),
    "claimed_epoch": table(CONTROLLER, to=EPOCH),
    "loaded": relation(CONTROLLER, PARTITION),
    "cached_leader": table(CONTROLLER, PARTITION, to=BROKER),
    "cached_leader_epoch": table(CONTROLLER, PARTITION, to=LEADER_EPOCH),
    "cached_isr": relation(CONTROLLER, PARTITION, BROKER),
    "cached_partition_epoch": table(CONTROLLER, PARTITION, to=VERSION),
    # A broker: its number of registrations, and the content of the last request that it applied.
    "broker_epoch": table(BROKER, to=LIFE),
    "known_controller_epoch": table(BROKER, to=EPOCH),
    "known_leader": table(BROKER, PARTITION, to=BROKER),
    "known_leader_epoch": table(BROKER, PARTITION, to=LEADER_EPOCH),
    "known_isr": relation(BROKER, PARTITION, BROKER),
    "known_partition_epoch": table(BROKER, PARTITION, to=VERSION),
    # History: the last claimant, the claimant of each controller epoch, the leader of each leader epoch, and the
    # controller that last wrote a partition.
    "claimant": value(CONTROLLER),
    "claimant_of": table(EPOCH, to=CONTROLLER),
    "leader_in": table(PARTITION, LEADER_EPOCH, to=BROKER),
    "writer": table(PARTITION, to=CONTROLLER),
    **LEADER_AND_ISR.variables,
}

UNKNOWN: Final = -1  # before a broker has received a request for a partition


def init(s: State) -> Term:
    """Initial states: any leader or none; a broker knows nothing, or this state."""

    def knows(b: Term, p: Term) -> Term:
        agrees = And(s.known_leader[b, p] == s.leader[p], s.all(lambda k: s.known_isr[b, p, k] == s.isr[p, k]))
        return And(s.known_leader_epoch[b, p] == 0, s.known_partition_epoch[b, p] == 0, agrees)

    return And(
        s.controller_epoch == 0,
        s.claimant == s.no_controller,
        s.all(lambda c: And(Not(s.active[c]), Not(s.candidate[c]), s.claimed_epoch[c] == 0, s.read_epoch[c] == 0)),
        s.all(lambda c, p: Not(s.loaded[c, p])),
        s.all(lambda p: And(s.leader_epoch[p] == 0, s.partition_epoch[p] == 0)),
        s.all(lambda p: And(s.leader_in[p, 0] == s.leader[p], s.writer[p] == s.no_controller)),
        s.all(lambda m: Not(s.request_sent[m])),
        s.all(lambda b: And(s.broker_epoch[b] == 0, s.known_controller_epoch[b] == 0)),
        s.all(
            lambda b, p: Or(
                And(s.known_leader_epoch[b, p] == UNKNOWN, s.known_leader[b, p] == s.no_broker), knows(b, p)
            )
        ),
    )


def read_epoch(s: State, c: Term) -> Step:
    """A candidate reads the controller epoch."""
    return step(
        c != s.no_controller, candidate=s.candidate.but(c, True), read_epoch=s.read_epoch.but(c, s.controller_epoch)
    )


def claim(s: State, c: Term) -> Step:
    """A candidate claims the next controller epoch, and starts with an empty cache."""
    epoch = s.read_epoch[c] + 1
    return step(
        s.candidate[c],
        s.guard("ClaimCas", s.read_epoch[c] == s.controller_epoch),
        controller_epoch=epoch,
        candidate=s.candidate.but(c, False),
        active=s.active.but(c, True),
        claimed_epoch=s.claimed_epoch.but(c, epoch),
        loaded=s.loaded.but(c, lambda p: False),
        claimant=c,
        claimant_of=s.claimant_of.but(epoch, c),
    )


def load(s: State, c: Term, p: Term) -> Step:
    """A controller reads the state of a partition, also after a rejected write."""
    return step(
        s.active[c],
        loaded=s.loaded.but((c, p), True),
        cached_leader=s.cached_leader.but((c, p), s.leader[p]),
        cached_leader_epoch=s.cached_leader_epoch.but((c, p), s.leader_epoch[p]),
        cached_isr=s.cached_isr.but((c, p), lambda b: s.isr[p, b]),
        cached_partition_epoch=s.cached_partition_epoch.but((c, p), s.partition_epoch[p]),
    )


def store_accepts(s: State, c: Term, p: Term) -> Term:
    """True if the store accepts a write of controller c to partition p."""
    return And(
        s.guard("ControllerEpochCas", s.claimed_epoch[c] == s.controller_epoch),
        s.guard("VersionCas", s.cached_partition_epoch[c, p] == s.partition_epoch[p]),
    )


def write_partition(s: State, c: Term, p: Term, leader: Term, isr: Formula) -> dict[str, Term]:
    """Return the updates of a write: the store, the cache of the writer, and history."""
    epoch, version = next_leader_epoch(s, c, p), s.partition_epoch[p] + 1
    return {
        "leader": s.leader.but(p, leader),
        "leader_epoch": s.leader_epoch.but(p, epoch),
        "isr": s.isr.but(p, isr),
        "partition_epoch": s.partition_epoch.but(p, version),
        "cached_leader": s.cached_leader.but((c, p), leader),
        "cached_leader_epoch": s.cached_leader_epoch.but((c, p), epoch),
        "cached_isr": s.cached_isr.but((c, p), isr),
        "cached_partition_epoch": s.cached_partition_epoch.but((c, p), version),
        "leader_in": s.leader_in.but((p, epoch), leader),
        "writer": s.writer.but(p, c),
    }


def next_leader_epoch(s: State, c: Term, p: Term) -> Term:
    """Return the leader epoch of the next election by controller c."""
    return s.cached_leader_epoch[c, p] + 1 if s.on("BumpLeaderEpoch") else s.cached_leader_epoch[c, p]


def elect(s: State, c: Term, p: Term, b: Term, k: Term) -> Step:
    """A controller elects b from the ISR, or no broker, writes it to the store, and may remove k from the ISR."""
    return step(
        And(s.active[c], s.loaded[c, p], store_accepts(s, c, p)),
        Or(b == s.no_broker, s.cached_isr[c, p, b]),
        **write_partition(s, c, p, b, lambda x: And(s.cached_isr[c, p, x], Or(x == b, x != k))),
    )


def shrink_isr(s: State, c: Term, p: Term, b: Term) -> Step:
    """A controller removes a dead broker from the ISR and from leadership, and writes that to the store."""
    leader = If(s.cached_leader[c, p] == b, s.no_broker, s.cached_leader[c, p])
    return step(
        And(s.active[c], s.loaded[c, p], store_accepts(s, c, p)),
        And(b != s.no_broker, s.cached_isr[c, p, b]),
        **write_partition(s, c, p, leader, lambda k: And(k != b, s.cached_isr[c, p, k])),
    )


def resign(s: State, c: Term, p: Term) -> Step:
    """A controller whose write would be rejected resigns, at any later time."""
    fresh = And(s.claimed_epoch[c] == s.controller_epoch, s.cached_partition_epoch[c, p] == s.partition_epoch[p])
    return step(
        And(s.active[c], s.loaded[c, p], Not(fresh)),
        active=s.active.but(c, False),
        loaded=s.loaded.but(c, lambda q: False),
    )


def send_leader_and_isr(
    s: State, c: Term, p: Term, m: Term, leader: Term, epoch: Term, version: Term
) -> dict[str, Term]:
    """Return the updates that send a LeaderAndIsr request."""
    return s.send(
        LEADER_AND_ISR,
        m,
        partition=p,
        controller_epoch=s.claimed_epoch[c],
        leader=leader,
        leader_epoch=epoch,
        isr=lambda b: s.cached_isr[c, p, b],
        partition_epoch=version,
        broker_epoch=lambda b: s.broker_epoch[b],
    )


def send(s: State, c: Term, p: Term, m: Term) -> Step:
    """A controller sends the state that it has written, any number of times."""
    leader, epoch = s.cached_leader[c, p], s.cached_leader_epoch[c, p]
    return step(
        And(s.active[c], s.loaded[c, p], Not(s.request_sent[m])),
        **send_leader_and_isr(s, c, p, m, leader, epoch, s.cached_partition_epoch[c, p]),
    )


def load_and_send(s: State, c: Term, p: Term, m: Term) -> Step:
    """A controller sends a state as soon as it has read it."""
    return in_turn(s, load(s, c, p), lambda t: send(t, c, p, m))


def elect_and_send(s: State, c: Term, p: Term, b: Term, k: Term, m: Term) -> Step:
    """A controller sends its decision as soon as the store has accepted it."""
    return in_turn(s, elect(s, c, p, b, k), lambda t: send(t, c, p, m))


def send_first(s: State, c: Term, p: Term, b: Term, m: Term) -> Step:
    """A controller sends a state that it has not written yet."""
    return step(
        And(s.active[c], s.loaded[c, p], Not(s.request_sent[m]), s.cached_isr[c, p, b]),
        **send_leader_and_isr(s, c, p, m, b, next_leader_epoch(s, c, p), s.cached_partition_epoch[c, p] + 1),
    )


def leader_change_isr(s: State, b: Term, p: Term, k: Term) -> Step:
    """A leader adds or removes an ISR member, and writes leader and epoch from its own memory to the store."""
    version = s.partition_epoch[p] + 1

    def isr(x: Term) -> Term:
        return If(x == k, Not(s.known_isr[b, p, k]), s.known_isr[b, p, x])

    return step(
        And(b != s.no_broker, k != s.no_broker, k != b, s.known_leader[b, p] == b, s.known_leader_epoch[b, p] >= 0),
        s.guard("IsrCas", s.known_partition_epoch[b, p] == s.partition_epoch[p]),
        leader=s.leader.but(p, b),
        leader_epoch=s.leader_epoch.but(p, s.known_leader_epoch[b, p]),
        isr=s.isr.but(p, isr),
        partition_epoch=s.partition_epoch.but(p, version),
        known_isr=s.known_isr.but((b, p), isr),
        known_partition_epoch=s.known_partition_epoch.but((b, p), version),
        writer=s.writer.but(p, s.no_controller),
    )


def follow(s: State, b: Term, m: Term) -> Step:
    """A broker applies a LeaderAndIsr request."""
    p = s.request_partition[m]
    return step(
        And(s.request_sent[m], b != s.no_broker),
        s.guard("FenceStaleController", s.request_controller_epoch[m] >= s.known_controller_epoch[b]),
        s.guard("FenceStaleLeaderAndIsr", s.request_leader_epoch[m] > s.known_leader_epoch[b, p]),
        s.guard("FenceOldBrokerEpoch", s.request_broker_epoch[m, b] >= s.broker_epoch[b]),
        known_controller_epoch=s.known_controller_epoch.but(b, s.request_controller_epoch[m]),
        known_leader=s.known_leader.but((b, p), s.request_leader[m]),
        known_leader_epoch=s.known_leader_epoch.but((b, p), s.request_leader_epoch[m]),
        known_isr=s.known_isr.but((b, p), lambda k: s.request_isr[m, k]),
        known_partition_epoch=s.known_partition_epoch.but((b, p), s.request_partition_epoch[m]),
    )


def restart(s: State, b: Term) -> Step:
    """A broker restarts: it loses its state and registers again."""
    return step(
        b != s.no_broker,
        broker_epoch=s.broker_epoch.but(b, s.broker_epoch[b] + 1),
        known_controller_epoch=s.known_controller_epoch.but(b, 0),
        known_leader=s.known_leader.but(b, lambda p: s.no_broker),
        known_leader_epoch=s.known_leader_epoch.but(b, lambda p: UNKNOWN),
    )


def leads(s: State, b: Term, p: Term) -> Term:
    """True if broker b believes to be the leader of p."""
    return And(b != s.no_broker, s.known_leader[b, p] == b, s.known_leader_epoch[b, p] >= 0)


INVARIANT: Final = (
    Claim(
        "OneLeaderPerEpoch",
        "Brokers that believe to be the leader of a partition in the same leader epoch are one broker.",
        lambda s, a, b, p: Implies(
            And(leads(s, a, p), leads(s, b, p), s.known_leader_epoch[a, p] == s.known_leader_epoch[b, p]), a == b
        ),
    ),
    Claim(
        "BrokersNotAhead",
        "No broker knows an epoch that the store has not reached.",
        lambda s, b, p: And(
            s.known_leader_epoch[b, p] <= s.leader_epoch[p], s.known_controller_epoch[b] <= s.controller_epoch
        ),
    ),
    Claim(
        "BrokersAgree",
        "A broker that knows the current leader epoch knows the current leader.",
        lambda s, b, p: Implies(
            And(s.known_leader_epoch[b, p] >= 0, s.known_leader_epoch[b, p] == s.leader_epoch[p]),
            s.known_leader[b, p] == s.leader[p],
        ),
    ),
    Claim(
        "StoreIsHistory",
        "The leader in the store is that of its leader epoch in history.",
        lambda s, p: And(s.leader_epoch[p] >= 0, s.leader_in[p, s.leader_epoch[p]] == s.leader[p]),
    ),
    Claim(
        "CachesAreHistory",
        "A state that a controller has loaded was in the store, at that leader epoch and partition epoch.",
        lambda s, c, p: Implies(
            s.loaded[c, p],
            And(
                And(s.cached_leader_epoch[c, p] >= 0, s.cached_leader_epoch[c, p] <= s.leader_epoch[p]),
                s.cached_partition_epoch[c, p] <= s.partition_epoch[p],
                s.leader_in[p, s.cached_leader_epoch[c, p]] == s.cached_leader[c, p],
            ),
        ),
    ),
    Claim(
        "CurrentCaches",
        "A cache with the current partition epoch has the current leader and leader epoch.",
        lambda s, c, p: Implies(
            And(s.loaded[c, p], s.cached_partition_epoch[c, p] == s.partition_epoch[p]),
            And(s.cached_leader_epoch[c, p] == s.leader_epoch[p], s.cached_leader[c, p] == s.leader[p]),
        ),
    ),
    Claim(
        "RequestsAreHistory",
        "The state in a request was in the store, at that leader epoch and partition epoch.",
        lambda s, m: Implies(
            s.request_sent[m],
            And(
                s.request_leader_epoch[m] >= 0,
                s.request_leader_epoch[m] <= s.leader_epoch[s.request_partition[m]],
                s.request_partition_epoch[m] <= s.partition_epoch[s.request_partition[m]],
                s.leader_in[s.request_partition[m], s.request_leader_epoch[m]] == s.request_leader[m],
                s.request_controller_epoch[m] <= s.controller_epoch,
            ),
        ),
    ),
    Claim(
        "CurrentRequests",
        "A request with the current partition epoch has the current leader epoch.",
        lambda s, m: Implies(
            And(s.request_sent[m], s.request_partition_epoch[m] == s.partition_epoch[s.request_partition[m]]),
            s.request_leader_epoch[m] == s.leader_epoch[s.request_partition[m]],
        ),
    ),
    Claim(
        "BrokersAreHistory",
        "The state that a broker knows was in the store, at that leader epoch and partition epoch.",
        lambda s, b, p: Implies(
            s.known_leader_epoch[b, p] >= 0,
            And(
                s.known_partition_epoch[b, p] <= s.partition_epoch[p],
                s.leader_in[p, s.known_leader_epoch[b, p]] == s.known_leader[b, p],
            ),
        ),
    ),
    Claim(
        "CurrentBrokers",
        "A broker that knows the current partition epoch knows the current leader epoch.",
        lambda s, b, p: Implies(
            And(s.known_leader_epoch[b, p] >= 0, s.known_partition_epoch[b, p] == s.partition_epoch[p]),
            s.known_leader_epoch[b, p] == s.leader_epoch[p],
        ),
    ),
    Claim(
        "OneClaimant",
        "A controller with a claimed epoch is the claimant of that epoch, and no controller is ahead of the store.",
        lambda s, c: And(
            And(s.claimed_epoch[c] >= 0, s.claimed_epoch[c] <= s.controller_epoch),
            s.read_epoch[c] <= s.controller_epoch,
            Implies(s.active[c], s.claimed_epoch[c] >= 1),
            Implies(s.claimed_epoch[c] >= 1, s.claimant_of[s.claimed_epoch[c]] == c),
        ),
    ),
    Claim(
        "LastClaimant",
        "The last claimant has the controller epoch of the store.",
        lambda s: Implies(s.controller_epoch >= 1, s.claimant_of[s.controller_epoch] == s.claimant),
    ),
    Claim(
        "LoadedAfterClaim",
        "Only a controller that has claimed an epoch loads partition states.",
        lambda s, c, p: Implies(s.loaded[c, p], s.claimed_epoch[c] >= 1),
    ),
)

STEPS: Final = (
    Claim(
        "StaleWritesRefused",
        "A controller that changes a partition in the store is the last claimant.",
        lambda s, t, p: Or(
            t.partition_epoch[p] == s.partition_epoch[p], t.writer[p] == s.no_controller, t.writer[p] == s.claimant
        ),
    ),
    Claim(
        "BrokersNeverGoBack",
        "The leader epoch that a broker knows never decreases between its restarts.",
        lambda s, t, b, p: Implies(
            t.broker_epoch[b] == s.broker_epoch[b], t.known_leader_epoch[b, p] >= s.known_leader_epoch[b, p]
        ),
    ),
)

CURRENT_CONTROLLER: Final = Claim(
    "CurrentController",
    "The cache of the controller with the current controller epoch has the current leaders and leader epochs.",
    lambda s, c, p: Implies(
        And(s.loaded[c, p], s.claimed_epoch[c] == s.controller_epoch),
        And(s.cached_leader_epoch[c, p] == s.leader_epoch[p], s.cached_leader[c, p] == s.leader[p]),
    ),
)

DROPS: Final = (
    Drop("ClaimCas", breaks="StaleWritesRefused", steps=6),
    Drop("ControllerEpochCas", breaks="StaleWritesRefused", steps=6),
    Drop(
        "VersionCas",
        redundant="Only the last claimant may write, and leaders keep the leader epoch, so its cache is current.",
        more=(CURRENT_CONTROLLER,),
    ),
    Drop("PersistBeforeSend", breaks="OneLeaderPerEpoch", steps=7),
    Drop("BumpLeaderEpoch", breaks="OneLeaderPerEpoch", steps=5),
    Drop("IsrCas", breaks="BrokersNotAhead", steps=6),
    Drop("FenceStaleLeaderAndIsr", breaks="BrokersNeverGoBack", steps=6),
    Drop("FenceStaleController", redundant="Leader epochs order all requests about a partition."),
    Drop(
        "FenceOldBrokerEpoch",
        redundant="A request for an earlier registration has a state that was in the store, so applying it is safe.",
    ),
)

PROTOCOL: Final = Protocol(
    name="controller_failover",
    variables=VARIABLES,
    constants={"no_broker": BROKER, "no_controller": CONTROLLER},
    messages=(LEADER_AND_ISR,),
    ghosts=("claimant", "claimant_of", "leader_in", "writer"),
    parameter_sorts={
        "c": CONTROLLER,
        "p": PARTITION,
        "m": LEADER_AND_ISR,
        **dict.fromkeys("abk", BROKER),
    },
    init=init,
    actions=tuple(
        Action(run, without=without)
        for run, without in (
            *((run, "") for run in (read_epoch, claim, load, elect, shrink_isr, resign, send)),
            *((run, "") for run in (load_and_send, elect_and_send)),
            (send_first, "PersistBeforeSend"),
            *((run, "") for run in (leader_change_isr, follow, restart)),
        )
    ),
    invariant=INVARIANT,
    steps=STEPS,
    promises=("OneLeaderPerEpoch", "BrokersNotAhead", "BrokersAgree", "StaleWritesRefused", "BrokersNeverGoBack"),
    small=Finite(
        sizes={CONTROLLER: 3, BROKER: 3, PARTITION: 1, LEADER_AND_ISR: 2},
        numbers={EPOCH: range(4), LEADER_EPOCH: range(-1, 4), VERSION: range(4), LIFE: range(4)},
    ),
    tiny=Finite(
        sizes={CONTROLLER: 3, BROKER: 3, PARTITION: 1, LEADER_AND_ISR: 1},
        numbers={EPOCH: range(2), LEADER_EPOCH: range(-1, 2), VERSION: range(3), LIFE: range(2)},
    ),
    start={"isr": lambda p, b: b > 0, "known_leader_epoch": UNKNOWN},
    drops=DROPS,
)
