"""Probes of offsets with an open transaction: their expiry, and which of several commits is valid in the end."""

from functools import partial
from typing import Final

from highwater.fuzz.simulator.probes.client.members import Group
from highwater.fuzz.simulator.probes.client.session import E, Session
from highwater.fuzz.simulator.probes.client.transactional import Transactional
from highwater.fuzz.simulator.probes.fields.listings import fields
from highwater.fuzz.simulator.probes.fields.offsets import commit_for
from highwater.fuzz.simulator.probes.offsets import committed, committed_ok
from highwater.fuzz.simulator.probes.restarts import after_restart

Key = tuple[str, int]
KEPT_MS: Final = 700
EXPIRED_MS: Final = KEPT_MS + 700
"""After so long an expired offset has been removed."""
SOON_MS: Final = 2_500
NONE_YET: Final = -1
ORDERS: Final = ("p", "t", "pt", "tp", "ptp", "tpt", "tpp", "ttp", "ptt")
"""Commits of one partition in turn: `p` is a plain one, `t` one of the open transaction."""


# -- expiry ------------------------------------------------------------------------------------------------------------


@fields("OFF-19", "OFF-20", "OFF-11", "OFF-16", "TXN-10")
async def expiry_beside_transactions(session: Session) -> None:
    """An offset does not expire while an open transaction has one for its partition; then the outcome counts."""
    topic = await session.create_topic("beside", 4)
    group = await Group.found(session)
    keys = [(topic, number) for number in range(4)]
    producers = [await Transactional(session, f"t{n}", v2=bool(n)).begin() for n in range(2)]
    await commit_for(group, dict.fromkeys(keys[:3], 3), KEPT_MS)
    committing, aborting, plain, new = keys
    commits = bool(session.draw(2))
    await producers[0].committed_offsets(group, {committing: 9, new: 9})
    await producers[1].committed_offsets(group, {aborting: 8})
    await session.sleep(EXPIRED_MS)
    expected = {committing: (3, 0), aborting: (3, 0), plain: (NONE_YET, 0), new: (NONE_YET, 0)}
    session.equal(await committed(group, keys), expected, "the offsets after their retention, with open transactions")
    unstable = (NONE_YET, int(E.UNSTABLE_OFFSET_COMMIT))
    expected = {committing: unstable, aborting: unstable, plain: (NONE_YET, 0), new: unstable}
    session.equal(await committed(group, keys, stable=True), expected, "the stable offsets after their retention")
    await producers[0].ended(commit=commits)
    outcome = (9 if commits else NONE_YET, 0)
    expected = {committing: outcome, aborting: unstable, plain: (NONE_YET, 0), new: outcome}
    found = partial(committed, group, keys, stable=True)
    await session.until(found, expected, f"the offsets after a transaction with commit={commits}", SOON_MS)
    await producers[1].ended(commit=not commits)
    expected[aborting] = (NONE_YET if commits else 8, 0)
    await session.until(found, expected, "the offsets after both transactions", SOON_MS)
    await session.sleep(EXPIRED_MS)
    session.equal(await found(), expected, "the offsets of transactions, which have no retention of their own")


# -- the order of commits ----------------------------------------------------------------------------------------------


class CommitOrder:
    """A model of the offset of one partition: the commit that is later in the log is valid (KIP-98)."""

    def __init__(self, producer: Transactional) -> None:
        self.producer = producer
        self.plain = self.pending = NONE_YET
        self.is_pending_later = False

    def commit(self, kind: str, offset: int) -> None:
        """Note a commit, plain or of the transaction."""
        if kind == "p":
            self.plain, self.is_pending_later = offset, False
        else:
            self.pending, self.is_pending_later = offset, True

    def ended(self, *, commit: bool) -> int:
        """Return the offset after the end of the transaction."""
        return self.pending if commit and self.is_pending_later else self.plain


@after_restart("OFF-7", "OFF-11", "OFF-14", "OFF-16", "TXN-10")
async def kept_order_of_commits(session: Session) -> None:
    """Which of a plain commit and one of a transaction is later is the same after a restart of the coordinator."""
    topic = await session.create_topic("order", len(ORDERS) * 2)
    group = await Group.found(session)
    producers = [await Transactional(session, f"o{n}", v2=n == 1).begin() for n in range(2)]
    models = {(topic, n): CommitOrder(producers[n % 2]) for n in range(len(ORDERS) * 2)}
    for step in range(max(map(len, ORDERS))):
        for key, model in models.items():
            order = ORDERS[key[1] // 2]
            if step < len(order):
                offset = 10 * (step + 1) + key[1]
                model.commit(order[step], offset)
                if order[step] == "p":
                    await committed_ok(group, {key: offset})
                else:
                    await model.producer.committed_offsets(group, {key: offset})
    await session.rolling_restart()
    await group.find()
    plain = {key: (model.plain, 0) for key, model in models.items()}
    session.equal(await committed(group, models), plain, "the offsets with open transactions after a restart")
    outcomes = dict(zip(producers, (session.one_of((True, True), (True, False), (False, True))), strict=True))
    for producer, commits in outcomes.items():
        await producer.ended(commit=commits)
    expected = {key: (model.ended(commit=outcomes[model.producer]), 0) for key, model in models.items()}
    found = partial(committed, group, models, stable=True)
    what = f"the offsets after {ORDERS}, each in a transaction with commit={[*outcomes.values()]}"
    await session.until(found, expected, what, SOON_MS)
